"""Histories as ArbiterOS publishes them, over what a monitor keeps.

Times are `datetime`, results can be changed, and what has no score is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult as OurResult
from textevolve.node_eval import history as ours
from textevolve.node_eval.arbiteros.evaluation import EvaluationResult
from textevolve.node_eval.monitor import Monitor
from textevolve.node_eval.run_records import DEFAULT_RUN, NodeRun

STATE_SHOWN = 500
NO_NODES = ("__start__", "__end__")


class FullError(InputError, RuntimeError):
    """No node is awaited in this superstep; a RuntimeError as in ArbiterOS."""


def _part(name: str, empty: Callable[[], Any] = lambda: None) -> property:
    """The same part of the item that it stands for; `empty` in place of None."""

    def read(self: HistoryItem) -> Any:
        found = getattr(self.item, name)
        return empty() if found is None else found

    return property(read, lambda self, value: setattr(self.item, name, value))


class HistoryItem:
    """One node that ran. `timestamp`: a `datetime`, or a text of ISO 8601, which becomes one.
    `item`: the same as this project has it, with its run, its duration and what went wrong."""

    def __init__(
        self,
        timestamp: datetime | str,
        instruction: Any,
        input_state: Any,
        output_state: Any = None,
        check_policy_results: dict[str, bool] | None = None,
        route_policy_results: dict[str, str | None] | None = None,
        evaluation_results: dict[str, EvaluationResult] | None = None,
    ) -> None:
        unix = ours.read_time(timestamp)
        self.item = ours.HistoryItem(unix, instruction, input_state, output_state)
        self.timestamp = timestamp if isinstance(timestamp, datetime) else local_time(unix)
        self.check_policy_results = check_policy_results or {}
        self.route_policy_results = route_policy_results or {}
        self._results = evaluation_results or {}
        self._read: dict[str, OurResult] = {}

    @classmethod
    def of(cls, item: ours.HistoryItem) -> HistoryItem:
        """What a monitor has recorded."""
        found = cls(local_time(item.timestamp), item.instruction, None)
        found.item = item
        return found

    instruction = _part("instruction")
    input_state = _part("input_state")
    output_state = _part("output_state", empty=dict)
    """Empty where the node failed."""
    attributes = _part("attributes")

    @property
    def evaluation_results(self) -> dict[str, EvaluationResult]:
        """By the evaluator's name; without those that gave no score."""
        for name, one in list(self.item.evaluation_results.items()):
            if isinstance(one, OurResult) and self._read.get(name) is not one:
                self._read[name] = one
                metadata = dict(one.metadata)
                self._results[name] = EvaluationResult(
                    one.score, one.passed, one.feedback, metadata
                )
        return self._results

    @evaluation_results.setter
    def evaluation_results(self, results: dict[str, EvaluationResult]) -> None:
        self._results = results

    def __repr__(self) -> str:
        return f"HistoryItem(timestamp={self.timestamp!r}, instruction={self.instruction!r})"


def local_time(unix: float) -> datetime:
    """Without a zone, as `datetime.now()` gives it."""
    return datetime.fromtimestamp(unix)


class History:
    """The supersteps of one run of a monitor, or of all; those that are `seen`, as an evaluator has
    them; without either, those that are added by hand."""

    def __init__(
        self,
        monitor: Monitor | None = None,
        run_id: str | None = None,
        seen: ours.History | None = None,
    ) -> None:
        self.run_id = run_id
        self._monitor, self._kept = monitor, seen
        self._shown: dict[int, HistoryItem] = {}
        self.next_superstep: list[str] = []
        self._step: object = None
        self._free = 0

    def _read(self) -> ours.History:
        if self._kept is not None or self._monitor is None:
            return self._kept or ours.History()
        if self.run_id is None:
            return self._monitor.history
        return self._monitor.history.runs.get(self.run_id, ours.History())

    @property
    def entries(self) -> list[list[HistoryItem]]:
        """Supersteps, each a list of the nodes that ran in it; one that was entered and has none
        yet is empty."""
        steps = [[self._show(item) for item in step] for step in self._read().entries]
        return [*steps, []] if self._free and self._free == len(self.next_superstep) else steps

    def _show(self, item: ours.HistoryItem) -> HistoryItem:
        found = self._shown.get(id(item))
        if found is None or found.item is not item:
            found = self._shown[id(item)] = HistoryItem.of(item)
        return found

    def enter_next_superstep(self, nodes: list[str]) -> None:
        """The next nodes, as many as are named here, stand in one superstep."""
        if not any(name in NO_NODES for name in nodes):
            self.next_superstep, self._step, self._free = list(nodes), object(), len(nodes)

    def take_place(self) -> object | None:
        """The superstep of the next node; None where none was entered for it."""
        if not self._free:
            return None
        self._free -= 1
        return self._step

    def add_entry(self, entry: HistoryItem) -> None:
        """Add a node that ran elsewhere to the superstep that was entered.

        Raises:
            FullError: none was entered, or all its nodes are there.
        """
        if self._kept is not None or (step := self.take_place()) is None:
            raise FullError("no node is awaited: call enter_next_superstep([...]) before add_entry")
        self._shown[id(entry.item)] = entry
        self._monitor = self._monitor or Monitor()
        self._monitor.record(entry.item, NodeRun(self.run_id or DEFAULT_RUN.id), step)

    def forget(self) -> None:
        """Take the run out of the monitor; it stays here as it is."""
        if self._monitor is not None and self.run_id is not None:
            self._kept = self._monitor.take_history(self.run_id)

    def pprint(self) -> None:
        """Print it, with times as ISO 8601, states, and what evaluators said."""
        print("\n".join(self._describe()))

    def _describe(self) -> list[str]:
        lines = list[str]()
        for step, items in enumerate(self.entries, 1):
            lines.append(f"╔═══ SuperStep {step} ═══╗")
            for number, entry in enumerate(items, 1):
                kind = getattr(entry.instruction, "name", entry.instruction)
                lines.append(f"  [{step}.{number}] {ours.one_line(str(kind))}")
                lines.append(f"    Timestamp: {entry.timestamp.isoformat()}")
                lines.append(f"    Input: {_show_state(entry.input_state)}")
                lines.append(f"    Output: {_show_state(entry.output_state)}")
                lines.append("    Evaluations:")
                for name, result in entry.evaluation_results.items():
                    mark = "✓" if result.passed else "✗"
                    said = ours.one_line(f"{name}: score={result.score:.2f} - {result.feedback}")
                    lines.append(f"      {mark} {said}")
                if not entry.evaluation_results:
                    lines.append("      (none)")
        return lines


def _show_state(state: Any) -> str:
    try:
        said = json.dumps(state, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        said = f"(cannot be shown: {error})"
    return ours.one_line(said, STATE_SHOWN)
