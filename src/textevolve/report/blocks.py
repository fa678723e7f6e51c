"""The blocks that reports consist of, which describe the content of a report independently of how
it is drawn.

Studies build blocks, and the renderers in this package draw them. Texts in them are those of
models, users and files, unchanged; renderers escape them. A missing figure is None, and is drawn as
a dash, never as 0. The plain text of cells, and of the marks of charts, is the same for all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Literal, TypeAlias

from textevolve.evaluation import empty_default
from textevolve.report import wording
from textevolve.report.wording import DASH, count, number, shorten

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
        folded: Whether a page shows the title alone until it is opened.
    """

    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell]]
    best: frozenset[int] = frozenset()
    note: str = ""
    links: Sequence[str] = ()
    star: str = "best"
    place: str = "#"
    folded: bool = False

    @property
    def heads(self) -> list[Column]:
        """Return the columns with their formats."""
        return [Column(each) if isinstance(each, str) else each for each in self.columns]

    def remark(self, mark: str) -> str:
        """Return the note below the table, after the meaning of the mark of its best rows."""
        return f"{f'{mark} {self.star}. ' if self.best else ''}{self.note}".strip()


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree.

    Attributes:
        note: A remark after the label.
        scores: Scores in [0, 1] by the name of their judge.
        span: When it began and how long it took, as shares in [0, 1] of the time of its root; None
            if unknown.
        facts: Facts by their names, and `details`: blocks, which a page unfolds in place.
    """

    label: str
    note: str = ""
    tone: Tone = ""
    children: Sequence[Branch] = ()
    scores: Mapping[str, float] = empty_default(dict)
    span: tuple[float, float] | None = None
    facts: Mapping[str, str] = empty_default(dict)
    details: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree, which may have several roots. `most`: the number of branches from which on a terminal
    and Markdown leave out the others; None: all are shown."""

    title: str
    roots: Sequence[Branch]
    most: int | None = None

    @property
    def timed(self) -> bool:
        """Tell whether the time of any branch is known, so that it is drawn as a waterfall."""
        return any(branch.span for _, branch in walk(self.roots))


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
class Plot:
    """Figures over the places of an axis as lines, or as bars, which pages draw as inline SVG.
    Formats without pictures only count plots.

    Attributes:
        axis: The name of the axis, and `places`: the labels of its places, in order.
        lines: The figures at all places by the name of their line, and `column`: their format.
        top: The figure at the upper end of the scale, which begins at 0.
        bars: Whether bars are drawn, in place of lines.
        links: For each place the address to which its marks lead; none without addresses.
    """

    title: str
    axis: str
    places: Sequence[str]
    lines: Mapping[str, Sequence[Cell]]
    column: Column = Column("", "percent", 0)
    top: float = 1.0
    bars: bool = False
    links: Sequence[str] = ()


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
        is_long: Whether a terminal only counts the section, though a page shows it open.
    """

    title: str
    blocks: Iterable[Block]
    facts: Mapping[str, str] = empty_default(dict)
    folded: bool = False
    anchor: str = ""
    is_long: bool = False


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


TOOL_CALLS = "tool calls"
"""The fact with the tool calls of an entry, which pages show with its output."""


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
    def present(self) -> list[Entry]:
        """Return the entries of the variants that have one."""
        return [entry for entry in self.entries if entry is not None]

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
    first score of a variant's entries. `expected`: the heading of the rows' references. `number`:
    the number of rows if it is known, so that a renderer which shows the first ones need not read
    the others."""

    title: str
    variants: Sequence[str]
    rows: Iterable[MatrixRow]
    expected: str = "expected"
    number: int | None = None


# A part of a report.
PlainBlock: TypeAlias = Table | Tree | Diff | Transcript | Texts | Note | Plot
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


def first_branches(tree: Tree) -> Iterator[tuple[int, Branch]]:
    """Yield the branches of a tree that a terminal and Markdown show, with their depths; a last one
    tells the number of the others, if there are any."""
    branches = walk(tree.roots)
    yield from islice(branches, tree.most)
    if hidden := sum(1 for _ in branches):
        more = count(hidden, "more line")
        yield 0, Branch(f"{more} not shown here; a page in HTML has them.", tone="dim")


def describe_branch(branch: Branch) -> str:
    """Return the scores and the note of a branch in one line."""
    scores = ", ".join(f"{name} {number(score)}" for name, score in branch.scores.items())
    return ", ".join(filter(None, (scores, branch.note)))


DIGITS = {"number": 2, "percent": 1, "score": 1, "p_value": 3}
SHADES = 10
"""The largest shade of a score's colour; the smallest is 0."""


def cell_text(cell: Cell, column: Column) -> str:
    """Format a table cell as text: `0.71`, `71.0 % [62.0, 80.0]`, `yes`, a text, or a dash."""
    value, interval = cell_parts(cell, column.format, column.digits)
    return f"{value} {interval}" if interval else value


def cell_parts(cell: Cell, format: Format, digits: int | None) -> tuple[str, str]:
    """Return the text of a figure, and that of its interval in brackets, which is empty without an
    interval."""
    if not isinstance(cell, Estimate):
        return _plain(cell, format, digits), ""
    value = _plain(cell.value, format, digits)
    if value == DASH or (cell.low is None and cell.high is None):
        return value, ""
    low, high = (_plain(end, format, digits).removesuffix(" %") for end in (cell.low, cell.high))

    return value, "" if low == high == DASH else f"[{low}, {high}]"


def _plain(cell: str | int | float | bool | None, format: Format, digits: int | None) -> str:
    if cell is None:
        return DASH
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    try:
        finite = math.isfinite(cell)
    except OverflowError:  # a whole number beyond all floats
        return str(cell) if cell.bit_length() < 4000 else DASH  # pyright: ignore
    if not finite:
        return DASH

    number = DIGITS.get(format, 0) if digits is None else digits
    match format:
        case "percent":
            return f"{cell * 100:z,.{number}f} %"
        case "p_value":
            least = 10.0**-number
            return f"< {least:.{number}f}" if cell < least else f"{cell:.{number}f}"
        case "money":
            return wording.money(cell) if cell >= 0 else f"-{wording.money(-cell)}"
        case "duration":
            return wording.duration(cell)
        case "count":
            return f"{cell:,.0f}" if float(cell).is_integer() else f"{cell:,.{number or 1}f}"
        case "text":
            return str(cell)
        case _:
            return f"{cell:z,.{number}f}"


def is_number(column: Column) -> bool:
    """Tell whether a column contains numbers, which are aligned to the right."""
    return column.format != "text"


def shade(value: float | None, low: float, high: float) -> int | None:
    """Return the position of a value between `low` and `high` as a whole number from 0 to `SHADES`;
    None if the value is missing."""
    if value is None or not math.isfinite(value):
        return None
    share = (value - low) / (high - low) if high > low else 0.0
    return math.floor(min(1.0, max(0.0, share)) * SHADES + 0.5)


def score_of(cell: Cell) -> float | None:
    """Return the number that determines the colour of a score's cell; None if the cell has no
    number."""
    value = cell.value if isinstance(cell, Estimate) else cell
    return None if isinstance(value, str | bool) or value is None else float(value)


def interval_scale(table: Table, place: int) -> tuple[float, float] | None:
    """Return the ends of the axis on which a page draws the intervals of a table's column: 0 and 1,
    or -1 and 1 for differences. None if the column has no interval, or a value beyond that."""
    has_interval = False
    ends: list[float] = []
    for row in table.rows:
        cell = row[place]
        if isinstance(cell, Estimate):
            has_interval = has_interval or cell.low is not None
            ends += [end for end in (cell.low, cell.value, cell.high) if end is not None]

    if not has_interval or not all(-1 <= end <= 1 for end in ends):
        return None

    return (0.0 if min(ends) >= 0 else -1.0), 1.0


def draw_bar(cell: Cell, scale: tuple[float, float]) -> tuple[float, float, float] | None:
    """Return the positions of the low end, the figure and the high end on an axis, in percent; None
    for a cell without an interval."""
    if not isinstance(cell, Estimate) or None in (cell.value, cell.low, cell.high):
        return None
    low, high = scale
    ends = [100 * ((end or 0.0) - low) / (high - low) for end in (cell.low, cell.value, cell.high)]

    return round(ends[0], 2), round(ends[1], 2), round(ends[2], 2)


# Functions that all renderers of a matrix share: a short form of an entry, a table of the first
# rows, and the details of a row.

NAME_SHOWN = 30
INPUT_SHOWN = 44
OUTPUT_SHOWN = 160
WORDS_SHOWN = 60
COLUMNS_SHOWN = 3
"""The number of a row's columns in a table for a terminal."""
INPUT = "input"
EXPECTED = "expected"


def main_score(entry: Entry | None) -> float | None:
    """Return the first score of an entry, by which a page colours entries and can sort rows; None
    without a score."""
    return None if entry is None else next(iter(entry.scores.values()), None)


def describe_entry(entry: Entry | None) -> str:
    """Describe an entry in a few words: `0.71 pass`, `failed`, or a dash if there is none."""
    if entry is None:
        return DASH
    if entry.failure and main_score(entry) is None:
        return "failed"
    if entry.against:
        return f"{number(main_score(entry))} {entry.output}, not {entry.against}"
    verdict = {True: " pass", False: " fail", None: ""}[entry.passed]
    return f"{number(main_score(entry))}{verdict}"


def first_text(entry: Entry) -> str:
    """Return a text to show for an entry: the first of its failure, output, reasons and facts that
    exists."""
    facts = ", ".join(f"{name} {value}" for name, value in entry.facts.items())
    return entry.failure or entry.output or "; ".join(entry.reasons.values()) or facts


def as_table(matrix: Matrix, most: int, *, outputs: bool = False) -> Table:
    """Return a short table of the first rows of a matrix, for formats that cannot fold; further
    rows are only counted. `outputs`: whether the beginning of each variant's output is included."""
    rows = iter(matrix.rows)
    first_rows = list(islice(rows, most))
    hidden = sum(1 for _ in rows) if matrix.number is None else matrix.number - len(first_rows)
    # The first columns that rows were made of tell them apart, or else their input.
    columns = dict.fromkeys(name for row in first_rows for name in row.columns)
    heads = list(columns)[:COLUMNS_SHOWN] or [INPUT]
    has_reference = any(row.reference for row in first_rows)
    table_rows: list[Sequence[Cell]] = []

    for row in first_rows:
        texts = [_told(row, head) for head in heads]
        texts += [row.reference] if has_reference else []
        texts = [shorten(text, INPUT_SHOWN) for text in texts]
        entries = [_brief(entry) if outputs else describe_entry(entry) for entry in row.entries]
        table_rows.append((shorten(row.name, NAME_SHOWN), *texts, *entries))

    variants = [shorten(name, INPUT_SHOWN) for name in matrix.variants]
    expected = [matrix.expected] if has_reference else []
    names = ["row", *heads, *expected, *variants]
    note = f"{count(hidden, 'more row')} not shown here; a page in HTML has them." if hidden else ""

    return Table(matrix.title, names, table_rows, note=note)


def _told(row: MatrixRow, head: str) -> str:
    """Return the text of a row below such a heading; if all its entries failed without a score, the
    reason of the first in place of the input."""
    if head in row.columns:
        return row.columns[head]
    entries = row.present
    failed = bool(entries) and all(e.failure and main_score(e) is None for e in entries)
    return entries[0].failure if failed else row.input


def draw_first(
    rows: Sequence[MatrixRow], variants: Sequence[str], links: Sequence[str], place: str
) -> Table:
    """Return a table with a line for each entry of these rows, which are those to look at first
    (failures and lowest scores), with the first words of its texts; columns without any text are
    left out. `links` and `place`: the links to the rows, as in `Table`."""
    several = len(variants) > 1
    columns = ["case", "variant", "score", INPUT, "output", "reason"]
    cells: list[Sequence[Cell]] = []
    lines: list[str] = []

    for row, link in zip(rows, links or [""] * len(rows), strict=True):
        for n, entry in enumerate(row.entries):
            if entry is not None:
                reason = entry.failure or "; ".join(entry.reasons.values())
                output = entry.output
                if row.reference and output:
                    expected = shorten(row.reference, WORDS_SHOWN // 2)
                    output = f"{EXPECTED} {expected}, got {output}"
                texts = (row.words, output, reason)
                variant = shorten(variants[n], NAME_SHOWN) if several else ""
                head = [shorten(row.name, NAME_SHOWN), variant, describe_entry(entry)]
                cells.append([*head, *(shorten(text, WORDS_SHOWN) for text in texts)])
                lines.append(link)

    filled = [n for n in range(len(columns)) if any(line[n] for line in cells)]

    return Table(
        "Failures and lowest scores",
        [columns[n] for n in filled],
        [[line[n] for n in filled] for line in cells],
        links=lines,
        place=place,
    )


def draw_cell_difference(
    row: MatrixRow, variants: Sequence[str], pair: tuple[int, int]
) -> Diff | None:
    """Return the word-by-word difference between the outputs of two variants for a row; None if an
    output is missing, or if the two are equal or share no word, since both stand in the matrix."""
    texts: list[str] = []
    titles: list[str] = []
    for place in pair:
        entry = row.entries[place]
        if entry is None or entry.failure:
            return None
        texts.append(entry.output)
        titles.append(f"{shorten(variants[place], NAME_SHOWN)} {describe_entry(entry)}")

    if not all(texts) or texts[0] == texts[1] or not _share_words(*texts):
        return None

    title = f"Case {shorten(row.name, NAME_SHOWN)}, {shorten(row.words, INPUT_SHOWN)}: "
    return Diff(f"{title}{titles[0]} → {titles[1]}", texts[0], texts[1])


def _share_words(before: str, after: str) -> bool:
    words = wording.clip(before, MOST_CHARACTERS).lower().split()
    other_words = wording.clip(after, MOST_CHARACTERS).lower().split()
    return not set(words).isdisjoint(other_words)


def _brief(entry: Entry | None) -> str:
    text = "" if entry is None else shorten(entry.failure or entry.output, OUTPUT_SHOWN)
    return f"{describe_entry(entry)}\n{text}".rstrip()


def find_details(row: MatrixRow, matrix: Matrix) -> Iterator[tuple[int | None, Section]]:
    """Yield the details of a row as a whole (with None), and those of its entries (with the
    variant's index)."""
    if row.details:
        title = f"{row.name}: {shorten(row.words, 90)}"
        yield None, Section(title, row.details, row.facts, folded=True)
    for n, entry in enumerate(row.entries):
        if entry is not None and entry.details:
            title = f"{row.name}, {matrix.variants[n]}"
            yield n, Section(title, entry.details, entry.facts, folded=True)


# The difference between two texts, word by word, with a little of the unchanged text around each
# change.

MOST_CHARACTERS = 40_000  # the length to which longer texts are cut before they are compared
# The number of pieces from which frequent pieces are ignored in the comparison, for speed.
LONG = 1000
CONTEXT = 240
"""The number of unchanged characters that are shown before and after a change."""

# A word with the spaces after it; line breaks are pieces of their own, since a text that was added
# below changes no word above.
_PIECE = re.compile(r"\n+|[^\S\n]+|\S+[^\S\n]*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words in the difference of two texts. `kind`: whether they are in both texts
    (`same`), only in the first (`removed`), or only in the second (`added`); `gap` stands for
    unchanged words that are left out."""

    kind: Literal["same", "removed", "added", "gap"]
    text: str


def find_differences(before: str, after: str) -> tuple[Piece, ...]:
    """Return the pieces of the difference between two texts, in order, with control characters
    replaced; empty if no difference is visible. Only the first `MOST_CHARACTERS` of each text are
    compared.

    Apart from gaps, the same and removed pieces form `before`, and the same and added ones form
    `after`.
    """
    old, new = (wording.visible(wording.clip(t, MOST_CHARACTERS)) for t in (before, after))

    return () if old == new else tuple(_compare(_PIECE.findall(old), _PIECE.findall(new)))


def _compare(old: list[str], new: list[str]) -> Iterator[Piece]:
    # In long texts words that stand there over and over are no anchors, else it takes seconds.
    matcher = SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > LONG)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from _shorten("".join(old[a:b]), begins=a == c == 0, ends=b == len(old))
            continue
        if b > a:
            yield Piece("removed", "".join(old[a:b]))
        if d > c:
            yield Piece("added", "".join(new[c:d]))


def _shorten(text: str, *, begins: bool, ends: bool) -> Iterator[Piece]:
    """Yield an unchanged run of words, without its middle if that has more than `CONTEXT`
    characters. `begins`: the run is at the start of the text, so that its beginning may be left
    out, too; `ends`: it is at the end of the text, so that its end may be left out."""
    head = "" if begins else text[:CONTEXT]
    tail = "" if ends else text[-CONTEXT:]
    omitted = len(text) - len(head) - len(tail)
    if omitted <= CONTEXT:
        yield Piece("same", text)
        return
    pieces = Piece("same", head), Piece("gap", wording.count(omitted, "unchanged character"))
    yield from (piece for piece in (*pieces, Piece("same", tail)) if piece.text)
