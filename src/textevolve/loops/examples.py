"""The rows that a template is calibrated on: values for its placeholders, and a label.

Rows are parted into training and validation by a hash of their values, so that the parting does not
depend on the file's order, and rows whose values differ in white space and case alone, or that are
of one group, never stand on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from textevolve.errors import InputError
from textevolve.loops.placeholders import require_placeholders


@dataclass(frozen=True, slots=True)
class Example:
    """`values` by placeholder, as text. `label` is what a metric compares with; None: none.
    `group`: what examples have in common that must stay on one side of the parting."""

    id: str
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    label: Any = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ChainedNames:
    """Of a chain with a template: what it is given, and what the template's placeholders are."""

    inputs: tuple[str, ...]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """A template with the data that it is calibrated on. `columns`: all but the label's."""

    template: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    training: tuple[Example, ...]
    validation: tuple[Example, ...]

    @property
    def examples(self) -> tuple[Example, ...]:
        return (*self.training, *self.validation)


def take_material(
    template: str,
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    label: str | None = None,
    validation: float = 0.3,
    group: str | None = None,
    chained: ChainedNames | None = None,
) -> Material:
    """Rows, each with its place for messages, as examples for the template, parted in two.

    Rows that are the same in all that counts are kept once. `chained`: the template is one of a
    chain's, so the values are the chain's inputs, and its placeholders other values, too.

    Raises:
        InputError: no row, a value is missing, the template shows the label or no column, or there
            are too few rows to part.
    """
    template = template.replace("\r\n", "\n")  # else a rewrite that changes nothing seems to
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
    if group is not None and group not in columns:
        raise InputError(f"no row has the column '{group}'; columns: {', '.join(columns)}")
    if chained is None:
        needed = names = require_placeholders(template, columns)
    else:
        needed, names = chained.inputs, require_placeholders(template, chained.slots)
    if label in needed:
        raise InputError(f"the template shows the label {{{label}}} to the model; take it out")
    examples = dict[str, Example]()
    for where, row in placed:
        example = _example(row, where, needed, label)
        if group is not None:
            example = replace(example, group=str(row.get(group, "")).strip())
        examples.setdefault(json.dumps([example.values, str(example.label)]), example)
    training, held_out = split_examples(list(examples.values()), validation)
    shown = tuple(name for name in columns if name not in (label, group) or name in names)
    return Material(template, names, shown, tuple(training), tuple(held_out))


def _example(
    row: Mapping[str, Any], where: str, names: Sequence[str], label: str | None
) -> Example:
    values = {name: _text(row.get(name), name, where) for name in names}
    if label is not None and row.get(label) is None:
        raise InputError(f"{where}: the label '{label}' is missing")
    given = None if label is None else row[label]
    key = json.dumps([values, str(given)], sort_keys=True, ensure_ascii=False)
    return Example(hashlib.sha256(_encoded(key, where)).hexdigest()[:12], values, given)


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
    examples: Collection[Example], share: float
) -> tuple[list[Example], list[Example]]:
    """Training and validation; the latter has as near to `share` of all as whole groups allow.

    Raises:
        InputError: the share is not between 0 and 1, or one side would be empty.
    """
    if not 0 < share < 1:
        raise InputError(f"the share for validation must lie between 0 and 1, not at {share}")
    groups = dict[str, list[Example]]()
    for example in examples:
        groups.setdefault(_hash_group(example), []).append(example)
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
    for example in sorted(examples, key=lambda e: (_hash_group(e), e.id)):
        parts[_hash_group(example) in held_out].append(example)
    return parts


def _hash_group(example: Example) -> str:
    if example.group is not None:
        return hashlib.sha256(json.dumps([example.group]).encode()).hexdigest()
    plain = {name: " ".join(text.casefold().split()) for name, text in example.values.items()}
    data = json.dumps(plain, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(data.encode()).hexdigest()
