"""Runs that are spread over a Ray cluster of this machine are those that one process makes."""
