"""The public functions, async and sync: settings read, a model chosen, a store opened, a run done.

`verbs.py` has the methods that judge, compare and improve text. The public ones are names of
`textevolve` itself, loaded when they are first used.
"""
