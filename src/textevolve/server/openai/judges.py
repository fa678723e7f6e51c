"""Judges answer chat completions: what of a conversation they judge, and their result as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from textevolve.evaluation import Case, EvaluationResult, Failure, check_case
from textevolve.json_texts import CONTAINERS, parse_text
from textevolve.server.decisions.deciders import (
    DecidingJudge,
    ReadState,
    read_state,
    spending,
)
from textevolve.server.decisions.serving import Serving, failure_error
from textevolve.server.errors import INVALID, ApiError
from textevolve.server.openai.requests import OwnRequest, text_of
from textevolve.server.openai.streams import AnswerEnd, NoteTokens

CANDIDATES = "candidates"
_TEXTS = TypeAdapter(Annotated[tuple[str, ...], Field(min_length=1)])


def read_case(asked: OwnRequest, judge: DecidingJudge) -> tuple[Case, str]:
    """What is judged, and by which rubric, empty for the judge's own.

    Raises:
        ApiError: there is nothing to be judged. InputError: a text is blank.
    """
    texts = [text_of(asked.messages, place) for place in range(len(asked.messages))]
    turns = [
        {"role": one.role, "content": text} for one, text in zip(asked.messages, texts, strict=True)
    ]
    rubric = (asked.metadata or {}).get("rubric", "")
    last = parse_text(texts[-1], CONTAINERS) if turns[-1]["role"] == "user" else None
    if isinstance(last, Mapping):
        case = _read_object(cast("Mapping[str, Any]", last))
    else:
        case, asks = _read_exchange(turns)
        rubric = rubric or asks
    if rubric and not judge.takes_rubric:
        said = "this judge keeps to its own questions: send no rubric, and end with the reply"
        raise ApiError(400, INVALID, said, param="messages")
    for name in judge.needs:
        if getattr(case, name) is None:
            said = f"the judge needs a {name}: send a JSON object with input, output and {name}"
            raise ApiError(400, INVALID, said, param="messages")
    check_case(case)
    return case, rubric


def _read_object(fields: Mapping[str, Any]) -> Case:
    """The case in a message that is a JSON object."""
    if CANDIDATES not in fields:
        return _as_case(read_state(fields))
    rest = {name: value for name, value in fields.items() if name != CANDIDATES}
    try:
        candidates = _TEXTS.validate_python(fields[CANDIDATES])
    except ValidationError:
        message = "candidates must be a list of texts"
        raise ApiError(400, INVALID, message, param="messages") from None
    # A state has one output; the candidates take its place.
    read = read_state({**rest, "output": candidates[0]})
    return Case(read.input or "", candidates, reference=read.reference, context=read.context)


def _read_exchange(turns: Sequence[Mapping[str, str]]) -> tuple[Case, str]:
    """The last reply of the assistant with what was said before it, and what the user asks about
    it afterwards; without a reply the last message, whole."""
    replies = [n for n, one in enumerate(turns) if one["role"] == "assistant"]
    if not replies:
        return _as_case(ReadState(turns[-1]["content"])), ""
    after = [one["content"] for one in turns[replies[-1] + 1 :]]
    before = turns[: replies[-1] + 1]
    return _as_case(read_state(before)), "\n".join(after)


def _as_case(read: ReadState) -> Case:
    asked = read.input or "Judge this text."
    return Case(asked, (read.output,), reference=read.reference, context=read.context)


async def answer_as_judge(
    serving: Serving, judge: DecidingJudge, asked: OwnRequest, note: NoteTokens
) -> AsyncGenerator[str | AnswerEnd]:
    """The result as one piece.

    Raises:
        ApiError: the request cannot be used, or nothing could be judged.
    """
    case, rubric = read_case(asked, judge)
    with serving.place(), spending(note) as spent:
        results = (await judge.open(rubric)(case)).result
        failures = [one for one in results if isinstance(one, Failure)]
        if len(failures) == len(results):
            raise failure_error(failures[0], spent)
        yield json.dumps(_write_results(results), ensure_ascii=False)
        yield AnswerEnd(usage=spent.usage)


def _write_results(results: Sequence[EvaluationResult | Failure]) -> dict[str, Any]:
    """Of several candidates the score, whether it passed and the feedback are those of the best."""
    scored = [(one.score, -n) for n, one in enumerate(results) if isinstance(one, EvaluationResult)]
    best = -max(scored)[1]
    written = [_write_result(one) for one in results]
    return {**written[best], "best": best, "results": written}


def _write_result(one: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(one, Failure):
        return {"score": None, "passed": None, "feedback": None, "error": one.reason}
    return {"score": one.score, "passed": one.passed, "feedback": one.feedback}
