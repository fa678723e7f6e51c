"""Labelling by people: the questions, the order in which each person sees texts, and the agreement
of people.

The package reads no files, stores or pages; `store` stores tasks and labels, and `studies` provides
the items.
"""
