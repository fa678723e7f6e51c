"""Measuring memory systems: what they keep, invent, update, and answer from what they keep.

After HaluMem (arXiv 2511.03506). Here live the data, the systems, the judgements and the metrics;
keeping a run, the command line and pages live above.
"""
