"""A labelling task: the items that people see, the answers that a task allows, and the labels.

Items also hold what labellers never see: which variant wrote a text, and how a judge scored it.
`show_to` returns the part that one person sees. The order of the texts of a pair follows from the
task, the item and the person alone, so a page that is opened twice shows the same.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.spec import Frozen, option

TaskKind: TypeAlias = Literal["pairs", "single"]

FIRST, SECOND, TIE, SKIP = "first", "second", "tie", "skip"
CHOICES = (FIRST, SECOND, TIE)
"""The answers to a pair; a task of single texts has the levels of its questions. Either may be
skipped."""
LONGEST_NOTE = 4000
LONGEST_NAME = 60
GAP = 10
"""Items between the two showings of a repeated item, if there are enough."""


class LabelQuestion(Frozen):
    """A question about a single text. `levels`: the answers, the lowest first."""

    text: str = option("", "What is asked; empty: whether it is good.")
    levels: tuple[str, ...] = option(("fail", "pass"), "The answers, the lowest first.")


class TaskSpec(Frozen):
    """A task without its items. `questions`: of single texts. `source`: the origin of its items,
    for people."""

    kind: TaskKind
    questions: tuple[LabelQuestion, ...] = ()
    instructions: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A text or a pair to be labelled, with its input.

    `place`: its number among the items, from 0 on; `again`: it is a second showing, which measures
    how consistent a person is. `candidates`: the texts' numbers in their case, from 1 on. Texts of
    a run have the `variants` that wrote them, and the `scores` and `passed` of its judge.
    `images`: those of the input, as data URLs; `text_images`: those of each text, or empty.
    """

    place: int
    id: str
    input: str
    texts: tuple[str, ...]
    again: bool = False
    context: str | None = None
    reference: str | None = None
    group: str = ""
    subset: str = ""
    candidates: tuple[int, ...] = ()
    variants: tuple[str, ...] = ()
    scores: tuple[float | None, ...] = ()
    passed: tuple[bool | None, ...] = ()
    images: tuple[str, ...] = ()
    text_images: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GivenLabel:
    """The label that one person gave to the item at a position of the task. `answer`: one of
    `CHOICES`, or the chosen levels, from 0 on, separated by commas; or `SKIP`. `swapped`: the
    second text stood first. `created`: seconds since 1970."""

    position: int
    labeller: str
    answer: str
    note: str = ""
    swapped: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task in the store. `positions`: the number of showings, repetitions included. `done`: how
    many of them each person has labelled."""

    id: str
    namespace: str
    name: str
    spec: TaskSpec
    created: float
    positions: int
    done: dict[str, int]


def plan_showings(items: Sequence[LabelItem], share: float, seed: int) -> list[LabelItem]:
    """Return the items in their order, with a share of them repeated."""
    early = range(len(items) - GAP) if len(items) > GAP else range(len(items) // 2)
    repeated = set(Random(seed).sample(early, min(len(early), round(len(items) * share))))
    gap = min(GAP, len(items) - len(early))
    showings: list[LabelItem] = []
    for place, item in enumerate(items):
        showings.append(replace(item, place=place))
        if place - gap in repeated:
            showings.append(replace(items[place - gap], place=place - gap, again=True))
    return showings


def is_swapped(task: str, item: LabelItem, labeller: str) -> bool:
    """Return whether the second text of a pair stands first. Of each two neighbours it does in one,
    drawn for each person; so over the first items neither side leads by more than one. A repetition
    is the other way round."""
    if len(item.texts) < 2:
        return False
    drawn = hashlib.sha256(f"{task}\n{item.place // 2}\n{labeller}".encode()).digest()[0]
    return bool((drawn ^ item.place ^ item.again) & 1)


def show_to(task: str, item: LabelItem, labeller: str) -> LabelItem:
    """Return what this person sees of an item: its texts in the person's order, and nothing of who
    wrote or scored them."""
    step = -1 if is_swapped(task, item, labeller) else 1
    return LabelItem(
        place=item.place,
        id="",
        input=item.input,
        texts=item.texts[::step],
        context=item.context,
        reference=item.reference,
        images=item.images,
        text_images=item.text_images[::step],
    )


def turn(answer: str, *, swapped: bool) -> str:
    """Translate an answer between the order shown and the order of the item."""
    return {FIRST: SECOND, SECOND: FIRST}.get(answer, answer) if swapped else answer


def check_answer(spec: TaskSpec, answer: str) -> str:
    """Return the answer if the task has it.

    Raises:
        InputError: it has not; names the answers.
    """
    choices = [CHOICES] if spec.kind == "pairs" else []
    choices += [tuple(map(str, range(len(question.levels)))) for question in spec.questions]
    chosen = answer.split(",")
    fits = len(chosen) == len(choices) and all(map(operator.contains, choices, chosen))
    if not fits and answer != SKIP:
        allowed = "; ".join(", ".join(each) for each in choices)
        raise InputError(f"the answer must be {SKIP}, or for each question one of: {allowed}")
    return answer


def check_labeller(name: str) -> str:
    """
    Raises:
        InputError: the name cannot be shown.
    """
    name = " ".join(name.split())
    check_text("the name", name)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"the name must be at most {LONGEST_NAME} printable characters")
    return name


def check_note(note: str) -> str:
    """
    Raises:
        InputError: it is too long.
    """
    note = note.replace("\r\n", "\n").strip()
    if len(note) > LONGEST_NOTE:
        raise InputError(f"the note must be at most {LONGEST_NOTE} characters, not {len(note)}")
    return note


def classes_of(answer: str) -> list[int]:
    """Return the class of an answer to each question; none if it was skipped."""
    if answer in CHOICES:
        return [CHOICES.index(answer)]
    return [] if answer == SKIP else [int(level) for level in answer.split(",")]


def scores_of(spec: TaskSpec, answer: str) -> tuple[float, ...]:
    """Return the score in [0, 1] that an answer gives to each text; none if it was skipped. A pair
    shares 1; a single text has the mean of its questions."""
    classes = classes_of(answer)
    if not classes:
        return ()
    if spec.kind == "pairs":
        return ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))[classes[0]]
    tops = [len(question.levels) - 1 for question in spec.questions]
    return (sum(n / top for n, top in zip(classes, tops, strict=True)) / len(classes),)


def describe_answer(spec: TaskSpec, answer: str) -> str:
    """Return an answer in words."""
    if answer in (*CHOICES, SKIP):
        return answer
    pairs = zip(spec.questions, classes_of(answer), strict=True)
    named = [(question.text, question.levels[level]) for question, level in pairs]
    if len(named) == 1:
        return named[0][1]
    return "; ".join(f"{text}: {level}" for text, level in named)
