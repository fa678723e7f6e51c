"""The table of docs/local-models.md, made from the catalogue.

    PYTHONPATH=tests .venv/bin/python tests/chat_tables.py     prints it

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


if __name__ == "__main__":
    print("\n".join(format_rows()))
