"""Dialogues from outside: files and folders of chats, data sets of the hub, standard input, Python.

A row is a chat (`messages`, `conversation`, `dialogue`, ...) with an id, a date and a user where it
has them; or a user with `sessions`, each a chat, as in HaluMem's data; or a single message, and
then a file is one chat. In the store a dialogue is a case, whose input is its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.memory.record import DialogueTurn
from textevolve.rows import find_files, read_rows
from textevolve.texts.chats import read_chat
from textevolve.texts.columns import CHATS, fold_name

CHAT_COLUMNS = (*CHATS, "dialogue", "dialog", "turns")
TIMES = ("timestamp", "date", "time", "created_at", "create_time", "start_time", "datetime")
USERS = ("user", "user_name", "username")
TURN_FORMS = "role and content, or from and value"

DialogueLike: TypeAlias = Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A list of messages, or an object that holds one under `messages`."""


@dataclass(frozen=True, slots=True)
class GivenDialogue:
    """`user`: whose it is, empty where nothing says so."""

    id: str
    turns: tuple[DialogueTurn, ...]
    user: str = ""

    def as_case(self) -> Case:
        turns = [[turn.role, turn.content, turn.timestamp] for turn in self.turns]
        said = json.dumps({"user": self.user, "turns": turns}, ensure_ascii=False)
        return Case(said, (), self.id)


def dialogue_of(case: Case) -> GivenDialogue:
    """The dialogue that a case holds."""
    said = json.loads(case.input)
    return GivenDialogue(
        case.id, tuple(DialogueTurn(*turn) for turn in said["turns"]), said["user"]
    )


def read_dialogues(path: str) -> Iterator[GivenDialogue]:
    """The dialogues of a file, of all files of a folder or a pattern, or of standard input.

    Raises:
        InputError: something cannot be read, or is no dialogue; names file and line.
    """
    seen: dict[str, None] = {}
    for file, name in find_files(path, "dialogue"):
        messages: list[Mapping[str, Any]] = []
        for where, row in read_rows(file, "dialogue", lambda _: False):
            if read_chat([row]) is not None and _chat_column(row) is None:
                messages.append(row)
            else:
                for one in _of_row(row, where, str(len(seen) + 1)):
                    yield _distinct(one, where, seen)
        if messages:
            whole = _of_messages(messages, Path(name).stem, "", "", name)
            yield _distinct(whole, name, seen)
    if not seen:
        raise InputError(f"{path}: holds no dialogues")


def take_dialogues(given: Iterable[DialogueLike]) -> Iterator[GivenDialogue]:
    """Dialogues from Python objects, by the same rules; a list of messages is one dialogue.

    Raises:
        InputError: one of them is none; says which.
    """
    seen: dict[str, None] = {}
    several = list(given)
    for number, one in enumerate([several] if read_chat(several) else several, 1):
        where = f"dialogue {number}"
        row = one if isinstance(one, Mapping) else {"messages": one}
        for found in _of_row(row, where, str(number)):
            yield _distinct(found, where, seen)


def _distinct(one: GivenDialogue, where: str, seen: dict[str, None]) -> GivenDialogue:
    if one.id in seen:
        raise InputError(f"{where}: the id '{one.id[:80]}' is there twice")
    seen[one.id] = None
    return one


def _chat_column(row: Mapping[str, Any]) -> str | None:
    by_name = {fold_name(name): name for name in row}
    return next((by_name[name] for name in CHAT_COLUMNS if name in by_name), None)


def _of_row(row: Mapping[str, Any], where: str, number: str) -> Iterator[GivenDialogue]:
    id = next((str(row[n]) for n in ("id", "uuid", "conversation_id") if row.get(n)), number)
    user = next((row[n] for n in USERS if isinstance(row.get(n), str)), "").strip()
    if isinstance(row.get("sessions"), list):
        for place, session in enumerate(cast("list[object]", row["sessions"]), 1):
            inner: Mapping[str, Any] = {}
            if isinstance(session, Mapping):
                inner = cast("Mapping[str, Any]", session)
            name = _chat_column(inner)
            if name is None:
                raise InputError(f"{where}: session {place} has no dialogue")
            yield _of_messages(inner[name], f"{id}/{place}", user, _time(inner), where)
        return
    name = _chat_column(row)
    if name is None:
        raise InputError(
            f"{where}: is no dialogue: none of the columns {', '.join(CHAT_COLUMNS)} is there; saw"
            f" {', '.join(map(str, row)) or 'none'}"
        )
    yield _of_messages(row[name], id, user, _time(row), where)


def _of_messages(given: object, id: str, user: str, time: str, where: str) -> GivenDialogue:
    """`time`: that of messages that have none."""
    if isinstance(given, str):
        given = _parsed(given)
    messages: Sequence[Mapping[str, Any]] = ()
    if isinstance(given, list | tuple):
        messages = cast("Sequence[Mapping[str, Any]]", given)
        if not messages:
            return GivenDialogue(id, (), user)
    chat = read_chat(messages)
    if chat is None:
        raise InputError(f"{where}: is no list of messages, each with {TURN_FORMS}")
    turns = tuple(
        DialogueTurn(_role(message), "\n".join(filter(str.strip, (turn.text, *turn.calls))),
                     _time(message) or time)
        for message, turn in zip(messages, chat, strict=True)
    )  # fmt: skip
    return GivenDialogue(id, turns, user)


def _parsed(text: str) -> object:
    """What a cell of a table holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("from"))


def _time(row: Mapping[str, Any]) -> str:
    found = next((row[name] for name in TIMES if row.get(name)), "")
    return str(found) if isinstance(found, str | int | float) else ""
