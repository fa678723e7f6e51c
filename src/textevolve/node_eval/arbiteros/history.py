"""Histories as ArbiterOS publishes them, over the records of a monitor.

Times are `datetime`, results can be changed, and what has no score is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from textevolve.evaluation import EvaluationResult as OurResult
from textevolve.node_eval import history as ours
from textevolve.node_eval.arbiteros.evaluation import EvaluationResult
from textevolve.node_eval.monitor import Monitor


@dataclass
class HistoryItem:
    """One node that ran. `item`: the same as this project has it, with its run, its duration and
    what went wrong. `output_state` is empty where the node failed."""

    timestamp: datetime
    instruction: Any
    input_state: Any
    output_state: Any = field(default_factory=dict[str, Any])
    check_policy_results: dict[str, bool] = field(default_factory=dict[str, bool])
    route_policy_results: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    evaluation_results: dict[str, EvaluationResult] = field(
        default_factory=dict[str, EvaluationResult]
    )
    item: ours.HistoryItem | None = field(default=None, repr=False)

    @property
    def attributes(self) -> dict[str, Any]:
        return self.item.attributes if self.item else {}


def publish_item(item: ours.HistoryItem) -> HistoryItem:
    """Return a node in the published shape, without results that have no score."""
    results = {
        name: EvaluationResult(one.score, one.passed, one.feedback, dict(one.metadata))
        for name, one in item.evaluation_results.items()
        if isinstance(one, OurResult)
    }
    output: Any = {} if item.output_state is None else item.output_state
    at = datetime.fromtimestamp(item.timestamp)
    return HistoryItem(
        at, item.instruction, item.input_state, output, evaluation_results=results, item=item
    )


class History:
    """The supersteps of one run of a monitor, or of all; or those that are `seen`, as an evaluator
    has them. `entries` is made anew each time."""

    def __init__(
        self,
        monitor: Monitor | None = None,
        run_id: str | None = None,
        seen: ours.History | None = None,
    ) -> None:
        self.run_id = run_id
        self._monitor, self._seen = monitor, seen
        self.next_superstep: list[str] = []
        self._step: object = None
        self._free = 0

    @property
    def _recorded(self) -> ours.History:
        if self._seen is not None or self._monitor is None:
            return self._seen or ours.History()
        return self._monitor.find_history(self.run_id)

    @property
    def entries(self) -> list[list[HistoryItem]]:
        """Supersteps, each a list of the nodes that ran in it; one that was entered and has none
        yet is empty."""
        steps = [[publish_item(item) for item in step] for step in self._recorded.entries]
        return [*steps, []] if self._free and self._free == len(self.next_superstep) else steps

    def enter_next_superstep(self, nodes: list[str]) -> None:
        """The next nodes, as many as are named here, stand in one superstep."""
        if not {"__start__", "__end__"} & set(nodes):
            self.next_superstep, self._step, self._free = list(nodes), object(), len(nodes)

    def take_place(self) -> object | None:
        """Return the superstep of the next node; None where none was entered for it."""
        if not self._free:
            return None
        self._free -= 1
        return self._step

    def forget(self) -> None:
        """Take the run out of the monitor; it stays here as it is."""
        if self._monitor is not None and self.run_id is not None:
            self._seen = self._monitor.take_history(self.run_id)

    def pprint(self) -> None:
        """Print it as a tree."""
        print(self._recorded)
