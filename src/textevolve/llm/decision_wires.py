"""What decision endpoints are sent and what they answer: System One, OpenAI's Decisions, SGLang's.

Here: from questions to a body, from an answer to a probability for each option. Not here: which
wire an endpoint speaks, and sending (`decision_calls`).

Sources: System One, docs.typesafe.ai/api and the models of the package typesafe-sdk 0.7.5; OpenAI's
Decisions API, `types/decision.py` of the package openai 3.52; SGLang, docs.sglang.io on decision
models and `serving_decisions.py` in its repository (all read in November 2026).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, cast

from pydantic import BaseModel

from textevolve.llm.decisions import SUM_TOLERANCE, Question, Wire, dump_answers, predicate
from textevolve.llm.lenient import READABLE
from textevolve.llm.providers import Endpoint
from textevolve.llm.reported_usage import ReportedUsage

PATHS: Mapping[Wire, str] = {
    "systemone": "/systemone",
    "decisions": "/decisions",
    "sglang": "/decisions",
}
"""Where each wire is spoken, below the endpoint's base."""

NAMES: Mapping[Wire, str] = {
    "systemone": "System One",
    "decisions": "OpenAI Decisions",
    "sglang": "SGLang decisions",
}

TRIAL = predicate("sky", "Is the sky blue on a clear day?")
TRIAL_STATE = "A clear day in summer."
"""The small question by which it is found out what an endpoint speaks."""

CHARACTERS_PER_TOKEN = 3
"""Fewer than English texts have, so that what is left of a long state fits."""

ROUNDED = 0.005
"""By how much one probability may be off where an endpoint rounds to two decimals."""

_Row: TypeAlias = tuple[float, ...]
"""The probabilities of one question, in the order of its options."""


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """Why a question has no answer."""

    reason: str


class DecisionAnswer(BaseModel):
    """An answer as far as all wires have it. `error`: some endpoints send one with a 200."""

    answers: dict[str, Any] | list[Any] | None = None
    usage: Annotated[ReportedUsage | None, READABLE] = None
    error: Any = None


def decision_wire(endpoint: Endpoint) -> Wire | Literal["ask"] | None:
    """The wire that an endpoint is known to speak without being asked; None: it only chats, "ask":
    it has to be asked, see `FIND_WIRE`."""
    return None if endpoint.decisions == "none" else endpoint.decisions


def most_characters(endpoint: Endpoint) -> int | None:
    """How many characters a state and a question may have together, where that is known."""
    return None if endpoint.context is None else CHARACTERS_PER_TOKEN * endpoint.context


def decision_body(
    wire: Wire, model: str, state: str, questions: Sequence[Question]
) -> dict[str, Any]:
    """The request as the wire has it."""
    if wire == "systemone":
        asked = {question.name: _systemone_question(question) for question in questions}
        return {"model": model, "state": state, "questions": asked}
    write = _openai_question if wire == "decisions" else _sglang_question
    return {"model": model, "input": state, "questions": [write(one) for one in questions]}


def _systemone_question(question: Question) -> dict[str, Any]:
    described: Any
    if question.kind == "predicate":
        words = zip(("false", "true"), question.options, strict=True)
        described = {word: option.description for word, option in words if option.description}
        kind = "noul"
    elif question.kind == "choice":
        described = {option.value: option.description or None for option in question.options}
        kind = "choice"
    else:
        described = [option.description for option in question.options]
        kind = "score"
    asked = {"type": kind, "instructions": question.instructions}
    return asked | {"criteria": described} if described else asked


def _openai_question(question: Question) -> dict[str, Any]:
    """A predicate has no place for what yes and no mean, so its instructions say it."""
    asked = {
        "type": question.kind,
        "name": question.name,
        "instructions": question.instructions,
    }
    if question.kind == "predicate":
        no, yes = (option.description for option in question.options)
        said = [f"{word}: {text}" for word, text in (("True", yes), ("False", no)) if text]
        return asked | {"instructions": "\n".join([question.instructions, *said])}
    field, key = ("choices", "value") if question.kind == "choice" else ("levels", "label")
    options = [
        {key: option.value} | ({"description": option.description} if option.description else {})
        for option in question.options
    ]
    return asked | {field: options}


def _sglang_question(question: Question) -> dict[str, Any]:
    asked: dict[str, Any] = {"id": question.name, "question": question.instructions}
    if question.kind == "predicate":
        words = zip(("no", "yes"), question.options, strict=True)
        described = {word: option.description for word, option in words if option.description}
        return asked | {"type": "yes_no"} | described
    if question.kind == "score":
        return asked | {"type": "score", "levels": [one.description for one in question.options]}
    options = [
        {"name": option.value} | ({"description": option.description} if option.description else {})
        for option in question.options
    ]
    return asked | {"type": "choice", "options": options}


def read_answers(
    wire: Wire, given: dict[str, Any] | list[Any], questions: Sequence[Question]
) -> str:
    """The text of a response (`dump_answers`): a row for each question that was answered, and why
    the others were not. What the endpoint itself says of its confidence is left out."""
    read: Callable[[Question, Mapping[str, Any]], _Row | _Unanswered]
    read = _read_openai if wire == "decisions" else _read_mapped
    found = _by_name(given, questions)
    rows: dict[str, _Row] = {}
    failed: dict[str, str] = {}
    for question in questions:
        if question.name not in found:
            continue  # who reads the response calls it left out
        answer = found[question.name]
        if not isinstance(answer, dict):
            row: _Row | _Unanswered = _Unanswered(f"the answer is no object: {answer!r:.80}")
        else:
            row = read(question, cast("dict[str, Any]", answer))
        if isinstance(row, _Unanswered):
            failed[question.name] = row.reason
        else:
            rows[question.name] = row
    return dump_answers(rows, failed)


def _by_name(given: dict[str, Any] | list[Any], questions: Sequence[Question]) -> Mapping[str, Any]:
    """A list's answers have the names of their questions, or else stand in the questions' order."""
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for number, answer in enumerate(given):
        said = cast("dict[str, Any]", answer).get("name") if isinstance(answer, dict) else None
        if said is None and len(given) == len(questions):
            said = questions[number].name
        if isinstance(said, str):
            found[said] = answer
    return found


_SAID_OF = {"noul": "predicate", "yes_no": "predicate"}


def _other_type(question: Question, answer: Mapping[str, Any]) -> _Unanswered | None:
    said = answer.get("type")
    if said == "refusal":
        why = answer.get("refusal") or answer.get("reason") or answer.get("message")
        told = f": {why!r:.200}" if isinstance(why, str) else ""
        return _Unanswered(f"the model refuses to answer this question{told}")
    if not isinstance(said, str) or _SAID_OF.get(said, said) != question.kind:
        return _Unanswered(f"the answer is of the type {said!r:.40}, asked was a {question.kind}")
    return None


def _read_mapped(question: Question, answer: Mapping[str, Any]) -> _Row | _Unanswered:
    """System One's and SGLang's: probabilities by option, or by the number of the level."""
    if other := _other_type(question, answer):
        return other
    if question.kind == "predicate" and "noul" in answer:
        return _predicate(answer["noul"])
    keys = ["no", "yes"] if question.kind == "predicate" else [o.value for o in question.options]
    shares = answer.get("probabilities")
    if not isinstance(shares, dict):
        return _Unanswered("the answer has no probabilities")
    return _distribution(keys, cast("dict[str, Any]", shares))


def _read_openai(question: Question, answer: Mapping[str, Any]) -> _Row | _Unanswered:
    if other := _other_type(question, answer):
        return other
    if question.kind == "predicate":
        return _predicate(answer.get("probability"))
    listed = answer.get("probabilities")
    if not isinstance(listed, list):
        return _Unanswered("the answer has no probabilities")
    shares: dict[str, Any] = {}
    for entry in cast("list[Any]", listed):
        if isinstance(entry, dict):
            said = cast("dict[str, Any]", entry)
            shares[str(said.get("value"))] = said.get("probability")
    return _distribution([option.value for option in question.options], shares)


def _predicate(yes: object) -> _Row | _Unanswered:
    if not _is_probability(yes):
        return _Unanswered(f"the answer is no probability: {yes!r:.80}")
    return (1.0 - yes, yes)


def _distribution(keys: Sequence[str], shares: Mapping[str, Any]) -> _Row | _Unanswered:
    """In the order of `keys`, with the sum 1: endpoints round, and some to two decimals."""
    if set(shares) != set(keys):
        said = ", ".join(map(str, shares))
        return _Unanswered(f"the probabilities are of other options: {said:.120}")
    values = [shares[key] for key in keys]
    total = math.fsum(values) if all(_is_probability(value) for value in values) else math.nan
    if not abs(total - 1) <= max(SUM_TOLERANCE, ROUNDED * len(keys)):
        return _Unanswered(f"the probabilities are no distribution: {json.dumps(values):.120}")
    return tuple(value / total for value in values)


def _is_probability(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= cast("float", value) <= 1
