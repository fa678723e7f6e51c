"""A labelling task: the items that people see, the answers that they may give, and their labels.

Items also contain what labellers must not see, such as which variant wrote a text; `show_to`
returns the part that one person sees. The order of the two texts of a pair depends only on the
task, the item and the person, so that a reloaded page shows the same order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.spec import Frozen, option

TaskKind: TypeAlias = Literal["pairs", "single"]

FIRST, SECOND, TIE, SKIP = "first", "second", "tie", "skip"
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
    """

    place: int
    id: str
    input: str
    texts: tuple[str, ...]
    context: str | None = None
    reference: str | None = None
    candidates: tuple[int, ...] = ()
    variants: tuple[str, ...] = ()


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
    name = " ".join(name.split())
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
