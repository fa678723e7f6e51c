"""Labelling over HTTP: tasks, items as those who label see them, labels, and their export.

`answers` is what this API and the pages of labelling share.
"""
