"""Doing a measurement from the command line: progress, how it ends, and where figures are written.

What is measured is in `runs/agreement.py` and `runs/calibration.py`, how figures are drawn in
`judge_tables.py` and `escalation_tables.py`.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textevolve.cli import INTERRUPTED, PARTLY, say
from textevolve.cli.results import refuse_overwriting as refuse_overwriting
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.bench.disagreements import Disagreements
    from textevolve.evaluation import Case
    from textevolve.events import Event, Listener
    from textevolve.runs.agreement import Measured
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

T = TypeVar("T")
ENDINGS = (".json", ".jsonl", ".html")


def check_outputs(outputs: Sequence[str], endings: Sequence[str] = ENDINGS) -> None:
    """Raises InputError where a file's name does not say what is to be written."""
    for output in outputs:
        if Path(output).suffix.lower() not in endings:
            raise InputError(f"{output}: must end in {', '.join(endings)}")


async def specify(
    settings: Settings,
    kind: str,
    judges: Sequence[str],
    model: str | None,
    parameters: Mapping[str, Any],
) -> MeasurementSpec:
    """The measurement's specification; a model is only looked for where a judge names none."""
    from textevolve.evaluators import parse_evaluator
    from textevolve.runs.spec import specify_measurement
    from textevolve.wiring import choose_model

    named = [parse_evaluator(judge).model for judge in judges]
    asked = model if None in named else model or named[0]
    chosen, why = await choose_model(settings, asked)
    return specify_measurement(kind, judges, chosen, parameters, why)


def show_estimate(
    spec: MeasurementSpec,
    cases: Sequence[Case],
    settings: Settings,
    *,
    items: int | None = None,
    times: int = 1,
    note: str = "",
    as_json: bool = False,
) -> None:
    """What each judge may take on all cases, each asked so many `times`. `items`: how many they
    are about, where some differ in the order of their candidates alone."""
    from textevolve.cli.estimates import print_estimate
    from textevolve.evaluation import Usage
    from textevolve.runs.estimate import UsageRange
    from textevolve.runs.judge_estimate import estimate_judge
    from textevolve.wiring import price_of

    least, most = Usage(), Usage()
    for judge in spec.judges:
        found = estimate_judge(cases, judge, spec.model, lambda name: price_of(name, settings))
        least += sum([found.least] * times, Usage())
        most += sum([found.most] * times, Usage())
        if not as_json:
            low, high = found.least.calls * times, found.most.calls * times
            print(f"{judge}: {low:,} to {high:,} calls")
    total = UsageRange(len(cases) if items is None else items, least, most)
    print_estimate(total, spec.model, spec.why, noun="items", as_json=as_json)
    if note and not as_json:
        print(note)


def work_on(
    run: RunRecord,
    settings: Settings,
    step: str,
    do: Callable[[Listener], Coroutine[Any, Any, T]],
    *,
    total: int = 0,
    quiet: bool = False,
) -> T:
    """Do a measurement while a bar shows how far it is. `step` is the one whose ends are counted,
    by the `failure` of what it made; `total`, how many there will be, grows as it is announced."""
    from textevolve.cli.display import BatchProgress
    from textevolve.cli.execution import calm_collector, fetch_weights
    from textevolve.engine import sync
    from textevolve.events import StepFinished, StepStarted
    from textevolve.export.wording import count
    from textevolve.runs.agreement import PASS
    from textevolve.runs.spec import MeasurementSpec

    spec = MeasurementSpec.model_validate(run.spec)
    calm_collector()
    fetch_weights(spec, run, settings)
    if not quiet:
        why = f" ({spec.why})" if spec.why else ""
        items = count(run.n_cases or 0, "item")
        say(f"run {run.id}: {items}, {', '.join(spec.judges)}; {spec.model}{why}")
    with BatchProgress(total) as progress:

        def hear(event: Event) -> None:
            progress(event)
            if isinstance(event, StepStarted) and event.step == PASS:
                progress.total = (progress.total or 0) + event.details["verdicts"]
            elif isinstance(event, StepFinished) and event.step == step:
                progress.count(event.value.failure.kind if event.value.failure else "scored")

        return sync.run(do(hear))


def end(missing: int, skipped: int, noun: str) -> int:
    """Say what is missing, and how to go on; the exit code."""
    if skipped:
        say(f"{skipped} {noun} were not asked for within the limits. {go_on()}")
    elif missing:
        say(f"{missing} {noun} are missing; the same command asks again what got no answer")
    return PARTLY if missing else 0


def stopped() -> int:
    """Say that every answer is kept, and how to go on; the exit code."""
    say(f"\nstopped; every answer so far is kept. {go_on()}")
    return INTERRUPTED


def write_agreement(
    found: Measured,
    outputs: Sequence[str],
    data: Mapping[str, Any],
    facts: Mapping[str, str],
    *,
    title: str,
    sentence: str = "",
) -> None:
    """The summary as JSON, the verdicts as JSON lines, or all of it as a page, by each ending."""
    from textevolve.bench.summary import to_json
    from textevolve.export.agreement_page import write_agreement_page
    from textevolve.export.files import open_target

    for output in outputs:
        if output.lower().endswith(".html"):
            write_agreement_page(
                found.summary,
                _disagreements(found),
                output,
                title=title,
                sentence=sentence,
                samples=found.samples,
                facts=facts,
            )
        elif output.lower().endswith(".jsonl"):
            with open_target(output) as target:
                for verdict in found.verdicts:
                    target.write(_line(to_json(verdict)))
        else:
            write_json(output, data)
        say(f"written to {output}")


def write_json(output: str, data: Mapping[str, Any]) -> None:
    from textevolve.export.files import open_target

    with open_target(output) as target:
        target.write(_line(data))


def _disagreements(found: Measured) -> Disagreements:
    from textevolve.bench.disagreements import find_disagreements

    return find_disagreements(found.items, found.verdicts)


def _line(data: Any) -> bytes:
    return (json.dumps(data, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def run_facts(store: Store, run: RunRecord) -> dict[str, str]:
    """Where figures come from, each part with its heading."""
    spec = run.spec
    return {
        "Items from": run.source,
        "Model": f"{spec.get('model')} ({spec.get('why')})",
        "Run": f"{run.id} in {store.path}",
    }


def go_on() -> str:
    """A sentence with the command that goes on with what was stopped."""
    return f"Go on with the same command: {shlex.join(['textevolve', *sys.argv[1:]])}"
