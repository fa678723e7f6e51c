"""The cases of the robustness card, and the questions to a judge about them. Cases are shipped in
`cards/`, or written by a user in the same YAML format.

A case is an input with a good and a bad response. A pair is shown in both orders, and an injection
both with and without its attack; a case of the family `consistency` is shown in one order with
several seeds. `card.py` computes figures from the answers.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import yaml
from pydantic import Field, model_validator

from textevolve.engine.local import stream
from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    attempt,
    check_results,
)
from textevolve.llm.usage_meter import DistinctCalls, NotedCall, note_calls
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.statistics.intervals import TIE
from textevolve.texts.yaml_lines import build_at, line_of, parse_yaml

Family = Literal[
    "order",
    "length",
    "consistency",
    "content-free",
    "injection",
]
FAMILIES: tuple[Family, ...] = get_args(Family)

RESPONSE = "{response}"  # the mark in an attack that stands for the bad response

RETIRED = ("others", "paraphrases", "same")
"""The fields of families of cases that no longer exist; stored records still have them, with empty
values."""


class CardCase(Frozen):
    """A pair of responses; `good` should win.

    Attributes:
        family: The kind of robustness that the case tests. In the family `content-free`, `bad` has
            no content and may be blank.
        kind: A further division of the family in its figures. In the family `injection`, `control`
            marks a harmless addition, to which attacks are compared.
        attack: The text that is added to `bad` in the family `injection`: after it, or around it if
            the attack contains `{response}`.
    """

    id: str = Field(max_length=100)
    family: Family
    kind: str = ""
    input: str
    good: str
    bad: str
    attack: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, row: Any) -> Any:
        """Drop the empty fields of families that no longer exist."""
        if not isinstance(row, dict):
            return row
        fields = cast("dict[str, Any]", row)
        return {name: value for name, value in fields.items() if value or name not in RETIRED}

    @model_validator(mode="after")
    def _consistent(self) -> CardCase:
        if len(self.id.split()) != 1:
            raise ValueError("'id' must be one word")
        if (self.family == "injection") != bool(self.attack):
            raise ValueError(
                "cases of the family 'injection' need 'attack', and no other cases have it"
            )
        texts = [self.good] if self.family == "content-free" else [self.good, self.bad]
        words = [" ".join(text.split()) for text in texts]
        if not self.input.strip() or "" in words or len(set(words)) < len(words):
            raise ValueError("the texts of a case must differ, and none may be blank")
        return self

    @property
    def attacked(self) -> str:
        """Return the bad response with the attack added, or unchanged if there is no attack."""
        if not self.attack:
            return self.bad
        if RESPONSE in self.attack:
            return self.attack.replace(RESPONSE, self.bad)
        return f"{self.bad}\n\n{self.attack}"


@lru_cache(maxsize=1)
def shipped_cases() -> tuple[CardCase, ...]:
    """Return all cases that are shipped with the package, in the order of their families."""
    folder = resources.files("textevolve.bench") / "cards"
    files = [folder / f"{family.replace('-', '_')}.yaml" for family in FAMILIES]
    return tuple(c for f in files for c in parse_cases(f.read_text(encoding="utf-8"), f.name))


def load_cases(path: str | Path) -> tuple[CardCase, ...]:
    """Read a user's cases from a YAML file.

    Raises:
        InputError: the file cannot be read or a case is wrong; names file, line and reason.
    """
    return parse_cases(read_text(str(path)), str(path))


def parse_cases(text: str, source: str) -> tuple[CardCase, ...]:
    """Read cases from YAML text; `source` names the text in error messages.

    Raises:
        InputError: a case is wrong; names file, line and reason.
    """
    node, rows = parse_yaml(text, source)
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}:1: must be a list of cases")
    nodes: list[yaml.Node] = cast("yaml.SequenceNode", node).value
    cases: dict[str, CardCase] = {}
    for row, place in zip(cast("list[Any]", rows), nodes, strict=True):
        case = build_at(CardCase, row, place, source)
        if case.id in cases:
            line = line_of(place, ("id",))
            raise InputError(
                f"{source}:{line}: two cases have the id '{case.id}'; give each case its own id"
            )
        cases[case.id] = case
    return tuple(cases.values())


@dataclass(frozen=True, slots=True)
class CardQuestion:
    """One question to the judge: a case in one order, with or without its attack. `seed`: None
    means the judge's own seed."""

    case: CardCase
    attacked: bool = False
    good_first: bool = True
    seed: int | None = None

    @property
    def variant(self) -> str:
        """Return a name for the form of the question, such as `bad-first/attacked`."""
        parts = {
            "good-first" if self.good_first else "bad-first": True,
            "attacked": self.attacked,
            f"seed-{self.seed}": self.seed is not None,
        }
        return "/".join(name for name, applies in parts.items() if applies)

    @property
    def key(self) -> str:
        return f"{self.case.id}/{self.variant}"

    def as_case(self) -> Case:
        texts = (self.case.good, self.case.attacked if self.attacked else self.case.bad)
        seed = {} if self.seed is None else {"seed": self.seed}
        return Case(self.case.input, texts[:: 1 if self.good_first else -1], self.key, seed)


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """The judge's scores in [0, 1] for the good and the bad response. `odds`: the log-odds of the
    good response minus those of the bad one, which separates scores that are both near 0 or 1; None
    if the judge has none."""

    good: float
    bad: float
    odds: float | None = None


@dataclass(frozen=True, slots=True)
class CardRefusal:
    """The outcome of a case that the judge does not accept, which counts neither as a fault nor as
    a failed call."""

    reason: str


# The outcome of a question: the judge's scores, its refusal of the case, or a failed call.
CardOutcome: TypeAlias = CardAnswer | CardRefusal | Failure


@dataclass(frozen=True, slots=True)
class CardJudgement:
    """The outcome of a question, with its usage. `position`: the number of the question in the
    run."""

    question: CardQuestion
    outcome: CardOutcome
    usage: Usage = Usage()
    position: int = 0


def plan_questions(cases: Iterable[CardCase], seeds: int) -> tuple[CardQuestion, ...]:
    """Return the questions on all cases, in the order of the cases. In families that are shown in
    one order only, the good response stands first in about half of the cases."""
    return tuple(
        question
        for number, case in enumerate(cases)
        for question in _questions_of(case, seeds, good_first=number % 2 == 0)
    )


def _questions_of(case: CardCase, seeds: int, *, good_first: bool) -> Iterator[CardQuestion]:
    if case.family == "consistency":
        for seed in range(seeds):
            yield CardQuestion(case, good_first=good_first, seed=seed)
    else:
        for attacked in (False, True) if case.attack else (False,):
            for is_first in (True, False):
                yield CardQuestion(case, attacked, is_first)


async def ask_all(
    judge: Evaluator, questions: Iterable[CardQuestion], concurrency: int
) -> AsyncGenerator[CardJudgement]:
    """Put all questions to the judge, and yield the judgements in the order of the questions. The
    usage counts each distinct request once, whether or not its answer came from a journal.

    Raises:
        FatalModelError: no call can succeed.
    """
    counted = DistinctCalls()

    async def ask(placed: tuple[int, CardQuestion]) -> tuple[CardJudgement, list[NotedCall]]:
        position, question = placed
        with note_calls() as calls:
            try:
                evaluation = await attempt(judge(question.as_case()))
            except InputError as error:
                return CardJudgement(question, CardRefusal(str(error)), position=position), calls
        if isinstance(evaluation, Failure):
            return CardJudgement(question, evaluation, position=position), calls
        outcome = _read(evaluation.result, question)
        return CardJudgement(question, outcome, evaluation.usage, position), calls

    async with aclosing(stream(enumerate(questions), ask, concurrency)) as judgements:
        async for judgement, calls in judgements:
            yield replace(judgement, usage=counted.count(calls)[0]) if calls else judgement


def _read(results: Sequence[EvaluationResult | Failure], question: CardQuestion) -> CardOutcome:
    scored: list[EvaluationResult] = []
    for result in check_results(results, 2):
        if isinstance(result, Failure):
            return result
        scored.append(result)
    good, bad = scored[:: 1 if question.good_first else -1]
    odds = [r.metadata.get("log_odds") for r in (good, bad)]
    finite = [float(o) for o in odds if isinstance(o, int | float) and math.isfinite(o)]
    return CardAnswer(good.score, bad.score, finite[0] - finite[1] if len(finite) == 2 else None)


def find_winner(answers: Sequence[CardAnswer]) -> int:
    """Return 1 if the good response wins by the mean of the answers, -1 if the bad one does, and 0
    for a tie. If the scores tie, the log-odds decide."""
    margin = sum(a.good - a.bad for a in answers) / len(answers)
    if abs(margin) <= TIE:
        odds = [a.odds for a in answers if a.odds is not None]
        margin = sum(odds) / len(odds) if len(odds) == len(answers) else 0.0
    return 0 if abs(margin) <= TIE else int(math.copysign(1, margin))
