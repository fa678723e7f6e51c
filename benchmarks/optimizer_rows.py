"""The rows of `optimizer_tasks.py`: short texts with one right answer, made by code, all our own.

The right answer of each has a form that its template does not name. Nothing here asks a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from textevolve.evaluation import EvaluationResult
from textevolve.loops.calibration.trial_runner import Example

ROWS, HELD_OUT = 60, 40


@dataclass(frozen=True, slots=True)
class Task:
    """`make` draws a text and its right answer; `right` compares an answer with it. `held_out`: the
    number of rows that no optimiser sees."""

    name: str
    template: str
    make: Callable[[Random], tuple[str, str]]
    right: Callable[[str, str], bool]
    held_out: int = HELD_OUT

    def rows(self, seed: int) -> list[Example]:
        rng, labels = Random(f"{self.name}/{seed}"), dict[str, str]()
        while len(labels) < ROWS + self.held_out:
            text, label = self.make(rng)
            labels.setdefault(text, label)
        return [Example(str(n), {"text": t}, label) for n, (t, label) in enumerate(labels.items())]

    def grade(self, output: str, label: Any) -> EvaluationResult:
        right = self.right(output, str(label))
        feedback = "Right." if right else f"Wrong: the answer has to be exactly {label}"
        return EvaluationResult(float(right), right, feedback)


def same(output: str, label: str) -> bool:
    """The label alone, but for white space, quotes and a full stop around it."""
    return re.sub(r"^[\s\"'`]+|[\s\"'`.]+$", "", output) == label.rstrip(".")


def same_json(output: str, label: str) -> bool:
    """The same JSON object, in a fence or not."""
    text = re.sub(r"^\s*```(?:json)?|```\s*$", "", output)
    try:
        return json.loads(text) == json.loads(label)
    except ValueError:
        return False


_NAMES = "Anna Omar Lucia Piotr Mei Jonas Amara Diego Ines Tariq Freya Kofi"
_FAMILIES = "Lopez Okafor Nowak Weber Tanaka Silva Haddad Berg Rossi Mensah Keller Novak"
_THINGS = "lamp chair kettle blanket mirror drill teapot ladder basket camera"
_CITIES = "Leeds Porto Lyon Bergen Gdansk Malmo Turin Ghent Basel Cork"
_COUNTS = "two three four five six seven eight nine ten eleven twelve"


def order(rng: Random) -> tuple[str, str]:
    n, thing, city = rng.randint(2, 12), rng.choice(_THINGS.split()), rng.choice(_CITIES.split())
    who = f"{rng.choice(_NAMES.split())} {rng.choice(_FAMILIES.split())}"
    forms = (
        f"{who} would like {_COUNTS.split()[n - 2]} {thing}s sent to {city}.",
        f"Please deliver {n} {thing}s to {who} in {city}.",
        f"To {city}, for {who}: {_COUNTS.split()[n - 2]} {thing}s.",
    )
    label = {"item": thing, "count": n, "city": city}
    return rng.choice(forms), json.dumps(label)


_COMPLAINTS = {
    "Q4-MONEY": (
        "I was charged twice for order {n}.",
        "The invoice {n} shows a wrong amount.",
        "My refund for order {n} has not arrived.",
        "Why is there a fee of {n} euros on my card?",
    ),
    "Q7-ROAD": (
        "Parcel {n} has been in transit for two weeks.",
        "The courier left parcel {n} at the wrong door.",
        "Where is my order {n}? It should have come on Monday.",
        "Tracking number {n} does not move any more.",
    ),
    "Q1-BROKEN": (
        "The kettle from order {n} does not switch on.",
        "The mirror in parcel {n} has a crack.",
        "After {n} days the drill stopped working.",
        "Two screws of chair {n} are missing.",
    ),
    "Q9-DOOR": (
        "I cannot log in to account {n}.",
        "The code {n} that you sent is refused.",
        "How do I change the password of account {n}?",
        "Account {n} is locked and I do not know why.",
    ),
}


def complaint(rng: Random) -> tuple[str, str]:
    label = rng.choice(list(_COMPLAINTS))
    return rng.choice(_COMPLAINTS[label]).format(n=rng.randint(11, 999)), label


def sum_(rng: Random) -> tuple[str, str]:
    who, thing = rng.choice(_NAMES.split()), rng.choice(_THINGS.split())
    a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9)
    if rng.random() < 0.5:
        return f"{who} buys {a} boxes of {b} {thing}s and one more box of {c}.", f"<{a * b + c}>"
    return f"{who} has {a * b + c} {thing}s and gives {c} of them away.", f"<{a * b}>"


_UNITS = {
    "kilometres": ("m", 1000),
    "metres": ("m", 1),
    "centimetres": ("m", 0.01),
    "kilograms": ("g", 1000),
    "grams": ("g", 1),
    "tonnes": ("g", 1_000_000),
    "hours": ("s", 3600),
    "minutes": ("s", 60),
    "seconds": ("s", 1),
}


def length(rng: Random) -> tuple[str, str]:
    unit = rng.choice(list(_UNITS))
    to, factor = _UNITS[unit]
    n = rng.randint(2, 9) * (100 if factor < 1 else 1)
    sentence = rng.choice(
        ("It is {} {}.", "We need {} {}.", "They measured {} {}.", "{} {} are left.")
    )
    return sentence.format(n, unit), f"{to}:{round(n * factor)}"


def name(rng: Random) -> tuple[str, str]:
    first_name, middle = rng.sample(_NAMES.split(), 2)
    family = rng.choice(_FAMILIES.split())
    title = rng.choice(("", "Dr. ", "Ms ", "Prof. "))
    inner = rng.choice((f"{middle} ", ""))
    initials = f"{first_name[0]}." + (f"{middle[0]}." if inner else "")
    return f"{title}{first_name} {inner}{family}", f"{family.upper()}, {initials}"


FILE_HELD_OUT = 60


def read_task(path: Path) -> Task:
    """A task of a file whose lines have an `input` and the `answer` to it, drawn by the seed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [(row["input"], row["answer"]) for row in map(json.loads, lines)]
    template = "Answer the question.\n\n{text}"
    return Task(path.stem, template, lambda rng: rng.choice(pairs), same, FILE_HELD_OUT)


TASKS = {
    task.name: task
    for task in (
        Task("json", "What is ordered here? {text}", order, same_json),
        Task("labels", "Which department is this message for? {text}", complaint, same),
        Task("sums", "How many are there in the end? {text}", sum_, same),
        Task("units", "Convert the quantity to its base unit. {text}", length, same),
        Task("names", "Write this name as in a list of references: {text}", name, same),
    )
}
