"""What an agent did: supersteps, each with the nodes that ran in it side by side.

`seen_from` is the history as an evaluator gets it: a copy, made of what it looks at.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from html import escape
from typing import Any, cast, overload

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.snapshots import copy_plain

FEEDBACK_SHOWN = 100


@dataclass(slots=True)
class HistoryItem:
    """One node that ran. It grows while its evaluators finish, and by nothing else.

    `timestamp`: Unix time when it began; a `datetime` is turned into it. States are snapshots;
    `output_state` is None where the node failed, and `error` says how, or what it waits for where
    it was `interrupted`. `evaluation_results`: by the evaluator's name. `path`: the graphs that it
    ran in, the outermost first, empty without any. `seconds` it took; `tokens` it used, None where
    unknown. `order`: its place among all in the order in which they ended, from 1 on; 0 where
    nobody counted. `attributes`: what a recording says of it that is neither input nor output.
    """

    timestamp: float
    instruction: Instruction | None = None
    input_state: Any = None
    output_state: Any = None
    evaluation_results: dict[str, EvaluationResult | Failure] = field(
        default_factory=dict[str, EvaluationResult | Failure]
    )
    _: KW_ONLY
    node: str = ""
    path: tuple[str, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None
    interrupted: bool = False
    order: int = field(default=0, compare=False)
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if isinstance(self.timestamp, datetime.datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.timestamp = self.timestamp.timestamp()


@dataclass(slots=True)
class History:
    """`entries`: a list of supersteps, each a list of items; the node that ran last is
    `entries[-1][-1]`."""

    entries: list[list[HistoryItem]] = field(default_factory=list[list[HistoryItem]])

    @property
    def items(self) -> Iterator[HistoryItem]:
        """Every node in order, whatever superstep it stands in."""
        return (item for step in self.entries for item in step)

    def __str__(self) -> str:
        """The history as a tree: supersteps, in each its nodes, in each its results."""
        number = sum(len(step) for step in self.entries)
        lines = [f"{_count(len(self.entries), 'superstep')}, {_count(number, 'node')}"]
        for n, step in enumerate(self.entries, 1):
            last_step = n == len(self.entries)
            lines.append(f"{'└── ' if last_step else '├── '}superstep {n}")
            margin = "    " if last_step else "│   "
            for k, item in enumerate(step, 1):
                last = k == len(step)
                lines.append(f"{margin}{'└── ' if last else '├── '}{_describe_node(item)}")
                below = margin + ("    " if last else "│   ")
                results = list(item.evaluation_results.items())
                for r, (name, result) in enumerate(results, 1):
                    branch = "└── " if r == len(results) else "├── "
                    lines.append(f"{below}{branch}{_describe_result(name, result)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the same tree; whatever stands in it is text, never markup."""
        return f"<pre>{escape(str(self))}</pre>"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe_node(item: HistoryItem) -> str:
    parts = [one_line("/".join((*item.path, item.node)) or "(no name)")]
    if item.instruction is not None:
        parts.append(item.instruction.name)
    if item.seconds is not None:
        parts.append(f"{item.seconds:.3g} s")
    if item.tokens is not None:
        parts.append(_count(item.tokens, "token"))
    if item.error is not None:
        parts.append(f"{'interrupted' if item.interrupted else 'failed'}: {one_line(item.error)}")
    return "  ".join(parts)


def _describe_result(name: str, result: EvaluationResult | Failure) -> str:
    if isinstance(result, Failure):
        what = "not scored" if result.kind == "failed" else "skipped"
        return f"{one_line(name)}  {what}: {one_line(result.reason)}"
    said = f": {one_line(result.feedback)}" if result.feedback else ""
    verdict = "passed" if result.passed else "not passed"
    return f"{one_line(name)}  {result.score:.2f} {verdict}{said}"


def one_line(text: str, most: int = FEEDBACK_SHOWN) -> str:
    """A text as a terminal or a log may show it: without control characters, cut at `most`."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def seen_from(
    entries: list[list[HistoryItem]], item: HistoryItem, own: int, count: int, *, copied: bool
) -> History:
    """The history as it was when `item` ended, with `item` as `entries[-1][-1]`.

    `own`: the place of its superstep; `count`: how many supersteps there were. What is looked at is
    copied then, so that this costs the same after a thousand nodes as after one; without `copied`
    it is the history's own, for evaluators that only read.
    """
    steps = _Steps(entries, item, own, count, copied)
    return History(cast("list[list[HistoryItem]]", steps))


class _Steps(Sequence[list[HistoryItem]]):
    """Supersteps, each copied when it is first looked at; the item's own one is the last."""

    __slots__ = ("_copied", "_count", "_entries", "_item", "_made", "_own")

    def __init__(
        self,
        entries: list[list[HistoryItem]],
        item: HistoryItem,
        own: int,
        count: int,
        copied: bool,
    ) -> None:
        self._entries, self._item, self._own, self._count = entries, item, own, count
        self._copied = copied
        self._made: dict[int, list[HistoryItem]] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> list[HistoryItem]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[HistoryItem]]: ...
    def __getitem__(self, index: int | slice) -> list[HistoryItem] | list[list[HistoryItem]]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._count))]
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(f"there are {self._count} supersteps, none at {index}")
        if place not in self._made:
            self._made[place] = self._copy(place)
        return self._made[place]

    def _copy(self, place: int) -> list[HistoryItem]:
        """Without what ended later: it was not there."""
        if place == self._count - 1:
            step = self._entries[self._own]
        else:
            step = self._entries[place + (place >= self._own)]
        order = self._item.order
        if self._copied:
            return [SeenItem(one) for one in step if one.order <= order]
        return [one for one in step if one.order <= order]

    def __repr__(self) -> str:
        return repr(list(self))


class SeenItem(HistoryItem):
    """A copy of an item, each part made when it is first looked at."""

    __slots__ = ("_source",)

    def __init__(self, source: HistoryItem) -> None:
        # The slots of a HistoryItem stay unset, so that __getattr__ is asked for each of them once.
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_source":
            raise AttributeError(name)
        value = getattr(self._source, name)
        if name in ("input_state", "output_state", "attributes"):
            value = copy_plain(value)
        elif name == "evaluation_results":
            value = {key: _copy_result(result) for key, result in value.items()}
        else:
            return value
        setattr(self, name, value)
        return value


def _copy_result(result: EvaluationResult | Failure) -> EvaluationResult | Failure:
    if isinstance(result, Failure):
        return result
    return replace(result, metadata=copy_plain(result.metadata))
