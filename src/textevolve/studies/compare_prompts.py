"""Prompts to compare: plain templates and chats, from files, YAML and Python.

Filling in is `loops.placeholders`; which model gets a prompt is the business of `compare`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import model_validator

from textevolve.errors import InputError
from textevolve.llm.model import Message
from textevolve.loops.placeholders import fill, find_placeholders
from textevolve.report import wording
from textevolve.rows import read_argument, read_text
from textevolve.spec import Frozen
from textevolve.texts.yaml_lines import line_of, parse_yaml

CHATS = (".yaml", ".yml", ".json")
"""Endings of files that hold a chat, each a list of messages; others hold a plain template."""


class ChatMessage(Frozen):
    """One message of a chat; its content may have placeholders."""

    role: Literal["system", "user", "assistant"]
    content: str


class NamedPrompt(Frozen):
    """A prompt with placeholders in braces, and what it is called in the results: a plain `text`,
    or the `messages` of a chat."""

    name: str
    text: str = ""
    messages: tuple[ChatMessage, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """`file` in place of text and messages is read here, unless its text stands beside it."""
        if not isinstance(given, dict) or "file" not in given:
            return cast(Any, given)
        told = dict(cast("dict[str, Any]", given))
        path = str(told.pop("file"))
        text = told.pop("text", None) or read_text(path)
        name = str(told.pop("name", "") or Path(path).stem)
        if Path(path).suffix.lower() in CHATS:
            return {**told, "name": name, "messages": read_chat(text, path)}
        return {**told, "name": name, "text": text}

    @model_validator(mode="after")
    def _usable(self) -> NamedPrompt:
        if not self.name.strip():
            raise InputError("a prompt has no name")
        if bool(self.text.strip()) == bool(self.messages):
            raise InputError(f"prompt {self.name}: give a text or messages, and nothing blank")
        if self.messages and not any(one.role == "user" for one in self.messages):
            raise InputError(f"prompt {self.name}: no message has the role user")
        return self

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Roles and templates, in their order."""
        if not self.messages:
            return (("user", self.text),)
        return tuple((one.role, one.content) for one in self.messages)

    def placeholders(self, columns: Collection[str]) -> tuple[str, ...]:
        return find_placeholders("\n".join(text for _, text in self.templates), columns)

    def fill(
        self, values: Mapping[str, str], system: str = "", images: tuple[str, ...] = ()
    ) -> tuple[Message, ...]:
        """The messages to send; `system` stands first where the prompt has no such message.
        `images` go with the last message of the user, which asks."""
        own = self.templates
        if system and all(role != "system" for role, _ in own):
            own = (("system", system), *own)
        last = max(n for n, (role, _) in enumerate(own) if role == "user")
        return tuple(
            Message(cast(Any, role), (fill(text, values),), images if n == last else ())
            for n, (role, text) in enumerate(own)
        )

    def show(self, values: Mapping[str, str]) -> str:
        """As one text, for judges and people."""
        filled = self.fill(values)
        if len(filled) == 1:
            return filled[0].text
        return "\n\n".join(f"{one.role}: {one.text}" for one in filled)


def read_chat(text: str, source: str) -> list[Any]:
    """The messages that a YAML or JSON text holds: a list, or a mapping with `messages`.

    Raises:
        InputError: it holds no chat; names the line.
    """
    node, data = parse_yaml(text, source)
    inner: Any = cast("dict[str, Any]", data).get("messages") if isinstance(data, dict) else data
    if not isinstance(inner, list) or not inner:
        raise InputError(
            f"{source}:1: must be a list of messages, each with a role and a content; a plain"
            " template stands in a file that does not end in .yaml or .json"
        )
    return [
        _read_message(one, f"{source}:{_line(node, data, n)}")
        for n, one in enumerate(cast("list[Any]", inner))
    ]


def _line(node: Any, data: Any, number: int) -> int:
    return line_of(node, ("messages", number) if isinstance(data, dict) else (number,))


def _read_message(given: Any, where: str) -> ChatMessage:
    if not isinstance(given, dict):
        raise InputError(f"{where}: a message has a role and a content")
    try:
        return ChatMessage(**{str(n): value for n, value in cast("dict[Any, Any]", given).items()})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def take_prompts(given: Any) -> Any:
    """Prompts as people write them: a list of templates, files or fields; or a mapping from names
    to templates or lists of messages. A template may be @FILE; two files of one name are called by
    their paths."""
    if isinstance(given, Mapping):
        items = cast("Mapping[str, Any]", given).items()
        return [_by_name(str(name), one) for name, one in items]
    if not isinstance(given, list | tuple):
        raise InputError(
            "prompts must be a list of templates, or a mapping from names to them, not"
            f" {wording.shorten(repr(given), 60)}"
        )
    found = [_take(one, n) for n, one in enumerate(cast("Sequence[Any]", given), 1)]
    return [_tell_apart(one, found) for one in found]


def _by_name(name: str, one: Any) -> Any:
    if isinstance(one, str | Path):
        return {**_take(one, 0), "name": name}
    return {"name": name, "messages": one}


def _take(one: Any, number: int) -> Any:
    if isinstance(one, Path) or (isinstance(one, str) and one.startswith("@") and one[1:2] != "@"):
        return {"file": str(one).removeprefix("@")}
    return {"name": f"prompt {number}", "text": read_argument(one)} if isinstance(one, str) else one


def _tell_apart(one: Any, all_of_them: Sequence[Any]) -> Any:
    if not isinstance(one, dict) or "file" not in one:
        return cast(Any, one)
    mine = cast("dict[str, Any]", one)
    path, name = str(mine["file"]), mine.get("name") or Path(str(mine["file"])).stem
    others = [cast("dict[str, Any]", o) for o in all_of_them if isinstance(o, dict) and "file" in o]
    same = {str(o["file"]) for o in others if (o.get("name") or Path(str(o["file"])).stem) == name}
    return {**mine, "name": path if len(same) > 1 else name}
