"""The cases of the robustness card, those that ship in `cards/` and a user's own in the same YAML,
and how a judge is asked about them.

A case is an input with a good response and a bad one. Each pair is asked in both orders; an
injection with and without its attack, a detail that decides and one that does not matter each with
the good response. In one order are asked a case of the family `consistency` under several seeds,
and a criterion in its several wordings. The options of a choice are turned, so that the right one
stands in each place once. What follows from the answers is in `card.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import yaml
from pydantic import Field, model_validator

from textevolve.bench.credit import TIED, winner_of
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
    "choice-order",
    "criterion-paraphrase",
    "irrelevant-detail",
]
FAMILIES: tuple[Family, ...] = get_args(Family)

RESPONSE = "{response}"

OWN_FIELDS: Mapping[str, Family] = {
    "attack": "injection",
    "others": "choice-order",
    "paraphrases": "criterion-paraphrase",
    "same": "irrelevant-detail",
}
"""The fields that one family has, and must have."""


class CardCase(Frozen):
    """A pair in which `good` should win. `kind` tells cases of a family apart in its figures.

    In the family `content-free`, `bad` says nothing and may be blank. In `injection`, `attack` is
    what is added to `bad`: behind it, or around it where the attack has the mark `{response}`; the
    kind `control` is for additions that are no attack, with which attacks are compared. In
    `choice-order`, `others` are further wrong options. In `criterion-paraphrase`, `paraphrases`
    are the input in other words that ask the same. In `irrelevant-detail`, `bad` is `good` with the
    detail changed that decides, and `same` is it with one changed that does not matter.
    """

    id: str = Field(max_length=100)
    family: Family
    kind: str = ""
    input: str
    good: str
    bad: str
    attack: str = ""
    others: tuple[str, ...] = ()
    paraphrases: tuple[str, ...] = ()
    same: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> CardCase:
        if len(self.id.split()) != 1:
            raise ValueError("'id' must be one word")
        for field, family in OWN_FIELDS.items():
            if (self.family == family) != bool(getattr(self, field)):
                raise ValueError(f"'{field}' belongs to a case of '{family}', and to no other")
        bad = [] if self.family == "content-free" else [self.bad]
        inputs = (self.input, *self.paraphrases)
        responses = (self.good, *bad, *self.others, *([self.same] if self.same else []))
        for texts in (inputs, responses):
            words = [" ".join(text.split()) for text in texts]
            if "" in words or len(set(words)) < len(words):
                raise ValueError("its texts must differ, and none may be blank")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """All that can be chosen, the right one first."""
        return (self.good, self.bad, *self.others)

    @property
    def attacked(self) -> str:
        """The bad response with the attack; without one, the bad response as it is."""
        if not self.attack:
            return self.bad
        if RESPONSE in self.attack:
            return self.attack.replace(RESPONSE, self.bad)
        return f"{self.bad}\n\n{self.attack}"


@lru_cache(maxsize=1)
def shipped_cases() -> tuple[CardCase, ...]:
    """The cases in the package, by family."""
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
    """Read cases from YAML text; `source` names it in errors.

    Raises:
        InputError: as `load_cases`.
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
            raise InputError(f"{source}:{line}: two cases have the id '{case.id}'; ids must differ")
        cases[case.id] = case
    return tuple(cases.values())


def digest_cases(cases: Iterable[CardCase]) -> str:
    """Hash the cases to twelve hexadecimal digits; cards can be compared where they are the same.

    Fields that came later and that a case does not have take no part, so that older cards stay
    comparable.
    """
    rows: list[str] = []
    for case in cases:
        later = {name for name in OWN_FIELDS if name != "attack" and not getattr(case, name)}
        rows.append(json.dumps(case.model_dump(exclude=later), sort_keys=True))
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class CardQuestion:
    """One judgement to be asked for. `seed`: None leaves the judge its own. `wording`: 0 for the
    input as it is, n for its nth paraphrase. `irrelevant`: beside the good response stands the one
    with the detail changed that does not matter. `place`: where the right one of all options
    stands, None where only two texts are asked about."""

    case: CardCase
    attacked: bool = False
    good_first: bool = True
    seed: int | None = None
    wording: int = 0
    irrelevant: bool = False
    place: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The responses, the good one first."""
        if self.place is not None:
            return self.case.options
        bad = self.case.attacked if self.attacked else self.case.bad
        return (self.case.good, self.case.same if self.irrelevant else bad)

    @property
    def turn(self) -> int:
        """Number of places that the responses are rotated by when they are shown."""
        return int(not self.good_first) if self.place is None else self.place

    @property
    def variant(self) -> str:
        """How the case is asked, such as `bad-first/attacked`."""
        parts = {
            "good-first" if self.good_first else "bad-first": True,
            "attacked": self.attacked,
            f"seed-{self.seed}": self.seed is not None,
            f"wording-{self.wording}": self.wording > 0,
            "irrelevant": self.irrelevant,
            f"place-{self.place}": self.place is not None,
        }
        return "/".join(name for name, applies in parts.items() if applies)

    @property
    def key(self) -> str:
        return f"{self.case.id}/{self.variant}"

    def as_case(self) -> Case:
        texts, turn = self.texts, self.turn
        candidates = texts[len(texts) - turn :] + texts[: len(texts) - turn]
        text = self.case.paraphrases[self.wording - 1] if self.wording else self.case.input
        return Case(text, candidates, self.key, {} if self.seed is None else {"seed": self.seed})


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """The scores in [0, 1] of the good and the bad response; of more than two, of the best of the
    others. `odds`: the difference of their log-odds, where the judge has them; it separates scores
    that are both near 0 or 1. `chosen`: which of all texts won, the good one being 0; None where
    none did."""

    good: float
    bad: float
    odds: float | None = None
    chosen: int | None = None

    @property
    def lead(self) -> float:
        """Score of the good response less that of the bad one, in [-1, 1]."""
        return self.good - self.bad


@dataclass(frozen=True, slots=True)
class CardRefusal:
    """The judge does not take such a case at all; no fault, and no failure either."""

    reason: str


CardOutcome: TypeAlias = CardAnswer | CardRefusal | Failure


@dataclass(frozen=True, slots=True)
class CardJudgement:
    """The judge's outcome of a question and its usage; `position` is the question's place."""

    question: CardQuestion
    outcome: CardOutcome
    usage: Usage = Usage()
    position: int = 0


def plan_questions(cases: Iterable[CardCase], seeds: int) -> tuple[CardQuestion, ...]:
    """The questions in the order of the cases; places are balanced where there is one order."""
    return tuple(
        question
        for number, case in enumerate(cases)
        for question in _questions_of(case, seeds, good_first=number % 2 == 0)
    )


def _questions_of(case: CardCase, seeds: int, *, good_first: bool) -> Iterator[CardQuestion]:
    if case.family == "consistency":
        for seed in range(seeds):
            yield CardQuestion(case, good_first=good_first, seed=seed)
    elif case.family == "criterion-paraphrase":
        for wording in range(1 + len(case.paraphrases)):
            yield CardQuestion(case, good_first=good_first, wording=wording)
    elif case.family == "choice-order":
        for place in range(len(case.options)):
            yield CardQuestion(case, good_first=place == 0, place=place)
    else:
        for changed in (False, True) if case.attack or case.same else (False,):
            for first in (True, False):
                attacked, irrelevant = changed and bool(case.attack), changed and bool(case.same)
                yield CardQuestion(case, attacked, first, irrelevant=irrelevant)


async def ask_all(
    judge: Evaluator, questions: Iterable[CardQuestion], concurrency: int
) -> AsyncGenerator[CardJudgement]:
    """A judgement for each question, in their order, with what its new requests cost: every
    distinct request counts once, whether or not a journal answered it.

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
    for result in check_results(results, len(question.texts)):
        if isinstance(result, Failure):
            return result
        scored.append(result)
    good, *others = scored[question.turn :] + scored[: question.turn]
    odds = [r.metadata.get("log_odds") for r in (good, *others)]
    known = [float(o) for o in odds if isinstance(o, int | float) and math.isfinite(o)]
    whole = len(known) == len(scored)
    winner = winner_of(known if whole else [r.score for r in (good, *others)])
    return CardAnswer(
        good.score,
        max(result.score for result in others),
        known[0] - max(known[1:]) if whole else None,
        None if winner == TIED else winner,
    )


def find_winner(answers: Sequence[CardAnswer]) -> int:
    """1: the good response, -1: the bad one, 0: a tie, by the mean over the answers."""
    margin = sum(a.lead for a in answers) / len(answers)
    if abs(margin) <= TIE:
        odds = [a.odds for a in answers if a.odds is not None]
        margin = sum(odds) / len(odds) if len(odds) == len(answers) else 0.0
    return 0 if abs(margin) <= TIE else int(math.copysign(1, margin))
