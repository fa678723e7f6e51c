"""The values of a row, made once, in kinds that never mix.

| who asks | what it gets |
|---|---|
| a prompt, a system message, a chat file | `variables`: texts of the columns that it may show |
| an application, a chain, a simulated user | `columns`: the same columns, as values of JSON |
| a metric of the package | the label as text, and the columns |
| a function of the user that is a metric | `label` and `row`: all values as they were in the row |

The label and existing outputs are in no variable and no column, so no prompt can show them. A case
stores the columns as JSON in its input, and what a user's function needs in its parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import CHECKS, LABEL, ROW, Case
from textevolve.images import Pictures, named_images
from textevolve.json_texts import pack_value, unpack_value, write_text
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.steps import ModelStep
from textevolve.llm.model import Message
from textevolve.mappings import map_values
from textevolve.messages import RawMessage, list_messages, read_message, result_text
from textevolve.metrics.label_metrics import is_shipped, open_metric
from textevolve.metrics.plain import takes_row
from textevolve.protocol.contents import ToolCall
from textevolve.rows.chats import ASSISTANT, read_chat, speaker_of, write_chat
from textevolve.rows.columns import prompt_text
from textevolve.user_code import OWN

DRAW = "draw"
"""The parameter of a case with the number of its row among the rows that ask the same question."""

ROLES = {"User": "user", ASSISTANT: "assistant", "System": "system"}
"""The role in which a turn is sent, by its speaker."""


@dataclass(frozen=True, slots=True)
class RowValues:
    """The values of a row, by who may get them; the module's docstring has the table. `draw`: the
    number of the row among the rows that ask the same question, from 0. `checks`: those that an
    output must satisfy; None without any. `pictures`: the images of the row, by which the texts of
    its chats refer to them."""

    variables: Mapping[str, str]
    columns: Mapping[str, Any]
    row: Mapping[str, Any]
    label: Any = None
    draw: int = 0
    checks: Mapping[str, Any] | None = None
    pictures: Pictures | None = None


def read_values(case: Case, columns: Mapping[str, Any], label: str | None) -> RowValues:
    """Return the values of a case. `columns`: those of its input, without the label. `label`: the
    name of the label's column."""
    parameters = case.parameters
    row: Any = columns
    # The whole row lies in the parameters if a function of the user receives it.
    if ROW in parameters:
        row = unpack_value(parameters[ROW])
    elif label is not None:
        row = {**columns, label: case.reference or ""}

    pictures = Pictures(case.images, len(case.images))

    return RowValues(
        variables=map_values(partial(prompt_text, pictures=pictures), columns),
        columns=columns,
        row=row,
        label=unpack_value(parameters[LABEL]) if LABEL in parameters else case.reference,
        draw=parameters.get(DRAW, 0),
        checks=parameters.get(CHECKS),
        pictures=pictures,
    )


def keep_values(row: Mapping[str, Any], label: Any, *, whole: bool, draw: int) -> dict[str, Any]:
    """Return the parameters of a case that hold what JSON would change. `whole`: the whole row is
    kept, since a function of the user receives it. A label that is a text, and a row without an
    equal before it, need no parameter, so that they leave stored runs as they are."""
    kept_values: dict[str, Any] = {}
    if whole:
        kept_values[ROW] = pack_value(dict(row))
    if label is not None and not isinstance(label, str):
        kept_values[LABEL] = pack_value(label)
    if draw:
        kept_values[DRAW] = draw

    return kept_values


def wants_row(metrics: Iterable[str], objects: Mapping[str, object]) -> bool:
    """Tell whether one of the metrics is a function of the user that receives the row. An object
    that is not known yet may be one."""
    for metric in metrics:
        if is_shipped(metric):
            continue
        is_object = metric.startswith(OWN)
        function = objects.get(metric) if is_object else open_metric(metric)
        if function is None or takes_row(function):
            return True

    return False


@dataclass(frozen=True, slots=True)
class SentChat:
    """A chat in a column, as a prompt sends it: the messages up to the last one that is not the
    assistant's, and the same as text for judges. `is_cut`: the chat ended with an answer, which is
    left out, since the model is to give its own."""

    messages: tuple[Message, ...]
    text: str
    is_cut: bool


def read_sent_chat(value: Any, where: str, pictures: Pictures | None = None) -> SentChat | None:
    """Return the chat in a column; None if it holds anything else. `pictures`: those that are sent,
    each with its message of the user.

    Raises:
        InputError: nobody has asked in the chat, or a message has a role that no model knows.
    """
    raw = list_messages(value)
    if not raw:
        return None
    roles = [speaker_of(read_message(message).role) for message in raw]
    while roles and roles[-1] == ASSISTANT:
        roles.pop()
    asked = raw[: len(roles)]
    messages = _write_messages(asked, where, pictures or Pictures())
    if not any(message.role == "user" for message in messages):
        raise InputError(f"{where}: the chat has no message of the user to answer")

    return SentChat(
        tuple(messages), write_chat(read_chat(asked, pictures) or ()), len(asked) < len(raw)
    )


def _write_messages(raw: Iterable[RawMessage], where: str, pictures: Pictures) -> list[Message]:
    """Return recorded messages in the form in which models read them. Calls of tools without an id
    are numbered, and a result without one belongs to the first open call."""
    sent: list[Message] = []
    open_ids: list[str] = []

    for message in map(partial(read_message, describe=pictures), raw):
        for result in message.results:
            id = result.id or next(iter(open_ids), "call_0")
            if id in open_ids:
                open_ids.remove(id)
            sent.append(Message("tool", (result_text(result, pictures),), tool_call_id=id))
        if message.results and not (message.text or message.calls):
            continue

        role = ROLES.get(speaker_of(message.role))
        if role is None:
            raise InputError(f"{where}: a message has the role '{message.role}', which is unknown")
        calls: list[ToolCall] = []
        for call in message.calls:
            id = call.id or f"call_{len(sent)}_{len(calls)}"
            arguments = "{}" if call.arguments is None else write_text(call.arguments)
            calls.append(ToolCall(id, call.name, arguments))
            open_ids.append(id)
        images = named_images(message.text, pictures.urls) if role == "user" else ()
        sent.append(Message(cast(Any, role), (message.text,), images, tuple(calls)))

    return sent


class Draws:
    """The numbers of rows among the rows that ask the same question. At a temperature each is a
    draw of its own: thirty equal prompts are thirty samples of one answer, not one sample that
    counts thirty times."""

    def __init__(self) -> None:
        self._next: Counter[tuple[object, ...]] = Counter()

    def number(self, questions: Collection[tuple[object, ...]]) -> int:
        """Return the number of a row. `questions`: what its variants ask, each as the name of the
        variant and the values that it shows."""
        number = max((self._next[question] for question in questions), default=0)
        for question in questions:
            self._next[question] = number + 1

        return number


def is_random(chain: Chain) -> bool:
    """Tell whether a chain may answer the same values differently: it has a step at a temperature
    other than 0, or one that calls a function."""
    for step in chain.steps:
        if not isinstance(step, ModelStep) or step.sampling.get("temperature") != 0:
            return True

    return False
