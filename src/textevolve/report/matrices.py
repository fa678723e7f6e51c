"""Functions that all renderers of a matrix share: a short form of an entry, a table of the first
rows, and the details of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from textevolve.report.blocks import Cell, Diff, Entry, Matrix, MatrixRow, Section, Table
from textevolve.report.wording import DASH, count, number, shorten

NAME_SHOWN, INPUT_SHOWN, OUTPUT_SHOWN = 30, 44, 160
WORDS_SHOWN = 40


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
    table_rows = [
        (
            shorten(row.id, NAME_SHOWN),
            *(_brief(entry) if outputs else describe_entry(entry) for entry in row.entries),
            shorten(_asked(row), INPUT_SHOWN),
        )
        for row in islice(rows, most)
    ]
    hidden = sum(1 for _ in rows)
    names = ["row", *(shorten(name, INPUT_SHOWN) for name in matrix.variants), "input"]
    note = f"{count(hidden, 'more row')} not shown here; a page in HTML has them." if hidden else ""
    return Table(matrix.title, names, table_rows, note=note)


def draw_first(
    rows: Sequence[MatrixRow], variants: Sequence[str], links: Sequence[str], place: str
) -> Table:
    """Return a table with a line for each entry of these rows, which are those to look at first
    (failures and lowest scores), with the first words of its texts; columns without any text are
    left out. `links` and `place`: the links to the rows, as in `Table`."""
    several = len(variants) > 1
    columns = ["case", *(["variant"] if several else [])]
    columns += ["score", "input", "output", "reason"]
    cells: list[Sequence[Cell]] = []
    lines: list[str] = []
    for row, link in zip(rows, links or [""] * len(rows), strict=True):
        for n, entry in enumerate(row.entries):
            if entry is not None:
                reason = entry.failure or "; ".join(entry.reasons.values())
                texts = [shorten(text, WORDS_SHOWN) for text in (row.input, entry.output, reason)]
                variant = [shorten(variants[n], NAME_SHOWN)] if several else []
                cells.append([shorten(row.id, NAME_SHOWN), *variant, describe_entry(entry), *texts])
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
    output is missing."""
    cells = [row.entries[n] for n in pair]
    texts = [entry.output if entry and not entry.failure else "" for entry in cells]
    if not all(texts):
        return None
    titles = [f"{shorten(variants[n], NAME_SHOWN)} {describe_entry(row.entries[n])}" for n in pair]
    title = f"Case {shorten(row.id, NAME_SHOWN)}, {shorten(row.input, INPUT_SHOWN)}: "
    return Diff(f"{title}{titles[0]} → {titles[1]}", texts[0], texts[1])


def _brief(entry: Entry | None) -> str:
    text = "" if entry is None else shorten(entry.failure or entry.output, OUTPUT_SHOWN)
    return f"{describe_entry(entry)}\n{text}".rstrip()


def _asked(row: MatrixRow) -> str:
    """Return the input of a row; if all its entries failed without a score, the reason of the
    first."""
    entries = [entry for entry in row.entries if entry is not None]
    failed = bool(entries) and all(e.failure and main_score(e) is None for e in entries)
    return entries[0].failure if failed else row.input


def find_details(row: MatrixRow, matrix: Matrix) -> Iterator[tuple[int | None, Section]]:
    """Yield the details of a row as a whole (with None), and those of its entries (with the
    variant's index)."""
    if row.details:
        title = f"{row.id}: {shorten(row.input, 90)}"
        yield None, Section(title, row.details, row.facts, folded=True)
    for n, entry in enumerate(row.entries):
        if entry is not None and entry.details:
            title = f"{row.id}, {matrix.variants[n]}"
            yield n, Section(title, entry.details, entry.facts, folded=True)
