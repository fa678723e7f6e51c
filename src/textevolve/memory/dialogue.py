"""What memories are made from: the turns of a dialogue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """What one side said. `timestamp` as the data has it; empty where there is none."""

    role: str
    content: str
    timestamp: str = ""
