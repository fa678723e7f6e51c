"""Optimising texts for tasks as a run: what is asked for, the tasks, the loops, what it may take.

The loop itself is in `textevolve.loops.optimization`. The same run again asks only what is missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.evaluation import Case, Evaluator, Usage, check_case
from textevolve.evaluators import parse_evaluator
from textevolve.events import Listener, silence
from textevolve.loops.attempt import Generator
from textevolve.loops.callables import as_evaluator, as_generator
from textevolve.loops.controller import OSCILLATION_LIMIT, Stopping
from textevolve.loops.generation import MOST_TOKENS, TEMPERATURE, ModelGenerator, write_prompt
from textevolve.loops.optimization import Optimization, optimize
from textevolve.loops.rules import Hybrid, Rules, load_rules
from textevolve.loops.scoring import INSTRUCTION_SHOWN, MOST_INSTRUCTIONS
from textevolve.rows import read_rows
from textevolve.runs.estimate import SHORT_ANSWER, PriceOf, UsageRange
from textevolve.runs.improving import Means, open_means, specify_loop
from textevolve.runs.judge_estimate import CHARACTERS_A_TOKEN, estimate_judge
from textevolve.runs.spec import MeasurementSpec, name_callable
from textevolve.runs.work import take_in
from textevolve.settings import Price, Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

Judge: TypeAlias = str | Evaluator | Callable[[Case], Any]
"""A judge's spec, such as `probe+rules`, or an evaluator itself, or what can be made one."""

DEFAULT_JUDGE = "single"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an optimisation is. `evaluator` is None where rules judge alone; with both, the rules go
    first (`Hybrid`). `generator`: in place of the model's. The rest is as in `optimize`."""

    evaluator: Judge | None = DEFAULT_JUDGE
    rules: Rules | None = None
    rules_weight: float = 0.5
    second_judge: Judge | None = None
    generator: Generator | None = None
    threshold: float = 0.8
    max_iterations: int = 3
    revise: bool = True
    min_improvement: float = 0.05
    convergence_window: int = 2
    oscillation_limit: float | None = OSCILLATION_LIMIT
    minimum_score: float | None = None
    samples: int = 1
    temperature: float = TEMPERATURE
    max_answer_tokens: int = MOST_TOKENS
    seed: int = 0

    def __post_init__(self) -> None:
        Stopping(
            self.threshold,
            self.max_iterations,
            self.min_improvement,
            self.convergence_window,
            self.oscillation_limit,
        )
        if self.minimum_score is not None and not 0 <= self.minimum_score <= 1:
            raise InputError(f"minimum_score must be from 0 to 1, not {self.minimum_score}")
        for name in ("samples", "max_answer_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 <= self.temperature <= 2:
            raise InputError(f"temperature must be from 0 to 2, not {self.temperature}")
        if not 0 <= self.rules_weight <= 1:
            raise InputError(f"rules_weight must be from 0 to 1, not {self.rules_weight}")

    @property
    def judges(self) -> tuple[str, ...]:
        """The specs of the judges that models are asked for."""
        return tuple(j for j in (self.evaluator, self.second_judge) if isinstance(j, str))


def choose_judges(
    evaluator: Judge | None, rules: str | Path | Rules | None, judge_model: str | None = None
) -> tuple[Judge | None, Rules | None]:
    """The judge and the rules that are meant: `rules:FILE` and `hybrid:FILE:JUDGE` name a file in
    the judge's place. Nothing named means a single judge; rules alone need none.

    Raises:
        InputError: a file or a judge cannot be used.
    """
    if not isinstance(evaluator, str):
        judge = evaluator if evaluator or rules is not None else DEFAULT_JUDGE
    else:
        kind, _, rest = evaluator.partition(":")
        judge = evaluator
        if kind in ("rules", "hybrid"):
            file, _, judge = (rest, "", None) if kind == "rules" else rest.partition(":")
            if not file or judge == "":
                form = "rules:FILE.yaml" if kind == "rules" else "hybrid:FILE.yaml:JUDGE"
                raise InputError(f"judge '{evaluator}': write {form}")
            if rules is not None:
                raise InputError(f"judge '{evaluator}': names rules already; leave --rules out")
            rules = file
    found = load_rules(rules) if isinstance(rules, str | Path) else rules
    return name_judge(judge, judge_model) if isinstance(judge, str) else judge, found


def name_judge(judge: str, model: str | None = None) -> str:
    """The judge's spec, with `model` where it names none.

    Raises:
        InputError: there is no such judge, or it cannot judge an attempt alone.
    """
    spec = parse_evaluator(judge)
    if spec.name == "pairwise":
        raise InputError(
            f"judge '{judge}': pairwise compares candidates, and an attempt stands alone; take"
            " probe, checklist, single, jury or debate"
        )
    return f"{judge}@{model}" if model and spec.model is None else judge


def read_tasks(path: str) -> Iterator[Case]:
    """The tasks of a file: rows with `task` (or `input`) and an optional `id`.

    Raises:
        InputError: the file cannot be read, or a row has no task; names file and line.
    """
    number = 0
    for where, row in read_rows(path, "task", lambda column: column in ("task", "input", "id")):
        number += 1
        text = row.get("task", row.get("input"))
        if not isinstance(text, str):
            raise InputError(f"{where}: 'task' must be there, and a text")
        given = row.get("id")
        yield as_case(text, str(number if given in (None, "") else given), where)
    if not number:
        raise InputError(f"{path}: no tasks: it is empty")


def as_case(task: str, id: str = "1", where: str = "the task") -> Case:
    """A task as a run keeps it: a case that has no candidates yet.

    Raises:
        InputError: it is blank, or no valid text.
    """
    try:
        check_case(Case(task, ("x",)))
    except InputError as error:
        raise InputError(f"{where}: {str(error).replace('the input', 'the task')}") from None
    return Case(task, (), id)


async def specify_optimization(
    settings: Settings, plan: Plan, model: str | None
) -> MeasurementSpec:
    """The specification of an optimisation; `model` writes, and judges where a judge names none.

    Raises:
        InputError: a judge cannot be used. SettingsError: no model can be had as asked.
    """
    fields = ("threshold", "max_iterations", "min_improvement", "convergence_window", "samples")
    fields += ("oscillation_limit", "minimum_score", "temperature", "max_answer_tokens", "seed")
    parameters: dict[str, Any] = {name: getattr(plan, name) for name in fields}
    if not plan.revise:  # named only then: runs kept from before there was a choice stay the same
        parameters["revise"] = False
    for name in ("evaluator", "second_judge", "generator"):
        given: object = getattr(plan, name)
        if given is not None:
            parameters[name] = given if isinstance(given, str) else name_callable(given)
    if plan.rules is not None:
        parameters["rules"] = plan.rules.file.model_dump(mode="json", by_alias=True)
        parameters["rules_weight"] = plan.rules_weight
    return await specify_loop(settings, "optimize", plan.judges, model, parameters)


def begin_optimization(
    store: Store, spec: MeasurementSpec, tasks: Iterable[Case], *, name: str = "", source: str = ""
) -> RunRecord:
    """The run of these tasks: a new one, or the one that is kept already."""
    return take_in(store, spec, tasks, name=name, source=source)


def check_seconds(seconds: float | None) -> None:
    """Raises InputError where it is no limit of time."""
    if seconds is not None and not 0 <= seconds < math.inf:
        raise InputError(f"the limit of seconds must be 0 or more, and finite, not {seconds}")


async def do_optimization(
    store: Store,
    run: RunRecord,
    plan: Plan,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
    *,
    seconds: float | None = None,
) -> list[Optimization]:
    """Ask what is missing, and give what became of each task, in order. `seconds`: for all of them.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    check_seconds(seconds)
    end = None if seconds is None else time.monotonic() + seconds
    async with open_means(store, run, settings, limits, listener) as means:
        evaluator = open_judge(plan.evaluator, plan.rules, means, plan.rules_weight)
        second = _pick(plan.second_judge, means)

        async def work(case: Case) -> Optimization:
            return await optimize(
                case.input,
                generator=(
                    as_generator(plan.generator) if plan.generator else _open_generator(plan, means)
                ),
                evaluator=evaluator,
                threshold=plan.threshold,
                max_iterations=plan.max_iterations,
                revise=plan.revise,
                min_improvement=plan.min_improvement,
                convergence_window=plan.convergence_window,
                oscillation_limit=plan.oscillation_limit,
                minimum_score=plan.minimum_score,
                samples=plan.samples,
                second_judge=second,
                seconds=None if end is None else max(0.0, end - time.monotonic()),
                listener=listener,
                id=case.id,
            )

        cases = list(store.iterate_cases(run.id))
        made = await gather_bounded([lambda c=c: work(c) for c in cases], means.in_flight)
        if not any(one.status == "budget" for one in made):
            store.finish_run(run.id, "finished")
        return made


def _open_generator(plan: Plan, means: Means) -> ModelGenerator:
    return ModelGenerator(
        means.model,
        temperature=plan.temperature,
        max_tokens=plan.max_answer_tokens,
        seed=plan.seed,
    )


def open_judge(
    judge: Judge | None, rules: Rules | None, means: Means, rules_weight: float = 0.5
) -> Evaluator:
    """What judges: a judge, rules, or a judge behind rules. One of them there has to be."""
    picked = _pick(judge, means)
    if rules is None:
        assert picked is not None
        return picked
    return rules if picked is None else Hybrid(rules, picked, rules_weight)


def _pick(judge: Judge | None, means: Means) -> Evaluator | None:
    if judge is None:
        return None
    return means.judges[judge] if isinstance(judge, str) else as_evaluator(judge)


def estimate_optimization(
    tasks: Sequence[Case], spec: MeasurementSpec, plan: Plan, price_of: PriceOf
) -> UsageRange:
    """The range for all tasks: from one short attempt each to all attempts, each as long as
    allowed and asked for twice. What own callables take is not known, and not counted."""
    least, most = Usage(), Usage()
    price = price_of(spec.model)
    short, long = "x" * SHORT_ANSWER * CHARACTERS_A_TOKEN, plan.max_answer_tokens
    longest = "x" * long * CHARACTERS_A_TOKEN
    told = ["x" * INSTRUCTION_SHOWN] * MOST_INSTRUCTIONS
    for task in tasks:
        if plan.generator is None:
            first = len(write_prompt(task.input, None, ())[1])
            again = len(write_prompt(task.input, longest, told)[1])
            later = plan.max_iterations - 1
            least += _calls(1, first / 5, SHORT_ANSWER, price)
            most += _calls(2, first / 3, long, price) + _calls(2 * later, again / 3, long, price)
        for judge, times in _asked(plan):
            one = estimate_judge([Case(task.input, (short,))], judge, spec.model, price_of)
            whole = estimate_judge([Case(task.input, (longest,))], judge, spec.model, price_of)
            gated = plan.rules is not None and judge == plan.evaluator
            least += Usage() if gated else sum([one.least] * times, Usage())
            most += sum([whole.most] * times * plan.max_iterations, Usage())
    return UsageRange(len(tasks), least, most)


def _asked(plan: Plan) -> list[tuple[str, int]]:
    """The judges that are asked, each with how often for one attempt."""
    judges = ((plan.evaluator, plan.samples), (plan.second_judge, 1))
    return [(judge, times) for judge, times in judges if isinstance(judge, str)]


def _calls(number: int, prompt: float, answer: int, price: Price | None) -> Usage:
    """So many calls of one kind; the prompt in tokens."""
    prompts, answers = round(number * prompt), number * answer
    cost = None if price is None else (prompts * price.input + answers * price.output) / 1e6
    return Usage(number, prompts, 0, answers, cost)
