"""Histories as ArbiterOS publishes them, over what a monitor keeps.

Times are `datetime`, results can be changed, and what has no score is not among them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult as OurResult
from textevolve.node_eval import history as ours
from textevolve.node_eval.arbiteros.evaluation import EvaluationResult
from textevolve.node_eval.monitor import Monitor
from textevolve.node_eval.run_records import DEFAULT_RUN, NodeRun


class FullError(InputError, RuntimeError):
    """No node is awaited in this superstep; a RuntimeError as in ArbiterOS."""


def _part(name: str, empty: Callable[[], Any] = lambda: None) -> property:
    """The same part of the item that it stands for; `empty` in place of None."""

    def read(item: HistoryItem) -> Any:
        value = getattr(item.item, name)
        return empty() if value is None else value

    return property(read, lambda item, value: setattr(item.item, name, value))


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
        *,
        item: ours.HistoryItem | None = None,
    ) -> None:
        self.item = item or ours.HistoryItem(
            ours.read_time(timestamp), instruction, input_state, output_state
        )
        self.timestamp = datetime.fromtimestamp(self.item.timestamp)
        self.check_policy_results = check_policy_results or {}
        self.route_policy_results = route_policy_results or {}
        self._results = evaluation_results or {}

    instruction = _part("instruction")
    input_state = _part("input_state")
    output_state = _part("output_state", empty=dict)
    """Empty where the node failed."""
    attributes = _part("attributes")

    @property
    def evaluation_results(self) -> dict[str, EvaluationResult]:
        """By the evaluator's name; without those that gave no score."""
        for name, one in list(self.item.evaluation_results.items()):
            if isinstance(one, OurResult) and name not in self._results:
                self._results[name] = EvaluationResult(
                    one.score, one.passed, one.feedback, dict(one.metadata)
                )
        return self._results

    @evaluation_results.setter
    def evaluation_results(self, results: dict[str, EvaluationResult]) -> None:
        self._results = results

    def __repr__(self) -> str:
        return f"HistoryItem(timestamp={self.timestamp!r}, instruction={self.instruction!r})"


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
        self._monitor, self._seen = monitor, seen
        self._items: dict[int, HistoryItem] = {}
        self.next_superstep: list[str] = []
        self._step: object = None
        self._free = 0

    @property
    def _recorded(self) -> ours.History:
        """The same as this project has it."""
        if self._seen is not None or self._monitor is None:
            return self._seen or ours.History()
        if self.run_id is None:
            return self._monitor.history
        return self._monitor.history.runs.get(self.run_id, ours.History())

    @property
    def entries(self) -> list[list[HistoryItem]]:
        """Supersteps, each a list of the nodes that ran in it; one that was entered and has none
        yet is empty."""
        steps = [[self._wrap(item) for item in step] for step in self._recorded.entries]
        return [*steps, []] if self._free and self._free == len(self.next_superstep) else steps

    def _wrap(self, item: ours.HistoryItem) -> HistoryItem:
        wrapped = self._items.get(id(item))
        if wrapped is None or wrapped.item is not item:
            wrapped = HistoryItem("", None, None, item=item)
            self._items[id(item)] = wrapped
        return wrapped

    def enter_next_superstep(self, nodes: list[str]) -> None:
        """The next nodes, as many as are named here, stand in one superstep."""
        if not {"__start__", "__end__"} & set(nodes):
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
        if self._seen is not None or (step := self.take_place()) is None:
            raise FullError("no node is awaited: call enter_next_superstep([...]) before add_entry")
        self._items[id(entry.item)] = entry
        self._monitor = self._monitor or Monitor()
        self._monitor.record(entry.item, NodeRun(self.run_id or DEFAULT_RUN.id), step)

    def forget(self) -> None:
        """Take the run out of the monitor; it stays here as it is."""
        if self._monitor is not None and self.run_id is not None:
            self._seen = self._monitor.take_history(self.run_id)

    def pprint(self) -> None:
        """Print it as a tree."""
        print(self._recorded)
