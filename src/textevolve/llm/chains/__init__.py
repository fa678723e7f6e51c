"""Chains: functions from named values to named values, made of steps that call models or code.

`steps.py` has the steps and how each runs, `chain.py` the chain and its checks, and `chain_file.py`
reads a chain from YAML. The models of a chain are opened by `wiring` and `textevolve.api.opened`.
"""
