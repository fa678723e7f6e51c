"""Two runs side by side: the difference of each metric on the users that both have.

Both runs are drawn with the same users, so what makes a user easy or hard cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from textevolve.memory_eval.judgement import Task
from textevolve.memory_eval.judgement_sums import (
    SUMS,
    Array,
    JudgementSums,
    Side,
    SideValue,
    totals_at,
)
from textevolve.memory_eval.metrics import (
    DRAWS,
    KINDS,
    METRICS,
    SIDE_METRICS,
    MetricKind,
    divide,
    draw_tables,
    interval_of,
    ratios,
    tidy,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """`difference` is second minus first, with its 95 % interval; values are those of the users in
    both runs. What is None is not measured; `reason` says why there is no difference or no
    interval."""

    first: float | None
    second: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class DifferencePair:
    all: Difference
    valid: Difference


@dataclass(frozen=True, slots=True)
class MemoryComparison:
    """`users` are in both runs; only they are compared. Of those who are `uneven`, the runs judged
    another number of points or questions. The metrics are told apart as in `MemoryMetrics`."""

    users: tuple[str, ...]
    uneven: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    overall: Mapping[str, DifferencePair]
    by_type: Mapping[str, Mapping[str, DifferencePair]]
    by_question_type: Mapping[str, Mapping[str, DifferencePair]]
    by_difficulty: Mapping[str, Mapping[str, DifferencePair]]


def compare(
    first: JudgementSums, second: JudgementSums, *, draws: int = DRAWS, seed: int = 0
) -> MemoryComparison:
    """The differences between two runs; without a user in common there is no metric."""
    ours, theirs = set(first.users), set(second.users)
    users = tuple(sorted(ours & theirs))
    found: dict[SideValue | None, dict[str, DifferencePair]] = {}
    if users:
        parts = (None, *dict.fromkeys((*first.parts, *second.parts)))
        tables = [[tally.table(part, users) for tally in (first, second)] for part in parts]
        measured = [_measures_integrity(side) for side in tables[0]]
        drawn = draw_tables([np.concatenate(both, axis=1) for both in tables], draws, seed)
        for part, both, then in zip(parts, tables, drawn, strict=True):
            names = METRICS if part is None else SIDE_METRICS[part[0]]
            found[part] = _compare_tables(both, then, names, measured)

    def by(side: Side) -> dict[str, dict[str, DifferencePair]]:
        names = sorted(part[1] for part in filter(None, found) if part[0] == side)
        return {name: found[side, name] for name in names}

    return MemoryComparison(
        users=users,
        uneven=_uneven(users, first.table(None, users), second.table(None, users)),
        only_first=tuple(sorted(ours - theirs)),
        only_second=tuple(sorted(theirs - ours)),
        overall=found.get(None, {}),
        by_type=by("type"),
        by_question_type=by("question_type"),
        by_difficulty=by("difficulty"),
    )


def _compare_tables(
    both: Sequence[Array], drawn: Array | None, names: Mapping[str, Task], measured: Sequence[bool]
) -> dict[str, DifferencePair]:
    """`both`: the sums of the two runs; `drawn`: those of the drawn users, side by side;
    `measured`: whether each run measures integrity."""
    drawn_sides = () if drawn is None else np.split(drawn, 2, axis=1)
    found: dict[MetricKind, dict[str, Difference]] = {}
    for kind in KINDS:
        now = [_values(table.sum(axis=0), kind) for table in both]
        for values in (now[side] for side in (0, 1) if not measured[side]):
            values |= {n: np.array(np.nan) for n, task in names.items() if task == "integrity"}
        then = [_values(sums, kind) for sums in drawn_sides]
        found[kind] = {
            name: _difference([one[name] for one in now], [one[name] for one in then])
            for name in names
        }
    return {name: DifferencePair(found["all"][name], found["valid"][name]) for name in names}


def _uneven(users: tuple[str, ...], first: Array, second: Array) -> tuple[str, ...]:
    """A task that a run did not measure makes no difference. An update is a judgement of integrity
    where nothing was found for it, so the two are counted together."""
    unlike = np.zeros(len(users), dtype=bool)
    for needed, tasks in (("integrity", ("integrity", "update")), ("question", ("question",))):
        sides = [totals_at(side) for side in (first, second)]
        if all(at(f"{needed}_asked").any() for at in sides):
            ours, theirs = (
                sum(at(f"{task}_{end}") for task in tasks for end in ("asked", "skipped"))
                for at in sides
            )
            unlike |= ours != theirs
    return tuple(user for user, differs in zip(users, unlike, strict=True) if differs)


def _measures_integrity(side: Array) -> bool:
    """Where it was never asked, what is made of integrity and updates has but a part."""
    at = totals_at(side[:, : len(SUMS)])
    return bool(at("integrity_asked").any() or at("integrity_skipped").any())


def _values(sums: Array, kind: MetricKind) -> dict[str, Array]:
    return {name: divide(*both) for name, both in ratios(totals_at(sums), kind).items()}


def _difference(now: list[Array], drawn: list[Array]) -> Difference:
    first, second = (None if np.isnan(value) else tidy(value) for value in now)
    if first is None or second is None:
        missing = [name for name, value in (("first", first), ("second", second)) if value is None]
        return Difference(
            first, second, reason=f"not measured in the {' and the '.join(missing)} run"
        )
    difference = tidy(now[1] - now[0])
    if not drawn:
        return Difference(first, second, difference, reason="no interval: one user only")
    low, high, reason = interval_of(drawn[1] - drawn[0], -1.0)
    return Difference(first, second, difference, low, high, reason)
