"""Labels as rows of files: one for each item, as studies of judges read them, or one for each
label. An item's row has the mean of its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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
    of people who chose each; a single text with `human`, in [0, 1]."""
    for item, given in labels_by_item(items, labels):
        scores = mean_scores(spec, given)
        if not scores:
            continue
        row: LabelRow = {"id": item.id, "input": item.input}
        if spec.kind == "pairs":
            row |= {f"candidate_{n}": text for n, text in enumerate(item.texts, 1)}
            row |= {f"variant_{n}": name for n, name in enumerate(item.variants, 1)}
            row |= {"scores": list(scores)}
        else:
            row |= {"candidate": next(iter(item.candidates), None), "output": item.texts[0]}
            row |= {"human": scores[0], "variant": next(iter(item.variants), None)}
        notes = [f"{label.labeller}: {label.note}" for label in given if label.note]
        row |= {"context": item.context, "reference": item.reference}
        row |= {"labels": sum(label.answer != SKIP for label in given)}
        row |= {"notes": "\n".join(notes) or None}
        yield {name: value for name, value in row.items() if value is not None}


def label_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Iterator[LabelRow]:
    """Yield a row for each label, skipped ones included."""
    for label in labels:
        item = items[label.position]
        yield {
            "position": label.position,
            "id": item.id,
            "labeller": label.labeller,
            "answer": describe_answer(spec, label.answer),
            "value": next(iter(scores_of(spec, label.answer)), None),
            "note": label.note,
            "shown_first": label.swapped + 1 if len(item.texts) > 1 else None,
            "created": label.created,
        }
