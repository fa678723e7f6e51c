"""The instruction types under ArbiterOS's names: the families end in `Core`."""

from __future__ import annotations

from textevolve.node_eval.instructions import *  # noqa: F403
from textevolve.node_eval.instructions import Instruction

InstructionType = Instruction
