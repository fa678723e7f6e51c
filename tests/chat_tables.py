"""The tables of docs/chat-formats.md, made from the catalogue.

    PYTHONPATH=tests .venv/bin/python tests/chat_tables.py     prints them

Tests hold the page against them.
"""

from __future__ import annotations

from collections.abc import Iterator

from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import ChatFormat

PLACES = {
    "turn": "a turn",
    "prefix": "a prefix without marker",
    "first-user": "inside the first user's turn",
    "last-user": "inside the last user's turn",
}


def _code(text: str) -> str:
    return f"`{text}`".replace("\n", "\\n").replace("|", "\\|") if text else ""


def _system(format: ChatFormat) -> str:
    system = format.system
    if system is None:
        return "none"
    more = ["later ones too" if system.later else "first only" if not system.inside else ""]
    more.append(
        "a default text" if system.default else "always written" if system.default == "" else ""
    )
    told = "; ".join(one for one in more if one)
    return PLACES[system.placement] + (f" ({told})" if told else "")


def _trims(format: ChatFormat) -> str:
    turns = {"user": format.user, "assistant": format.assistant, "system": format.system}
    found = [name for name, turn in turns.items() if turn is not None and turn.trim != "none"]
    return ", ".join(found) or "nothing"


def format_rows() -> Iterator[str]:
    """Of each format: what it is for, and its rules."""
    for format in CHAT_FORMATS.values():
        cells = (
            f"`{format.name}`",
            format.title,
            _system(format),
            "in turns" if format.alternate else "any",
            _trims(format),
        )
        yield f"| {' | '.join(cells)} |"


def marker_rows() -> Iterator[str]:
    """Of each format: what it writes around texts."""
    for format in CHAT_FORMATS.values():
        bos = _code(format.bos) + ("" if format.writes_bos or not format.bos else " (not written)")
        if format.user.before.startswith(format.bos or "\0"):
            bos = f"{_code(format.bos)} (each user's turn)"
        cells = (
            f"`{format.name}`",
            bos,
            f"{_code(format.user.before)} ... {_code(format.user.after)}",
            f"{_code(format.assistant.before)} ... {_code(format.assistant.after)}",
            _code(format.generation),
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for table in (format_rows(), marker_rows()):
        print("\n".join(table), end="\n\n")
