"""What was said of an agent's nodes as one self-contained HTML file: no script, nothing loaded.

A page holds so many nodes at most, and says how many there are. Everything passes through the
templates' escaping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export import wording
from textevolve.export.files import open_target
from textevolve.export.pages import open_template
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.statistics import Tallies

MOST_NODES = 1000
STATE_SHOWN = 4000


@dataclass(frozen=True, slots=True)
class Shown:
    """The supersteps of an episode that the page holds."""

    id: str
    steps: Sequence[Sequence[HistoryItem]]


def write_nodes_page(
    episodes: Sequence[Episode],
    tallies: Tallies,
    path: str | Path,
    facts: Mapping[str, str] | None = None,
    *,
    most: int = MOST_NODES,
) -> None:
    """Write the page of the first `most` nodes; `tallies` are of all. `-` is standard output;
    `facts` are shown as given, each under its name.

    Raises:
        InputError: the file cannot be written.
    """
    shown = list(_bound(episodes, most))
    parts = open_template("nodes.html").generate(
        episodes=shown,
        tallies=tallies,
        number=sum(len(step) for episode in shown for step in episode.steps),
        facts=facts or {},
        place=lambda item: "/".join((*item.path, item.node)) or "(no name)",  # pyright: ignore
        describe=_describe,
        judged=_judged,
        grade=_grade,
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))


def _bound(episodes: Sequence[Episode], most: int) -> Sequence[Shown]:
    found: list[Shown] = []
    for episode in episodes:
        steps: list[Sequence[HistoryItem]] = []
        for step in episode.history.entries:
            steps.append(step[:most])
            most -= len(steps[-1])
        found.append(Shown(episode.id, [step for step in steps if step]))
    return [one for one in found if one.steps]


def _describe(state: Any) -> str:
    """A state as text: itself, or as JSON."""
    if isinstance(state, str):
        text = state
    else:
        text = json.dumps(state, ensure_ascii=False, indent=1, default=str)
    if len(text) <= STATE_SHOWN:
        return text
    return f"{text[:STATE_SHOWN]}… ({len(text) - STATE_SHOWN:,} more characters)"


def _judged(outcome: EvaluationResult | Failure) -> str:
    if isinstance(outcome, Failure):
        return "no score" if outcome.kind == "failed" else "not asked"
    return wording.figure(outcome.score)


def _grade(outcome: EvaluationResult | Failure) -> str:
    """The class of a score's colour; none for what has no score."""
    return (
        "" if isinstance(outcome, Failure) else f"s s{min(10, max(0, round(outcome.score * 10)))}"
    )
