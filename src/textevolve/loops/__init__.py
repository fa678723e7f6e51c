"""Loops that improve texts by a judge's scores: generate, judge, revise, keep the best.

`optimization.py` improves one answer, `innovation.py` its input, and `calibration/` a prompt
template over many inputs. `rules.py` judges without a model. A loop takes any `Evaluator` without
knowing how it judges; this package imports no debate, store or display.
"""
