"""Measures judges on items that people have labelled: how often a judge agrees with people, with
intervals and tests.

`items.py` reads the labelled items and compares a verdict with a label, and `verdicts.py` calls
judges on them; `agreement.py`, `ablation.py`, `escalation.py`, `fitting.py`, `rates.py` and
`card.py` compute figures.
"""
