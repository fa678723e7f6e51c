"""Measure memory systems: what they store, invent, update, and answer from their memories.

After HaluMem (arXiv 2511.03506). The package has the data, the systems, the judgements and the
metrics; higher layers have runs, commands and pages.
"""
