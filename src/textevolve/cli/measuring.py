"""Asking judges from the command line: what it may take, how it ends, where figures are written."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textevolve.cli import INTERRUPTED, say
from textevolve.cli.results import refuse_overwriting as refuse_overwriting
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.evaluation import Case
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings

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


def stopped() -> int:
    """Say that every answer is kept, and how to go on; the exit code."""
    say(f"\nstopped; every answer so far is kept. {go_on()}")
    return INTERRUPTED


def write_json(output: str, data: Mapping[str, Any]) -> None:
    from textevolve.export.files import open_target

    with open_target(output) as target:
        target.write(_line(data))


def _line(data: Any) -> bytes:
    return (json.dumps(data, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def go_on() -> str:
    """A sentence with the command that goes on with what was stopped."""
    return f"Go on with the same command: {shlex.join(['textevolve', *sys.argv[1:]])}"
