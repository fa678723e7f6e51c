"""Chains: functions of values to values, made of steps that ask models, run code, branch, map and
run side by side.

`chain.py` has the chain and its checks, `steps.py` the steps, `running.py` what runs them,
`chain_file.py` reads one from YAML. Opening models for a chain is the business of `wiring` and of
`textevolve.api.chains`.
"""
