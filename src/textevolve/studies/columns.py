"""What became of the columns of rows, over all of them: what is told before a run, and refused."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.report.wording import count, shorten
from textevolve.texts.chats import Chat
from textevolve.texts.columns import (
    ANSWER,
    INPUTS,
    Roles,
    find_roles,
    fold_name,
)

NAMED = 12
"""Of how many columns the name is said."""


@dataclass
class Columns:
    """What the columns of cases came to, over all rows.

    `header`: the columns of a table, which may be empty in a row. `taken`: what was made of each;
    `unread`: those that nothing reads; `references`: those that held a reference answer.
    """

    header: tuple[str, ...] = ()
    taken: dict[str, str] = field(default_factory=dict[str, str])
    unread: dict[str, None] = field(default_factory=dict[str, None])
    references: dict[str, None] = field(default_factory=dict[str, None])
    unseen: int = 0
    endless: list[str] = field(default_factory=list[str])
    has_outputs: bool = False
    _ids: set[int] = field(default_factory=set[int])
    _doubles: dict[str, None] = field(default_factory=dict[str, None])
    _answer: str = ""

    def take_header(self, names: Sequence[str]) -> None:
        self.header = tuple(names)

    def roles_in(self, row: Mapping[str, Any], where: str, aside: Collection[str] = ()) -> Roles:
        """What the columns of a row hold; `aside`: those that hold no text.

        Raises:
            InputError: `answer` would be the output of some rows and the reference of others.
        """
        names = (*row, *(name for name in self.header if name not in row))
        roles = find_roles(tuple(name for name in names if name not in aside))
        answer = next((n for n in row if fold_name(n) == ANSWER and n not in aside), None)
        if answer is not None:
            role = "output" if answer in roles.outputs else "reference"
            if self._answer not in ("", role):
                raise InputError(
                    f"{where}: '{answer}' is the {role} here, and was the {self._answer} in earlier"
                    f" rows: it is the output where nothing else is one; say --map output={answer}"
                    f" or --map reference={answer}"
                )
            self._answer = role
        self.has_outputs = self.has_outputs or roles.has_outputs
        return roles

    def take(self, name: str, role: str) -> None:
        self.taken[name] = role

    def note_unread(self, row: Mapping[str, Any], read: Iterable[str]) -> list[str]:
        """The columns of a row that hold something and are not among those that were read."""
        known = set(read)
        unread = [str(k) for k, v in row.items() if v not in (None, "") and k not in known]
        self.unread |= dict.fromkeys(unread)
        return unread

    def note_chat(self, chat: Chat) -> None:
        self.unseen += sum(turn.unseen for turn in chat)
        self.has_outputs = True

    def refuse_no_images(self, flag: str, names: Iterable[str]) -> None:
        """Raises InputError where a column that is to hold images was in no row."""
        seen = dict.fromkeys([*self.header, *self.taken, *self.unread])
        for name in names:
            if name not in seen:
                raise InputError(
                    f"{flag}: no row has the column '{name}'; saw {_list(seen) or 'no columns'}"
                )

    def note_id(self, id: str) -> None:
        if (known := hash(id)) in self._ids:
            self._doubles[id] = None
        self._ids.add(known)

    def refuse_no_output(self, name: str) -> None:
        """Raises InputError where no row had a column that may hold an output."""
        if not self.has_outputs:
            seen = [*self.taken, *self.unread]
            raise InputError(f"{name}: no column for the output: {_say_seen(seen, self.unread)}")

    def line(self) -> str:
        """What each column was taken for, in one line."""
        said = [
            shorten(name, 40) if fold_name(name) == role else f"{shorten(name, 40)} -> {role}"
            for name, role in self.taken.items()
        ]
        unread = f"; unread: {_list(self.unread)}" if self.unread else ""
        return f"columns: {', '.join(said)}{unread}"

    def tell(self, *, reference: bool) -> None:
        """Log what the columns were taken for, unless each has the name that it is read by, and
        warn of what is odd about them. `reference`: whether the judge looks at a reference."""
        log = logging.getLogger("textevolve")
        if self.unread or any(name != role for name, role in self.taken.items()):
            level = logging.WARNING if self.unread else logging.INFO
            said = f"nothing reads these fields of the cases: {_list(self.unread)}"
            log.log(level, said if self.unread else self.line(), extra={"shown": self.line()})
        for said in self.warnings(reference=reference):
            log.warning(said)

    def warnings(self, *, reference: bool) -> list[str]:
        said: list[str] = []
        if self.references and not reference:
            names = ", ".join(self.references)
            said.append(f"only judges with a reference, such as --judge reference, read: {names}")
        if self._doubles:
            said.append(f"ids that more than one case has: {_list(self._doubles)}")
        if self.unseen:
            parts = count(self.unseen, "part")
            said.append(
                f"{parts} of chats are no text; judges see no more of each than its kind, as in"
                " (image)"
            )
        if self.endless:
            chats = count(len(self.endless), "chat")
            said.append(
                f"{chats} without an output: the last turn is not the assistant's"
                f" (first: {self.endless[0]})"
            )
        return said


def refuse_no_input(row: Mapping[str, Any], roles: Roles, where: str) -> InputError:
    """An error that says which columns there are, and how to say which of them is the input."""
    plain = {str(k): None for k, v in row.items() if isinstance(v, str) and not _is_known(k, roles)}
    wanted = ["input"] if roles.has_outputs else ["input", "output"]
    return InputError(f"{where}: no column for the input: {_say_seen(list(row), plain, wanted)}")


def _is_known(name: object, roles: Roles) -> bool:
    known = (*roles.lists, *roles.outputs, *roles.references, *roles.contexts, *roles.ids)
    return name in known


def _say_seen(
    seen: Sequence[object], free: Iterable[str], wanted: Sequence[str] = ("output",)
) -> str:
    """The columns there are, and how to say which one is wanted. `free`: those it may be."""
    names = _list(dict.fromkeys(map(str, seen))) or "none"
    pairs = [f"--map {shlex.quote(f'{new}={old}')}" for new, old in zip(wanted, free, strict=False)]
    if not pairs:
        names += f"; an input is called {', '.join(INPUTS)}" if "input" in wanted else ""
        pairs = [f"--map {wanted[0]}=COLUMN"]
    return f"saw {names}; say {' '.join(pairs)}"


def _list(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return ", ".join(shorten(name, 40) for name in known[:NAMED]) + more
