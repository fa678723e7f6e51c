"""What a memory system is measured on: users, their sessions, and what should be remembered.

Types only; files are read in `dataset.py` and made in `synthesis.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textevolve.memory.record import DialogueTurn

MemoryType = Literal["event", "persona", "relationship"]
MemorySource = Literal["primary", "secondary", "interference", "system"]


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Something that a session gives to remember, or, from `interference`, must not be kept.

    `originals`: what an update replaces. `importance` in [0, 1]. `returned`: what a recorded system
    had found for an update; None where nothing is recorded.
    """

    index: int
    content: str
    type: MemoryType
    source: MemorySource
    importance: float
    is_update: bool = False
    originals: tuple[str, ...] = ()
    timestamp: str = ""
    returned: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """Asked after its session. `evidence`: the memory contents that the answer follows from.
    `recorded_answer`: a recorded system's; None where nothing is recorded."""

    question: str
    answer: str
    evidence: tuple[str, ...] = ()
    difficulty: str = ""
    type: str = ""
    recorded_answer: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One dialogue. `is_generated_qa`: it is fed to the system, but nothing of it is scored.

    `extracted`: what a recorded system took from it; None where nothing is recorded. Seconds are
    those of a recorded system, None where unknown.
    """

    index: int
    dialogue: tuple[DialogueTurn, ...]
    points: tuple[MemoryPoint, ...] = ()
    questions: tuple[MemoryQuestion, ...] = ()
    start: str = ""
    end: str = ""
    is_generated_qa: bool = False
    extracted: tuple[str, ...] | None = None
    add_seconds: float | None = None
    search_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class User:
    """One line of a data set; `line` is its number from 1, `sha256` the hash of its text. `mended`:
    it had half a surrogate pair, which was replaced."""

    id: str
    sessions: tuple[Session, ...]
    persona: str = ""
    line: int = 0
    sha256: str = ""
    mended: bool = False
