"""The cases of the robustness card: those that ship in `cards/`, and a user's own in the same YAML.

A case is an input with a good response and a bad one; how the families are asked is in
`card_questions.py`, what is made of the answers in `card_checks.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from textevolve.errors import InputError
from textevolve.reach import allowed_path
from textevolve.texts.yaml_lines import line_of, parse_yaml

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

_Texts = Annotated[tuple[Annotated[str, Field(pattern=r"\S")], ...], Field(strict=False)]


class CardCase(BaseModel):
    """A pair in which `good` should win. `kind` tells cases of a family apart in its figures.

    In the family `content-free`, `bad` says nothing and may be blank. In `injection`, `attack` is
    what is added to `bad`: behind it, or around it where the attack has the mark `{response}`; the
    kind `control` is for additions that are no attack, with which attacks are compared. In
    `choice-order`, `others` are further wrong options. In `criterion-paraphrase`, `paraphrases`
    are the input in other words that ask the same. In `irrelevant-detail`, `bad` is `good` with the
    detail changed that decides, and `same` is it with one changed that does not matter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(max_length=100, pattern=r"^\S+$")]
    family: Family
    kind: str = ""
    input: Annotated[str, Field(pattern=r"\S")]
    good: Annotated[str, Field(pattern=r"\S")]
    bad: str
    attack: str = ""
    others: _Texts = ()
    paraphrases: _Texts = ()
    same: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> CardCase:
        if self.good.strip() == self.bad.strip():
            raise ValueError("'good' and 'bad' are the same text")
        if self.family != "content-free" and not self.bad.strip():
            raise ValueError("'bad' is blank, which only a case of 'content-free' may have")
        for field, family in OWN_FIELDS.items():
            if self.family == family and not getattr(self, field):
                raise ValueError(f"'{field}' is missing; a case of '{family}' needs it")
            if self.family != family and getattr(self, field):
                raise ValueError(f"'{field}' is only for cases of '{family}'")
        for texts in ((self.input, *self.paraphrases), (*self.options, self.same)):
            shown = [" ".join(text.split()) for text in texts if text]
            if len(set(shown)) < len(shown):
                raise ValueError(f"two texts of the case '{self.id}' are the same")
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
    """A user's cases from a YAML file.

    Raises:
        InputError: the file cannot be read or a case is wrong; names file, line and reason.
    """
    try:
        return parse_cases(Path(allowed_path(path)).read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); convert it first") from None


def parse_cases(text: str, source: str) -> tuple[CardCase, ...]:
    """Cases from YAML text; `source` names it in errors.

    Raises:
        InputError: as `load_cases`.
    """
    node, rows = parse_yaml(text, source)
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}:1: must be a list of cases with {', '.join(_required())}")
    lines: list[yaml.Node] = cast("yaml.SequenceNode", node).value
    found: dict[str, CardCase] = {}
    for row, place in zip(cast("list[Any]", rows), lines, strict=True):
        case = _take_case(row, place, source)
        if case.id in found:
            line = line_of(place, ("id",))
            raise InputError(f"{source}:{line}: two cases have the id '{case.id}'; ids must differ")
        found[case.id] = case
    return tuple(found.values())


def digest_cases(cases: Iterable[CardCase]) -> str:
    """Twelve hexadecimal digits; cards made from the same cases have the same."""
    rows = sorted(json.dumps(_told(case), sort_keys=True) for case in cases)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12]


def _told(case: CardCase) -> dict[str, Any]:
    """The case without fields that came later and that it does not have, so that cards made before
    stay comparable."""
    later = {name for name in OWN_FIELDS if name != "attack" and not getattr(case, name)}
    return case.model_dump(exclude=later)


def _required() -> list[str]:
    return [name for name, field in CardCase.model_fields.items() if field.is_required()]


def _take_case(row: Any, place: yaml.Node, source: str) -> CardCase:
    if not isinstance(row, dict):
        line = place.start_mark.line + 1
        raise InputError(f"{source}:{line}: a case must be a mapping with {', '.join(_required())}")
    try:
        return CardCase.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        line = line_of(place, (field,))
        raise InputError(f"{source}:{line}: {_explain(field, dict(first))}") from None


def _explain(field: str, error: dict[str, Any]) -> str:
    kind = str(error["type"])
    if kind == "missing":
        return f"'{field}' is missing"
    if kind == "extra_forbidden":
        return f"unknown field '{field}'; there are: {', '.join(CardCase.model_fields)}"
    if kind == "string_type":
        given = str(error["input"])[:40]
        return f"'{field}' must be text (given: {given}); put it into quotes"
    if kind == "literal_error":
        return f"'{field}' must be one of: {', '.join(FAMILIES)}"
    if kind == "string_pattern_mismatch":
        wanted = "one word" if field == "id" else "a text that is not blank"
        return f"'{field}' must be {wanted}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"'{field}': {message}" if field else message
