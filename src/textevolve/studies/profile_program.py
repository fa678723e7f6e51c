"""A debate profile as a program: its personas and components are the templates, its weights are
fitted, and what it gives for a labelled item is its scores of the candidates.

Debaters see the input and the candidates, never the label: that meets their scores in
`credit_winner`. How a profile's wording becomes texts is in `debate.profile_texts`, how weights are
fitted in `bench.profile_weights`.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np

from textevolve.bench.credit import top_credit
from textevolve.bench.item_fields import draw_side, hash_text
from textevolve.bench.items import Item, question_of
from textevolve.bench.profile_weights import CLEAR, fit_weights, gain_of_fit
from textevolve.bench.verdicts import TextOrder
from textevolve.debate.profile import Profile, load_profile
from textevolve.debate.profile_texts import dump_profile, profile_texts, with_texts
from textevolve.debate.protocol import choose_readout
from textevolve.debate.result import DebateResult
from textevolve.debate.tensor import component_scores
from textevolve.errors import InputError, ModelError
from textevolve.evaluation import Case, Evaluator, Usage
from textevolve.llm.model import Response
from textevolve.loops.calibration.examples import Example, ProgramNames
from textevolve.loops.calibration.program import ProgramError, ProgramOutput, Templates, TraceStep
from textevolve.loops.calibration.tree import CalibrationResult
from textevolve.statistics.resampling import Array
from textevolve.statistics.sequential import fewest_units

ProfileOrders: TypeAlias = Literal["both", "drawn"]

INPUT, CANDIDATE = "input", "candidate "
FEWEST_QUESTIONS = fewest_units() + 2
"""Below which no gain, however large, could be significant on those that are held out."""
ABOUT = (
    "This program is a debate: agents, each with a persona, score the candidates for an input from"
    " 0 to 10 for each component, and the candidate with the highest weighted score should be the"
    " one that people prefer. The template 'persona NAME' says how that agent judges. 'component"
    " NAME' says what is scored: its meaning, then a line such as '0: ...' for what a score means,"
    " and a line 'Question: ...' with a yes / no question about one candidate, in which yes is"
    " good; keep that form."
)
"""What an editor is told of a profile."""


@dataclass(frozen=True)
class ProfileProgram:
    """A debate with texts and weights of its own. `judge`: debates as the profile says, or as the
    parameters of a case do; None where nothing is asked. `orders`: each item is debated with its
    candidates as given and reversed, or in the one order that its id draws.

    Weights change nothing that debaters see, so a debate is held once for the same texts, and its
    turns are weighed anew, as far as the other weights would not have let it go on for longer.
    """

    profile: Profile
    orders: ProfileOrders = "both"
    judge: Evaluator | None = None
    held: dict[_Key, DebateResult] = field(default_factory=dict[tuple[str, ...], DebateResult])
    locks: dict[_Key, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    @property
    def templates(self) -> Templates:
        names = [component.name for component in self.profile.components]
        weights = tuple(zip(names, self.profile.weight_list, strict=True))
        return Templates(tuple(profile_texts(self.profile).items()), weights)

    @property
    def given(self) -> ProgramNames:
        return ProgramNames(None, tuple((name, ()) for name in self.templates.names), whole=True)

    def times(self, model: str) -> int:
        """How many debates there are about an item, if agents that name no model ask this one."""
        readout = choose_readout(self.profile, self.profile.models(model))
        even = is_even(self.profile.model_copy(update={"readout": readout}))
        return 1 if even or self.orders == "drawn" else 2

    def show(self, _templates: Templates, example: Example, /) -> str:
        return "\n\n".join(f"{name}: {value}" for name, value in example.values.items())

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        """The scores of the candidates in the item's order, as JSON, by the order of the debate.

        Raises:
            ProgramError: no turn of a debate gave scores that can be used. ModelError: some never
                came. BudgetError: a limit was reached.
        """
        results = dict[TextOrder, DebateResult]()
        for order in self._orders_of(example):
            if results and is_even(results["given"].profile):
                break
            results[order] = await self._debate(templates, example, order, count)
        scores = {order: _in_order(one.unit_scores, order) for order, one in results.items()}
        seconds = sum(one.seconds for one in results.values())
        usage = sum((one.usage for one in results.values()), Usage())
        response = Response(json.dumps(scores), "stop", usage, seconds=seconds)
        return ProgramOutput(response, _steps(next(iter(results.items()))))

    def tune(self, templates: Templates, examples: Sequence[Example]) -> Templates | None:
        """The same texts with weights fitted to the labels of those examples that were debated
        under them; None where folds say that they would not agree with people more often."""
        known = [(one, found) for one in examples if len(found := self._tensors(templates, one))]
        items = [item_of(one) for one, _ in known]
        scores = [found for _, found in known]
        names, current = [name for name, _ in templates.weights], dict(templates.weights)
        weights = fit_weights(items, scores, names)
        if weights is None or gain_of_fit(items, scores, current) <= CLEAR:
            return None
        return replace(templates, weights=tuple(zip(names, weights.tolist(), strict=True)))

    def _orders_of(self, example: Example) -> tuple[TextOrder, ...]:
        if self.orders == "both":
            return "given", "reversed"
        return ("given",) if draw_side(f"order: {example.id}") else ("reversed",)

    async def _debate(
        self,
        templates: Templates,
        example: Example,
        order: TextOrder,
        count: Callable[[Usage], None],
    ) -> DebateResult:
        key = self._key(templates, example, order)
        async with self.locks[key]:
            if found := self._again(templates, key):
                return found
            assert self.judge is not None
            profile = with_texts(self.profile, dict(templates.parts), dict(templates.weights))
            case = case_of(example, order)
            changed = {name: getattr(profile, name) for name in ("agents", "components", "weights")}
            result = await self.judge(replace(case, parameters=changed))
            assert isinstance(result, DebateResult)
            count(result.usage)
            if not result.scored:
                raise _why_unscored(result, order)
            self.held[key] = result
            return result

    def _again(self, templates: Templates, key: _Key) -> DebateResult | None:
        """The debate that was held, under these weights; None where it would have gone on."""
        if (held := self.held.get(key)) is None:
            return None
        found = held.rescore(weights=dict(templates.weights))
        ended = found.stopped != "rounds" or len(found.convergence) == found.profile.rounds
        return found if ended and found.scored else None

    def _tensors(self, templates: Templates, example: Example) -> Array:
        """The mean score of each candidate on each component (j, k), over turns and orders; empty
        where nothing was debated."""
        found = list[Array]()
        for order in self._orders_of(example):
            held = self.held.get(self._key(templates, example, order))
            if held is not None:
                means = component_scores(held.tensor.values)
                found.append(means[::-1] if order == "reversed" else means)
        return np.mean(found, axis=0) if found else np.zeros((0, 0))

    def _key(self, templates: Templates, example: Example, order: str) -> _Key:
        return (*(text for _, text in templates.parts), example.id, order)


_Key: TypeAlias = tuple[str, ...]
"""The texts under which an item was debated, its id, and the order of its candidates."""


def is_even(profile: Profile) -> bool:
    """Whether the order of the candidates changes nothing: each is looked at alone."""
    return profile.readout == "pointwise" and not profile.collections


def credit_winner(output: str, label: Sequence[float]) -> tuple[float, str]:
    """A metric: the credit of a profile's winner beside people's, the mean over the orders; a tie
    has half of it, as a guess has on average. And what an editor is told of it."""
    found: Mapping[str, list[float]] = json.loads(output)
    told = [f"People prefer {_winners(label)}."]
    for order, scores in found.items():
        listed = ", ".join(f"candidate {n} {10 * s:.2f}" for n, s in enumerate(scores, 1))
        told.append(f"Candidates {order}: the debate prefers {_winners(scores)} ({listed}, of 10).")
    return fmean(top_credit(scores, label) for scores in found.values()), " ".join(told)


def credit_by_chance(example: Example) -> float:
    """What a profile gets that calls all candidates equal."""
    return top_credit([0.0] * len(example.label), example.label)


def _winners(scores: Sequence[float]) -> str:
    best = [n for n, score in enumerate(scores, 1) if score >= max(scores) - CLEAR]
    if len(best) == len(scores):
        return "none"
    return " and ".join(f"candidate {n}" for n in best)


def _in_order(scores: Sequence[float], order: TextOrder) -> list[float]:
    return list(scores if order == "given" else scores[::-1])


def _why_unscored(result: DebateResult, order: str) -> Exception:
    """Answers that came and cannot be used are the profile's own fault; what never came is not."""
    failed = [turn for turn in result.turns if turn.failure is not None]
    reason = next((turn.failure.reason for turn in failed if turn.failure), "no turn gave scores")
    reason = f"candidates {order}: {reason}"
    if all(turn.usage.calls for turn in failed):
        return ProgramError(reason, ())
    return ModelError(reason)


def _steps(of: tuple[TextOrder, DebateResult]) -> tuple[TraceStep, ...]:
    """What each agent said last, with its scores; candidates under their numbers in the item."""
    order, result = of
    numbers = _in_order(range(1, len(result.case.candidates) + 1), order)
    listed = [f"Response {result.labels[j]} is candidate {n:g}" for j, n in enumerate(numbers)]
    steps = list[TraceStep]()
    for turn in result.turns[-len(result.agents) :]:
        lines = [turn.argument, f"({'; '.join(listed)}.)"] if turn.argument else []
        for number, row in zip(numbers, turn.scores or (), strict=False):
            said = zip(result.components, row, strict=True)
            lines.append(f"candidate {number:g}: " + ", ".join(f"{c} {s:.1f}" for c, s in said))
        steps.append(TraceStep(f"persona {result.agents[turn.agent]}", "", "\n".join(lines)))
    return tuple(steps)


def profile_cases(items: Iterable[Item]) -> Iterator[Case]:
    """Labelled items as cases of a calibration. Those of one question, or whose inputs differ in
    white space and case alone, are a group, which is never parted.

    Raises:
        InputError: they are too few for any gain to be told from chance.
    """
    kept = {(one.input, one.candidates, one.human): one for one in items if one.labelled}
    groups = {_group_of(item) for item in kept.values()}
    if len(groups) < FEWEST_QUESTIONS:
        raise InputError(
            f"too few labelled items: {len(kept)} on {len(groups)} different questions; at least"
            f" {FEWEST_QUESTIONS} questions are needed, or no gain could be significant"
        )
    for item in kept.values():
        texts = {f"{CANDIDATE}{n}": text for n, text in enumerate(item.candidates, 1)}
        values = {INPUT: item.input, **texts}
        about = {"label": list(item.human), "columns": list(values), "group": _group_of(item)}
        yield Case(json.dumps(values, ensure_ascii=False), (), item.id, about)


def _group_of(item: Item) -> str:
    own = question_of(item)
    return " ".join(item.input.casefold().split()) if own == hash_text(item.input) else own


def case_of(example: Example, order: TextOrder = "given") -> Case:
    """What is debated of an example."""
    texts = [text for name, text in example.values.items() if name != INPUT]
    shown = texts if order == "given" else texts[::-1]
    return Case(example.values[INPUT], tuple(shown), example.id)


def item_of(example: Example) -> Item:
    case = case_of(example)
    human = tuple(float(label) for label in example.label)
    return Item(example.id, case.input, case.candidates, human, group=example.group or "")


def write_better_profile(name: str, found: CalibrationResult) -> str | None:
    """The profile to use as a file; None where the profile of this name is not any more what the
    search began with."""
    try:
        profile = load_profile(name)
    except InputError:
        return None
    if profile_texts(profile) != dict(found.nodes[0].templates.parts):
        return None
    changed = found.weights != dict(found.nodes[0].templates.weights)
    weights = found.weights if changed else None
    return dump_profile(with_texts(profile, found.templates, weights))
