"""Calibrate a prompt template on rows of values for its placeholders (prompt optimisation).

A strategy grows a tree of templates by hill climbing or beam search. The best template replaces the
original only if its gain is significant on held-out rows, which the search has not used. A second
judge, if there is one, only judges those rows.
"""
