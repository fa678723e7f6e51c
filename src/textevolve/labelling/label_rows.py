"""Labels as rows of files: one for each item, as studies of judges read them, or one for each
label.

An item's row has the mean of its labels; repeated showings are in the rows of labels alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from textevolve.errors import InputError
from textevolve.labelling.agreement import labels_by_item, mean_scores
from textevolve.labelling.tasks import (
    SKIP,
    GivenLabel,
    LabelItem,
    TaskSpec,
    describe_answer,
    scores_of,
)

LabelRow = dict[str, Any]


def item_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Iterator[LabelRow]:
    """Yield a row for each labelled item: a pair with its candidates and their `scores`, the share
    of people who chose each; a single text with `human`, in [0, 1], and the judge's `passed` and
    `score` if it comes from a run."""
    for item, given in labels_by_item(items, labels):
        scores = mean_scores(spec, given)
        if not scores:
            continue
        row: LabelRow = {"id": item.id, "input": item.input}
        if spec.kind == "pairs":
            row |= {f"candidate_{n}": text for n, text in enumerate(item.texts, 1)}
            row |= {"scores": list(scores)}
        else:
            row |= {"candidate": next(iter(item.candidates), None), "output": item.texts[0]}
            row |= {"human": scores[0], "variant": next(iter(item.variants), None)}
            row |= {"passed": next(iter(item.passed), None)}
            row |= {"score": next(iter(item.scores), None)}
        notes = [f"{label.labeller}: {label.note}" for label in given if label.note]
        row |= {
            "context": item.context,
            "reference": item.reference,
            "group": item.group or None,
            "subset": item.subset or None,
            "labels": sum(label.answer != SKIP for label in given),
            "notes": "\n".join(notes) or None,
        }
        if spec.kind == "pairs":
            row |= {f"variant_{n}": name for n, name in enumerate(item.variants, 1)}
        yield {name: value for name, value in row.items() if value is not None}


def label_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Iterator[LabelRow]:
    """Yield a row for each label, repeated showings and skipped ones included."""
    for label in labels:
        item = items[label.position]
        yield {
            "position": label.position,
            "id": item.id,
            "labeller": label.labeller,
            "answer": describe_answer(spec, label.answer),
            "value": next(iter(scores_of(spec, label.answer)), None),
            "note": label.note,
            "second_showing": item.again,
            "shown_first": label.swapped + 1 if len(item.texts) > 1 else None,
            "created": label.created,
        }


def rows_to_rank(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> list[LabelRow]:
    """Return items with two candidates or more: pairs as they are; single texts on one input
    together, with their labels as scores.

    Raises:
        InputError: no input has two labelled texts; names the command to use instead.
    """
    rows = list(item_rows(spec, items, labels))
    if not rows:
        raise InputError("nobody has labelled anything yet")
    if spec.kind == "pairs":
        return rows
    by_input: defaultdict[tuple[str, str], list[LabelRow]] = defaultdict(list)
    for row in rows:
        by_input[row["id"], row["input"]].append(row)
    shared_fields = ("id", "input", "context", "reference", "group", "subset")
    ranked = [
        {name: texts[0][name] for name in shared_fields if name in texts[0]}
        | {f"candidate_{n}": row["output"] for n, row in enumerate(texts, 1)}
        | {"scores": [row["human"] for row in texts]}
        for texts in by_input.values()
        if len(texts) > 1
    ]
    if not ranked:
        raise InputError(
            "its texts are single ones, each on an input of its own, so none can be preferred to"
            " another; hold a judge's results against them with: textevolve bench rate"
            " RESULTS.csv labelling:NAME"
        )
    return ranked
