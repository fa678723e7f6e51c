"""The blocks that reports consist of, which describe the content of a report independently of how
it is drawn.

Studies build blocks, and the renderers in this package draw them. Texts in them are those of
models, users and files, unchanged; renderers escape them. A missing figure is None, and is drawn as
a dash, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.evaluation import empty_default

Format: TypeAlias = Literal[
    "text", "number", "percent", "score", "count", "money", "duration", "p_value"
]
"""The format of a cell. `percent`: a share in [0, 1]. `score`: a number from 0 to the column's
`most`, with a colour by its height. `money`: US dollars. `duration`: seconds."""

# The meaning of a text's colour.
Tone: TypeAlias = Literal["", "good", "bad", "warning", "dim", "strong"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its interval, in the unit of the figure."""

    value: float | None
    low: float | None = None
    high: float | None = None


# The value of a table cell; None is a missing one.
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
    """A table. The first column contains the labels of the rows.

    Attributes:
        columns: The columns; a column of texts may be its name alone.
        rows: The cells of each row, in the order of the columns.
        best: The indices of the rows that get a star; `star`: the meaning of the star.
        note: A remark below the table.
        links: For each row a link, or an empty text: the anchor of a section in the same report, or
            what follows `place` in an address.
        place: The address to which links are appended; `#` for links within the report.
    """

    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell]]
    best: frozenset[int] = frozenset()
    note: str = ""
    links: Sequence[str] = ()
    star: str = "best"
    place: str = "#"

    @property
    def heads(self) -> list[Column]:
        """Return the columns with their formats."""
        return [Column(each) if isinstance(each, str) else each for each in self.columns]

    def remark(self, mark: str) -> str:
        """Return the note below the table, after the meaning of the mark of its best rows."""
        return f"{f'{mark} {self.star}. ' if self.best else ''}{self.note}".strip()


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree: its label, a note, its colour, and its children."""

    label: str
    note: str = ""
    tone: Tone = ""
    children: Sequence[Branch] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree, which may have several roots."""

    title: str
    roots: Sequence[Branch]


@dataclass(frozen=True, slots=True)
class Diff:
    """Two versions of a text; renderers show what was deleted and inserted."""

    title: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Utterance:
    """One speaker's contribution to a debate.

    Attributes:
        note: A remark after the speaker's name.
        points: Texts below the contribution, each with its heading.
        failure: The reason why there is no text; empty otherwise.
    """

    speaker: str
    text: str
    note: str = ""
    points: Sequence[tuple[str, str]] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The contributions of a debate in their order."""

    title: str
    utterances: Sequence[Utterance]


@dataclass(frozen=True, slots=True)
class Texts:
    """Several complete texts, each with its heading."""

    title: str
    texts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or a paragraph in a report."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a heading.

    Attributes:
        facts: Facts below the heading, by their names.
        folded: Whether a page shows the section closed. A terminal only counts folded sections.
        anchor: The name for links within a page.
    """

    title: str
    blocks: Iterable[Block]
    facts: Mapping[str, str] = empty_default(dict)
    folded: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A variant's output for one row of a matrix: a text or a failure, with its scores and reasons.

    Attributes:
        scores: The scores in [0, 1] by the name of the judge or metric; None if one is missing.
        passed: The verdict; None if there is none.
        reasons: The reasons by the name of the judge or metric.
        failure: The reason why there is no output, or no score.
        facts: Tokens, time and cost.
        details: The blocks that unfold in place, such as the transcript of a debate.
        against: What people said, where the output, a judge's verdict, is another one.
    """

    output: str = ""
    scores: Mapping[str, float | None] = empty_default(dict)
    passed: bool | None = None
    reasons: Mapping[str, str] = empty_default(dict)
    failure: str = ""
    facts: Mapping[str, str] = empty_default(dict)
    details: Sequence[Block] = ()
    against: str = ""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One row of a matrix: its id, its input, and an entry for each variant (None if it is
    missing).

    Attributes:
        facts: Facts on the row as a whole, and `details`, such as the debate over all its outputs.
        title: The name by which people know the row, if it is another one than the id.
        columns: The columns of the row that its input was made of, by name. Rows are told apart by
            them, where inputs all begin with the same words of a prompt.
    """

    id: str
    input: str
    entries: Sequence[Entry | None]
    reference: str = ""
    facts: Mapping[str, str] = empty_default(dict)
    details: Sequence[Block] = ()
    title: str = ""
    columns: Mapping[str, str] = empty_default(dict)

    @property
    def name(self) -> str:
        """Return the title of the row, or else its id."""
        return self.title or self.id

    @property
    def words(self) -> str:
        """Return the text that tells the row from others: its columns, or else its input."""
        return " · ".join(filter(None, self.columns.values())) or self.input


@dataclass(frozen=True, slots=True)
class Matrix:
    """A table of rows of data and variants (columns). `rows` may be a generator over a run of any
    size, which a renderer reads once, in its order. A reader of the page may sort the rows by the
    first score of a variant's entries. `expected`: the heading of the rows' references."""

    title: str
    variants: Sequence[str]
    rows: Iterable[MatrixRow]
    expected: str = "expected"


# A part of a report.
PlainBlock: TypeAlias = Table | Tree | Diff | Transcript | Texts | Note
"""A block that is drawn as a whole; sections and matrices are drawn piece by piece."""

Block: TypeAlias = PlainBlock | Matrix | Section


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, its conclusion in one sentence, its blocks, and facts about its basis by
    their names.

    `blocks` may be a generator over a run of any size; renderers read it once, block by block.
    """

    title: str
    sentence: str
    blocks: Iterable[Block]
    facts: Mapping[str, str] = empty_default(dict)


DEEPEST = 24
"""The greatest depth at which branches of a tree are drawn; deeper ones are drawn at this depth,
for lack of room."""


def walk(roots: Sequence[Branch]) -> Iterator[tuple[int, Branch]]:
    """Yield the roots and all branches below them, each with its depth (0 for roots, at most
    `DEEPEST`) and each parent before its children."""
    waiting = [(0, root) for root in reversed(roots)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        below = min(depth + 1, DEEPEST)
        waiting += [(below, child) for child in reversed(branch.children)]
