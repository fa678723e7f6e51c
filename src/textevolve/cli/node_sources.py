"""Where `textevolve nodes` reads from, a trace or a run, and what it says and writes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from textevolve.cli import PARTLY, say
from textevolve.cli.node_options import read_types
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.export.files import open_target
from textevolve.export.nodes_page import MOST_NODES, write_nodes_page
from textevolve.export.wording import count, shorten, spent
from textevolve.node_eval.episodes import Episode, Reading
from textevolve.node_eval.statistics import Tallies
from textevolve.node_eval.traces import read_episodes, write_episode
from textevolve.runs.nodes import read_nodes
from textevolve.settings import read_settings
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

TRACES = (".jsonl", ".ndjson", ".json")
FAULTS_SAID = 5


class Source:
    """A trace or a run, which can be read more than once."""

    def __init__(
        self,
        read: Callable[[Reading], Iterable[Episode]],
        facts: Callable[[], dict[str, str]],
        *,
        once: bool = False,
    ) -> None:
        self.reading = Reading()
        self.facts = facts
        self._read, self._once = read, once
        self._kept: list[Episode] | None = None

    def read(self) -> Iterable[Episode]:
        if self._once:
            self._kept = list(self._read(self.reading))
            return self._kept
        return self._read(self.reading)

    def read_again(self) -> Iterable[Episode]:
        """What cannot be read twice was kept; faults are counted the first time."""
        return self._kept if self._kept is not None else self._read(Reading())


def open_source(
    stack: ExitStack,
    source: str,
    instruction: Sequence[str] | None,
    logs: Sequence[str] | None,
    store: Path | None,
) -> Source:
    """What was named on the command line, with the `--instruction` and `--logs` options.

    Raises:
        InputError: an option cannot be used. StoreError: there is no such run.
    """
    types, beside = read_types(instruction), logs or []
    if _is_trace(source):
        facts = {"Trace": ", ".join((source, *beside))}
        once = "-" in (source, *beside)
        return Source(lambda r: read_episodes(source, r, types, beside), lambda: facts, once=once)
    if types:
        raise InputError("--instruction: a run keeps the types that its nodes were judged with")
    if beside:
        raise InputError("--logs: a run keeps the messages that its nodes were judged with")
    settings, _ = read_settings({"store": store})
    opened = stack.enter_context(open_store(settings.store))
    run = opened.get_run(source)

    def read(_reading: object) -> Generator[Episode]:
        with closing(sync.iterate(read_nodes(opened, run))) as episodes:
            yield from episodes

    return Source(read, lambda: describe_run(opened, run))


def _is_trace(source: str) -> bool:
    path = Path(source)
    return source == "-" or os.sep in source or path.suffix.lower() in TRACES or path.is_file()


def describe_run(store: Store, run: RunRecord) -> dict[str, str]:
    """Where it comes from and what it took, each part with its heading."""
    facts = {"From": run.source}
    if run.spec.get("judges"):
        facts["Judges"] = ", ".join(run.spec["judges"])
        facts["Model"] = f"{run.spec.get('model')} ({run.spec.get('why')})"
        facts["Used"] = spent(store.run_totals(run.id).spent)
    facts["Run"] = f"{run.id} in {store.path}; see it with: textevolve nodes show {run.id}"
    return facts


def write_page(
    episodes: Iterable[Episode], output: str, facts: Callable[[], dict[str, str]]
) -> None:
    tallies, shown = Tallies(), list[Episode]()
    for episode in episodes:
        if tallies.nodes < MOST_NODES:
            shown.append(episode)
        tallies.add(episode)
    write_nodes_page(shown, tallies, output, facts())


def print_lines(episodes: Iterable[Episode]) -> None:
    with open_target("-") as target:
        for episode in episodes:
            write_episode(episode, target)


def say_faults(reading: Reading) -> int:
    """Say what of a trace could not be used; the exit code."""
    for fault in reading.faults[:FAULTS_SAID]:
        say(f"not used: {shorten(fault, 300)}")
    if reading.n_faults > FAULTS_SAID:
        say(f"not used: {reading.n_faults - FAULTS_SAID:,} more lines or spans")
    if reading.others:
        say(f"{count(reading.others, 'span')} left out: no steps of an agent")
    return PARTLY if reading.n_faults else 0
