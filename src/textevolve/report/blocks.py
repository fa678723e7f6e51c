"""The blocks that reports are made of: what was found, apart from how it is drawn.

A study builds them; the renderers beside this file draw them, and nothing else does. Texts in them
come from models, users and files as they are: escaping is the renderers' business. A figure that
does not exist is None, and is drawn as a dash, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.evaluation import empty_default

Format: TypeAlias = Literal[
    "text", "number", "percent", "score", "count", "money", "duration", "p_value"
]
"""How a cell is written. `percent`: a share in [0, 1]. `score`: a number from 0 to the column's
`most`, coloured by how high it is. `money`: US dollars. `duration`: seconds."""

Tone: TypeAlias = Literal["", "good", "bad", "warning", "dim", "strong"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its interval, in the unit of the figure."""

    value: float | None
    low: float | None = None
    high: float | None = None


Cell: TypeAlias = str | int | float | bool | Estimate | None


@dataclass(frozen=True, slots=True)
class Column:
    """The heading and format of a table column. `digits`: decimals; None means the format's default
    (number 2, percentage 1, score 1). `most`: the top of the scale of a score."""

    name: str
    format: Format = "text"
    digits: int | None = None
    most: float = 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells in the order of the columns; the first column is the rows' label.

    `best`: rows with a star, `star` says for what. `note`: said below. `links`: for each row what
    it leads to, or an empty text: the anchor of a section of the same report, or what follows
    `place` in an address."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    best: frozenset[int] = frozenset()
    note: str = ""
    links: Sequence[str] = ()
    star: str = "best"
    place: str = "#"


@dataclass(frozen=True, slots=True)
class Branch:
    """One node of a tree: its name, its note, and its children."""

    label: str
    note: str = ""
    tone: Tone = ""
    children: Sequence[Branch] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    title: str
    roots: Sequence[Branch]


@dataclass(frozen=True, slots=True)
class Diff:
    """Two versions of a text; the renderers show deletions and insertions."""

    title: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Utterance:
    """One speaker's contribution to a debate. `note`: shown after the name; `points`: shown below
    the text, each under a heading; `failure`: why there is no text."""

    speaker: str
    text: str
    note: str = ""
    points: Sequence[tuple[str, str]] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    title: str
    utterances: Sequence[Utterance]


@dataclass(frozen=True, slots=True)
class Texts:
    """Several texts in full, each under its heading."""

    title: str
    texts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or a paragraph in a report."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading. `folded`: a page shows the section closed, and a terminal shows its
    heading alone.

    `anchor` names it for links within a page.
    """

    title: str
    blocks: Iterable[Block]
    facts: Mapping[str, str] = empty_default(dict)
    folded: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A variant's output for one row of a matrix: a text or a failure, with its scores and reasons.

    `scores` in [0, 1] and `reasons`, each by the name of the judge or metric. `failure`: why there
    is no output, or no score. `facts`: tokens, time, cost. `details`: what can be opened in place,
    such as the transcript of a debate."""

    output: str = ""
    scores: Mapping[str, float | None] = empty_default(dict)
    passed: bool | None = None
    reasons: Mapping[str, str] = empty_default(dict)
    failure: str = ""
    facts: Mapping[str, str] = empty_default(dict)
    details: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One row: its id, what was asked, and an entry for each variant (None if it is missing).
    `facts` and `details`: those of the row as a whole, such as the debate over all of it."""

    id: str
    input: str
    entries: Sequence[Entry | None]
    reference: str = ""
    facts: Mapping[str, str] = empty_default(dict)
    details: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """A table of variants (columns) and rows of data. `rows` may be a generator over a run of any
    size, which renderers read once. The first score of an entry is the one that it is sorted by."""

    title: str
    variants: Sequence[str]
    rows: Iterable[MatrixRow]


Block: TypeAlias = Table | Matrix | Tree | Diff | Transcript | Texts | Note | Section


@dataclass(frozen=True, slots=True)
class Report:
    """`sentence`: what was found, in one line. `facts`: what it rests on, each under its name.

    `blocks` may be a generator over a run of any size: renderers take them one by one, once."""

    title: str
    sentence: str
    blocks: Iterable[Block]
    facts: Mapping[str, str] = empty_default(dict)


DEEPEST = 24
"""Deeper branches are drawn at this depth: no page has room for more."""


def walk(roots: Sequence[Branch]) -> Iterator[tuple[int, Branch]]:
    """Yield the roots and all branches below, each parent before its children, with the depth of
    each."""
    waiting = [(0, root) for root in reversed(roots)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        below = min(depth + 1, DEEPEST)
        waiting += [(below, child) for child in reversed(branch.children)]
