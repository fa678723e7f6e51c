"""A labelling task: the items that people see, the answers that they may give, and their labels.

Items also contain what labellers must not see, such as which variant wrote a text; `show_to`
returns the part that one person sees. The order of the two texts of a pair depends only on the
task, the item and the person, so that a reloaded page shows the same order.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.mappings import drop_none
from textevolve.spec import Frozen, option
from textevolve.statistics.agreement import krippendorff_alpha
from textevolve.statistics.intervals import Statistic
from textevolve.texts.prose import join_lines

TaskKind: TypeAlias = Literal["pairs", "single"]

FIRST = "first"
SECOND = "second"
TIE = "tie"
SKIP = "skip"
CHOICES = (FIRST, SECOND, TIE)
"""The answers to a pair. The answers to a single text are the levels of its question. Both kinds of
items may also be skipped."""
LONGEST_NOTE = 4000
LONGEST_NAME = 60


class LabelQuestion(Frozen):
    """A question about a single text. `levels`: the answers, the lowest first."""

    text: str = option("", "The question for people; empty: whether a text is good.")
    levels: tuple[str, ...] = option(("fail", "pass"), "The possible answers, the lowest first.")


class TaskSpec(Frozen):
    """A task without its items. `questions`: the one that is asked of single texts. `source`: the
    origin of its items, for people."""

    kind: TaskKind
    questions: tuple[LabelQuestion, ...] = ()
    instructions: str = ""
    source: str = ""

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers that a person may give; they are the classes of the figures of agreement."""
        if self.kind == "pairs":
            return CHOICES
        return tuple(map(str, range(len(self.questions[0].levels))))


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A text, or a pair of texts, to be labelled, with its input.

    Attributes:
        place: The index of the item in the task, from 0.
        context: The text that answers must be faithful to, if any.
        reference: The reference answer, if any.
        candidates: The numbers of the texts in their case, from 1.
        variants: The variants of a run that wrote the texts; empty for texts that are not a run's.
        stratum: The stratum that the item was drawn from, and the number of its items; None if all
            items were equally likely.
    """

    place: int
    id: str
    input: str
    texts: tuple[str, ...]
    context: str | None = None
    reference: str | None = None
    candidates: tuple[int, ...] = ()
    variants: tuple[str, ...] = ()
    stratum: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PersonLabel:
    """The label that one person gave an item.

    Attributes:
        position: The index of the item in the task.
        labeller: The person's name.
        answer: One of `CHOICES`, the index of the chosen level (from 0), or `SKIP`.
        note: The person's remark.
        swapped: Whether the person saw the second text first.
        created: The time, in seconds since 1970.
    """

    position: int
    labeller: str
    answer: str
    note: str = ""
    swapped: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task in the store. `positions`: the number of its items; `done`: the number of items that
    each person has labelled."""

    id: str
    namespace: str
    name: str
    spec: TaskSpec
    created: float
    positions: int
    done: dict[str, int]


def is_swapped(task: str, item: LabelItem, labeller: str) -> bool:
    """Tell whether this person sees the second text of a pair first. Exactly one of two
    neighbouring items is swapped, at random for each person, so that both orders are equally
    frequent."""
    if len(item.texts) < 2:
        return False
    drawn = hashlib.sha256(f"{task}\n{item.place // 2}\n{labeller}".encode()).digest()[0]
    return bool((drawn ^ item.place) & 1)


def show_to(task: str, item: LabelItem, labeller: str) -> LabelItem:
    """Return an item as one person sees it: its texts in the person's order, without its id, its
    variants and the numbers of its candidates."""
    step = -1 if is_swapped(task, item, labeller) else 1
    return LabelItem(
        place=item.place,
        id="",
        input=item.input,
        texts=item.texts[::step],
        context=item.context,
        reference=item.reference,
    )


def turn(answer: str, *, swapped: bool) -> str:
    """Convert an answer to a pair between the displayed order and the order of the item, in either
    direction."""
    return {FIRST: SECOND, SECOND: FIRST}.get(answer, answer) if swapped else answer


def check_answer(spec: TaskSpec, answer: str) -> str:
    """Return the answer if the task allows it.

    Raises:
        InputError: the task has no such answer; lists the answers.
    """
    if answer not in (*spec.answers, SKIP):
        raise InputError(f"the answer must be {SKIP}, or one of: {', '.join(spec.answers)}")
    return answer


def check_labeller(name: str) -> str:
    """Return the name of a labeller with normalised spaces.

    Raises:
        InputError: the name is blank, too long, or not printable.
    """
    name = join_lines(name)
    check_text("the name", name)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"the name must be at most {LONGEST_NAME} printable characters")

    return name


def check_note(note: str) -> str:
    """Return a labeller's note without surrounding spaces.

    Raises:
        InputError: the note is too long.
    """
    note = note.replace("\r\n", "\n").strip()
    if len(note) > LONGEST_NOTE:
        raise InputError(f"the note must be at most {LONGEST_NOTE} characters, not {len(note)}")

    return note


def scores_of(spec: TaskSpec, answer: str) -> tuple[float, ...]:
    """Return the score in [0, 1] that an answer gives to each text; empty for a skipped item. The
    two scores of a pair sum to 1."""
    if answer == SKIP:
        return ()
    if spec.kind == "pairs":
        return ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))[CHOICES.index(answer)]
    return (int(answer) / (len(spec.answers) - 1),)


def describe_answer(spec: TaskSpec, answer: str) -> str:
    """Return an answer in words: the choice, or the name of the level."""
    if answer in (*CHOICES, SKIP):
        return answer
    return spec.questions[0].levels[int(answer)]


# The agreement of people who label the same items, and the variants whose texts they prefer.
#
# A skipped item counts as missing data, not as an answer.


@dataclass(frozen=True, slots=True)
class LabellerFigures:
    """The number of items that one person has labelled, and the number skipped."""

    name: str
    labelled: int
    skipped: int


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """The agreement of people on the items of a task.

    Attributes:
        items: The number of items.
        labelled: The number of items with a label; `shared`: with labels of two people or more.
        alpha: Krippendorff's alpha.
        people: The figures of each person.
        disputed: The indices of the items on which people differ.
        wins: The mean score of each variant, and the number of items over which it is computed.
    """

    items: int
    labelled: int
    shared: int
    alpha: Statistic
    people: tuple[LabellerFigures, ...]
    disputed: tuple[int, ...]
    wins: Mapping[str, tuple[float, int]]


def agree(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[PersonLabel]
) -> PeopleAgreement:
    """Compute the agreement of people on a task. `labels` are sorted by position. For pairs
    Krippendorff's alpha is nominal, for grades it uses squared differences; its interval treats
    items with the same input as dependent."""
    labelled = labels_by_item(items, labels)
    answered = 0
    shared: list[tuple[LabelItem, list[str]]] = []
    for item, item_labels in labelled:
        answers = [label.answer for label in item_labels if label.answer != SKIP]
        answered += bool(answers)
        # Only items that two people answered say whether people agree.
        if len(answers) > 1:
            shared.append((item, answers))

    classes = [list(map(spec.answers.index, answers)) for _, answers in shared]
    inputs = [item.input for item, _ in shared]
    squared = spec.kind == "single"

    by_person: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        by_person[label.labeller].append(label.answer)
    people: list[LabellerFigures] = []
    for name, answers in by_person.items():
        skipped = answers.count(SKIP)
        people.append(LabellerFigures(name, len(answers) - skipped, skipped))

    return PeopleAgreement(
        items=len(labelled),
        labelled=answered,
        shared=len(shared),
        alpha=krippendorff_alpha(classes, len(spec.answers), inputs, squared=squared, seed=0),
        people=tuple(people),
        disputed=tuple(item.place for item, answers in shared if len(set(answers)) > 1),
        wins=_count_wins(spec, labelled),
    )


def labels_by_item(
    items: Sequence[LabelItem], labels: Iterable[PersonLabel]
) -> list[tuple[LabelItem, list[PersonLabel]]]:
    """Return the items in their order, each with its labels."""
    by_position: defaultdict[int, list[PersonLabel]] = defaultdict(list)
    for label in labels:
        by_position[label.position].append(label)
    return [(item, by_position[n]) for n, item in enumerate(items)]


def mean_scores(spec: TaskSpec, labels: Iterable[PersonLabel]) -> tuple[float, ...]:
    """Return the mean score that people give to each text of an item; empty if all skipped it."""
    scores = [scores for label in labels if (scores := scores_of(spec, label.answer))]
    return tuple(sum(column) / len(scores) for column in zip(*scores, strict=True))


def _count_wins(
    spec: TaskSpec, labelled: Iterable[tuple[LabelItem, list[PersonLabel]]]
) -> dict[str, tuple[float, int]]:
    by_variant: defaultdict[str, list[float]] = defaultdict(list)
    for item, labels in labelled:
        for variant, score in zip(item.variants, mean_scores(spec, labels), strict=False):
            by_variant[variant].append(score)
    return {name: (sum(scores) / len(scores), len(scores)) for name, scores in by_variant.items()}


LabelRow = dict[str, Any]


def item_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[PersonLabel]
) -> Iterator[LabelRow]:
    """Yield a row for each labelled item, for a file. A pair has its candidates with their
    `scores`: the share of people who chose each. A single text has `human`, its mean score in [0,
    1], and a column `label_NAME` for each person if there are several."""
    several = len({label.labeller for label in labels}) > 1

    for item, item_labels in labels_by_item(items, labels):
        scores = mean_scores(spec, item_labels)
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
            answers = [(label.labeller, scores_of(spec, label.answer)) for label in item_labels]
            row |= {f"label_{name}": shares[0] for name, shares in answers if shares and several}

        if item.stratum is not None:
            row["stratum"], row["stratum_size"] = item.stratum
        notes = [f"{label.labeller}: {label.note}" for label in item_labels if label.note]
        row |= {"context": item.context, "reference": item.reference}
        row |= {"labels": sum(label.answer != SKIP for label in item_labels)}
        row |= {"notes": "\n".join(notes) or None}
        yield drop_none(row)
