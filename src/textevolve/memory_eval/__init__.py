"""Measure memory systems: which facts they extract, invent and update, and how they answer
questions from their memories.

The benchmark follows HaluMem (arXiv 2511.03506). The package reads the data sets (`dataset.py`),
runs the systems (`system.py`, `system_operations.py`), judges their outcomes (`judging.py`) and
computes the metrics (`metrics.py`). Runs, commands and pages are in higher layers.
"""
