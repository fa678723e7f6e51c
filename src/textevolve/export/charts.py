"""Where the marks of a chart go: plain numbers that the templates draw as inline SVG.

Nothing here knows of HTML. Sizes are in CSS pixels; a value that is missing has no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from textevolve.debate import tensor as arithmetic
from textevolve.debate.result import DebateResult
from textevolve.export import wording

CELL_WIDTH, CELL_HEIGHT = 38, 24
GROUP_GAP, ROUND_GAP = 10, 8
LABEL_ROOM, HEAD_ROOM = 200, 92
AXIS_WIDTH = 220
BINS = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One score; `value` is None where it is missing, `shade` from 0 to 10."""

    x: int
    y: int
    value: float | None
    shade: int
    hint: str


@dataclass(frozen=True, slots=True)
class Label:
    x: int
    y: int
    text: str
    agent: int = 0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The tensor: a row for each round and agent, a column for each candidate and component.

    `mark` is a number that no other chart of the page has.
    """

    mark: int
    width: int
    height: int
    cells: tuple[Cell, ...]
    rows: tuple[Label, ...]
    rounds: tuple[Label, ...]
    groups: tuple[Label, ...]
    columns: tuple[Label, ...]


def draw_heat_map(result: DebateResult) -> HeatMap:
    rounds, agents, candidates, components = result.tensor.shape
    group = components * CELL_WIDTH + GROUP_GAP
    block = agents * CELL_HEIGHT + ROUND_GAP

    def left(j: int, k: int = 0) -> int:
        return LABEL_ROOM + j * group + k * CELL_WIDTH

    def top(r: int, i: int = 0) -> int:
        return HEAD_ROOM + r * block + i * CELL_HEIGHT

    cells: list[Cell] = []
    for r, i, j, k in np.ndindex(rounds, agents, candidates, components):
        score = float(result.tensor.values[r, i, j, k])
        value = None if math.isnan(score) else score
        said = "missing" if value is None else f"{score:.2f} of 10"
        where = f"round {r + 1}, {result.agents[i]}, {wording.letter(j)}, {result.components[k]}"
        shade = 0 if value is None else min(10, max(0, math.floor(score + 0.5)))
        cells.append(Cell(left(j, k), top(r, i), value, shade, f"{where}: {said}"))
    return HeatMap(
        mark=result.index,
        width=left(candidates) + 40,
        height=top(rounds),
        cells=tuple(cells),
        rows=tuple(
            Label(LABEL_ROOM - 8, top(r, i) + 16, wording.shorten(name, 19), i)
            for r in range(rounds)
            for i, name in enumerate(result.agents)
        ),
        rounds=tuple(Label(0, top(r) + 16, f"round {r + 1}") for r in range(rounds)),
        groups=tuple(
            Label(left(j) + components * CELL_WIDTH // 2, 14, wording.letter(j))
            for j in range(candidates)
        ),
        columns=tuple(
            Label(left(j, k) + CELL_WIDTH // 2, HEAD_ROOM - 8, wording.shorten(name, 15))
            for j in range(candidates)
            for k, name in enumerate(result.components)
        ),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A candidate's score on an axis from 0 to 10, with what the agents gave it one by one."""

    width: int
    middle: float | None
    low: float
    high: float
    first: float | None
    agents: tuple[tuple[int, float], ...]
    hint: str


def draw_intervals(result: DebateResult) -> tuple[Interval, ...]:
    values = result.tensor.values
    candidates = range(len(result.case.candidates))
    if not values.size:
        return tuple(Interval(AXIS_WIDTH, None, 0, 0, None, (), "no scores") for _ in candidates)
    by_turn = arithmetic.turn_scores(values, result.weights)
    votes = [
        [_mean([float(v) for v in by_turn[:, i, j]]) for i in range(len(result.agents))]
        for j in candidates
    ]
    found: list[Interval] = []
    for j in candidates:
        score, spread = float(result.scores[j]), float(result.spread[j])
        first = _place(float(result.round_one[j]))
        marks = [(i, _place(v)) for i, v in enumerate(votes[j]) if v is not None]
        if math.isnan(score):
            found.append(Interval(AXIS_WIDTH, None, 0, 0, first, (), "no scores"))
            continue
        hint = f"{score:.2f} of 10, agents differ by ± {spread:.2f}"
        low, high = _place(max(0.0, score - spread)), _place(min(10.0, score + spread))
        assert low is not None
        assert high is not None
        agents = tuple((i, x) for i, x in marks if x is not None)
        found.append(Interval(AXIS_WIDTH, _place(score), low, high, first, agents, hint))
    return tuple(found)


def _mean(values: Sequence[float]) -> float | None:
    present = [v for v in values if not math.isnan(v)]
    return sum(present) / len(present) if present else None


def _place(score: float) -> float | None:
    return None if math.isnan(score) else round(5 + score / 10 * (AXIS_WIDTH - 10), 1)


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    label: str
    hint: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars over a baseline; `limit` is the height of a dashed line, where there is one."""

    width: int
    height: int
    base: int
    bars: tuple[Bar, ...]
    limit: float | None = None
    limit_label: str = ""


def draw_disagreement(result: DebateResult) -> BarChart:
    """CV after each round, beside the threshold below which the debate ends."""
    limit = result.profile.convergence
    if result.profile.protocol == "independent":
        limit = None
    known = [cv for cv in result.convergence if math.isfinite(cv)]
    highest = max([*known, limit or 0.0, 1e-9])
    base, room, step = 92, 66, 52
    bars: list[Bar] = []
    for r, cv in enumerate(result.convergence):
        height = cv / highest * room if math.isfinite(cv) else 0.0
        said = f"{cv:.3f}" if math.isfinite(cv) else "–"
        hint = f"round {r + 1}: CV {said}"
        bars.append(Bar(10 + r * step, round(base - height, 1), 34, round(height, 1), said, hint))
    return BarChart(
        width=10 + max(1, len(bars)) * step + 60,
        height=base + 20,
        base=base,
        bars=tuple(bars),
        limit=None if limit is None else round(base - limit / highest * room, 1),
        limit_label="" if limit is None else f"c = {limit:g}",
    )


def draw_histogram(counts: Sequence[int]) -> BarChart:
    """How many candidates have a score in each of equal parts of [0, 1]."""
    base, room, step = 140, 115, 32
    highest = max([*counts, 1])
    bars: list[Bar] = []
    for n, number in enumerate(counts):
        height = number / highest * room
        part = f"{n / len(counts):.2f} to {(n + 1) / len(counts):.2f}"
        hint = f"{part}: {wording.count(number, 'candidate')}"
        label = f"{number:,}" if number else ""
        top = round(base - height, 1)
        bars.append(Bar(18 + n * step, top, step - 3, round(height, 1), label, hint))
    return BarChart(width=36 + len(counts) * step, height=base + 22, base=base, bars=tuple(bars))
