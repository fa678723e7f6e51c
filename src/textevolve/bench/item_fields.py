"""Taking typed fields out of a row of labelled data, with an error that says what is wrong where.

Which fields a set has, and what they mean, is in `items.py`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from textevolve.errors import InputError
from textevolve.rows import Row
from textevolve.texts.chats import read_chat, write_chat
from textevolve.texts.columns import find_roles, join_passages

V = TypeVar("V")

LABELS = ("winner", "label", "scores", "ranking")
FIRST, SECOND, TIE = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)

_NUMBERED = re.compile(r"candidate[_ ]?(\d+)$")


def take_text(row: Row, name: str, where: str) -> str:
    """A field that must be there and be text."""
    value = row.get(name)
    if value is None:
        raise InputError(f"{where}: '{name}' is missing")
    return _require_text(value, name, where)


def take_input(row: Row, where: str) -> str:
    """The input, under any of the names that it may have; a chat as text."""
    roles = find_roles(tuple(row))
    named = [name for name in (*roles.inputs, *roles.chats) if row.get(name) is not None]
    if not named:
        return take_text(row, "input", where)
    return _require_text(row[named[0]], named[0], where)


def take_reference(row: Row) -> str | None:
    """The reference answer, under any of its names; None where there is none."""
    values = (row.get(name) for name in find_roles(tuple(row)).references)
    return next((str(value) for value in values if value not in (None, "")), None)


def take_context(row: Row) -> str | None:
    """What answers must keep to, under any of its names; None where there is nothing."""
    values = (row.get(name) for name in find_roles(tuple(row)).contexts)
    return next((text for value in values if (text := join_passages(value))), None)


def take_name(row: Row, name: str, otherwise: str = "") -> str:
    """An id or the like, as text whatever its type; `otherwise` where there is none."""
    value = row.get(name)
    return otherwise if value is None else str(value)


def choose(row: Row, name: str, where: str, choices: Mapping[str, V]) -> V:
    """What the field's value, as text, stands for in `choices`."""
    value = row.get(name)
    if value is None:
        raise InputError(f"{where}: '{name}' is missing")
    found = None if isinstance(value, bool) else choices.get(str(value))
    if found is None:
        *most, last = choices
        raise InputError(
            f"{where}: '{name}' must be {', '.join(most)} or {last}, not {_cut(value)}"
        )
    return found


def take_mapping(row: Row, name: str, where: str) -> Row:
    value = row.get(name)
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: '{name}' must be an object, not {type(value).__name__}")
    return cast(Row, value)


def take_conversation(row: Row, name: str, turn: int, where: str) -> tuple[str, str]:
    """What was asked and what was answered in the first so many turns of a conversation."""
    messages: object = row.get(name)
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise InputError(f"{where}: '{name}' must be a list of messages")
    asked: list[str] = []
    answered: list[str] = []
    for message in cast(Sequence[Any], messages):
        if not isinstance(message, Mapping):
            raise InputError(f"{where}: '{name}' must hold objects with 'role' and 'content'")
        side = choose(cast(Row, message), "role", where, {"user": asked, "assistant": answered})
        side.append(take_text(cast(Row, message), "content", where))
    if min(len(asked), len(answered)) < turn:
        raise InputError(f"{where}: '{name}' has fewer than {turn} turns")
    return _number(asked[:turn]), _number(answered[:turn])


def _number(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[Turn {number}]\n{text}" for number, text in enumerate(texts, 1))


def take_candidates(row: Row, where: str) -> tuple[str, ...]:
    """Two texts or more, from `candidates`, or `candidate_1` and so on, or `a` and `b`, or the
    other names that outputs may have."""
    listed: object = row.get("candidates")
    if listed is None:
        texts = _numbered(row, where) or [row[n] for n in ("a", "b") if row.get(n) is not None]
        named = find_roles(tuple(row)).outputs if not texts else ()
        texts = texts or [row[n] for n in named if row.get(n) is not None]
    elif isinstance(listed, Sequence) and not isinstance(listed, str):
        texts = list(cast(Sequence[Any], listed))
    else:
        raise InputError(f"{where}: 'candidates' must be a list of texts")
    if len(texts) < 2:
        raise InputError(f"{where}: needs two candidates or more, not {len(texts)}")
    return tuple(_require_text(text, "candidates", where) for text in texts)


def _numbered(row: Row, where: str) -> list[Any]:
    found = {int(m[1]): row[k] for k in row if (m := _NUMBERED.match(k)) and row[k] is not None}
    for number in range(1, len(found) + 1):
        if number not in found:
            raise InputError(f"{where}: 'candidate_{number}' is missing")
    return [found[number] for number in sorted(found)]


def names_candidates(fields: Collection[str]) -> bool:
    """Whether any of the ways to give candidates is there."""
    if len(find_roles(tuple(fields)).outputs) > 1:
        return True
    return not {"candidates", "a", "b"}.isdisjoint(fields) or any(map(_NUMBERED.match, fields))


def take_human(row: Row, candidates: int, where: str) -> tuple[float, ...]:
    """A number for each candidate from `winner` (or `label`), `scores` or `ranking`.

    `winner`: a number from 1, a letter from a, or "tie". `ranking`: places, 1 is the best, equal
    ones are ties.
    """
    said = [n for n in LABELS if row.get(n) is not None]
    if len(said) != 1:
        found = " and ".join(f"'{n}'" for n in said) or "none"
        raise InputError(f"{where}: needs one of 'winner', 'scores' and 'ranking'; found {found}")
    if said[0] == "scores":
        return _take_numbers(row, "scores", candidates, where)
    if said[0] == "ranking":
        ranks = _take_numbers(row, "ranking", candidates, where)
        if not all(1 <= rank <= candidates for rank in ranks):
            raise InputError(f"{where}: 'ranking' must hold places from 1 to {candidates}")
        return tuple(-rank for rank in ranks)
    choices = {"tie": (0.5,) * candidates}
    for index in range(candidates):
        won = tuple(float(index == j) for j in range(candidates))
        choices |= dict.fromkeys(_spellings(index), won)
    value = row[said[0]]
    if isinstance(value, bool) or str(value).strip().lower() not in choices:
        raise InputError(
            f"{where}: '{said[0]}' must be a candidate's number from 1 to {candidates}, its letter"
            f" or 'tie', not {_cut(value)}"
        )
    return choices[str(value).strip().lower()]


def _spellings(index: int) -> list[str]:
    letter = [chr(ord("a") + index)] if index < 26 else []
    return [str(index + 1), f"{index + 1}.0", *letter]


def _take_numbers(row: Row, name: str, count: int, where: str) -> tuple[float, ...]:
    value: object = row[name]
    numbers = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else []
    if len(numbers) != count:
        raise InputError(f"{where}: '{name}' must be a list of {count} numbers, one a candidate")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError(f"{where}: '{name}' must hold numbers, not {_cut(number)}")
        if not abs(number) <= sys.float_info.max:  # also of an integer that no float can hold
            raise InputError(f"{where}: '{name}' must hold finite numbers, not {_cut(number)}")
    return tuple(float(number) for number in numbers)


def hash_text(text: str) -> str:
    """Sixteen hexadecimal digits that tell texts apart; white space is all one."""
    plain = " ".join(text.split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def draw_side(key: str) -> bool:
    """A coin for a key: the same wherever and whenever it is thrown."""
    return bool(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[0] & 1)


def _require_text(value: Any, name: str, where: str) -> str:
    """The value, which must be text, or a chat."""
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    if not isinstance(value, str):
        raise InputError(f"{where}: '{name}' must be text, not {type(value).__name__}")
    return value


def _cut(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
