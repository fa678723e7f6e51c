"""Nodes of agents in the terminal: what evaluators said in all, and each run as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text
from rich.tree import Tree

from textevolve.cli.drawing import (
    Column,
    draw_columns,
    draw_facts,
    open_console,
    safe,
    score_style,
)
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export import wording
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.statistics import Tallies

FEEDBACK_SHOWN, ERROR_SHOWN, STATE_SHOWN = 160, 200, 120


def print_tallies(tallies: Tallies, facts: Mapping[str, str]) -> None:
    """A line for each evaluator, and where the figures come from."""
    console = open_console()
    if tallies.by_evaluator:
        found = tallies.by_evaluator
        columns = [
            Column("mean", [_score(one.mean, 3) for one in found.values()]),
            Column("passed", [Text(f"{one.passed:,}") for one in found.values()]),
            Column("scored", [Text(f"{one.scored:,}") for one in found.values()]),
        ]
        for name in ("failed", "skipped"):
            counts = [getattr(one, name) for one in found.values()]
            if any(counts):
                cells = [Text(f"{count:,}", "red" if count else "dim") for count in counts]
                columns.append(Column("no score" if name == "failed" else "not asked", cells))
        labels = [safe(wording.shorten(name, 60)) for name in found]
        console.print(draw_columns(labels, columns, console.width))
        console.print()
    counted = f"{wording.count(tallies.nodes, 'node')} in "
    counted += wording.count(tallies.episodes, "episode")
    if tallies.errors:
        counted += f"; {tallies.errors:,} failed themselves"
    rows = {"Nodes": counted, **facts}
    console.print(draw_facts((name, safe(value)) for name, value in rows.items()))


def print_trees(episodes: Iterable[Episode], *, states: bool, most: int) -> None:
    """Each episode as a tree, up to `most` nodes in all; then how many are left. `states`: with
    the beginning of each input and output."""
    console = open_console()
    left, hidden = most, 0
    for episode in episodes:
        if left:
            shown = draw_episode(episode, states=states, most=left)
            console.print(shown)
        number = sum(1 for _ in episode.nodes)
        hidden += max(0, number - left)
        left = max(0, left - number)
    if hidden:
        console.print(safe(f"{wording.count(hidden, 'more node')}; see them with --limit", "dim"))


def draw_episode(episode: Episode, *, states: bool = False, most: int = 1_000_000) -> Tree:
    """Supersteps, in each its nodes, below each what evaluators said of it."""
    root = Tree(safe(f"episode {wording.shorten(episode.id, 80)}", "bold"), guide_style="dim")
    drawn = 0
    for number, items in enumerate(episode.history.entries, 1):
        if drawn >= most:
            break
        branch = root.add(safe(f"superstep {number}", "dim"))
        for item in items[: most - drawn]:
            drawn += 1
            node = branch.add(_label(item))
            if states:
                node.add(_state("in", item.input_state))
                node.add(_state("out", item.output_state))
            for name, outcome in item.evaluation_results.items():
                node.add(_outcome(name, outcome))
    return root


def _label(item: HistoryItem) -> Text:
    text = safe(wording.shorten("/".join((*item.path, item.node)) or "(no name)", 100), "bold")
    if item.instruction is not None:
        text.append(f"  {item.instruction.name}", "cyan")
    if item.seconds is not None:
        text.append(f"  {wording.duration(item.seconds)}", "dim")
    if item.tokens is not None:
        text.append(f"  {wording.count(item.tokens, 'token')}", "dim")
    if item.error is not None:
        said = wording.shorten(item.error, ERROR_SHOWN)
        style = "yellow" if item.interrupted else "red"
        text.append(f"\n{'waits' if item.interrupted else 'failed'}: {said}", style)
    return text


def _state(name: str, state: Any) -> Text:
    text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False, default=str)
    return safe(f"{name}: {wording.shorten(text, STATE_SHOWN)}", "dim")


def _outcome(name: str, outcome: EvaluationResult | Failure) -> Text:
    text = safe(wording.shorten(name, 60))
    if isinstance(outcome, Failure):
        said = "no score" if outcome.kind == "failed" else "not asked"
        text.append(f"  {said}: {wording.shorten(outcome.reason, FEEDBACK_SHOWN)}", "yellow")
        return text
    text.append("  ").append_text(_score(outcome.score, 2))
    text.append("  passed" if outcome.passed else "  not passed", "" if outcome.passed else "red")
    if outcome.feedback:
        text.append(f"\n{wording.shorten(outcome.feedback, FEEDBACK_SHOWN)}", "dim")
    return text


def _score(score: float | None, digits: int) -> Text:
    return Text(wording.figure(score, digits), "dim" if score is None else score_style(10 * score))
