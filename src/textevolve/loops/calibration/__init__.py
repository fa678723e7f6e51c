"""Calibrating a prompt template on rows of values for it: prompt optimisation.

A strategy grows a tree of templates, by hill climbing or by beam search; rows held out
from the search decide whether one of them is taken over the original, and only if its gain is
significant; a second judge, if there is one, is asked on those alone.
"""
