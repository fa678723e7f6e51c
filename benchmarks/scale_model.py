"""What a run of a million, a hundred million and a thousand million cases needs: a small model.

    python benchmarks/scale_model.py                     the tables of docs/batches.md, then all
                                                         points and their predictions
    python benchmarks/scale_model.py --points FILE       from points of your own machine

Constants come from points that `scale.py` measured (`recorded/scale.jsonl`): what a case costs in
CPU time, bytes and memory is a line through the points of one way to run, a fixed part and a part
for each case. A wall time is the larger of waiting and CPU time, and by how much the runs of that
way were later than that, which is such a line, too. Memory is that of full caches and all that is
in flight, and `IDS` for each case. Each point is predicted from the others of its way, and stands
beside what was seen.

Not here: measuring (`scale.py`), and any figure that was not measured but the prices and limits of
an endpoint, which are options.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scale import Asked, Point, read_points

RECORDED = Path(__file__).parent / "recorded" / "scale.jsonl"
DAY = 86_400.0
SIZES = (10**6, 10**8, 10**9)

IDS = 16
"""Bytes of memory for each case while cases are read: a hash of its id of 8 bytes, which is there
twice while two sorted runs of them are merged ."""


@dataclass(frozen=True, slots=True)
class Line:
    """`fixed` + `each` x cases; neither is negative."""

    fixed: float
    each: float

    def at(self, cases: float) -> float:
        return self.fixed + self.each * cases


def fit_line(pairs: Sequence[tuple[float, float]]) -> Line:
    """The line through pairs of cases and what they took, by least squares of relative errors.

    Where the best line would have a negative part, that part is 0. One pair has no fixed part.

    Raises:
        ValueError: there is no pair, or one without cases.
    """
    if not pairs or min(cases for cases, _ in pairs) <= 0:
        raise ValueError("a line needs points that have cases")
    weights = [1 / max(seconds, 1e-12) ** 2 for _, seconds in pairs]
    total = sum(weights)
    x = sum(w * cases for w, (cases, _) in zip(weights, pairs, strict=True))
    y = sum(w * seconds for w, (_, seconds) in zip(weights, pairs, strict=True))
    xx = sum(w * cases**2 for w, (cases, _) in zip(weights, pairs, strict=True))
    xy = sum(w * cases * seconds for w, (cases, seconds) in zip(weights, pairs, strict=True))
    spread = total * xx - x * x
    if spread > 1e-9 * total * xx:
        each = (total * xy - x * y) / spread
        fixed = (y - each * x) / total
        if each >= 0 and fixed >= 0:
            return Line(fixed, each)
        if each < 0:
            return Line(y / total, 0.0)
    return Line(0.0, xy / xx)


@dataclass(frozen=True)
class Constants:
    """Of one way to run. `cpu`: seconds by role; `bytes`: of the store; `memory`: at most, of the
    driver; `calls`, `prompt`, `written`: of a case; `writes`: calls a second of the store's writer;
    `late`: seconds beyond the ideal time."""

    cpu: Mapping[str, Line]
    bytes: Line
    memory: Line
    calls: float
    prompt: float
    written: float
    writes: float
    late: Line


def find_constants(points: Sequence[Point]) -> Constants:
    """
    Raises:
        ValueError: there is no point.
    """
    if not points:
        raise ValueError("no point was measured in this way")

    def line(of: Iterable[float]) -> Line:
        return fit_line([(p.asked.cases, value) for p, value in zip(points, of, strict=True)])

    largest = max(points, key=lambda point: point.asked.cases)
    return Constants(
        cpu={role: line(p.cpu.get(role, 0.0) for p in points) for role in largest.cpu},
        bytes=line(float(p.bytes) for p in points),
        memory=Line(max(p.peak - IDS * p.asked.cases for p in points), IDS),
        calls=largest.calls / largest.asked.cases,
        prompt=largest.prompt_tokens / largest.asked.cases,
        written=largest.completion_tokens / largest.asked.cases,
        writes=median(p.writes for p in points),
        late=line(max(0.0, p.seconds - p.ideal) for p in points),
    )


def predict_seconds(constants: Constants, load: Asked, cores_free: float) -> float:
    """Wall time: of waiting with perfect overlap, or of all CPU time on so many cores, whichever is
    larger, and what comes on top."""
    waiting = max(1.0, load.cases / load.in_flight) * constants.calls * load.latency
    cpu = sum(line.at(load.cases) for line in constants.cpu.values()) / cores_free
    return max(waiting, cpu) + constants.late.at(load.cases)


Way = tuple[str, int, str, int, float]
"""Where it runs, on how many nodes, the kind of store, how many debates are in flight, and seconds
of a call: where calls come slower, fewer are committed at once, and each costs more."""


def way_of(load: Asked) -> Way:
    return load.on, load.nodes, load.store_kind, load.in_flight, load.latency


def group_points(points: Iterable[Point]) -> dict[Way, list[Point]]:
    groups: dict[Way, list[Point]] = {}
    for point in points:
        groups.setdefault(way_of(point.asked), []).append(point)
    return groups


@dataclass(frozen=True, slots=True)
class Checked:
    """A figure of a point, predicted from other points, and seen. `alike`: they are of its way to
    run, and not of others on the same store."""

    asked: Asked
    alike: bool
    name: str
    predicted: float
    seen: float

    @property
    def off(self) -> float:
        return self.predicted / self.seen - 1


def validate(points: Sequence[Point]) -> Iterator[Checked]:
    """Each point beside what the others of its way predict; where it has none, beside what all of
    its place and store do. One that is alone is left out."""
    for point in points:
        load, way = point.asked, way_of(point.asked)
        near = [p for p in points if p is not point and way_of(p.asked)[:3] == way[:3]]
        alike = [p for p in near if way_of(p.asked) == way]
        if not near:
            continue
        constants = find_constants(alike or near)
        cpu = sum(line.at(load.cases) for line in constants.cpu.values())
        for name, predicted, seen in (
            ("wall, s", predict_seconds(constants, load, point.cores_free), point.seconds),
            ("CPU, s", cpu, sum(point.cpu.values())),
            ("store, MB", constants.bytes.at(load.cases) / 1e6, point.bytes / 1e6),
            ("memory, MB", constants.memory.at(load.cases) / 1e6, point.peak / 1e6),
        ):
            yield Checked(load, bool(alike), name, predicted, seen)


@dataclass(frozen=True, slots=True)
class World:
    """What is not ours: seconds of a call, calls a minute that an endpoint allows, and US dollars
    for a million tokens read and written. `in_flight`: debates at once in one process."""

    latency: float = 2.0
    allowed: float = 30_000
    price_read: float = 0.25
    price_written: float = 2.0
    in_flight: int = 1_000


@dataclass(frozen=True)
class Needs:
    """Of so many cases. `days`: how long each would take if it were alone, by its name; `ours`:
    which of them are this program's and its machine's. Money in US dollars, CPU in core-days."""

    cases: int
    calls: float
    money: float
    bytes: float
    memory: float
    cpu: Mapping[str, float]
    days: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """What takes longest of all."""
        return max(self.days, key=lambda name: self.days[name])

    @property
    def own_bottleneck(self) -> str:
        """What takes longest of what is ours."""
        return max(OURS, key=lambda name: self.days[name])


ENDPOINT, WAITING = "the endpoint's limit", "waiting for answers"
LOOP, WRITER = "one event loop", "one writer"
OURS = (LOOP, WRITER)


def find_needs(constants: Constants, cases: int, world: World) -> Needs:
    """What a run needs on one process and one store, and how long each part alone would take."""
    calls = constants.calls * cases
    read_tokens, written = constants.prompt * cases, constants.written * cases
    cpu = {role: line.at(cases) / DAY for role, line in constants.cpu.items() if role != "server"}
    return Needs(
        cases=cases,
        calls=calls,
        money=(read_tokens * world.price_read + written * world.price_written) / 1e6,
        bytes=constants.bytes.at(cases),
        memory=constants.memory.at(cases),
        cpu=cpu,
        days={
            ENDPOINT: calls / world.allowed / (24 * 60),
            WAITING: calls * world.latency / world.in_flight / DAY,
            LOOP: cpu.get("driver", 0.0),
            WRITER: calls / constants.writes / DAY,
        },
    )


def say_size(cases: int) -> str:
    return f"10^{round(math.log10(cases))}"


def say_bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f} bytes"


def say_number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def say_days(days: float) -> str:
    if days >= 1:
        return f"{days:,.0f} days" if days >= 10 else f"{days:.1f} days"
    return f"{days * 24:.1f} h" if days >= 1 / 24 else f"{days * 24 * 60:.0f} min"


def draw_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_needs(constants: Constants, world: World) -> str:
    needs = [find_needs(constants, cases, world) for cases in SIZES]
    rows: list[list[str]] = [
        ["calls", *(f"{need.calls:,.0f}" for need in needs)],
        ["money", *(f"${need.money:,.0f}" for need in needs)],
        ["store", *(say_bytes(need.bytes) for need in needs)],
        ["memory of the driver", *(say_bytes(need.memory) for need in needs)],
    ]
    for role in needs[0].cpu:
        if any(need.cpu[role] for need in needs):
            rows.append([f"CPU of the {role}", *(say_days(need.cpu[role]) for need in needs)])
    for name in needs[0].days:
        rows.append([f"{name} alone", *(say_days(need.days[name]) for need in needs)])
    rows.append(["longest", *(need.bottleneck for need in needs)])
    rows.append(["longest of ours", *(need.own_bottleneck for need in needs)])
    for name, unit in ((WAITING, "processes"), (LOOP, "event loops"), (WRITER, "writers")):
        needed = [max(1, math.ceil(need.days[name] / WITHIN)) for need in needs]
        rows.append([f"{unit} to end in {WITHIN} days", *(f"{need:,}" for need in needed)])
    return draw_table(["cases", *map(say_size, SIZES)], rows)


ENOUGH = 3
"""Points of a way to run."""

WITHIN = 7
"""Days in which a run is to end, where the page says how many of each that takes."""


def draw_points(points: Iterable[Point]) -> str:
    head = ["", "cases", "cases/s", "efficiency", "CPU ms a call", "memory", "bytes a case"]
    rows = [
        [
            say_way(way_of(p.asked)),
            f"{p.asked.cases:,}",
            f"{p.asked.cases / p.seconds:.1f}",
            f"{p.ideal / p.seconds:.2f}",
            ", ".join(f"{r} {v * 1e3 / p.calls:.2f}" for r, v in p.cpu.items() if v and p.calls),
            say_bytes(p.peak),
            f"{p.bytes / p.asked.cases:,.0f}",
        ]
        for p in points
    ]
    return draw_table(head, rows)


def say_way(way: Way) -> str:
    on, nodes, store, in_flight, latency = way
    where = "one process" if on == "local" else f"Ray, {nodes} node{'s' * (nodes > 1)}"
    kind = "SQLite" if store == "sqlite" else "PostgreSQL"
    return f"{where}, {kind}, {in_flight:,} in flight, {latency:g} s"


def say_checked(check: Checked) -> str:
    return f"{say_number(check.predicted)} / {say_number(check.seen)} ({check.off:+.0%})"


def draw_checked(checks: Iterable[Checked]) -> str:
    by_point: dict[Asked, list[Checked]] = {}
    for check in checks:
        by_point.setdefault(check.asked, []).append(check)
    names = [check.name for check in next(iter(by_point.values()), list[Checked]())]
    rows = [
        [
            f"{say_way(way_of(load))}, {load.cases:,} cases{'' if checked[0].alike else ' *'}",
            *map(say_checked, checked),
        ]
        for load, checked in by_point.items()
    ]
    return draw_table(["predicted / seen", *names], rows)


def draw_page(points: Sequence[Point], world: World) -> Iterator[str]:
    """Draw the tables of docs/batches.md: the largest run of each way, and one process's needs."""
    ways = group_points(points)
    yield draw_points(
        [max(points_of_way, key=lambda point: point.asked.cases) for points_of_way in ways.values()]
    )
    for way, points_of_way in ways.items():
        if way[0] == "local" and way[2] == "postgresql" and len(points_of_way) >= ENOUGH:
            yield f"**{say_way(way)}**"
            yield draw_needs(find_constants(points_of_way), world)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=Path, default=RECORDED)
    for name, value in World.__dataclass_fields__.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=value.default)
    options = parser.parse_args()
    world = World(**{name: getattr(options, name) for name in World.__dataclass_fields__})
    points = read_points(options.points)
    print(
        "\n\n".join(
            [*draw_page(points, world), draw_points(points), draw_checked(validate(points))]
        )
    )


if __name__ == "__main__":
    main()
