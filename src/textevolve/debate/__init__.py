"""Evaluate candidates by a structured debate of agents, whose scores fill a tensor.

`protocol.py` runs the rounds, `turn.py` one agent's turn, `deciding.py` obtains scores from a
model's answers, `tensor.py` computes with them, and `result.py` has the result. Not here: the
storage of answers, the concurrency of debates, and displays.
"""
