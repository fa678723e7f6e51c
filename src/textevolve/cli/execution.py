"""Doing a run from the command line: what is drawn meanwhile, where results go, how it ends."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from textevolve.cli import INTERRUPTED, PARTLY, say

if TYPE_CHECKING:
    from textevolve.debate.result import DebateResult
    from textevolve.evaluation import Case
    from textevolve.runs.spec import MeasurementSpec, RunSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits


REASONS_SHOWN = 5
"""Of how many failed cases the reason is said."""


def check_output(output: str | None) -> None:
    """Raises InputError where no results can be written under this name's ending."""
    from textevolve.export.tables import choose_format

    if output is not None and not output.endswith(".html"):
        choose_format(output)


def execute(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    *,
    output: str | None,
    as_json: bool,
) -> int:
    """Do what is missing of a run, draw it, write its results, and return the exit code."""
    unscored = Unscored()
    calm_collector()
    try:
        with closing(
            _draw(store, run, settings, limits, unscored, quiet=as_json or output == "-")
        ) as results:
            if output is not None:
                write_output(results, output, run, store)
            else:
                for result in results:
                    if as_json:
                        print(result.to_json(), flush=True)
    except KeyboardInterrupt:
        say(f"\nstopped; every answer so far is kept. Go on with: textevolve runs resume {run.id}")
        return INTERRUPTED
    unscored.tell()
    if output not in (None, "-"):
        say(f"results written to {output}")
    if unscored.skipped:
        say(
            f"{unscored.skipped} of {run.n_cases} cases were not finished within the limits."
            f" Go on with: textevolve runs resume {run.id}"
        )
    return PARTLY if unscored else 0


def calm_collector() -> None:
    """Let Python look for garbage less often: with hundreds of debates in flight it takes a tenth
    of the time and finds little. Only a program may decide this, so the library leaves it alone."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class Unscored:
    """How many cases failed or were skipped, and why the first that failed have no score."""

    def __init__(self) -> None:
        self.failed = self.skipped = 0
        self._reasons: list[str] = []

    def __bool__(self) -> bool:
        return self.failed + self.skipped > 0

    def add(self, case: Case, kind: str, reason: str) -> None:
        from textevolve.export.wording import shorten

        if kind == "skipped":
            self.skipped += 1
            return
        self.failed += 1
        if self.failed <= REASONS_SHOWN:
            why = shorten(reason, 300)
            self._reasons.append(f"case {shorten(case.id, 40)} lacks a score: {why}")

    def tell(self) -> None:
        for line in self._reasons:
            say(line)
        if left := self.failed - len(self._reasons):
            say(f"{left} more cases lack a score")


def _draw(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    unscored: Unscored,
    *,
    quiet: bool,
) -> Generator[DebateResult]:
    """The results of a run as they come in order; one debate is drawn live, many as a bar."""
    from textevolve.cli.display import BatchProgress, LiveDebate
    from textevolve.cli.tables import open_console
    from textevolve.debate.protocol import choose_readout
    from textevolve.engine import sync
    from textevolve.export import wording
    from textevolve.runs.work import Work, do_run, read_spec

    spec = read_spec(run)
    fetch_weights(spec, run, settings)
    facts = {"Model": _name_models(spec), "Run": run.id}
    kept = f"run {run.id} in {store.path}; see it again with: textevolve runs show {run.id}"
    with ExitStack() as stack:
        progress = None
        if run.n_cases == 1 and not quiet:
            case = next(store.iterate_cases(run.id))
            readout = choose_readout(spec.profile, spec.models)
            profile = spec.profile.model_copy(update={"readout": readout})
            live = LiveDebate(case, profile, facts, kept=kept, console=open_console())
            listener = stack.enter_context(live)
        else:
            if not quiet:
                say(f"run {run.id}: {run.n_cases} cases, {facts['Model']}")
            progress = BatchProgress(run.n_cases)
            listener = stack.enter_context(progress)
        work = Work(store, settings, limits, listener=listener)
        results = stack.enter_context(closing(sync.iterate(do_run(run, work))))
        for result in results:
            if result.stopped == "budget":
                unscored.add(result.case, "skipped", "")
            elif not result.scored:
                unscored.add(result.case, "failed", wording.reason(result))
            if progress is not None:
                progress.advance(result)
            yield result
    if progress is not None:
        say(f"kept as {kept}")


def _name_models(spec: RunSpec) -> str:
    """The run's model with the reason for it, and those of agents that have their own."""
    named = f"{spec.model} ({spec.why})" if spec.why else spec.model
    own = [f"{agent.name}: {agent.model}" for agent in spec.profile.agents if agent.model]
    return "; ".join([named, *own])


def fetch_weights(spec: RunSpec | MeasurementSpec, run: RunRecord, settings: Settings) -> None:
    """Fetch what local models lack, with a progress bar, before anything else is drawn."""
    fetch_models(spec.models, run, settings)


def fetch_models(names: Iterable[str], run: RunRecord, settings: Settings) -> None:
    """The same for models by their specs; those that are not local need nothing."""
    from textevolve.cli.models import draw_transfer
    from textevolve.llm.weights import fetch

    local = [name.removeprefix("local/") for name in names if name.startswith("local/")]
    if local and run.status != "finished":
        with draw_transfer() as report:
            for name in local:
                fetch(name, settings, report)


def write_output(
    results: Iterable[DebateResult],
    output: str,
    run: RunRecord,
    store: Store,
    *,
    turns: bool = False,
) -> int:
    """Write results in the format of the file's suffix; returns how many there were."""
    if output.endswith(".html"):
        from textevolve.export.report import write_report

        return write_report(results, output, lambda: _facts(store, run.id))
    from textevolve.export.tables import write_results

    return write_results(results, output, turns=turns)


def _facts(store: Store, run_id: str) -> dict[str, str]:
    """The run's facts as they stand when they are asked for, which is after its last result."""
    from textevolve.cli.tables import run_facts

    return run_facts(store.get_run(run_id), store.run_totals(run_id))
