"""`textevolve evaluate --judge`: cases before a judge that is not a debate.

Debates are drawn and written by `execution.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from textevolve.cli import PARTLY, say
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.evaluation import Case
    from textevolve.judges.judged import JudgedCase
    from textevolve.runs.intake import Columns
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits


def refuse_debate_options(judge: str, options: Mapping[str, object]) -> None:
    """Raises InputError where an option is given that such a judge cannot follow."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise InputError(
            f"{option} is an option of debates, and the judge '{judge}' is none: leave it out; a"
            " judge's own options stand in its name, such as probe+rules"
        )


def check_output(output: str | None) -> None:
    """Raises InputError where no judgements can be written under this name's ending."""
    from textevolve.export.tables import choose_format

    if output is not None and output.lower().endswith(".html"):
        raise InputError(f"{output}: pages are there for debates; write .jsonl, .csv or .parquet")
    if output is not None:
        choose_format(output)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says beside the cases."""

    judge: str
    model: str | None
    name: str
    source: str
    output: str | None
    as_json: bool
    dry_run: bool
    columns: Columns


def with_parameters(cases: Iterable[Case], given: Mapping[str, Any]) -> Iterable[Case]:
    """The cases with parameters that hold where a case has none of its own.

    Raises:
        InputError: a parameter is out of range.
    """
    from textevolve.judges.exam import Options

    Options().overridden(given)
    return (replace(case, parameters={**given, **case.parameters}) for case in cases)


def warn_of_unread(columns: Columns, *, reference: bool) -> None:
    """Say once, after the cases were read, which of their fields nothing looks at."""
    if unread := columns.warning(reference=reference):
        say(f"warning: {unread}")


def evaluate(cases: Iterable[Case], asked: Asked, settings: Settings, limits: Limits) -> int:
    """Judge what is missing, or say what it may take, and return the exit code."""
    from textevolve.cli import measuring
    from textevolve.engine import sync
    from textevolve.evaluators import parse_evaluator
    from textevolve.runs.work import take_in
    from textevolve.store.repository import open_store

    spec = sync.run(measuring.specify(settings, "evaluate", [asked.judge], asked.model, {}))
    reference = parse_evaluator(asked.judge).reference
    if asked.dry_run:
        measuring.show_estimate(spec, list(cases), settings, as_json=asked.as_json)
        warn_of_unread(asked.columns, reference=reference)
        return 0
    with open_store(settings.store) as store:
        run = take_in(store, spec, cases, name=asked.name, source=asked.source)
        warn_of_unread(asked.columns, reference=reference)
        return _execute(store, run, asked, settings, limits)


def _execute(store: Store, run: RunRecord, asked: Asked, settings: Settings, limits: Limits) -> int:
    from textevolve.cli.display import BatchProgress
    from textevolve.cli.execution import Unscored, calm_collector, fetch_weights
    from textevolve.cli.measuring import go_on, stopped
    from textevolve.engine import sync
    from textevolve.export.wording import count
    from textevolve.runs.judged import do_judging
    from textevolve.runs.spec import read_measurement

    spec = read_measurement(run)
    calm_collector()
    fetch_weights(spec, run, settings)
    quiet = asked.as_json or asked.output == "-"
    if not quiet:
        why = f" ({spec.why})" if spec.why else ""
        cases = count(run.n_cases or 0, "case")
        say(f"run {run.id}: {cases}, {spec.judges[0]}; {spec.model}{why}")
    unscored = Unscored()
    try:
        with ExitStack() as stack:
            progress = stack.enter_context(BatchProgress(run.n_cases))
            show = _choose_showing(stack, asked, many=run.n_cases != 1)
            results = do_judging(store, run, settings, limits, progress)
            for judged in stack.enter_context(closing(sync.iterate(results))):
                failure = judged.failure
                progress.count(failure.kind if failure else "scored")
                if failure:
                    unscored.add(judged.case, failure.kind, failure.reason)
                show(judged)
    except KeyboardInterrupt:
        return stopped()
    if not quiet:
        say(f"kept as run {run.id} in {store.path}; the same command shows it again")
    unscored.tell()
    if asked.output not in (None, "-"):
        say(f"results written to {asked.output}")
    if unscored.skipped:
        say(f"{unscored.skipped} cases were not judged within the limits. {go_on()}")
    return PARTLY if unscored else 0


def _choose_showing(stack: ExitStack, asked: Asked, *, many: bool) -> Callable[[JudgedCase], None]:
    from textevolve.export.judged import case_record, open_judged

    if asked.output is not None:
        return stack.enter_context(open_judged(asked.output))
    if asked.as_json:
        return lambda judged: print(json.dumps(case_record(judged)), flush=True)
    from textevolve.cli.judged_tables import print_case, print_line

    return print_line if many else print_case
