"""Labelling by people: questions, the order of presentation, and agreement between labellers.

The package reads no files, stores or pages; `store` keeps tasks and labels, and `studies` provides
the items.
"""
