"""The part of `improve.py` on prompt templates: calibrate against as many calls without it.

The task is to give the date of a short message as YYYY-MM-DD; the template to begin with asks for
"the date in digits". Messages are made by code, others for each seed. Three templates answer the
rows that were held out, and an answer is right if it is the date and nothing else: the one to begin
with, the one that calibrate's search leads to, and the best of some paraphrases. Both were chosen
on the training rows alone, with the same number of calls.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kept_run import keep_run, open_run
from sitting import format_share, tell_usage
from textevolve.errors import BudgetError
from textevolve.evaluation import Case, Failure, Usage
from textevolve.events import Event
from textevolve.llm.meter import UsageMeter
from textevolve.loops.attempt import stop_if_skipped
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan
from textevolve.loops.calibration.rewriting import Editor, RewritingRules, Rewritten, rewrite
from textevolve.loops.calibration.search import choose_beam, draw_rows, try_fast
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Example,
    Material,
    PromptProgram,
    TrialOutcome,
    TrialRunner,
    plain_prompt,
)
from textevolve.metrics.label_metrics import Grader
from textevolve.settings import Settings
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import t_quantile
from textevolve.store.repository import Store
from textevolve.wiring import Limits, Workbench

TEMPLATE = "Give the date in digits: {message}"
PARAPHRASE = "Say the same in other words, more clearly for the one who has to do it."
TRAINING, HELD_OUT, PARAPHRASES = 24, 40, 6
MOST_TOKENS = 24
EMPTY = "the output was empty"
PLAN = CalibrationPlan(
    strategy="protegi",
    beam=2,
    depth=2,
    minibatch=4,
    selection_minibatch=5,
    final_minibatch=12,
    gradient_depth=3,
    successors=2,
    max_output_tokens=MOST_TOKENS,
)

_MONTHS = "January February March April May June July August September October November December"
_MESSAGES = (
    "Please pay invoice {number} by {date}.",
    "Our flight leaves on {date}, gate {number}.",
    "The lease of flat {number} ends on {date}.",
    "She was born on {date} in a town of {number} people.",
    "Parcel {number} was sent on {date}.",
    "The concert in hall {number} was moved to {date}.",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A seed's outcome: which held-out rows each template answered right (1) or not (0).

    `accepted`: whether calibrate would have taken its template over the original by these rows.
    `calls` of the search and of the paraphrases, without those on held-out rows.
    """

    seed: int
    original: tuple[float, ...]
    found: tuple[float, ...]
    paraphrased: tuple[float, ...]
    accepted: bool
    calls: tuple[int, int]
    templates: tuple[str, str]


def make_rows(seed: int) -> list[Example]:
    """Different messages with their dates, drawn by the seed: first for training, then held out."""
    rng = Random(seed)
    rows: dict[str, str] = {}
    while len(rows) < TRAINING + HELD_OUT:
        year, month, day = rng.randint(1990, 2029), rng.randint(1, 12), rng.randint(1, 28)
        name = _MONTHS.split()[month - 1]
        forms = (
            f"{day} {name} {year}",
            f"{name} {day}, {year}",
            f"the {_ordinal(day)} of {name} {year}",
            f"{day} {name[:3]} {year}",
            f"{name[:3]} {_ordinal(day)}, {year}",
        )
        message = rng.choice(_MESSAGES).format(date=rng.choice(forms), number=rng.randint(11, 99))
        rows.setdefault(message, f"{year}-{month:02}-{day:02}")
    return [Example(f"{seed}-{n}", {"message": m}, d) for n, (m, d) in enumerate(rows.items(), 1)]


def _ordinal(day: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
    return f"{day}{ending}"


def is_date(output: str, label: Any) -> bool:
    """The metric: the date alone, but for white space, quotes and a full stop around it."""
    return re.sub(r"^[\s\"'`]+|[\s\"'`.]+$", "", output) == label


async def measure_templates(
    store: Store,
    settings: Settings,
    model: str,
    seeds: Sequence[int],
    limit: int | None,
    limits: Limits,
    listener: Callable[[Event], None],
) -> dict[str, Any]:
    """All seeds, one after another; a seed that is not done is named and left out."""
    done: list[Compared] = []
    print(f"\ncalibrate: {TRAINING} training rows, {HELD_OUT} held out, from: {TEMPLATE}")
    for seed in seeds:
        rows = make_rows(seed)
        training, held_out = rows[:TRAINING][:limit], rows[TRAINING:][:limit]
        try:
            outcome, used = await _measure_seed(
                store, settings, model, seed, training, held_out, limits, listener
            )
        except BudgetError as error:
            print(f"seed {seed}: not done yet ({error})")
            continue
        done.append(outcome)
        print(tell_seed(outcome))
        print(f"  in all: {tell_usage(used)}", flush=True)
    print(tell_all(done))
    return {"seeds": [_to_data(result) for result in done]}


async def _measure_seed(
    store: Store,
    settings: Settings,
    model: str,
    seed: int,
    training: Sequence[Example],
    held_out: Sequence[Example],
    limits: Limits,
    listener: Callable[[Event], None],
) -> tuple[Compared, Usage]:
    parameters = {"benchmark": "improve", "template": TEMPLATE, "seed": seed}
    cases = [Case(row.values["message"], (str(row.label),), row.id) for row in make_rows(seed)]
    run = await keep_run(store, settings, model, parameters, cases)
    material = Material(TEMPLATE, ("message",), ("message",), tuple(training), tuple(held_out))
    async with open_run(store, run, settings, limits, listener) as bench:
        compared = await compare_templates(material, bench, seed)
    totals = store.run_totals(run.id)
    return compared, totals.spent + totals.reused


async def compare_templates(material: Material, bench: Workbench, seed: int) -> Compared:
    """The search, the paraphrases, and all three templates on the held-out rows.

    Raises:
        BudgetError: something has not been asked yet.
    """
    plan = PLAN.model_copy(update={"seed": seed})
    search = await search_template(
        material,
        plan,
        CalibrationContext(
            generator=bench.model,
            editor=bench.model,
            metric=Grader(is_date),
            concurrency=bench.concurrency,
        ),
    )
    if search.stopped == "budget":
        raise BudgetError(search.reason)
    weighed = 0 if search.gain is None else 2 * len(material.validation)
    calls = search.usage.calls - weighed
    print(f"seed {seed}: searched, {search.usage.calls} calls", file=sys.stderr, flush=True)
    paraphrase, used = await best_paraphrase(material, bench, plan, calls)
    runner = open_runner(bench, plan)
    chosen = (TEMPLATE, search.nodes[search.leader].text, paraphrase)
    pairs = [(plain_prompt(text), row) for text in chosen for row in material.validation]
    outcomes = await runner.try_all(pairs)
    right = [_count(outcome) for outcome in outcomes]
    size = len(material.validation)
    return Compared(
        seed,
        tuple(right[:size]),
        tuple(right[size : 2 * size]),
        tuple(right[2 * size :]),
        search.accepted,
        (calls, used),
        chosen[1:],
    )


def _count(outcome: TrialOutcome) -> float:
    """1 for a right answer; an empty one is wrong.

    Raises:
        BudgetError: it did not come.
    """
    if outcome.score is None and outcome.failure is not None:
        if outcome.failure.reason != EMPTY:
            raise BudgetError(outcome.failure.reason)
        return 0.0
    return outcome.score or 0.0


async def best_paraphrase(
    material: Material, bench: Workbench, plan: CalibrationPlan, calls: int
) -> tuple[str, int]:
    """The best of some rewordings and the original, each on as many of the same training rows as
    the calls are enough for; and how many calls it took."""
    writer = UsageMeter(bench.model)
    rules = RewritingRules(material.template, material.names, material.columns)
    editor = Editor(writer, {PROMPT: rules}, plan.seed)
    runner = open_runner(bench, plan)

    async def reword(sample: int) -> Rewritten:
        templates = plain_prompt(material.template)
        return await rewrite(editor, templates, (PARAPHRASE,), PROMPT, sample)

    rewrites = await runner.ask_all(
        "paraphrases", [partial(reword, 9000 + n) for n in range(PARAPHRASES)]
    )
    stop_if_skipped(rewrites)
    texts = [
        rewritten.text
        for rewritten in rewrites
        if not isinstance(rewritten, Failure) and rewritten.text and not rewritten.note
    ]
    arms = list(dict.fromkeys((material.template, *texts)))
    count = len(material.training)
    each = max(1, min(count, (calls - writer.usage.calls) // len(arms)))
    rows = draw_rows(count, each, plan.seed, "paraphrases")

    async def try_rows(trials: Sequence[tuple[int, int]]) -> list[float | None]:
        pairs = [(plain_prompt(arms[arm]), material.training[row]) for arm, row in trials]
        return [outcome.score for outcome in await runner.try_all(pairs)]

    tried = await try_fast(range(len(arms)), rows, try_rows)
    best = choose_beam(tried, 1)
    used = writer.usage + runner.usage
    return arms[best[0] if best else 0], used.calls


def open_runner(bench: Workbench, plan: CalibrationPlan) -> TrialRunner:
    return TrialRunner(
        program=PromptProgram(
            plain_prompt(TEMPLATE), bench.model, plan.temperature, plan.max_output_tokens, plan.seed
        ),
        evaluator=None,
        metric=Grader(is_date),
        concurrency=bench.concurrency,
    )


def tell_seed(compared: Compared) -> str:
    return "\n".join(
        (
            f"seed {compared.seed}: original {format_share(compared.original)},"
            f" calibrate {format_share(compared.found)},"
            f" paraphrase {format_share(compared.paraphrased)};"
            f" {len(compared.original)} held-out rows",
            f"  calibrate less original {_difference(compared.found, compared.original)}"
            f" ({'accepted' if compared.accepted else 'not accepted'}),"
            f" less paraphrase {_difference(compared.found, compared.paraphrased)}",
            f"  calls to choose: {compared.calls[0]} of calibrate,"
            f" {compared.calls[1]} of paraphrases",
            f"  calibrate: {compared.templates[0]!r}",
            f"  paraphrase: {compared.templates[1]!r}",
        )
    )


def _difference(scores: Sequence[float], baseline: Sequence[float]) -> str:
    interval = difference_interval(scores, baseline)
    ends = interval.reason or f"{100 * interval.low:+.0f} to {100 * interval.high:+.0f}"
    return f"{100 * (sum(scores) - sum(baseline)) / len(scores):+.0f} ({ends})"


def tell_all(done: Sequence[Compared]) -> str:
    """Means over seeds; the interval is Student's, since a seed is one search and one set."""
    if not done:
        return "no seed is done"
    rows = [
        ("original", [_mean(compared.original) for compared in done]),
        ("calibrate", [_mean(compared.found) for compared in done]),
        ("paraphrase", [_mean(compared.paraphrased) for compared in done]),
        (
            "calibrate less original",
            [_mean(compared.found) - _mean(compared.original) for compared in done],
        ),
        (
            "calibrate less paraphrase",
            [_mean(compared.found) - _mean(compared.paraphrased) for compared in done],
        ),
    ]
    lines = [f"mean of {len(done)} seeds, 95 % by the spread of seeds:"]
    lines += [f"  {name:26} {_with_interval(values)}" for name, values in rows]
    return "\n".join(lines)


def _with_interval(values: Sequence[float]) -> str:
    mean = 100 * statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.1f} (no interval for {len(values)} seeds)"
    half = 100 * t_quantile(0.95, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _to_data(compared: Compared) -> dict[str, Any]:
    return {
        "seed": compared.seed,
        "original": compared.original,
        "calibrate": compared.found,
        "paraphrase": compared.paraphrased,
        "accepted": compared.accepted,
        "calls": compared.calls,
        "templates": compared.templates,
    }
