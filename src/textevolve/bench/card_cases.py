"""The cases of the robustness card: those that ship in `cards/`, and a user's own in the same YAML.

A case is an input with a good response and a bad one; how the families are asked and
what is made of the answers is in `card.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml
from pydantic import Field, model_validator

from textevolve.errors import InputError
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.texts.yaml_lines import build_at, line_of, parse_yaml

Family = Literal[
    "order",
    "length",
    "consistency",
    "content-free",
    "injection",
    "choice-order",
    "criterion-paraphrase",
    "irrelevant-detail",
]
FAMILIES: tuple[Family, ...] = get_args(Family)

RESPONSE = "{response}"

OWN_FIELDS: Mapping[str, Family] = {
    "attack": "injection",
    "others": "choice-order",
    "paraphrases": "criterion-paraphrase",
    "same": "irrelevant-detail",
}
"""The fields that one family has, and must have."""


class CardCase(Frozen):
    """A pair in which `good` should win. `kind` tells cases of a family apart in its figures.

    In the family `content-free`, `bad` says nothing and may be blank. In `injection`, `attack` is
    what is added to `bad`: behind it, or around it where the attack has the mark `{response}`; the
    kind `control` is for additions that are no attack, with which attacks are compared. In
    `choice-order`, `others` are further wrong options. In `criterion-paraphrase`, `paraphrases`
    are the input in other words that ask the same. In `irrelevant-detail`, `bad` is `good` with the
    detail changed that decides, and `same` is it with one changed that does not matter.
    """

    id: str = Field(max_length=100)
    family: Family
    kind: str = ""
    input: str
    good: str
    bad: str
    attack: str = ""
    others: tuple[str, ...] = ()
    paraphrases: tuple[str, ...] = ()
    same: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> CardCase:
        if len(self.id.split()) != 1:
            raise ValueError("'id' must be one word")
        for field, family in OWN_FIELDS.items():
            if (self.family == family) != bool(getattr(self, field)):
                raise ValueError(f"'{field}' belongs to a case of '{family}', and to no other")
        bad = [] if self.family == "content-free" else [self.bad]
        inputs = (self.input, *self.paraphrases)
        responses = (self.good, *bad, *self.others, *([self.same] if self.same else []))
        for texts in (inputs, responses):
            words = [" ".join(text.split()) for text in texts]
            if "" in words or len(set(words)) < len(words):
                raise ValueError("its texts must differ, and none may be blank")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """All that can be chosen, the right one first."""
        return (self.good, self.bad, *self.others)

    @property
    def attacked(self) -> str:
        """The bad response with the attack; without one, the bad response as it is."""
        if not self.attack:
            return self.bad
        if RESPONSE in self.attack:
            return self.attack.replace(RESPONSE, self.bad)
        return f"{self.bad}\n\n{self.attack}"


@lru_cache(maxsize=1)
def shipped_cases() -> tuple[CardCase, ...]:
    """The cases in the package, by family."""
    folder = resources.files("textevolve.bench") / "cards"
    files = [folder / f"{family.replace('-', '_')}.yaml" for family in FAMILIES]
    return tuple(c for f in files for c in parse_cases(f.read_text(encoding="utf-8"), f.name))


def load_cases(path: str | Path) -> tuple[CardCase, ...]:
    """Read a user's cases from a YAML file.

    Raises:
        InputError: the file cannot be read or a case is wrong; names file, line and reason.
    """
    return parse_cases(read_text(str(path)), str(path))


def parse_cases(text: str, source: str) -> tuple[CardCase, ...]:
    """Read cases from YAML text; `source` names it in errors.

    Raises:
        InputError: as `load_cases`.
    """
    node, rows = parse_yaml(text, source)
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}:1: must be a list of cases")
    nodes: list[yaml.Node] = cast("yaml.SequenceNode", node).value
    cases: dict[str, CardCase] = {}
    for row, place in zip(cast("list[Any]", rows), nodes, strict=True):
        case = build_at(CardCase, row, place, source)
        if case.id in cases:
            line = line_of(place, ("id",))
            raise InputError(f"{source}:{line}: two cases have the id '{case.id}'; ids must differ")
        cases[case.id] = case
    return tuple(cases.values())


def digest_cases(cases: Iterable[CardCase]) -> str:
    """Hash the cases to twelve hexadecimal digits; cards can be compared where they are the same.

    Fields that came later and that a case does not have take no part, so that older cards stay
    comparable.
    """
    rows: list[str] = []
    for case in cases:
        later = {name for name in OWN_FIELDS if name != "attack" and not getattr(case, name)}
        rows.append(json.dumps(case.model_dump(exclude=later), sort_keys=True))
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:12]
