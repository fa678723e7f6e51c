"""The types of recorded runs: an `Episode` is one recorded run of an agent, and `Reading` counts
the nodes and the faults of a file. `traces.py` and `otel.py` read files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.run_records import DEFAULT_RUN

EpisodeInstructions: TypeAlias = Mapping[str, Instruction]
"""The instruction types of nodes by their names; in OpenTelemetry traces also by their operations
or kinds."""

FAULTS_KEPT = 100
"""The maximum number of faults that are kept with their reason."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One recorded run of an agent: its id, and the history of its nodes."""

    id: str
    history: History

    @property
    def nodes(self) -> Iterator[tuple[int, HistoryItem]]:
        """Yield every node with the number of its superstep, from 0 on."""
        for step, items in enumerate(self.history.entries):
            for item in items:
                yield step, item


def split_history(history: History, name: str = "") -> list[Episode]:
    """Split a history into one episode per run, named by the run's id; with `name`, by the name, or
    by `name/id` if there are several runs."""
    runs = [(run_id or DEFAULT_RUN.id, run) for run_id, run in history.runs.items()]
    if name and len(runs) > 1:
        return [Episode(f"{name}/{run_id}", run) for run_id, run in runs]
    return [Episode(name or run_id, run) for run_id, run in runs]


@dataclass(slots=True)
class Reading:
    """The counts of a file that is being read; they grow with it.

    `nodes`: the number of usable nodes. `n_faults`: the number of places that cannot be used;
    `faults`: the first hundred of them, with the reason. `others`: the number of spans that are no
    step of an agent, such as HTTP requests.
    """

    nodes: int = 0
    n_faults: int = 0
    others: int = 0
    faults: list[str] = field(default_factory=list[str])

    def report(self, fault: str) -> None:
        self.n_faults += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)
