"""Histories in the form of ArbiterOS: times are `datetime`, and the results contain only scores, no
failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from textevolve.evaluation import EvaluationResult, empty_default
from textevolve.node_eval import history as ours


@dataclass
class HistoryItem:
    """One node that ran. `output_state`: empty if the node failed. `item`: the node in this
    project's form, which also has its run, its duration and its error."""

    timestamp: datetime
    instruction: Any
    input_state: Any
    output_state: Any = empty_default(dict)
    check_policy_results: dict[str, bool] = empty_default(dict)
    route_policy_results: dict[str, str | None] = empty_default(dict)
    evaluation_results: dict[str, EvaluationResult] = empty_default(dict)
    item: ours.HistoryItem | None = field(default=None, repr=False)

    @property
    def attributes(self) -> dict[str, Any]:
        return self.item.attributes if self.item else {}


def publish_item(item: ours.HistoryItem) -> HistoryItem:
    """Return a node in the form of ArbiterOS."""
    results = {
        name: result
        for name, result in item.evaluation_results.items()
        if isinstance(result, EvaluationResult)
    }
    output: Any = {} if item.output_state is None else item.output_state
    at = datetime.fromtimestamp(item.timestamp)

    return HistoryItem(
        at, item.instruction, item.input_state, output, evaluation_results=results, item=item
    )


class History:
    """The supersteps of one run; each is a list of the nodes that ran concurrently in it."""

    def __init__(self, recorded: ours.History | None = None) -> None:
        self.recorded = recorded or ours.History()
        self.entries = [list(map(publish_item, step)) for step in self.recorded.entries]

    def enter_next_superstep(self, nodes: list[str]) -> None:
        """Begin an empty superstep, except for the graph's beginning and end. The history of a
        kernel is read from its monitor, which finds the supersteps itself, so nothing changes
        there."""
        if not {"__start__", "__end__"} & set(nodes):
            self.entries.append([])

    def pprint(self) -> None:
        """Print the history as a tree."""
        print(self.recorded)
