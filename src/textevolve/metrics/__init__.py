"""Metrics without a model: an output graded by its row's label, or by itself, in code."""
