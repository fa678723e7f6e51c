"""Measures judges on items that people have labelled: how often a judge agrees with people, with
intervals and tests.

`items.py` reads the labelled items, `verdicts.py` calls judges on them, and `credit.py` compares a
verdict with a label; `agreement.py`, `escalation.py`, `fitting.py`, `rates.py` and `card.py`
compute figures.
"""
