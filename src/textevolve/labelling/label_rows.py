"""Labels as rows of files: one for each item, as those who measure judges read them, or one for
each label.

What several people say of an item is their mean; second showings are in the rows of labels alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from textevolve.errors import InputError
from textevolve.labelling.agreement import gather_answers, vote
from textevolve.labelling.tasks import (
    SKIP,
    GivenLabel,
    LabelItem,
    TaskSpec,
    first_labels,
    say_answer,
    value_of,
)

LabelRow = dict[str, Any]


def item_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Iterator[LabelRow]:
    """A row for each item that somebody labelled. Of a pair its two candidates and their `scores`,
    the share of people who chose each; of a single text `human`, in [0, 1], and where it comes from
    a run what the judge said: `passed` and `score`."""
    for item, given in gather_answers(items, first_labels(items, labels)):
        answers = [one.answer for one in given if one.answer != SKIP]
        people = vote(spec, answers)
        if people is None:
            continue
        about: LabelRow = {"id": item.id, "input": item.input}
        notes = [f"{one.labeller}: {one.note}" for one in given if one.note]
        more: LabelRow = {
            "context": item.context,
            "reference": item.reference,
            "group": item.group or None,
            "subset": item.subset or None,
            "labels": len(answers),
            "notes": "\n".join(notes) or None,
        }
        if spec.kind == "pairs":
            texts = {f"candidate_{n}": text for n, text in enumerate(item.texts, 1)}
            variants = {f"variant_{n}": name for n, name in enumerate(item.variants, 1)}
            yield _present({**about, **texts, "scores": list(people), **more, **variants})
            continue
        own: LabelRow = {"candidate": item.candidates[0] if item.candidates else None}
        own |= {"output": item.texts[0], "human": people[0]}
        own |= {"variant": item.variants[0]} if item.variants else {}
        own |= {"passed": item.passed[0]} if item.passed else {}
        own |= {"score": item.scores[0]} if item.scores else {}
        yield _present({**about, **own, **more})


def _present(row: LabelRow) -> LabelRow:
    return {name: value for name, value in row.items() if value is not None}


def label_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Iterator[LabelRow]:
    """A row for each label, second showings and what was skipped among them."""
    for label in labels:
        item = items[label.position]
        yield {
            "position": label.position,
            "id": item.id,
            "labeller": label.labeller,
            "answer": say_answer(spec, label.answer),
            "value": value_of(spec, label.answer),
            "note": label.note,
            "second_showing": item.again,
            "shown_first": _first_shown(item, label),
            "created": label.created,
        }


def _first_shown(item: LabelItem, label: GivenLabel) -> int | None:
    """The number of the text of a pair that stood first, from 1 on."""
    return (2 if label.swapped else 1) if len(item.texts) > 1 else None


def rows_to_rank(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> list[LabelRow]:
    """Items with two candidates or more, which judges can be held against: pairs as they are;
    single texts on one input together, with what people said of each as its score.

    Raises:
        InputError: no input has two texts that were labelled; says what can be done with them.
    """
    rows = list(item_rows(spec, items, labels))
    if not rows:
        raise InputError("nobody has labelled anything yet")
    if spec.kind == "pairs":
        return rows
    found: defaultdict[tuple[str, str], list[LabelRow]] = defaultdict(list)
    for row in rows:
        found[row["id"], row["input"]].append(row)
    kept = ("id", "input", "context", "reference", "group", "subset")
    made = [
        {name: of[0][name] for name in kept if name in of[0]}
        | {f"candidate_{n}": one["output"] for n, one in enumerate(of, 1)}
        | {"scores": [one["human"] for one in of]}
        for of in found.values()
        if len(of) > 1
    ]
    if not made:
        raise InputError(
            "its texts are single ones, each on an input of its own, so none can be preferred to"
            " another; hold a judge's results against them with: textevolve bench rate"
            " RESULTS.csv labelling:NAME"
        )
    return made
