"""A labelling task: what people are shown, what they may answer, and what they answered.

Items hold what is never shown to those who label, too: which variant wrote a text, and what a
judge said of it. Who shows an item takes a `ShownItem` of it, which has none of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.spec import Frozen, option

TaskKind: TypeAlias = Literal["pairs", "single"]

FIRST, SECOND, TIE, SKIP = "first", "second", "tie", "skip"
CHOICES = (FIRST, SECOND, TIE)
"""What may be said of a pair, of the texts as the item has them; a task of single texts has the
levels of its questions. Either may be skipped."""
LONGEST_NOTE = 4000
LONGEST_NAME = 60


class LabelQuestion(Frozen):
    """What is asked about a single text. `levels`: the answers, the lowest first."""

    text: str = option("", "What is asked; empty: whether it is good.")
    levels: tuple[str, ...] = option(("fail", "pass"), "The answers, the lowest first.")


class TaskSpec(Frozen):
    """What a task is, apart from its items. `questions`: of single texts. `source`: where its items
    come from, for people."""

    kind: TaskKind
    questions: tuple[LabelQuestion, ...] = ()
    instructions: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class LabelItem:
    """What is labelled: a text, or a pair, with what it is about.

    `place`: its number among the items, from 0 on; `again`: it is shown a second time, which tells
    how far a person agrees with themselves. `candidates`: the texts' numbers in their case, from 1
    on. Of texts of a run: `variants` wrote them, and its judge said `scores` and `passed` of them.
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
    """What one person said of the item at a position of the task. `answer`: one of `CHOICES`, or
    the levels that were chosen, from 0 on, with commas between them; or `SKIP`. `swapped`: the
    second text stood first. `created`: seconds since 1970."""

    position: int
    labeller: str
    answer: str
    note: str = ""
    swapped: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as it is kept. `positions`: how many items there are to label, second showings among
    them. `done`: how many of them each person has labelled."""

    id: str
    namespace: str
    name: str
    spec: TaskSpec
    created: float
    positions: int
    done: dict[str, int]


def check_answer(spec: TaskSpec, answer: str) -> str:
    """The answer, which must be one of those that the task has.

    Raises:
        InputError: it is none; says what there is.
    """
    if answer == SKIP:
        return answer
    if spec.kind == "pairs":
        if answer not in CHOICES:
            raise InputError(f"the answer must be {', '.join(CHOICES)} or {SKIP}")
        return answer
    given = answer.split(",")
    most = [len(question.levels) for question in spec.questions]
    whole = len(given) == len(most) and all(
        one in map(str, range(levels)) for one, levels in zip(given, most, strict=True)
    )
    if not whole:
        wanted = ",".join(f"0-{levels - 1}" for levels in most)
        raise InputError(f"the answer must be {SKIP} or a level for each question: {wanted}")
    return answer


def check_labeller(name: str) -> str:
    """
    Raises:
        InputError: it is no name that can be shown.
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


def turn(answer: str, *, swapped: bool) -> str:
    """An answer about texts as they were shown, about the texts as the item has them; or back."""
    other = {FIRST: SECOND, SECOND: FIRST}
    return other.get(answer, answer) if swapped else answer


def levels_of(answer: str) -> list[int]:
    """The levels that were chosen of a single text; none where it was skipped."""
    return [] if answer in (SKIP, *CHOICES) else [int(one) for one in answer.split(",")]


def value_of(spec: TaskSpec, answer: str) -> float | None:
    """How good a text is by an answer, in [0, 1]: the mean over its questions; None if skipped."""
    chosen = levels_of(answer)
    if not chosen:
        return None
    tops = [len(question.levels) - 1 for question in spec.questions]
    return sum(one / top for one, top in zip(chosen, tops, strict=True)) / len(chosen)


def say_answer(spec: TaskSpec, answer: str) -> str:
    """An answer in words."""
    chosen = levels_of(answer)
    if not chosen:
        return answer
    named = [question.levels[one] for question, one in zip(spec.questions, chosen, strict=True)]
    if len(named) == 1:
        return named[0]
    texts = [question.text for question in spec.questions]
    return "; ".join(f"{text}: {one}" for text, one in zip(texts, named, strict=True))


def first_labels(items: Sequence[LabelItem], labels: Sequence[GivenLabel]) -> list[GivenLabel]:
    """Those of first showings."""
    return [one for one in labels if not items[one.position].again]
