"""An episode is one run of an agent that was recorded; `Reading` says what a recording lacked.

How files are read is in `traces.py` and `otel.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.run_records import DEFAULT_RUN

EpisodeInstructions: TypeAlias = Mapping[str, Instruction]
"""What a node does, by its name (or, in OpenTelemetry traces, its operation or kind)."""

FAULTS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Episode:
    """The history of one run of an agent."""

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
    """Findings while a trace is read; they grow with it.

    `nodes` that could be used; `faults`: places that could not, with the reason, of which the first
    hundred are kept; `others`: spans that are no step of an agent, such as HTTP requests.
    """

    nodes: int = 0
    n_faults: int = 0
    others: int = 0
    faults: list[str] = field(default_factory=list[str])

    def report(self, fault: str) -> None:
        self.n_faults += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)
