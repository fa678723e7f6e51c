"""Judges as models of chat completions: a judge scores a part of the conversation, and answers with
its result as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from textevolve.evaluation import Case, EvaluationResult, Failure, check_case
from textevolve.json_texts import CONTAINERS, parse_text
from textevolve.server.decisions.deciders import (
    DecidingJudge,
    read_state,
    spending,
)
from textevolve.server.decisions.serving import Serving, failure_error
from textevolve.server.errors import bad_request
from textevolve.server.openai.requests import ServedRequest, pair_texts
from textevolve.server.openai.streams import AnswerEnd, NoteTokens

CANDIDATES = "candidates"
UNKNOWN_INPUT = "Judge this text."
_TEXTS = TypeAdapter(Annotated[tuple[str, ...], Field(min_length=1)])


def read_case(request: ServedRequest, judge: DecidingJudge) -> tuple[Case, str]:
    """Return the case to judge and the rubric, which is empty for the judge's own.

    Raises:
        ApiError: the request has no case. InputError: a text is blank.
    """
    turns = [
        {"role": message.role, "content": text} for message, text in pair_texts(request.messages)
    ]
    rubric, end = (request.metadata or {}).get("rubric", ""), turns[-1]
    last = parse_text(end["content"], CONTAINERS) if end["role"] == "user" else None
    if isinstance(last, Mapping):
        case = _read_object(cast("Mapping[str, Any]", last))
    else:
        case, asks = _read_exchange(turns)
        rubric = rubric or asks
    if rubric and not judge.takes_rubric:
        raise bad_request(
            "this judge takes no rubric: the last message must be the reply that it judges",
            param="messages",
        )
    for name in judge.needs:
        if getattr(case, name) is None:
            raise bad_request(
                f"the judge needs a {name}: send a JSON object with input, output and {name}",
                param="messages",
            )
    check_case(case)
    return case, rubric


def _read_object(fields: Mapping[str, Any]) -> Case:
    """Read the case in a message that is a JSON object."""
    if CANDIDATES not in fields:
        return _read_state(fields)
    state = {name: value for name, value in fields.items() if name != CANDIDATES}
    try:
        candidates = _TEXTS.validate_python(fields[CANDIDATES])
    except ValidationError:
        raise bad_request("candidates must be a list of texts", param="messages") from None
    # A state has one output; the candidates take its place.
    return replace(read_state({**state, "output": candidates[0]}), candidates=candidates)


def _read_exchange(turns: Sequence[Mapping[str, str]]) -> tuple[Case, str]:
    """Return the case in a conversation: the assistant's last reply as the output, with the
    messages before it. The messages after that reply are the rubric. Without a reply, the last
    message is judged as a whole."""
    replies = [n for n, turn in enumerate(turns) if turn["role"] == "assistant"]
    if not replies:
        return Case(UNKNOWN_INPUT, (turns[-1]["content"],)), ""
    after = [turn["content"] for turn in turns[replies[-1] + 1 :]]
    before = turns[: replies[-1] + 1]
    return _read_state(before), "\n".join(after)


def _read_state(state: object) -> Case:
    case = read_state(state)
    return replace(case, input=case.input or UNKNOWN_INPUT)


async def answer_as_judge(
    serving: Serving, judge: DecidingJudge, request: ServedRequest, note: NoteTokens
) -> AsyncGenerator[str | AnswerEnd]:
    """Yield the judge's results as one piece of JSON, then the end of the answer.

    Raises:
        ApiError: the request is invalid, or no candidate could be judged.
    """
    case, rubric = read_case(request, judge)
    with serving.place(), spending(note) as spent:
        results = (await judge.open(rubric)(case)).result
        failures = [result for result in results if isinstance(result, Failure)]
        if len(failures) == len(results):
            raise failure_error(failures[0], spent)
        yield json.dumps(_write_results(results), ensure_ascii=False)
        yield AnswerEnd(usage=spent.usage)


def _write_results(results: Sequence[EvaluationResult | Failure]) -> dict[str, Any]:
    """Return the JSON of an answer: the results of all candidates, and the index, score, pass and
    feedback of the best one. At least one candidate must have a score."""
    scored = [(r.score, -n) for n, r in enumerate(results) if isinstance(r, EvaluationResult)]
    best = -max(scored)[1]
    written = [_write_result(result) for result in results]
    return {**written[best], "best": best, "results": written}


def _write_result(result: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"score": None, "passed": None, "feedback": None, "error": result.reason}
    return {"score": result.score, "passed": result.passed, "feedback": result.feedback}
