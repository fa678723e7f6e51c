"""Evaluate: the structured debate that fills a scoring tensor.

`protocol.py` runs the rounds, `turn.py` is one agent's turn, `deciding.py` reads scores out of a
model, `tensor.py` is the arithmetic, `result.py` what comes out. Not here: where answers are kept,
how many debates run at once, and anything that draws.
"""
