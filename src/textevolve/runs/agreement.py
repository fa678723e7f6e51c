"""Asking judges on labelled items as a run: all once, then the cheaper ones to equal tokens.

How verdicts are gathered, and what figures are made of them, is in `textevolve.bench`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from textevolve.bench.agreement import AgreementSummary, summarise
from textevolve.bench.items import Item, load_items, split_items
from textevolve.bench.verdicts import Verdict, View, judge_items
from textevolve.errors import InputError
from textevolve.evaluation import Case, Evaluator, Usage
from textevolve.events import Listener, StepStarted, silence
from textevolve.runs.measurement import cases_in_flight, open_judges
from textevolve.runs.spec import read_measurement
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

PASS = "pass"
"""The step that is announced when so many `verdicts` more are going to be asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How judges are asked. `orders`: both, or given. `samples`: how often each; with
    `equal_tokens` only once at first, and then as often as the dearest's tokens allow. `views`: see
    `judge_items`. `seed`: of the intervals."""

    orders: str = "both"
    samples: int = 1
    equal_tokens: bool = False
    seed: int = 0
    views: Mapping[str, View] = field(default_factory=dict[str, View])

    def __post_init__(self) -> None:
        if self.equal_tokens and self.samples != 1:
            raise InputError("give samples or equal tokens, not both: the latter finds the number")
        if self.orders not in ("both", "given"):
            raise InputError(f"orders must be both or given, not '{self.orders}'")
        if self.samples < 1:
            raise InputError(f"samples must be 1 or more, not {self.samples}")


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it. `samples`: how many each judge gave. `once`: the figures of the first
    sample, where further ones were asked to equal tokens; None where they were not, which is also
    so while verdicts of the first pass are missing because a limit was reached."""

    items: tuple[Item, ...]
    verdicts: tuple[Verdict, ...]
    samples: Mapping[str, int]
    summary: AgreementSummary
    once: AgreementSummary | None = None

    @property
    def skipped(self) -> int:
        return sum(v.failure is not None and v.failure.kind == "skipped" for v in self.verdicts)

    @property
    def missing(self) -> int:
        """Verdicts that are not whole, for whatever reason."""
        return sum(None in v.scores for v in self.verdicts)


def read_items(
    paths: Sequence[str],
    format: str = "auto",
    *,
    half: str | None = None,
    limit: int | None = None,
    unlabelled: bool = False,
) -> list[Item]:
    """The items of all files: of the half that is asked for, the first `limit`.

    Raises:
        InputError: a file cannot be read, two items have one id, or none is left.
    """
    if half not in (None, "tune", "report"):
        raise InputError(f"half must be tune or report, not '{half}'")
    if limit is not None and limit < 1:
        raise InputError(f"the limit of items must be 1 or more, not {limit}")
    items: list[Item] = []
    source: dict[str, str] = {}
    for path in paths:
        for item in load_items(path, format, unlabelled=unlabelled):
            if item.id in source:
                raise InputError(
                    f"{path}: the id '{item.id}' is in {source[item.id]}, too; give each item an"
                    " 'id' of its own (where there is none it is the row's number)"
                )
            source[item.id] = path
            items.append(item)
    if half is not None:
        items = split_items(items)[half == "report"]
    if not items:
        raise InputError(f"no items are left in the half '{half}'")
    return items[:limit]


def as_cases(items: Iterable[Item]) -> Iterable[Case]:
    """The items as a run keeps them, without their labels: those may be mended later."""
    return (Case(item.input, item.candidates, item.id, reference=item.reference) for item in items)


async def measure_agreement(
    store: Store,
    run: RunRecord,
    items: Sequence[Item],
    plan: Plan,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> Measured:
    """Ask what is missing of a measurement, and sum it up.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    spec = read_measurement(run)
    in_flight = cases_in_flight(spec, settings)
    async with open_judges(store, run, settings, limits, listener) as judges:
        samples = dict.fromkeys(judges, plan.samples)
        verdicts = await _ask(items, judges, samples, 0, plan, in_flight, listener)
        found = _measured(items, verdicts, samples, plan)
        if plan.equal_tokens and not found.skipped:
            samples = count_samples(verdicts, list(judges))
            more = await _ask(items, judges, samples, 1, plan, in_flight, listener)
            once = found.summary
            found = _measured(items, [*verdicts, *more], samples, plan, once)
        if not found.skipped:
            store.finish_run(run.id, "finished")
        return found


async def _ask(
    items: Sequence[Item],
    judges: Mapping[str, Evaluator],
    samples: Mapping[str, int],
    skip: int,
    plan: Plan,
    in_flight: int,
    listener: Listener,
) -> list[Verdict]:
    """The verdicts from sample `skip` on. A view is of the first sample only: further ones would
    give it more than the judge it is a part of was given for it."""
    views: Mapping[str, View] = {} if skip else plan.views
    seen = [of for of, _ in views.values()]
    orders = 2 if plan.orders == "both" else 1
    number = sum(max(0, samples[n] - skip) * (1 + seen.count(n)) for n in judges)
    listener(StepStarted("", PASS, {"verdicts": number * orders * len(items)}))
    return await judge_items(
        items,
        judges,
        orders="both" if plan.orders == "both" else "given",
        in_flight=in_flight,
        samples=samples,
        skip=skip,
        views=views,
        listener=listener,
    )


def _measured(
    items: Sequence[Item],
    verdicts: Sequence[Verdict],
    samples: Mapping[str, int],
    plan: Plan,
    once: AgreementSummary | None = None,
) -> Measured:
    given = {**samples, **dict.fromkeys(plan.views, 1)}
    summary = summarise(items, verdicts, seed=plan.seed)
    return Measured(tuple(items), tuple(verdicts), given, summary, once)


def count_samples(verdicts: Sequence[Verdict], judges: Sequence[str]) -> dict[str, int]:
    """How many samples of each judge cost at most the tokens of one of the dearest, at least 1.

    By the mean tokens of the whole verdicts; a judge whose tokens are not known is asked once.
    """
    spent: dict[str, float] = {}
    for name in judges:
        whole = [v.usage for v in verdicts if v.judge == name and v.failure is None]
        total = sum(whole, Usage()).tokens
        spent[name] = total / len(whole) if whole else 0.0
    most = max(spent.values(), default=0.0)
    return {name: max(1, int(most / own)) if own else 1 for name, own in spent.items()}
