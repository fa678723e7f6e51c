"""Judging nodes from the command line: progress meanwhile, and files written as results come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing

from textevolve.cli import PARTLY, say
from textevolve.cli.display import BatchProgress
from textevolve.cli.estimates import print_estimate
from textevolve.cli.execution import calm_collector, fetch_weights
from textevolve.cli.measuring import go_on
from textevolve.cli.node_sources import describe_run, print_lines
from textevolve.cli.node_tables import print_tallies
from textevolve.engine import sync
from textevolve.events import Event, StepFinished, silence
from textevolve.export.files import open_target
from textevolve.export.nodes_page import MOST_NODES, write_nodes_page
from textevolve.export.wording import count, shorten
from textevolve.node_eval.episode_evaluation import JUDGED
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.statistics import Tallies
from textevolve.node_eval.traces import write_episode, write_header
from textevolve.runs.nodes import count_unasked, do_nodes, estimate_nodes
from textevolve.runs.spec import MeasurementSpec
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, price_of


def judge_run(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    outputs: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Judge what is missing, write what was asked for as it comes, and draw what came of it; the
    exit code."""
    tallies, shown, unasked = Tallies(), list[Episode](), 0
    closed: BrokenPipeError | None = None
    judges: Sequence[str] = run.spec["judges"]
    pages = [one for one in outputs if one.lower().endswith(".html")]
    with ExitStack() as stack:
        files = [stack.enter_context(open_target(o)) for o in outputs if o not in pages]
        for file in files:
            write_header(file)
        for episode in _judge(stack, store, run, settings, limits, quiet=as_json):
            if pages and tallies.nodes < MOST_NODES:
                shown.append(episode)
            tallies.add(episode)
            unasked += count_unasked(episode, judges)
            for file in files:
                write_episode(episode, file)
            if as_json and closed is None:
                try:
                    print_lines([episode])
                except BrokenPipeError as error:
                    if not outputs:
                        raise
                    closed = error  # nobody reads on, but files were asked for, too
    for page in pages:
        write_nodes_page(shown, tallies, page, describe_run(store, run))
    if closed is not None:
        raise closed
    if not as_json:
        print_tallies(tallies, describe_run(store, run))
    for name, tally in tallies.by_evaluator.items():
        if tally.reason:
            missing = count(tally.failed + tally.skipped, "node")
            say(f"{name} has no score of {missing}; {shorten(tally.reason, 300)}")
    for output in outputs:
        say(f"written to {output}")
    if unasked:
        said = count(unasked, "judgement")
        say(f"{said} not asked for within the limits. {go_on()}")
    failed = sum(tally.failed for tally in tallies.by_evaluator.values())
    return PARTLY if unasked or failed else 0


def _judge(
    stack: ExitStack,
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits,
    *,
    quiet: bool,
) -> Iterable[Episode]:
    """The judged episodes as they come; a bar shows how far it is where models are asked."""
    spec = MeasurementSpec.model_validate(run.spec)
    listener = silence
    if spec.judges:
        calm_collector()
        fetch_weights(spec, run, settings)
        if not quiet:
            judges = ", ".join(spec.judges)
            say(f"run {run.id}: {run.n_cases} nodes, {judges}; {spec.model} ({spec.why})")
        whole = None if spec.parameters.get("only") else (run.n_cases or 0) * len(spec.judges)
        progress = stack.enter_context(BatchProgress(whole))

        def hear(event: Event) -> None:
            progress(event)
            if isinstance(event, StepFinished) and event.step == JUDGED:
                progress.count(event.value.failure.kind if event.value.failure else "scored")

        listener = hear
    work = do_nodes(store, run, settings, limits, listener)
    return stack.enter_context(closing(sync.iterate(work)))


def show_estimate(
    episodes: Iterable[Episode], spec: MeasurementSpec, settings: Settings, *, as_json: bool
) -> None:
    """What the judges may take on the nodes."""
    found = estimate_nodes(episodes, spec, lambda name: price_of(name, settings))
    model, why = (spec.model, spec.why) if spec.judges else ("none", "no judge is named")
    print_estimate(found, model, why, noun="nodes", as_json=as_json)
