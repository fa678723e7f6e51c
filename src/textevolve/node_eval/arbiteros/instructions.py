"""The instruction types (what a node does) under ArbiterOS's names: those of the families end in
`Core`."""

from __future__ import annotations

from textevolve.node_eval.history import *  # noqa: F403
from textevolve.node_eval.history import Instruction

InstructionType = Instruction
"""ArbiterOS's name of the type of a node."""
