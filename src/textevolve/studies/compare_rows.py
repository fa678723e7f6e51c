"""The rows of a comparison as cases: which columns stand for what, and the images that they name.

Also an output of an earlier run as a case, and back. What is done with the cases: `compare`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure, Usage
from textevolve.judge_specs import parse_evaluator, split_rules
from textevolve.loops.placeholders import check_spelling
from textevolve.rows import Placed, Renaming, read_rows
from textevolve.rows.images import ImageReading, read_images
from textevolve.studies.chained import chains_among, open_chain_named
from textevolve.studies.columns import Columns
from textevolve.studies.compare_cells import Output
from textevolve.studies.compare_spec import (
    CompareSpec,
    judges_of,
)
from textevolve.studies.datasets import folder_of, image_reading
from textevolve.user_code import OWN

INPUTS = ("input", "prompt", "question", "instruction")
"""Columns of which the first that there is stands for the input, where no prompt is compared."""


def read_cases(spec: CompareSpec) -> Iterator[Case]:
    if not spec.data:
        raise InputError("--data is missing: rows with values for the placeholders")
    reading = image_reading(spec)

    def opened(file: str) -> None:
        nonlocal reading
        reading = replace(reading, folder=folder_of(file))

    rows = read_rows(spec.data, "row", lambda _: True, spec.map, opened=opened)
    yield from row_cases(spec, (_with_images(spec, *placed, reading) for placed in rows))


def _with_images(
    spec: CompareSpec, where: str, row: Mapping[str, Any], reading: ImageReading
) -> Placed:
    """The row with data URLs in its columns of images."""
    read = {
        name: read_images(row[name], f"{where}: '{name}'", reading)
        for name in spec.images
        if name in row
    }
    return where, {**row, **read}


def take_rows(spec: CompareSpec, rows: Iterable[Mapping[str, Any]]) -> Iterator[Case]:
    """A case for each row from Python, its columns renamed as those of a file are."""
    renaming = Renaming(spec.map)
    reading = image_reading(spec)
    renamed = [
        _with_images(spec, f"row {n}", renaming(row), reading) for n, row in enumerate(rows, 1)
    ]
    renaming.refuse_unused()
    return row_cases(spec, renamed)


def row_cases(spec: CompareSpec, rows: Iterable[Placed]) -> Iterator[Case]:
    """A case for each row: its columns as JSON, the outputs that it has, and its label.

    Raises:
        InputError: the rows do not fit the specification; says where, and which columns there are.
    """
    placed = list(rows)
    if not placed:
        raise InputError(f"{spec.data or 'data'}: has no rows")
    columns = list(dict.fromkeys(str(n) for _, row in placed for n in row if str(n).strip()))
    _check_needs(spec, columns)
    own, taken = _check_columns(spec, columns), _take_columns(spec, columns)
    if spec.samples > 1 and spec.temperature == 0 and spec.prompts:
        told = "samples at temperature 0 hardly differ: set --temperature, such as 0.7"
        logging.getLogger("textevolve").warning(told)
    seen = dict[str, int]()
    for number, (where, row) in enumerate(placed, 1):
        label = None if spec.label is None else row.get(spec.label)
        if spec.label is not None and label is None:
            raise InputError(f"{where}: the label '{spec.label}' is missing")
        images = tuple(url for name in spec.images for url in row.get(name, ()))
        shown = {**row, **_name_images(spec, row)}
        values = json.dumps({name: _text(shown.get(name)) for name in own}, ensure_ascii=False)
        given = tuple(_text(row.get(column)) for column in spec.outputs)
        id = str(row.get("id", number))
        taken.note_unread(row, taken.taken)
        taken.note_id(id)
        seen[id] = seen.get(id, 0) + 1
        id = id if seen[id] == 1 else f"{id} ({seen[id]})"  # so that none takes another's place
        reference = None if label is None else _text(label)
        context = None if spec.context is None else _text(row.get(spec.context)) or None
        yield Case(values, given, id, reference=reference, context=context, images=images)
    taken.tell(reference=True)


def _name_images(spec: CompareSpec, row: Mapping[str, Any]) -> dict[str, str]:
    """What stands in the place of a column of images, where a prompt names it."""
    named, number = dict[str, str](), 0
    for name in spec.images:
        first, number = number + 1, number + len(row.get(name, ()))
        named[name] = " ".join(f"(image {n})" for n in range(first, number + 1))
    return named


def _take_columns(spec: CompareSpec, columns: Sequence[str]) -> Columns:
    """What each column is read as; those of a prompt are what its placeholders name."""
    found, shown = Columns(), input_column(spec, columns)
    roles = [("id", "id")]
    roles += [(n, "prompt") for prompt in spec.prompts for n in prompt.placeholders(columns)]
    roles += [(shown, "input"), (spec.context or "", "context"), (spec.label or "", "label")]
    roles += [(column, "output") for column in spec.outputs]
    roles += [(column, "images") for column in spec.images]
    for name, role in roles:
        if name in columns:
            found.take(name, role)
    return found


def input_column(spec: CompareSpec, columns: Collection[str]) -> str:
    """The column that judges and people see as the input; "" where a prompt is filled in for it."""
    if spec.input is not None or spec.prompts:
        return spec.input or ""
    return next((name for name in INPUTS if name in columns), "")


def _check_needs(spec: CompareSpec, columns: Sequence[str]) -> None:
    """
    Raises:
        InputError: a judge could score no output without a column that is not named.
    """
    for judge in judges_of(spec):
        _, asked = split_rules(judge)
        needs = () if asked is None else parse_evaluator(asked).needs
        given = {"context": ("--context", spec.context), "reference": ("--label", spec.label)}
        for need, (flag, column) in given.items():
            if need in needs and column is None:
                raise InputError(
                    f"judge {judge} needs a {need}: name its column with {flag}; columns:"
                    f" {', '.join(columns)}"
                )


def _check_columns(spec: CompareSpec, columns: Sequence[str]) -> list[str]:
    """The columns that prompts may show: all but the label and outputs.

    Raises:
        InputError: a column is named that there is not, or a prompt shows none.
    """
    named = {"--label": (spec.label,), "--input": (spec.input,), "--context": (spec.context,)}
    named |= {"--outputs": spec.outputs, "--images": spec.images}
    for flag, wanted in named.items():
        for column in wanted:
            if column is not None and column not in columns:
                there = ", ".join(columns)
                raise InputError(f"{flag}: no row has the column '{column}'; columns: {there}")
    own = [name for name in columns if name not in (spec.label, *spec.outputs)]
    for name in chains_among(*spec.models):
        if not name.startswith(OWN):
            open_chain_named(name, {}).take_inputs(dict.fromkeys(own, ""), others=True)
    for prompt in spec.prompts:
        texts = [spec.system, *(text for _, text in prompt.templates)]
        check_spelling("\n".join(texts), own, f"prompt {prompt.name}")
        if not prompt.placeholders(own) and not spec.images:
            raise InputError(
                f"prompt {prompt.name}: has no placeholder that the rows have a value for; columns:"
                f" {', '.join(own)}"
            )
    shown = spec.prompts or chains_among(*spec.models) or input_column(spec, own)
    if not shown and judges_of(spec):
        raise InputError(
            "judges need an input to judge by: name its column with --input; columns:"
            f" {', '.join(columns)}"
        )
    return own


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_KEPT = ("variant", "prompt", "model", "sample", "cut", "seconds")


def take_again(output: Output) -> Case:
    """An output of an earlier run as a case of this one."""
    kept = {name: getattr(output, name) for name in _KEPT}
    failed = output.failure.reason if output.failure and not output.text else None
    # What a run is known by: fields that came later stand in it only where they hold something.
    used = asdict(output.usage)
    usage = {n: v for n, v in used.items() if v or n not in ("estimated", "models")}
    parameters = {**kept, "usage": usage, "failed": failed}
    return Case(
        *(output.input, (output.text,), output.row, parameters, output.reference, output.context),
        images=output.images,
    )


def restore_output(case: Case, position: int) -> Output:
    told = case.parameters
    kept = {name: told[name] for name in _KEPT}
    failure = None if told["failed"] is None else Failure("failed", told["failed"])
    return Output(
        position,
        case.id,
        **kept,
        input=case.input,
        reference=case.reference,
        context=case.context,
        images=case.images,
        text=case.candidates[0],
        failure=failure,
        usage=Usage(**told["usage"]),
    )
