"""Read a typed object from a model's text, in up to three steps. The result names the step that
succeeded, the parse mode.

1. The endpoint is asked to follow a JSON schema, and the text is read strictly (`strict`).
2. A text with prose or fences around one complete object is read tolerantly (`tolerant`), and so
   is a text without an object in which the caller's own reader finds what it asked for.
3. The model is asked once more with the error named (`asked-again`).

If no step succeeds, an `AnswerError` is raised. No value is invented: broken JSON is not repaired.

Ambiguous answers are asked for again, too: a key that occurs twice in one object, at any level; two
objects, such as a draft and a final one, unless the second repeats the first exactly. Reasoning
between tags at the beginning (`<think>`) is not a part of the answer, so a draft in it does no
harm.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from textevolve.errors import AnswerError
from textevolve.evaluation import mend_text, mend_texts
from textevolve.json_texts import is_object
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prompts import load_template
from textevolve.llm.wire import EMBEDDING
from textevolve.messages import split_thought
from textevolve.protocol.contents import LENGTH, answer_ending
from textevolve.spans import current_span

# Whether an answer is complete. Everything that reads an answer asks here first.


class IncompleteError(AnswerError):
    """The error of an answer that is empty, cut, filtered or refused, so that nothing can be said
    of its quality."""


def require_text(
    response: Response, subject: str = "the answer", *, may_be_cut: bool = False
) -> str:
    """Return the text of a complete answer, without white space at its ends.

    `subject`: the name of the text in errors. `may_be_cut`: an answer that ended at the limit of
    tokens is complete.

    Raises:
        IncompleteError: there is no complete answer; says why.
    """
    if fault := describe_fault(response, subject, may_be_cut=may_be_cut):
        raise IncompleteError(fault)
    return response.text.strip()


def describe_fault(
    response: Response, subject: str = "the answer", *, may_be_cut: bool = False
) -> str:
    """Return why an answer is not complete: the generation failed, a filter or a limit cut it off,
    the model refused, called a tool instead, or wrote nothing. Empty for a complete answer."""
    ending = answer_ending(response.finish_reason)
    is_empty = not response.text.strip()

    if ending == "failed":
        return f"the endpoint could not finish {subject} ({response.finish_reason})"
    if ending == "filtered":
        return f"the endpoint's content filter cut off {subject} ({response.finish_reason})"
    if ending == "refused":
        return f"the model refused to give {subject}"
    if ending == "cut" and not (may_be_cut or (is_empty and _has_thought(response))):
        return f"{subject} was cut at the token limit"
    if not is_empty:
        return ""
    if ending == "cut" and _has_thought(response):
        spent = response.usage.completion_tokens
        return (
            f"the model was still thinking when its {spent} tokens were used up; allow it more"
            " tokens, or set a lower reasoning_effort for its provider"
        )

    if response.tool_calls:
        names = (call.name or "a function without a name" for call in response.tool_calls)
        called = ", ".join(dict.fromkeys(names))
        return f"the model called {called} instead of giving {subject}"

    reason = response.finish_reason

    return f"{subject} was empty" + ("" if reason == "stop" else f" ({reason})")


def _has_thought(response: Response) -> bool:
    return bool(response.reasoning or response.usage.reasoning_tokens)


def is_lost(response: Response) -> bool:
    """Return whether a response holds nothing that may be kept as an answer, although nothing says
    that the next one will be the same: half of a generation that failed, an empty text, or an
    embedding without a direction."""
    ending = answer_ending(response.finish_reason)
    if ending in ("filtered", "refused") or response.tool_calls:
        return False
    if ending == "failed":
        return True
    if ending == "cut" and _has_thought(response):
        return False
    if response.text.startswith(EMBEDDING):
        is_finite = "NaN" not in response.text and "Infinity" not in response.text
        # Only zeros have no other digit; an empty vector has none at all.
        return not (is_finite and re.search("[1-9]", response.text))

    return not response.text.strip()


T = TypeVar("T", bound=BaseModel)
ParseMode = Literal["strict", "tolerant", "asked-again"]
SHOWN_AGAIN = 2000

_OPENING = re.compile(r"""\{\s*(?:["'“‘]|\w+\s*:)""")
"""The pattern of an object's beginning; braces in prose, as around {x}, do not match."""


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """An object read from a model's answer.

    Attributes:
        parse_mode: How it was read: `strict`, `tolerant` or `asked-again`.
        responses: All responses that were needed; the last one contains the object.
    """

    value: T
    parse_mode: ParseMode
    responses: tuple[Response, ...]


class UnusableAnswer(AnswerError):
    """The error that no answer contained a valid object. `responses`: the unusable answers, which
    were paid for."""

    def __init__(self, message: str, responses: tuple[Response, ...]) -> None:
        super().__init__(message)
        self.responses = responses


@lru_cache(maxsize=512)
def answer_schema(answer: type[BaseModel]) -> str:
    """Return the JSON schema of an answer's type as text, without titles, which no model needs."""

    def strip(node: object, names: bool = False) -> Any:
        """Remove titles. `names`: the keys of `node` are names of fields, so a "title" stays."""
        if is_object(node):
            return {
                key: strip(value, key in ("properties", "$defs") and not names)
                for key, value in node.items()
                if names or key != "title"
            }

        return node

    return json.dumps(strip(answer.model_json_schema(by_alias=True)))


ProseReader: TypeAlias = Callable[[str], object]
"""A function that finds the fields of an object in an answer without one; None if it cannot."""


async def ask_structured(
    model: Model, request: Request, answer: type[T], read_prose: ProseReader | None = None
) -> Structured[T]:
    """Ask `model` for an object of the type `answer`. `read_prose`: how answers without an object
    are read, before the model is asked again.

    Raises:
        UnusableAnswer: two answers were unusable; the message says why.
        ModelError: there is no answer.
    """
    schema = answer_schema(answer)
    full_request = request if request.schema == schema else replace(request, schema=schema)
    response = await model(full_request)

    try:
        value, parse_mode = read_answer(response, answer, read_prose)
        return Structured(value, parse_mode, (response,))
    except AnswerError as error:
        reason = str(error)

    again = await model(_ask_again(full_request, response, reason))

    try:
        value, _ = read_answer(again, answer, read_prose)
    except AnswerError as error:
        raise UnusableAnswer(
            f"unusable answer: {reason}; asked again: {error}", (response, again)
        ) from None

    return Structured(value, "asked-again", (response, again))


def _ask_again(request: Request, response: Response, reason: str) -> Request:
    template = load_template("textevolve.llm", "repair")
    repair = template.render(error=reason, shorten=response.finish_reason == LENGTH)
    messages = (
        *request.messages,
        Message("assistant", (response.text[:SHOWN_AGAIN] or "(nothing)",)),
        Message("user", (repair,)),
    )
    return replace(request, messages=messages)


def read_answer(
    response: Response, answer: type[T], read_prose: ProseReader | None = None
) -> tuple[T, ParseMode]:
    """Return the object in a response, and the parse mode that read it. `read_prose`: as in
    `ask_structured`.

    Raises:
        AnswerError: the response has no object, or the object violates a rule of the type; the
            message names the first violated rule.
    """
    try:
        text = mend_text(require_text(response))
        fields = read_prose(text) if read_prose and find_object(text) is None else None
        data, parse_mode = (fields, "tolerant") if fields else _parse(text)
        if "\\u" in text:  # an escape may be of a character that no store can hold
            data = mend_texts(data)
        return answer.model_validate(data), parse_mode
    except ValidationError as error:
        fault = AnswerError(_describe(error))
    except AnswerError as error:
        fault = error

    current_span.get().count(parse_errors=1)
    raise fault


def _parse(text: str) -> tuple[Any, ParseMode]:
    try:
        return _DECODER.decode(text), "strict"
    except (ValueError, RecursionError):
        pass

    start = find_object(text)
    end = text.rfind("}")
    if start is None or end < start:
        raise AnswerError("the answer holds no closed JSON object")
    try:
        data, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        body = text[start : end + 1]
        is_open = body.count("{") > body.count("}")
        reason = "the JSON object is not closed" if is_open else "the answer is not valid JSON"
        raise AnswerError(reason) from None

    for opening in _OPENING.finditer(text, end):
        if opening.start() >= end:
            end = _pass_copy(text, opening.start(), data)

    return data, "tolerant"


def find_object(text: str) -> int | None:
    """Return the start of the first object in an answer, after the reasoning; None without one."""
    _, answer = split_thought(text)
    opening = _OPENING.search(text, len(text) - len(answer))
    return opening.start() if opening else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise AnswerError(f"the key '{twice[:60]}' is there more than once")
    return unique


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def _pass_copy(text: str, start: int, data: Any) -> int:
    """Return the end of an exact repetition of the object `data` at `start`; another object there
    is an error."""
    try:
        other, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        other = None
        end = start

    if other != data:
        raise AnswerError("the answer holds more than one JSON object; give a single one")

    return end


def _describe(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = " > ".join(map(str, problem["loc"])) or "the answer"
    if problem["type"] == "missing":
        return f"{place} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{place} was not asked for"
    value = problem.get("input")
    suffix = f" (got {str(value)[:40]!r})" if isinstance(value, str | int | float | bool) else ""

    return f"{place}: {problem['msg']}{suffix}"
