"""The rows that a template is calibrated on: values for its placeholders, and a label.

Rows are parted into training and validation by a hash of their values, so that the parting does not
depend on the file's order, and rows whose values differ in white space and case alone never stand
on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.loops.placeholders import check_spelling, require_placeholders
from textevolve.statistics.sequential import fewest_units

TRAINING_ROWS = 25
"""Training rows that are enough for a search, where there are not many more rows to give away."""


@dataclass(frozen=True, slots=True)
class Example:
    """`values` by placeholder, as text. `label` is what a metric compares with; None: none.
    `row`: all that the data have of it, as they have it, where a metric or a program needs it."""

    id: str
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    label: Any = None
    row: Mapping[str, Any] | None = None

    @property
    def known(self) -> Mapping[str, Any]:
        """The row, or what is known of it."""
        return self.values if self.row is None else self.row


@dataclass(frozen=True, slots=True)
class ProgramNames:
    """The columns that a program is given, None: all but the label; and the placeholders of each of
    its templates. `whole`: it has several templates, or code that fills them in, so
    each has exactly those, which may be none."""

    inputs: tuple[str, ...] | None
    slots: tuple[tuple[str, tuple[str, ...]], ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Material:
    """A template with the data that it is calibrated on. `columns`: all but the label's. `slots`:
    of a program's templates, by their names, the placeholders that each has to keep."""

    template: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    training: tuple[Example, ...]
    validation: tuple[Example, ...]
    slots: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def examples(self) -> tuple[Example, ...]:
        return (*self.training, *self.validation)


def take_examples(
    template: str,
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    label: str | None = None,
    program: ProgramNames | None = None,
    keep_rows: bool = False,
) -> tuple[list[Example], tuple[str, ...]]:
    """The examples that rows are, and the names of their columns but that of the label.

    Rows that are the same in all that counts are kept once. `program`: the template is one of a
    program's, so the values are what that is given, and its placeholders other values, too.
    `keep_rows`: a metric or a program is given whole rows, so all their columns count.

    Raises:
        InputError: no row, a value is missing, or the template shows the label or no column.
    """
    placed = [
        # A table's index has no name, and {} in a template is text.
        (where, {str(name): value for name, value in row.items() if str(name).strip()})
        for where, row in rows
    ]
    if not placed:
        raise InputError("no data: give rows with values for the template's placeholders")
    columns = dict.fromkeys(name for _, row in placed for name in row)
    if label is not None and label not in columns:
        raise InputError(f"no row has the label '{label}'; columns: {', '.join(columns)}")
    if program is None:
        check_spelling(template, columns, "the template")
    names = require_names(template, columns, program)
    inputs = names if program is None else program.inputs
    others = tuple(name for name in columns if name != label)
    needed = others if inputs is None else inputs
    if label in needed:
        raise InputError(f"the template shows the label {{{label}}} to the model; take it out")
    examples = dict[str, Example]()
    for where, row in placed:
        given = [n for n in needed if row.get(n) is not None] if inputs is None else needed
        example = _example(row, where, given, label, keep_rows)
        key = example.id if keep_rows else json.dumps([example.values, str(example.label)])
        examples.setdefault(key, example)
    shown = tuple(name for name in columns if name != label or name in names)
    return list(examples.values()), shown


def part_examples(
    template: str,
    examples: Sequence[Example],
    columns: tuple[str, ...],
    label: str | None,
    validation: float | None,
    program: ProgramNames | None,
) -> Material:
    """The examples in two parts. `columns`: all but that of the label.

    Raises:
        InputError: there are too few to part.
    """
    template = template.replace("\r\n", "\n")  # else a rewrite that changes nothing seems to
    names = require_names(template, (*columns, *([] if label is None else [label])), program)
    training, held_out = split_examples(examples, validation)
    slots = program.slots if program is not None and program.whole else ()
    return Material(template, names, columns, tuple(training), tuple(held_out), slots)


def require_names(
    template: str, columns: Collection[str], program: ProgramNames | None
) -> tuple[str, ...]:
    """The placeholders of a template, or of all of a program's.

    Raises:
        InputError: a prompt has none, so that every row would make the same one.
    """
    if program is None:
        return require_placeholders(template, columns)
    slots = tuple(dict.fromkeys(slot for _, names in program.slots for slot in names))
    return slots if program.whole else require_placeholders(template, slots)


def _example(
    row: Mapping[str, Any], where: str, names: Sequence[str], label: str | None, whole: bool
) -> Example:
    values = {name: _text(row.get(name), name, where) for name in names}
    if label is not None and row.get(label) is None:
        raise InputError(f"{where}: the label '{label}' is missing")
    given = None if label is None else row[label]
    kept = json.loads(json.dumps(dict(row), default=str)) if whole else None
    counted = [values, str(given)] if kept is None else [values, str(given), kept]
    key = json.dumps(counted, sort_keys=True, ensure_ascii=False)
    id = hashlib.sha256(_encoded(key, where)).hexdigest()[:12]
    return Example(id, values, given, row=kept)


def _text(value: object, name: str, where: str) -> str:
    if value is None:
        raise InputError(f"{where}: '{name}', which the template needs, is missing")
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _encoded(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: has half a surrogate pair: not valid text") from None


def split_examples(
    examples: Collection[Example], share: float | None = None
) -> tuple[list[Example], list[Example]]:
    """Training and validation; the latter has as near to `share` of all as whole groups allow.
    None: what `share_held_out` says.

    Raises:
        InputError: the share is not between 0 and 1, or one side would be empty.
    """
    share = share_held_out(len(examples)) if share is None else share
    if not 0 < share < 1:
        raise InputError(f"the share for validation must lie between 0 and 1, not at {share}")
    groups = dict[str, list[Example]]()
    for example in examples:
        groups.setdefault(hash_group(example), []).append(example)
    if len(groups) < 2:
        raise InputError("the data must have at least two different rows, one for validation")
    wanted = min(max(round(share * len(examples)), 1), len(examples) - 1)
    held_out: set[str] = set()
    count = 0
    for key in sorted(groups):
        if count >= wanted or len(held_out) == len(groups) - 1:
            break
        held_out.add(key)
        count += len(groups[key])
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in sorted(examples, key=lambda e: (hash_group(e), e.id)):
        parts[hash_group(example) in held_out].append(example)
    return parts


def share_held_out(rows: int) -> float:
    """The share of so many rows that is held out if no other is wanted: two thirds, more from 76
    rows on, three quarters from 100 on; of 8 rows as many as a gain takes to be significant.

    A search needs few rows to see what goes wrong; to tell a gain from chance takes many. What the
    shares give is measured in `benchmarks/acceptance.py`.
    """
    training = max(min(rows / 3, TRAINING_ROWS), rows / 4)
    least = fewest_units()
    return 1 - (min(training, rows - least) if rows >= least + 2 else training) / rows


def hash_group(example: Example) -> str:
    """Return a hash that examples share which are not to be parted."""
    plain = {name: " ".join(text.casefold().split()) for name, text in example.values.items()}
    data = json.dumps(plain, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(data.encode()).hexdigest()
