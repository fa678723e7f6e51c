"""Judges other than the debate. Each is an `Evaluator` that asks models short questions and
computes scores from the log-probabilities of the answers, or calls no model at all.

`probe.py` asks yes / no questions about one candidate at a time (`Probe`, and `Checklist` with
criteria written for the input). `pairwise.py` asks in both orders which of two candidates is
better, and computes scores from the comparisons. `decide.py` asks typed questions in one request.
`cascade.py` and `fitted.py` combine judges. `context.py` has their shared parts. A debate, a jury
and a single judge that states scores are profiles of `textevolve.debate`; `textevolve.bench`
measures judges.
"""
