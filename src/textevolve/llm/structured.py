"""A typed object out of a model's text: a ladder with a recorded rung.

1. The endpoint is asked to follow a JSON schema, and the text is read strictly (`strict`).
2. A text with prose, fences or small faults around a closed object is read tolerantly (`tolerant`).
3. The model is asked once more with the error named (`asked-again`).
After that there is an `AnswerError`, never an invented value: an answer that was cut is not mended.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError

from textevolve.errors import AnswerError
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.template import Template, load_template

T = TypeVar("T", bound=BaseModel)
Rung = Literal["strict", "tolerant", "asked-again"]
SHOWN_AGAIN = 2000
READ_AT_ONCE = 4096
"""Characters up to which an answer is read on the event loop; a longer one in a thread."""
MENDED = 65_536
"""Characters up to which faults are mended, which takes a second there and grows as the square."""


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """The object, the rung that gave it, and all responses it took; the last one holds its text."""

    value: T
    rung: Rung
    responses: tuple[Response, ...]


class UnusableAnswer(AnswerError):
    """No rung gave an object; `responses` are the answers that were paid for."""

    def __init__(self, message: str, responses: tuple[Response, ...]) -> None:
        super().__init__(message)
        self.responses = responses


@lru_cache(maxsize=1)
def repair_template() -> Template:
    return load_template("textevolve.llm", "repair", ("error", "shorten"))


@lru_cache(maxsize=512)
def answer_schema(answer: type[BaseModel]) -> str:
    """The JSON schema of an answer's type, as text, without titles, which no model needs."""

    def strip(node: object, names: bool = False) -> Any:
        """`names`: the keys of `node` are names of the author's, a "title" among them stays."""
        if isinstance(node, dict):
            kept = cast(dict[str, object], node)
            return {
                key: strip(value, key in ("properties", "$defs") and not names)
                for key, value in kept.items()
                if names or key != "title"
            }
        return node

    return json.dumps(strip(answer.model_json_schema(by_alias=True)))


async def ask_structured(model: Model, request: Request, answer: type[T]) -> Structured[T]:
    """Ask `model` for an object of the type `answer`.

    Raises:
        UnusableAnswer: two answers came and neither could be used; says why.
        ModelError: no answer came.
    """
    asked = replace(request, schema=answer_schema(answer))
    first = await model(asked)
    try:
        value, rung = await _read_aside(first, answer)
        return Structured(value, rung, (first,))
    except AnswerError as error:
        reason = str(error)
    again = await model(_ask_again(asked, first, reason))
    try:
        value, _ = await _read_aside(again, answer)
    except AnswerError as error:
        message = f"unusable answer: {reason}; asked again: {error}"
        raise UnusableAnswer(message, (first, again)) from None
    return Structured(value, "asked-again", (first, again))


def _ask_again(request: Request, response: Response, reason: str) -> Request:
    repair = repair_template().render(error=reason, shorten=response.finish_reason == "length")
    messages = (
        *request.messages,
        Message("assistant", (response.text[:SHOWN_AGAIN] or "(nothing)",)),
        Message("user", (repair,)),
    )
    return replace(request, messages=messages)


async def _read_aside(response: Response, answer: type[T]) -> tuple[T, Rung]:
    """`read_answer` without keeping the event loop from other calls."""
    if len(response.text) <= READ_AT_ONCE:
        return read_answer(response, answer)
    return await asyncio.to_thread(read_answer, response, answer)


def read_answer(response: Response, answer: type[T]) -> tuple[T, Rung]:
    """The object in a response and the rung that found it.

    Raises:
        AnswerError: there is none, or it breaks a rule; the message names the first one broken.
    """
    text = response.text.strip()
    if response.finish_reason == "length":
        raise AnswerError("the answer was cut at the token limit")
    if not text:
        reason = response.finish_reason
        raise AnswerError("the answer was empty" + ("" if reason == "stop" else f" ({reason})"))
    try:
        return answer.model_validate_json(text), "strict"
    except ValidationError:  # read again, with more patience and a reason that can be told
        data, rung = _parse(text)
    try:
        return answer.model_validate(data), rung
    except ValidationError as error:
        raise AnswerError(_describe(error)) from None


def _parse(text: str) -> tuple[Any, Rung]:
    try:
        return json.loads(text), "strict"
    except (ValueError, RecursionError):
        pass
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise AnswerError("the answer holds no closed JSON object")
    body = text[start : end + 1]
    try:
        return json.loads(body), "tolerant"
    except (ValueError, RecursionError):
        pass
    if body.count("{") > body.count("}"):
        raise AnswerError("the JSON object is not closed")
    if len(body) > MENDED:
        raise AnswerError(
            f"the answer is not valid JSON, and with {len(body)} characters too long to be mended"
        )
    from json_repair import loads

    try:
        data = loads(body, skip_json_loads=True)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise AnswerError("the answer is not valid JSON")
    return data, "tolerant"  # pyright: ignore[reportUnknownVariableType]


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    place = " > ".join(str(part) for part in first["loc"]) or "the answer"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} was not asked for"
    given = first.get("input")
    shown = f" (got {str(given)[:40]!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{place}: {first['msg']}{shown}"
