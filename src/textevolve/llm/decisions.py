"""The function `decide`: typed questions about a state (a text) in, a probability for every option
out.

The module has the types of questions and answers, and how both are contained in a `Request` and a
`Response`, so a decision is journaled, limited, retried and priced like any other call. The
bodies of endpoints' requests, and decisions by chat models, are in `decision_wires`.

The terms are those of OpenAI's Decisions API; System One calls a predicate a noul.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Failure, Usage
from textevolve.llm.choice_logprobs import log_odds
from textevolve.llm.model import Message, Model, Request, Response

QuestionKind = Literal["predicate", "choice", "score"]
Wire = Literal["systemone", "decisions"]
"""The protocols that endpoints speak: System One, and OpenAI's Decisions API."""

SUM_TOLERANCE = 0.02
"""The largest difference from 1 of the sum of probabilities that an endpoint rounded."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a question. `value`: its name in the answer. `description`: when the option
    applies; may be empty."""

    value: str
    description: str = ""

    @property
    def text(self) -> str:
        return f"{self.value}: {self.description}" if self.description else self.value


@dataclass(frozen=True, slots=True)
class Question:
    """A typed question.

    Attributes:
        name: The name that distinguishes it from other questions about the same state.
        kind: "predicate" (yes or no), "choice" (one of several options) or "score" (a level).
        instructions: The question itself.
        options: No and yes for a predicate, the choices for a choice, the levels in ascending order
            for a score.
    """

    name: str
    kind: QuestionKind
    instructions: str
    options: tuple[Option, ...]


def predicate(name: str, instructions: str, *, yes: str = "", no: str = "") -> Question:
    """Return a yes / no question. `yes` and `no` describe the two outcomes, if the question alone
    is not clear."""
    return Question(name, "predicate", instructions, (Option("no", no), Option("yes", yes)))


def choice(name: str, instructions: str, options: Mapping[str, str] | Sequence[str]) -> Question:
    """Return a question that asks for one of several options. `options`: names, or names with
    descriptions; at least two.

    Raises:
        InputError: there are fewer than two options, or two have the same name.
    """
    descriptions = dict.fromkeys(options, "") if isinstance(options, Sequence) else options
    choices = tuple(Option(value, description) for value, description in descriptions.items())
    if len(choices) < max(2, len(options)):
        raise InputError(f"question '{name}': a choice needs two or more different options")
    return Question(name, "choice", instructions, choices)


def score(name: str, instructions: str, levels: Sequence[str]) -> Question:
    """Return a question that asks for a level. `levels`: descriptions of at least two levels, the
    lowest first.

    Raises:
        InputError: there are fewer than two levels.
    """
    if len(levels) < 2:
        raise InputError(f"question '{name}': a score needs two or more levels")
    return Question(
        name, "score", instructions, tuple(Option(str(n), text) for n, text in enumerate(levels))
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question. `probabilities`: one for each option, in the question's order;
    their sum is 1."""

    probabilities: tuple[float, ...]

    @property
    def best(self) -> int:
        """Return the index of the most probable option, the first one if several are equal."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def share(self) -> float:
        """Return the position of the answer between the first option (0) and the last (1): P(yes)
        of a predicate, the expected level of a score divided by the highest."""
        most = len(self.probabilities) - 1
        expected = sum(n * p for n, p in enumerate(self.probabilities))
        return min(max(expected / most, 0.0), 1.0)

    @property
    def log_odds(self) -> float:
        """Return the log-odds of `share`."""
        return log_odds(self.share)


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
    return Request(
        messages=(Message("user", parts, images),),
        questions=dump_questions(questions),
        max_tokens=1,
        seed=seed,
        sample=sample,
    )


def dump_questions(questions: Sequence[Question]) -> str:
    """Return the questions as JSON text, in the form that a request holds."""
    return json.dumps([asdict(question) for question in questions], ensure_ascii=False)


def load_questions(text: str) -> tuple[Question, ...]:
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
    return json.dumps(body, ensure_ascii=False)


def read_decision(response: Response, questions: Sequence[Question]) -> Decision:
    """Read the decision in a response; an invalid distribution is a failure of its question."""
    body = json.loads(response.text)
    rows, failed = body["answers"], body.get("failed", {})
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
    usable = len(probabilities) == len(question.options) and all(
        0 <= p <= 1 + SUM_TOLERANCE for p in probabilities
    )
    if not usable or not abs(total - 1) <= SUM_TOLERANCE:
        return Failure(
            "failed", f"the probabilities are no distribution: {list(probabilities)!r:.80}"
        )
    return Answer(tuple(p / total for p in probabilities))
