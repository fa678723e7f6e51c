"""Judge texts by rules from a YAML file, without a model (`Rules`), or before another judge
(`Hybrid`).

Both are `Evaluator`s. Each class of a rule has the fields of the rule in a file, and a check, which
returns a score in [0, 1] and, if it is below 1, instructions for changing the text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from textevolve.errors import InputError, TextEvolveError, describe_error
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    check_case,
    check_result,
    choose_candidates,
    reaches,
    reject_candidate_images,
)
from textevolve.llm.prompts import count_tokens
from textevolve.loops.attempt import instructions_of
from textevolve.rows import read_text
from textevolve.rows.tables import parse_json
from textevolve.spec import Frozen
from textevolve.texts.patterns import compile_pattern, is_found, search_apart
from textevolve.texts.prose import CASE_FOLDS, compose, has_phrase, split_words
from textevolve.texts.schema_check import check_schema, find_faults
from textevolve.texts.yaml_lines import build_at, line_of, parse_yaml
from textevolve.user_code import count_required, digest_code, load_function


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """The result of a rule for a text. `score`: in [0, 1]. `instructions`: the changes to make;
    empty if the score is 1."""

    score: float
    instructions: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.score >= 1.0


RULE_HOLDS = RuleFinding(1.0)
"""The result of a rule that the text follows."""


class _Rule(BaseModel):
    """The fields that all kinds of rules have. `name`: used in results; empty: the kind and the
    position. `weight`: the rule's weight in the mean score. `gate`: whether a text that breaks this
    rule fails, even with a high score. `feedback`: replaces the rule's own instruction; empty: keep
    it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    gate: bool = True
    feedback: str = ""

    def _broken(self, score: float, *instructions: str) -> RuleFinding:
        return RuleFinding(score, (self.feedback,) if self.feedback else instructions)


UNITS: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: len(split_words(text)),
    "characters": lambda text: len(compose(text)),
    "tokens": count_tokens,
}
"""Functions that count the units of a text."""


class Length(_Rule):
    """A rule for the length of a text: at least `min` and at most `max` units. Tokens are estimated
    as characters / 4. The score is length / `min` if the text is too short, `max` / length if it is
    too long, otherwise 1."""

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

    def check(self, text: str, _input: str) -> RuleFinding:
        size = UNITS[self.unit](text)
        about = "counted as characters / 4, " if self.unit == "tokens" else ""
        if size < self.min:
            instruction = (
                f"Lengthen the text to at least {self.min} {self.unit} ({about}now {size})."
            )
            return self._broken(size / self.min, instruction)

        if self.max is not None and size > self.max:
            instruction = f"Shorten the text to at most {self.max} {self.unit} ({about}now {size})."
            return self._broken(self.max / size, instruction)

        return RULE_HOLDS


class Pattern(_Rule):
    """A rule with a regular expression that the text must, or must not, contain; `^` and `$` match
    at the ends of lines. `blocks`: whether checking a text may take long, as a regular expression
    may."""

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

    def check(self, text: str, _input: str) -> RuleFinding:
        compiled = compile_pattern(self.pattern, self.ignore_case)
        if is_found(compiled, text) == (self.kind == "must"):
            return RULE_HOLDS
        verb = "Add" if self.kind == "must" else "Remove"
        return self._broken(0.0, f"{verb} what matches the pattern {self.pattern}.")


class JsonSchema(_Rule):
    """A rule that the whole text is JSON that matches a schema, which is a mapping (`schema`) or a
    file (`file`, which is used if both are set)."""

    kind: Literal["json_schema"]
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")] = True
    file: str | None = None
    _read: dict[str, Any] | bool = PrivateAttr(default=True)

    @property
    def content(self) -> object:
        """The schema of its file; None without a file."""
        return None if self.file is None else self._read

    def load(self, folder: Path) -> None:
        """Read the schema's file, and check the schema.

        Raises:
            InputError: it cannot be used.
        """
        self._read = self.schema_
        if self.file is not None:
            path = str(folder / self.file)
            self._read = parse_json(read_text(path), f"file {path}", "schema")
        check_schema(self._read, self.file or "schema")

    @property
    def blocks(self) -> bool:
        return '"pattern"' in json.dumps(self._read)

    def check(self, text: str, _input: str) -> RuleFinding:
        schema = self._read if isinstance(self._read, dict) else {}
        faults = find_faults(text, schema)
        return self._broken(0.0, *faults) if faults else RULE_HOLDS


class Keywords(_Rule):
    """A rule for words or phrases: the text must contain all of `all`, at least one of `any`, and
    none of `none`. The score is the share of these requirements that hold. A word inside a longer
    word does not count; case is ignored unless `match_case` is set."""

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

    def check(self, text: str, _input: str) -> RuleFinding:
        missing = [word for word in self.all if not self._has(text, word)]
        unwanted = [word for word in self.none if self._has(text, word)]
        lacks_any = bool(self.any) and not any(self._has(text, w) for w in self.any)
        total = len(self.all) + len(self.none) + bool(self.any)
        broken = len(missing) + len(unwanted) + lacks_any
        if not broken:
            return RULE_HOLDS
        instructions = [f"Use the word or phrase {_quote(missing)}."] if missing else []
        instructions += [f"Use at least one of: {_quote(self.any)}."] if lacks_any else []
        instructions += [f"Do not use {_quote(unwanted)}."] if unwanted else []

        return self._broken(1 - broken / total, *instructions)

    def _has(self, text: str, word: str) -> bool:
        folds = (compose,) if self.match_case else CASE_FOLDS
        return any(has_phrase(fold(text), fold(word)) for fold in folds)


class Call(_Rule):
    """A rule that calls a Python function: `module:function`, or `FILE.py:function` next to the
    rules file.

    The function gets the text, and the input if it has a second parameter without a default. It
    returns whether the rule holds, a score in [0, 1], the requested changes as text (empty if the
    rule holds; otherwise the score is 0), or an `EvaluationResult`.
    """

    kind: Literal["call"]
    function: Annotated[str, Field(min_length=1)]
    _found: Callable[..., object] | None = PrivateAttr(default=None)
    _content: str = PrivateAttr(default="")

    @property
    def content(self) -> object:
        """The digest of the function's code."""
        return self._content

    def load(self, folder: Path) -> None:
        """Load the function.

        Raises:
            InputError: there is none.
        """
        self._content = digest_code(self.function, folder)
        self._found = load_function(self.function, folder)

    def check(self, text: str, input: str) -> RuleFinding:
        assert self._found is not None
        takes_input = (count_required(self._found) or 0) > 1
        returned = self._found(text, input) if takes_input else self._found(text)
        if isinstance(returned, str):
            return self._judged(0.0, returned) if returned.strip() else RULE_HOLDS
        outcome = check_result(returned)
        if isinstance(outcome, Failure):
            raise InputError(f"{self.function}: {outcome.reason}")

        return self._judged(outcome.score, *filter(str.strip, outcome.feedback.splitlines()))

    def _judged(self, score: float, *instructions: str) -> RuleFinding:
        if score >= 1:
            return RULE_HOLDS
        return self._broken(
            score, *(instructions or (f"Keep to the rule {self.name or self.function}.",))
        )


Rule = Annotated[
    Length | Pattern | JsonSchema | Keywords | Call,
    Field(discriminator="kind"),
]
"""A rule of any kind."""


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


FAILED_GATES = "failed_gates"
"""The key in a result's metadata that holds the names of the gates that the text failed. Such a
text is never accepted, even with a high score."""


class RulesFile(Frozen):
    """A file of rules. `threshold`: the score from which a text passes, if it fails no gate.
    `share`: the weight of the rules' score in [0, 1] if another judge follows."""

    name: str = "rules"
    description: str = ""
    threshold: Annotated[float, Field(ge=0, le=1)] = 1.0
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> RulesFile:
        names = self.names
        if double := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two rules have the name '{min(double)}'; names must differ")
        if not any(rule.weight for rule in self.rules):
            raise ValueError("all weights are 0; at least one must be above 0")
        return self

    @property
    def names(self) -> list[str]:
        """Return the name of each rule: its own, or its kind and place, such as `length 1`."""
        return [r.name or f"{r.kind} {n}" for n, r in enumerate(self.rules, 1)]


@dataclass(frozen=True)
class Rules:
    """A judge that applies all rules to each candidate. score = their weighted mean; passed = the
    score reaches the threshold and every gate holds; feedback = one line with an instruction for
    each broken rule, gates first; `metadata["rules"]` has each rule's score."""

    file: RulesFile

    async def __call__(self, case: Case, /) -> PlainEvaluation:
        """Judge each candidate of a case by the rules.

        Raises:
            InputError: the case cannot be judged.
        """
        check_case(case)
        reject_candidate_images(case, "a judge by rules")
        if any(isinstance(r, Pattern | JsonSchema) and r.blocks for r in self.file.rules):
            return PlainEvaluation(await search_apart(self._judge_all, case))
        if any(isinstance(rule, Call) for rule in self.file.rules):
            # The user's function may take its time, or run an event loop of its own.
            return PlainEvaluation(await asyncio.to_thread(self._judge_all, case))

        return PlainEvaluation(self._judge_all(case))

    def _judge_all(self, case: Case) -> tuple[EvaluationResult | Failure, ...]:
        return tuple(self.judge(text, case.input) for text in case.candidates)

    def judge(self, text: str, input: str = "") -> EvaluationResult | Failure:
        """Judge one text; if a rule cannot be applied, the whole result is a failure."""
        findings: list[RuleFinding] = []
        for name, rule in zip(self.file.names, self.file.rules, strict=True):
            try:
                findings.append(rule.check(text, input))
            except TextEvolveError as error:
                return Failure("failed", f"rule '{name}': {error}")
            except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code
                return Failure("failed", f"rule '{name}': {describe_error(error)}".rstrip(": "))

        return self._sum_up(findings)

    def _sum_up(self, findings: list[RuleFinding]) -> EvaluationResult:
        judged = list(zip(self.file.names, self.file.rules, findings, strict=True))
        weight = sum(rule.weight for rule in self.file.rules)
        score = sum(finding.score * rule.weight for _, rule, finding in judged) / weight
        failed = [name for name, rule, finding in judged if rule.gate and not finding.held]
        ordered = sorted(judged, key=lambda one: not one[1].gate)
        lines = [line for _, _, finding in ordered for line in finding.instructions]
        score = min(1.0, max(0.0, score))

        return EvaluationResult(
            score=score,
            passed=not failed and reaches(score, self.file.threshold),
            feedback="\n".join(" ".join(line.split()) for line in lines),
            metadata={
                "rules": {name: finding.score for name, _, finding in judged},
                FAILED_GATES: failed,
            },
        )


@dataclass(frozen=True)
class Hybrid:
    """A judge that applies rules first, and calls another judge for the candidates that pass every
    gate.

    score = rules_weight x rules + (1 - rules_weight) x judge; passed = both pass; a failure of
    either is a failure. The judge is not called for a candidate that fails a gate: its score is the
    rules' part alone, which is less than that of the same text with its gates fulfilled.
    """

    rules: Rules
    judge: Evaluator
    rules_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rules_weight <= 1:
            raise InputError(f"the rules' weight must be from 0 to 1, not {self.rules_weight}")

    async def __call__(self, case: Case, /) -> PlainEvaluation:
        """Judge the candidates by rules and, if they pass every gate, by the judge, whose errors
        pass through.

        Raises:
            InputError: the case cannot be judged.
        """
        ruled = await self.rules(case)
        outcomes = [self._weigh(outcome) for outcome in ruled.result]
        parts = {
            n: part
            for n, part in enumerate(outcomes)
            if isinstance(part, EvaluationResult) and not part.metadata.get(FAILED_GATES)
        }
        if not parts:
            return PlainEvaluation(tuple(outcomes))
        judged = await self.judge(choose_candidates(case, list(parts)))
        for place, (n, part) in enumerate(parts.items()):
            outcomes[n] = self._join(part, judged, place)

        return PlainEvaluation(tuple(outcomes), judged.usage)

    def _weigh(self, outcome: EvaluationResult | Failure) -> EvaluationResult | Failure:
        """Return the rules' part of the result."""
        if isinstance(outcome, Failure):
            return outcome
        metadata = {**outcome.metadata, "rules_score": outcome.score}
        return replace(outcome, score=self.rules_weight * outcome.score, metadata=metadata)

    def _join(
        self, part: EvaluationResult, judged: Evaluation, place: int
    ) -> EvaluationResult | Failure:
        """Join the rules' part with the judge's result; instructions of the rules come first."""
        content = judged.result[place]
        if isinstance(content, Failure):
            return content
        score = part.score + (1 - self.rules_weight) * content.score
        return EvaluationResult(
            score=min(1.0, max(0.0, score)),
            passed=part.passed and content.passed,
            feedback="\n".join(filter(None, (part.feedback, content.feedback))),
            metadata={
                **content.metadata,
                **part.metadata,
                "judge_score": content.score,
                "instructions": [*part.feedback.splitlines(), *instructions_of(judged, place)],
            },
        )


def load_rules(path: str | Path) -> Rules:
    """Load the rules of a YAML file.

    Raises:
        InputError: the file cannot be used; names file, line and reason.
    """
    return parse_rules(read_text(str(path)), str(path), Path(path).parent)


def describe_rules(path: str | Path) -> dict[str, Any]:
    """Return the rules of a file, and what the files and functions that they name hold, as JSON.

    Raises:
        InputError: the rules cannot be read or used.
    """
    file = load_rules(path).file
    described: dict[str, Any] = {"rules": file.model_dump(mode="json", by_alias=True)}
    contents: dict[str, object] = {}
    for name, rule in zip(file.names, file.rules, strict=True):
        if isinstance(rule, JsonSchema | Call) and rule.content is not None:
            contents[name] = rule.content

    return described | ({"contents": contents} if contents else {})


def parse_rules(text: str, source: str = "rules", folder: Path | None = None) -> Rules:
    """Parse rules from YAML text. `source` names the text in errors; file names in it are relative
    to `folder`.

    Raises:
        InputError: the text cannot be used; names the source, the line and the reason.
    """
    node, data = parse_yaml(text, f"rules {source}")
    file = build_at(RulesFile, data, node, f"rules {source}")

    for n, rule in enumerate(file.rules):
        if isinstance(rule, JsonSchema | Call):
            try:
                rule.load(folder or Path())
            except InputError as error:
                raise InputError(f"rules {source}:{line_of(node, ('rules', n))}: {error}") from None

    return Rules(file)
