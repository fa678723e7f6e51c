"""The function `decide`: typed questions about a state (a text) in, a probability for every option
out.

The module has how questions and answers are contained in a `Request` and a `Response`, so a
decision is journaled, limited, retried and priced like any other call. Their types are those of
`textevolve.protocol.contents`, the bodies of endpoints those of `textevolve.protocol.decisions`;
decisions by chat models are in `verdicts`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Failure, Usage
from textevolve.json_texts import write_text
from textevolve.llm.model import Message, Model, Request, Response, draw_sample
from textevolve.protocol.contents import SUM_TOLERANCE
from textevolve.protocol.contents import UNSURE as UNSURE
from textevolve.protocol.contents import Answer as Answer
from textevolve.protocol.contents import Option as Option
from textevolve.protocol.contents import Question as Question
from textevolve.protocol.contents import Wire as Wire
from textevolve.protocol.contents import choice as choice
from textevolve.protocol.contents import log_odds as log_odds
from textevolve.protocol.contents import predicate as predicate
from textevolve.protocol.contents import score as score


def probability(log_odds: float) -> float:
    """Convert log-odds into the probability of the first side, in (0, 1)."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    power = math.exp(log_odds)
    return power / (1.0 + power)


def softmax(logs: Sequence[float]) -> list[float]:
    """Return probabilities that are proportional to the exponentials of the values."""
    most = max(logs)
    powers = [math.exp(log - most) for log in logs]
    total = math.fsum(powers)
    return [power / total for power in powers]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answers to questions about one state.

    Attributes:
        answers: An answer for each question, by name, or a Failure if it was refused or is missing.
        emulated: Whether the answers were derived from a chat model.
        cut: The number of characters left out of the state, if it exceeded the model's context.
        seconds: The duration of the call.
    """

    answers: Mapping[str, Answer | Failure]
    emulated: bool = False
    cut: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0

    def answer(self, name: str) -> Answer:
        """Return the answer to a question.

        Raises:
            AnswerError: the question has no answer.
        """
        entry = self.answers[name]
        if isinstance(entry, Failure):
            raise AnswerError(f"question '{name}': {entry.reason}")

        return entry


async def decide(
    model: Model,
    state: str | tuple[str, ...],
    questions: Sequence[Question],
    *,
    seed: int | None = None,
    sample: int = 0,
    images: tuple[str, ...] = (),
) -> Decision:
    """Ask a model all questions about one state in one request, and return the decision.

    `state` may be split into parts, which are joined. Parts at the beginning that other requests
    share are stored once by the journal and cached by servers. A model of a run
    (`wiring.Workbench.model_of`) emulates decisions if its endpoint only chats. `images`: data URLs
    that belong to the state; a model with its own decision endpoint accepts none.

    Raises:
        InputError: there is no question, or two have the same name.
        ModelError: no answer came at all.
    """
    request = decision_request(state, questions, seed=seed, sample=sample, images=images)

    return read_decision(await model(request), questions)


def decision_request(
    state: str | tuple[str, ...],
    questions: Sequence[Question],
    *,
    seed: int | None = None,
    sample: int = 0,
    images: tuple[str, ...] = (),
) -> Request:
    if not questions:
        raise InputError("no question is given to decide")
    if len({question.name for question in questions}) < len(questions):
        raise InputError(
            "two questions about one state have the same name; give them different names"
        )

    parts = (state,) if isinstance(state, str) else state

    request = Request(
        messages=(Message("user", parts, images),),
        questions=write_text(list(map(asdict, questions))),
        max_tokens=1,
        seed=seed,
    )

    return draw_sample(request, sample)


def load_questions(text: str) -> tuple[Question, ...]:
    """Read the questions that a request holds as JSON text."""
    return tuple(
        Question(
            question["name"],
            question["kind"],
            question["instructions"],
            tuple(Option(**option) for option in question["options"]),
        )
        for question in json.loads(text)
    )


def dump_answers(
    probabilities: Mapping[str, Sequence[float]],
    failed: Mapping[str, str],
    *,
    emulated: bool = False,
    cut: int = 0,
) -> str:
    """Write the text of a response to questions. `failed`: reasons of missing answers, by name."""
    body: dict[str, Any] = {
        "answers": {name: [float(f"{p:.9g}") for p in row] for name, row in probabilities.items()}
    }
    if failed:
        body["failed"] = dict(failed)
    if emulated:
        body["emulated"] = True
    if cut:
        body["cut"] = cut

    return write_text(body)


def read_decision(response: Response, questions: Sequence[Question]) -> Decision:
    """Read the decision in a response; an invalid distribution is a failure of its question."""
    body = json.loads(response.text)
    rows = body["answers"]
    failed = body.get("failed", {})
    answers: dict[str, Answer | Failure] = {}

    for question in questions:
        if question.name in rows:
            answers[question.name] = _read_answer(question, rows[question.name])
        else:
            reason = failed.get(question.name, "the model left this question without an answer")
            answers[question.name] = Failure("failed", reason)

    return Decision(
        answers,
        emulated=body.get("emulated", False),
        cut=body.get("cut", 0),
        usage=response.usage,
        seconds=response.seconds,
    )


def _read_answer(question: Question, probabilities: Sequence[float]) -> Answer | Failure:
    total = sum(probabilities)
    is_complete = len(probabilities) == len(question.options)
    are_shares = all(0 <= share <= 1 + SUM_TOLERANCE for share in probabilities)

    # A comparison with NaN is False, so NaN is refused, too.
    if not (is_complete and are_shares and abs(total - 1) <= SUM_TOLERANCE):
        return Failure(
            "failed", f"the probabilities are no distribution: {list(probabilities)!r:.80}"
        )

    return Answer(tuple(share / total for share in probabilities))
