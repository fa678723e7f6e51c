"""Rows that other programs exported with their texts in nested fields: a table of names translates
them to the usual columns. Tests of promptfoo, which are no rows to judge, are refused.

Logs of Inspect and results of promptfoo, whose rows must be put together, are in `tables.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.json_texts import find_path
from textevolve.rows.tables import Row

# Exports that are rows already, but with the texts in nested fields. Another one is a line here.


@dataclass(frozen=True, slots=True)
class KnownExport:
    """The export of another program.

    Attributes:
        program: The name of the program, for messages.
        fields: The fields by which a row is recognised; it has them all.
        paths: For each usual column the paths that may have its value; the first that has it
            counts.
    """

    program: str
    fields: frozenset[str]
    paths: Mapping[str, tuple[str, ...]]

    def read(self, row: Row, own_names: Collection[str] = ()) -> Row:
        """Return the row with the usual columns in place of the fields that they are read from.
        `own_names`: the columns that the user has named the fields of."""
        values: dict[str, Any] = {}
        roots: set[str] = set()
        for column, paths in self.paths.items():
            for path in () if column in own_names else paths:
                if (value := find_path(row, path)) is not None:
                    values[column] = value
                    roots.add(path.partition(".")[0])
                    break

        return {**{name: row[name] for name in row if name not in roots}, **values}


_LABELS = {
    f"label_{number}": (
        f"annotations.{number - 1}.result.0.value.choices.0",
        f"annotations.{number - 1}.result.0.value.rating",
    )
    for number in range(1, 6)
}

KNOWN_EXPORTS = (
    KnownExport(
        "OpenAI's batches",
        frozenset(("custom_id", "response")),
        {
            "id": ("custom_id",),
            "output": (
                "response.body.choices.0.message.content",
                "response.body.output.0.content.0.text",
                "response.body.output.1.content.0.text",
            ),
        },
    ),
    KnownExport(
        "lm-eval",
        frozenset(("doc_id", "doc", "target", "resps")),
        {
            "id": ("doc_id",),
            "input": ("arguments.gen_args_0.arg_0", "arguments.0.0"),
            "output": ("filtered_resps.0", "resps.0.0"),
            "reference": ("target",),
        },
    ),
    KnownExport(
        "MT-Bench",
        frozenset(("question_id", "model_id", "choices")),
        {
            "id": ("answer_id", "question_id"),
            "output": ("choices.0.turns.0.content", "choices.0.turns.0"),
        },
    ),
    KnownExport(
        "Label Studio",
        frozenset(("data", "annotations")),
        {
            "input": ("data.input", "data.prompt", "data.question", "data.instruction"),
            "output": ("data.output", "data.response", "data.completion", "data.answer"),
            "reference": ("data.reference",),
            **_LABELS,
        },
    ),
    KnownExport(
        "LangSmith",
        frozenset(("inputs", "outputs")),
        {
            "input": ("inputs.input", "inputs.question", "inputs.messages", "inputs.*"),
            "output": ("outputs.output", "outputs.answer", "outputs.response", "outputs.*"),
            "reference": (
                "reference_outputs.output",
                "reference_outputs.answer",
                "reference_outputs.*",
            ),
        },
    ),
    KnownExport(
        "Langfuse",
        frozenset(("projectId", "input", "output")),
        {
            "input": ("input.messages", "input.input", "input.question", "input.*", "input"),
            "output": ("output.content", "output.output", "output.answer", "output.*", "output"),
        },
    ),
    KnownExport(
        "Langfuse",
        frozenset(("projectId", "input", "expectedOutput")),
        {
            "input": ("input.messages", "input.input", "input.question", "input.*", "input"),
            "reference": (
                "expectedOutput.output",
                "expectedOutput.answer",
                "expectedOutput.*",
                "expectedOutput",
            ),
        },
    ),
)


def find_export(row: Row) -> KnownExport | None:
    """Return the program whose export has such rows; None if no known one has."""
    return next((export for export in KNOWN_EXPORTS if row.keys() >= export.fields), None)


# The tests of promptfoo, which are no rows to judge as they stand.

_EXPECTED = re.compile(r"__expected\d*")
"""The names of the columns in which promptfoo's tests have their checks."""
_METRICS = {
    "equals": "metric:exact",
    "contains": "metric:contains",
    "icontains": "metric:contains:ignore-case",
    "regex": "metric:regex:PATTERN",
    "contains-json": "metric:json-schema:FILE",
    "is-json": "metric:json-schema:FILE",
    "levenshtein": "metric:edit-distance",
    "rouge-n": "metric:rouge-l",
    "bleu": "metric:bleu",
    "similar": "embedding@MODEL",
    "llm-rubric": "probe --rubric TEXT",
    "g-eval": "probe --rubric TEXT",
    "model-graded-closedqa": "probe --rubric TEXT",
    "factuality": "reference",
    "answer-relevance": "answer-relevance",
    "context-faithfulness": "faithfulness",
}
"""For the checks of promptfoo the judge that does the same."""


def refuse_checks(row: Row, where: str) -> None:
    """Raise an InputError if the row is a test of promptfoo, whose checks are in its cells."""
    for column, check in row.items():
        if not (_EXPECTED.fullmatch(column) and isinstance(check, str)):
            continue

        # `contains:Oslo`, `contains-json`, `similar(0.8):Oslo`, or a text alone that must be equal.
        kind = check.partition(":")[0].partition("(")[0].strip()
        if ":" not in check and kind not in _METRICS:
            kind = "equals"
        judge = _METRICS.get(kind, "metric:FILE.py:FUNCTION, a function of your own")
        raise InputError(
            f"{where}: '{column}' has a check of promptfoo, {check!r:.60}, but rows have no checks"
            f" of their own. Use --judge {judge}; an expected text goes into a column 'reference'"
        )
