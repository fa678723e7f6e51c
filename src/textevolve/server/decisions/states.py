"""What a state is to a judge: a case with its input and its output, or a text to be judged whole.

A state is what a client sends beside its questions: text, or any JSON. The names under which it may
hold an input, an output, a reference and a context are those of people's data
(`textevolve.rows.columns`), which has those of DeepEval and RAGAS too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from textevolve.rows.chats import ASSISTANT, Chat, read_chat, write_chat
from textevolve.rows.columns import find_roles, join_passages

WRAPPER = "test_case"
"""The field in which DeepEval's client sends a case."""
TURNS = ("turns",)
"""Where a conversation stands beside the names of `find_roles`; DeepEval's."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """`output`: the one text to be judged. `input`: what it answers; None where nothing says so.

    Fields that are none of the four stand in the input, each under its name.
    """

    output: str
    input: str | None = None
    reference: str | None = None
    context: str | None = None


def state_text(state: object) -> str:
    """The state as a model reads it: text as it is, else compact JSON."""
    if isinstance(state, str):
        return state
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def read_state(state: object) -> ReadState:
    """The case that a state is. One that has no single output is judged whole."""
    found = parse_json(state)
    if (chat := read_chat(found)) is not None:
        return _read_chat(chat) or ReadState(write_chat(chat))
    if isinstance(found, Mapping):
        return _read_fields(cast("Mapping[str, Any]", found)) or ReadState(state_text(state))
    return ReadState(state_text(state))


def parse_json(state: object) -> object:
    """The object or list that a text is the JSON of; some clients send their states so."""
    if not isinstance(state, str) or not state.lstrip().startswith(("{", "[")):
        return state
    try:
        return json.loads(state)
    except (ValueError, RecursionError):
        return state


def _read_chat(chat: Chat) -> ReadState | None:
    """The last reply of the assistant, and what was said before it; None where there is none."""
    if len(chat) < 2 or chat[-1].speaker != ASSISTANT:
        return None
    return ReadState(write_chat((chat[-1],)), write_chat(chat[:-1]))


def _read_fields(fields: Mapping[str, Any]) -> ReadState | None:
    """Read a case from its fields; None if they have no single output."""
    inner = fields.get(WRAPPER)
    if isinstance(inner, Mapping):
        outer = {name: value for name, value in fields.items() if name != WRAPPER}
        fields = {**cast("Mapping[str, Any]", inner), **outer}
    roles = find_roles(tuple(fields))
    filled = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    inputs = [name for name in (*roles.inputs, *roles.chats, *TURNS) if name in filled]
    if len(roles.outputs) == 1 and fields.get(roles.outputs[0]) is not None:
        output = _text(fields[roles.outputs[0]])
        asking = dict.fromkeys((roles.instruction, *inputs[:1]))
        texts = [_text(filled[name]) for name in asking if name in filled]
        used = {*asking, roles.outputs[0]}
    else:
        chats = ((name, read_chat(filled[name])) for name in inputs)
        name, chat = next(((name, chat) for name, chat in chats if chat is not None), ("", None))
        exchange = _read_chat(chat) if chat is not None else None
        if exchange is None:
            return None
        output, texts, used = exchange.output, [exchange.input or ""], {name}
    reference = next((n for n in roles.references if n in filled and n not in used), "")
    context = next((n for n in roles.contexts if _passages(filled.get(n))), "")
    known = {*used, reference, context, *roles.ids}
    texts += [f"{name}: {_text(value)}" for name, value in filled.items() if name not in known]
    return ReadState(
        output,
        "\n\n".join(filter(None, texts)) or None,
        _text(filled[reference]) if reference else None,
        _passages(filled[context]) if context else None,
    )


def _passages(value: object) -> str:
    return join_passages(cast("Any", value)) if isinstance(value, str | list) else ""


def _text(value: object) -> str:
    """Return a field as text: a chat by its turns, a list of texts as passages, else JSON."""
    if isinstance(value, str):
        return value
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    return _passages(value) or state_text(value)
