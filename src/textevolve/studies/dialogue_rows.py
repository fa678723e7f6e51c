"""Dialogues to make memories of, from files and folders of chats, data sets of the Hugging Face
hub, standard input, or Python.

A row is a chat (a list of messages under `messages`, `conversation`, `dialogue`, ...), optionally
with an id, a date and a user; or a user with `sessions` (each a chat), as in HaluMem's data; or a
single message, in which case the whole file is one chat. In the store a dialogue is a case, whose
input is the dialogue as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.mappings import first_of
from textevolve.memory.record import DialogueTurn
from textevolve.rows import find_files, read_rows
from textevolve.rows.chats import list_messages, read_message
from textevolve.rows.columns import CHATS, fold_name, list_names

# The columns that may hold the messages of a dialogue; the first that exists is used.
CHAT_COLUMNS = (*CHATS, "dialogue", "dialog", "turns")
# The fields that may hold the time of a message or dialogue.
TIMES = ("timestamp", "date", "time", "created_at", "create_time", "start_time", "datetime")
USERS = ("user", "user_name", "username")  # the fields that may hold the user of a dialogue

DialogueLike: TypeAlias = Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A list of messages, or an object that holds one under `messages`."""


@dataclass(frozen=True, slots=True)
class UserDialogue:
    """A dialogue from the user, with its id. `user`: the person who talks with the assistant; empty
    if unknown."""

    id: str
    turns: tuple[DialogueTurn, ...]
    user: str = ""

    def as_case(self) -> Case:
        turns = [[turn.role, turn.content, turn.timestamp] for turn in self.turns]
        content = json.dumps({"user": self.user, "turns": turns}, ensure_ascii=False)
        return Case(content, (), self.id)


def dialogue_of(case: Case) -> UserDialogue:
    """Return the dialogue that a case was made from."""
    content = json.loads(case.input)
    return UserDialogue(
        case.id, tuple(DialogueTurn(*turn) for turn in content["turns"]), content["user"]
    )


def read_dialogues(path: str) -> Iterator[UserDialogue]:
    """Read the dialogues of a file, of all files of a folder or a pattern, or of standard input.

    Raises:
        InputError: something cannot be read, or is no dialogue; names file and line.
    """
    seen = set[str]()
    for file, name in find_files(path, "dialogue"):
        messages: list[Mapping[str, Any]] = []
        for where, row in read_rows(file, "dialogue", lambda _: False):
            if list_messages([row]) is not None and _find_chat(row) is None:
                messages.append(row)
            else:
                yield from _take_row(row, where, str(len(seen) + 1), seen)
        if messages:
            yield from _take_row({"id": Path(name).stem, CHATS[0]: messages}, name, "", seen)
    if not seen:
        raise InputError(f"{path}: has no dialogues")


def take_dialogues(dialogues: Iterable[DialogueLike]) -> Iterator[UserDialogue]:
    """Convert Python objects to dialogues, by the same rules as for files; a list of messages is
    one dialogue.

    Raises:
        InputError: an object is no dialogue; names it.
    """
    seen = set[str]()
    several = list(dialogues)
    for number, dialogue in enumerate([several] if list_messages(several) else several, 1):
        row = dialogue if isinstance(dialogue, Mapping) else {CHATS[0]: dialogue}
        yield from _take_row(row, f"dialogue {number}", str(number), seen)


def _take_row(
    row: Mapping[str, Any], where: str, number: str, seen: set[str]
) -> Iterator[UserDialogue]:
    """Yield the dialogue of a row, or the dialogues of its sessions. `where`: the row's place for
    messages; `number`: the id of a row that names none. `seen`: the ids of earlier dialogues, which
    may not be repeated."""
    id = _first(row, ("id", "uuid", "conversation_id")) or number
    user = _first(row, USERS).strip()
    parts: list[tuple[str, Mapping[str, Any]]] = [(id, row)]
    if isinstance(row.get("sessions"), list):
        sessions = cast("list[Mapping[str, Any]]", row["sessions"])
        parts = [(f"{id}/{place}", session) for place, session in enumerate(sessions, 1)]
    for name, part in parts:
        messages = list_messages(_find_chat(part))
        if messages is None:
            raise InputError(
                f"{where}: is not a dialogue: it needs a list of messages, each with role and"
                f" content, or from and value, in one of the columns {', '.join(CHAT_COLUMNS)};"
                f" saw {list_names(row)}"
            )
        if name in seen:
            raise InputError(f"{where}: the id '{name[:80]}' is there twice")
        seen.add(name)
        time = _first(part, TIMES)
        yield UserDialogue(name, tuple(_make_turn(message, time) for message in messages), user)


def _find_chat(row: object) -> object:
    """Return the value of the column that holds a row's messages."""
    if not isinstance(row, Mapping):
        return None
    by_name = {fold_name(name): value for name, value in cast("Mapping[str, Any]", row).items()}
    return first_of(by_name, CHAT_COLUMNS)


def _make_turn(message: Mapping[str, Any], time: str) -> DialogueTurn:
    """Return a message as a turn of the dialogue. `time`: the time of messages that name none."""
    turn = read_message(message)
    text = "\n".join(filter(str.strip, (turn.text, *turn.calls)))
    role = str(message.get("role") or message.get("from"))
    return DialogueTurn(role, text, _first(message, TIMES) or time)


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the value of the first of these fields that is not empty, as a text; "" if it is
    neither a text nor a number."""
    value = next((row[name] for name in names if row.get(name)), "")
    return str(value) if isinstance(value, str | int | float) else ""
