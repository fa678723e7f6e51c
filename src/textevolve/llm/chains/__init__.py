"""Chains: functions of values to values, made of steps that ask models, run code, branch, map and
run side by side.

`steps.py` has the steps and how each runs, `chain.py` the chain and its checks, `chain_file.py`
reads one from YAML. Opening models for a chain is the business of `wiring` and of
`textevolve.api.opened`.
"""
