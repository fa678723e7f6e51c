"""Loops that make text better by a judge's measure: generate, judge, revise, keep the best.

`optimization.py` improves one answer, `innovation.py` its input, `calibration.py` a prompt template
over many inputs; `guidance.py` puts a debate's reasoning into an answer's prompt, and
`profile_writing.py` writes a profile. `rules.py` judges without a model. A loop takes any
`Evaluator` and never knows how it judges; no debate, store or display is imported here.
"""
