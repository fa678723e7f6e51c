"""The public functions, async and sync: settings read, a model chosen, a store opened, a run done.

`evaluation.py` has `evaluate` and its batch; `optimization.py`, `calibration.py`, `loops.py` have
those that improve text. All are names of `textevolve` itself, loaded when they are first used.
"""
