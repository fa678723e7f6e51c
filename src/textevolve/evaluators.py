"""From a judge's text to an `Evaluator` that asks its model. What the text says is read in
`judge_specs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from textevolve.debate.profile import Profile
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult
from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Case, Evaluation, Evaluator
from textevolve.events import Listener, silence
from textevolve.judge_specs import (
    FITTED,
    KINDS,
    METRIC,
    UNASKING,
    EvaluatorSpec,
    is_swayed,
    parse_evaluator,
    read_options,
    read_profile,
    read_rubric,
    split_rules,
    takes_rubric,
)
from textevolve.judges.cascade import Cascade
from textevolve.judges.decide import DecideChoice, choose_between
from textevolve.judges.fitted import FittedJudge
from textevolve.judges.fitted_file import load_fitted
from textevolve.judges.looks import LookJudge
from textevolve.judges.metric import MetricJudge
from textevolve.judges.pairwise import Pairwise
from textevolve.llm.model import Model
from textevolve.loops.attempt import as_evaluator
from textevolve.loops.rules import Hybrid, load_rules
from textevolve.memory.cue import Recall, nothing
from textevolve.settings import today as this_day
from textevolve.user_code import OWN, own_object


def open_evaluator(
    spec: EvaluatorSpec,
    model: str,
    model_of: Callable[[str], Model],
    *,
    listener: Listener = silence,
    concurrency: int = 64,
    today: str | None = None,
    rubric: str = "",
) -> Evaluator:
    """The judge that a spec names; `model` serves where neither spec nor profile names one.

    `today`, as YYYY-MM-DD, stands in a debate's prompts; the date of now where it is None.

    Raises:
        InputError: an unknown profile or parameter, or a value that cannot be used.
    """
    if spec.name in UNASKING:
        read_rubric(spec, rubric)
        return MetricJudge(spec.profile or "") if spec.name == METRIC else LookJudge()
    asked = spec.model or model
    if spec.is_debate:
        return Debate(
            profile=read_profile(spec, rubric),
            model_of=lambda agent: model_of(agent.model or asked),
            listener=listener,
            concurrency=concurrency,
            today=today or this_day(),
        )
    options = replace(read_options(spec, concurrency), rubric=read_rubric(spec, rubric))
    make = KINDS[spec.name].make
    if "choice" in spec.options:
        make = DecideChoice
    elif "pairwise" in spec.options:
        make = partial(Pairwise, ask=choose_between)
    elif spec.decider is not None:
        make = partial(make, decider=model_of(spec.decider))
    return make(model=model_of(asked), options=options)


@dataclass(frozen=True, slots=True)
class Judges:
    """How judges are opened for one run. `objects`: evaluators of the user's own, by the names that
    stand for them; `model` serves where a judge names none. `recall`: what debaters remember.
    `fill`: puts stored agents into a profile that names some."""

    model: str
    model_of: Callable[[str], Model]
    listener: Listener = silence
    concurrency: int = 64
    today: str | None = None
    objects: Mapping[str, object] = field(default_factory=dict[str, object])
    recall: Recall = nothing
    fill: Callable[[Profile], Profile] = lambda profile: profile

    def open(self, text: str, rubric: str = "") -> Evaluator:
        """The judge that a text names: `rules:FILE`, `hybrid:FILE:JUDGE`, one of the user's own, or
        any that `parse_evaluator` knows. `rubric`: what the latter is to judge by.

        Raises:
            InputError: there is no such judge, file or profile, or an option cannot be used.
        """
        rules, judge = split_rules(text)
        if rubric and judge is None:
            raise InputError(f"judge '{text}' takes no rubric: it asks no model anything")
        if text.startswith(OWN):
            return as_evaluator(cast("Callable[[Case], Any]", own_object(text, self.objects)))
        if rules is not None:
            found = load_rules(rules)
            if judge is None:
                return found
            return Hybrid(found, keep_whole(self.open(judge, rubric)), found.file.share)
        spec = parse_evaluator(text)
        if spec.name == FITTED:
            return self._open_fitted(spec, rubric)
        if spec.parts:
            return self._open_cascade(spec, rubric)
        opened = open_evaluator(
            spec,
            self.model,
            self.model_of,
            listener=self.listener,
            concurrency=self.concurrency,
            today=self.today,
            rubric=rubric,
        )
        if isinstance(opened, Debate):
            return replace(opened, profile=self.fill(opened.profile), recall=self.recall)
        return opened

    def _open_cascade(self, spec: EvaluatorSpec, rubric: str) -> Cascade:
        read_rubric(spec, rubric)
        first, second = (
            keep_whole(self.open(part, rubric if takes_rubric(part) else "")) for part in spec.parts
        )
        return Cascade(first, second, float(spec.profile or 0), (spec.parts[0], spec.parts[1]))

    def _open_fitted(self, spec: EvaluatorSpec, rubric: str) -> FittedJudge:
        read_rubric(spec, rubric)
        path = spec.profile or ""
        file = load_fitted(path)
        names = [signal.judge for signal in file.signals]
        judges = {
            name: keep_whole(self.open(part)) for name, part in zip(names, spec.parts, strict=True)
        }
        return FittedJudge(
            file, judges, frozenset(filter(is_swayed, names)), self.concurrency, path
        )


def keep_whole(judge: Evaluator) -> Evaluator:
    """The judge, but a debate that the limits cut short is missing: its scores so far are not those
    that it ends with when the run is gone on with."""

    async def judge_whole(case: Case, /) -> Evaluation:
        made = await judge(case)
        if isinstance(made, DebateResult) and made.stopped == "budget":
            raise BudgetError(say_limit(made))
        return made

    return judge_whole


def say_limit(result: DebateResult) -> str:
    """Which limit cut a debate short, in the words of the turn that it forbade."""
    forbidden = (
        t.failure.reason for t in result.turns if t.failure and t.failure.kind == "skipped"
    )
    return next(forbidden, "a limit was reached within the debate")
