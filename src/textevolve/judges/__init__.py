"""Judges other than the debate, each an `Evaluator`: they ask little and read it exactly.

`probe.py` asks yes / no questions about one candidate at a time (also by criteria written for the
input: `Checklist`), `pairwise.py` asks which of two is better in both orders, `ranking.py` turns
comparisons into scores, `context.py` is what they share. A debate, a jury and a single judge that
states scores are profiles of `textevolve.debate`; judges are measured in `textevolve.bench`.
"""
