"""The public functions, async and sync. Each reads settings, chooses a model, opens a store and
performs a run.

`verbs.py` has the methods that judge, compare and improve text. The public functions are names of
`textevolve` itself, loaded when they are first used.
"""
