"""The kinds of rules, each as it stands in a rules file, and what each finds in a text.

A rule gives a score in [0, 1] and, where it is below 1, instructions that say what to change. How
rules are put together is in `rules.py`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, find_score_fault
from textevolve.llm.token_count import count_tokens
from textevolve.reach import allowed_path
from textevolve.texts.patterns import compile_pattern, is_found
from textevolve.texts.prose import (
    LANGUAGES,
    split_words,
    tell_language,
)
from textevolve.texts.schema_check import check_schema, find_faults
from textevolve.user_code import load_function


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What a rule says of a text: `score` in [0, 1], and what to change where it is below 1."""

    score: float
    instructions: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.score >= 1.0


HELD = RuleFinding(1.0)


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """What a rule is applied to: a candidate and the input it answers."""

    text: str
    input: str
    count_tokens: Callable[[str], int] | None = None


class _Rule(BaseModel):
    """`gate`: a text that breaks this rule does not pass, whatever else is right with it.

    `feedback` is said in place of the rule's own instruction.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    gate: bool = True
    feedback: str = ""

    def _broken(self, score: float, *instructions: str) -> RuleFinding:
        return RuleFinding(score, (self.feedback,) if self.feedback else instructions)


class Length(_Rule):
    """Between `min` and `max`, both included. Tokens are estimated as characters / 4 unless the
    caller gives a counter. Outside, the score falls with the ratio of length and limit."""

    kind: Literal["length"]
    unit: Literal["words", "characters", "tokens"] = "words"
    min: Annotated[int, Field(ge=0)] = 0
    max: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max is None and not self.min:
            raise ValueError("give 'min', 'max' or both")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"'max' {self.max} is below 'min' {self.min}")
        return self

    def check(self, subject: RuleSubject) -> RuleFinding:
        size, about = self._measure(subject)
        if size < self.min:
            said = f"Lengthen the text to at least {self.min} {self.unit} ({about}now {size})."
            return self._broken(size / self.min, said)
        if self.max is not None and size > self.max:
            said = f"Shorten the text to at most {self.max} {self.unit} ({about}now {size})."
            return self._broken(self.max / size, said)
        return HELD

    def _measure(self, subject: RuleSubject) -> tuple[int, str]:
        if self.unit == "words":
            return len(split_words(subject.text)), ""
        if self.unit == "characters":
            return len(subject.text), ""
        if subject.count_tokens is not None:
            return subject.count_tokens(subject.text), ""
        return count_tokens(subject.text), "counted as characters / 4, "


class Pattern(_Rule):
    """A regular expression that must, or must not, be found; `^` and `$` are ends of lines."""

    kind: Literal["must", "must_not"]
    pattern: Annotated[str, Field(min_length=1)]
    ignore_case: bool = False
    blocks: ClassVar[bool] = True

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            compile_pattern(self.pattern, self.ignore_case)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def compiled(self) -> re.Pattern[str]:
        return compile_pattern(self.pattern, self.ignore_case)

    def check(self, subject: RuleSubject) -> RuleFinding:
        if is_found(self.compiled, subject.text) == (self.kind == "must"):
            return HELD
        verb = "Add" if self.kind == "must" else "Remove"
        return self._broken(0.0, f"{verb} what matches the pattern {self.pattern}.")


class JsonSchema(_Rule):
    """The whole text is JSON by this schema, given as a mapping or as the name of a file."""

    kind: Literal["json_schema"]
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")] = True
    file: str | None = None
    _read: dict[str, Any] | bool = PrivateAttr(default=True)

    def load(self, folder: Path) -> None:
        """Read the schema's file, and check the schema.

        Raises:
            InputError: it cannot be used.
        """
        self._read = self.schema_
        if self.file is not None:
            path = folder / self.file
            try:
                self._read = json.loads(Path(allowed_path(path)).read_text(encoding="utf-8-sig"))
            except (OSError, ValueError, RecursionError) as error:
                why = getattr(error, "strerror", None) or "not JSON"
                raise InputError(f"file {path}: cannot be read ({why})") from None
        check_schema(self._read, self.file or "schema")

    @property
    def blocks(self) -> bool:
        return '"pattern"' in json.dumps(self._read)

    def check(self, subject: RuleSubject) -> RuleFinding:
        schema = self._read if isinstance(self._read, dict) else {}
        faults = find_faults(subject.text, schema)
        return self._broken(0.0, *faults) if faults else HELD


class Keywords(_Rule):
    """Words or phrases: `all` of the first, one of `any`, `none` of the last; the score is the
    share that is right. They stand alone, not within a longer word; case is ignored unless said."""

    kind: Literal["keywords"]
    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    match_case: bool = False

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.all or self.any or self.none):
            raise ValueError("give 'all', 'any' or 'none'")
        if any(not word.strip() for word in (*self.all, *self.any, *self.none)):
            raise ValueError("a keyword is blank")
        return self

    def check(self, subject: RuleSubject) -> RuleFinding:
        missing = [word for word in self.all if not self._has(subject.text, word)]
        unwanted = [word for word in self.none if self._has(subject.text, word)]
        lacks_any = bool(self.any) and not any(self._has(subject.text, w) for w in self.any)
        asked = len(self.all) + len(self.none) + bool(self.any)
        broken = len(missing) + len(unwanted) + lacks_any
        if not broken:
            return HELD
        said = [f"Use the word or phrase {_quote(missing)}."] if missing else []
        said += [f"Use at least one of: {_quote(self.any)}."] if lacks_any else []
        said += [f"Do not use {_quote(unwanted)}."] if unwanted else []
        return self._broken(1 - broken / asked, *said)

    def _has(self, text: str, word: str) -> bool:
        flags = 0 if self.match_case else re.IGNORECASE
        phrase = r"\s+".join(map(re.escape, word.split()))  # a line may end within it
        return re.search(rf"(?<!\w){phrase}(?!\w)", text, flags) is not None


class Language(_Rule):
    """The language by its code, told from the script or the commonest words: rough, and made for
    whole paragraphs. Where it cannot be told, as with fewer than 20 words, the rule holds."""

    kind: Literal["language"]
    language: str

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.language not in LANGUAGES:
            raise ValueError(f"no language '{self.language}'; there are: {', '.join(LANGUAGES)}")
        return self

    def check(self, subject: RuleSubject) -> RuleFinding:
        told = tell_language(subject.text)
        if told in (None, self.language):
            return HELD
        said = f"Write in the language '{self.language}'; the text seems to be '{told}'."
        return self._broken(0.0, said)


class Call(_Rule):
    """A Python callable: `module:function`, or `FILE.py:function` next to the rules file.

    It is called with the text, and with the input where it takes a second argument. It returns
    whether the rule holds, a score in [0, 1], what is to be changed as text (nothing where it
    holds), or an `EvaluationResult`.
    """

    kind: Literal["call"]
    function: Annotated[str, Field(min_length=1)]
    _found: Callable[..., object] | None = PrivateAttr(default=None)

    def load(self, folder: Path) -> None:
        """Find the callable.

        Raises:
            InputError: there is none.
        """
        self._found = load_function(self.function, folder)

    def check(self, subject: RuleSubject) -> RuleFinding:
        assert self._found is not None
        made = self._found(*(subject.text, subject.input)[: _takes(self._found)])
        if isinstance(made, EvaluationResult):
            if fault := find_score_fault(made.score):
                raise InputError(f"{self.function} returned a result that cannot be used: {fault}")
            return self._judged(made.score, *filter(str.strip, made.feedback.splitlines()))
        if isinstance(made, str):
            return self._judged(0.0, made) if made.strip() else HELD
        if isinstance(made, bool | int | float) and 0 <= made <= 1:
            return self._judged(float(made))
        raise InputError(
            f"{self.function} returned {made!r:.60}; a rule returns a truth value, a score from 0"
            " to 1, a text or an EvaluationResult"
        )

    def _judged(self, score: float, *said: str) -> RuleFinding:
        if score >= 1:
            return HELD
        return self._broken(score, *(said or (f"Keep to the rule {self.name or self.function}.",)))


Rule = Annotated[
    Length | Pattern | JsonSchema | Keywords | Language | Call,
    Field(discriminator="kind"),
]


@lru_cache(maxsize=256)
def _takes(function: Callable[..., object]) -> int:
    """How many of text and input the function takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in plain if p.default is p.empty]
    return 2 if len(needed) > 1 else 1


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
