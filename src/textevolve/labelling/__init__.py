"""Labelling by people: the questions, the order in which texts are shown, and agreement.

The package reads no files, stores or pages; `store` keeps tasks and labels, and `studies` provides
the items.
"""
