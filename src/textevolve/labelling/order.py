"""In which order items are shown, and which text of a pair stands first.

Both follow from the task, the item and the person alone, so that a page can be opened twice, and
left and come back to, and shows the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from textevolve.labelling.tasks import LabelItem, TaskSpec

GAP = 10
"""How many items lie between the two showings of one, where there are enough."""


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item as one person sees it, and nothing else of it."""

    input: str
    texts: tuple[str, ...]
    context: str | None
    reference: str | None
    swapped: bool
    images: tuple[str, ...] = ()
    text_images: tuple[tuple[str, ...], ...] = ()


def plan_showings(items: Sequence[LabelItem], share: float, seed: int) -> list[LabelItem]:
    """The items in their order, and among them a share of them for a second time."""
    early = range(len(items) - GAP) if len(items) > GAP else range(len(items) // 2)
    number = min(len(early), round(len(items) * share))
    repeated = set(Random(seed).sample(early, number))
    gap = min(GAP, len(items) - len(early))
    planned: list[LabelItem] = []
    for place, item in enumerate(items):
        planned.append(replace(item, place=place))
        if place - gap in repeated:
            planned.append(replace(items[place - gap], place=place - gap, again=True))
    return planned


def is_swapped(task: str, item: LabelItem, labeller: str) -> bool:
    """Whether the second text stands first. Of each two neighbours it does in one, which one is
    drawn for each person; so among the first so many items one side leads by one at most. A second
    showing is the other way round."""
    drawn = hashlib.sha256(f"{task}\n{item.place // 2}\n{labeller}".encode()).digest()[0]
    return bool((drawn ^ item.place ^ item.again) & 1)


def show_to(task: str, spec: TaskSpec, item: LabelItem, labeller: str) -> ShownItem:
    """The item as this person sees it."""
    swapped = spec.kind == "pairs" and is_swapped(task, item, labeller)
    texts = item.texts[::-1] if swapped else item.texts
    shown = item.text_images[::-1] if swapped else item.text_images
    seen = (item.input, texts, item.context, item.reference, swapped)
    return ShownItem(*seen, item.images, shown)
