"""Judge texts by rules from a YAML file, without a model (`Rules`), or before another judge
(`Hybrid`).

Both are `Evaluator`s. Each class of a rule has the fields of the rule in a file, and a check, which
returns a score in [0, 1] and, if it is below 1, instructions for changing the text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from textevolve.errors import InputError, SettingsError, TextEvolveError, describe_error
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    Usage,
    check_case,
    check_result,
    choose_candidates,
    empty_default,
    error_of,
    failure_of,
    reaches,
    reject_candidate_images,
    sum_usage,
)
from textevolve.json_texts import as_array, as_object, write_text
from textevolve.llm.prompts import count_tokens
from textevolve.loops.attempt import instructions_of
from textevolve.loops.checks import (
    CHECKS,
    GROUPS,
    RUBRIC,
    CheckGrader,
    CheckKind,
    fill_check,
    function_name,
    list_checks,
    names_schema_file,
    read_check,
    read_schema_value,
)
from textevolve.mappings import drop_none, map_values, omit
from textevolve.metrics.plain import read_score
from textevolve.rows import read_text
from textevolve.rows.columns import prompt_text
from textevolve.rows.tables import parse_json
from textevolve.spec import Frozen
from textevolve.texts.patterns import compile_pattern, is_found, search_apart
from textevolve.texts.placeholders import placeholders_of
from textevolve.texts.prose import CASE_FOLDS, compose, has_phrase, join_lines, split_words
from textevolve.texts.schema_check import check_schema, find_faults
from textevolve.texts.yaml_lines import build_at, line_of, parse_yaml
from textevolve.user_code import count_required, digest_code, load_function


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """The result of a rule for a text. `score`: in [0, 1]. `instructions`: the changes to make;
    empty if the rule holds. `verdict`: whether it holds; None: if the score is 1."""

    score: float
    instructions: tuple[str, ...] = ()
    verdict: bool | None = None

    @property
    def held(self) -> bool:
        return self.score >= 1.0 if self.verdict is None else self.verdict


RULE_HOLDS = RuleFinding(1.0)
"""The result of a rule that the text follows."""


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case with the answers of judges that were asked about its texts, so that a rule needs no
    call of its own. `answers`: by the key of a rule and the text."""

    case: Case
    answers: Mapping[tuple[str, str], EvaluationResult | Failure] = empty_default(dict)


class _Rule(BaseModel):
    """The fields that all kinds of rules have. `name`: used in results; empty: the kind and the
    position. `weight`: the rule's weight in the mean score. `gate`: whether a text that breaks this
    rule fails, even with a high score. `feedback`: replaces the rule's own instruction; empty: keep
    it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0
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

    def check(self, text: str, _judged: CheckedCase) -> RuleFinding:
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

    def check(self, text: str, _judged: CheckedCase) -> RuleFinding:
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

    def check(self, text: str, _judged: CheckedCase) -> RuleFinding:
        schema = as_object(self._read)
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

    def check(self, text: str, _judged: CheckedCase) -> RuleFinding:
        missing = [word for word in self.all if not self._has(text, word)]
        unwanted = [word for word in self.none if self._has(text, word)]
        lacks_any = bool(self.any) and not any(self._has(text, w) for w in self.any)
        total = len(self.all) + len(self.none) + bool(self.any)
        broken = len(missing) + len(unwanted) + lacks_any
        if not broken:
            return RULE_HOLDS
        instructions = [f"Use the word or phrase {_quote(missing)}."] if missing else []
        if lacks_any:
            instructions.append(f"Use at least one of: {_quote(self.any)}.")
        if unwanted:
            instructions.append(f"Do not use {_quote(unwanted)}.")

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

    def check(self, text: str, judged: CheckedCase) -> RuleFinding:
        assert self._found is not None
        takes_input = (count_required(self._found) or 0) > 1
        returned = self._found(text, judged.case.input) if takes_input else self._found(text)
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


LONGEST_LABEL = 80
"""The number of characters of a check in results."""


class OutputCheck(_Rule):
    """A rule that is one of the checks of `checks.py`, such as `contains: 30 days`.

    Attributes:
        check: Its name; `value`: its value, `negated`: whether it must not hold.
        threshold: The score in [0, 1] from which it holds; None: that of its kind.
    """

    kind: Literal["check"]
    gate: bool | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  decided by the list
    check_name: Annotated[str, Field(alias="check")]
    value: Any = None
    negated: bool = False
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    _grader: CheckGrader | None = PrivateAttr(default=None)
    _parts: RulesFile | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            if self.check_name in GROUPS:
                fields: dict[str, Any] = {"rules": self.value, "threshold": self.threshold}
                self._parts = RulesFile(**drop_none(fields))
            elif self.kind_of_check.open and not self.names_files:
                self._grader = self.kind_of_check.open_grader(self.value)
            elif self.check_name in (RUBRIC, "judge") and not str(self.value or "").strip():
                raise InputError("its value is missing")
        except (InputError, SettingsError) as error:
            raise ValueError(f"check {self.check_name}: {error}") from None

        return self

    @property
    def kind_of_check(self) -> CheckKind:
        return CHECKS[self.check_name]

    @property
    def label(self) -> str:
        """The check as a short text, for results and instructions."""
        sign = "not-" if self.negated else ""
        value = "" if self.value is None or self._parts else f": {write_text(self.value)}"
        text = join_lines(f"{sign}{self.check_name}{value}")
        return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"

    @property
    def key(self) -> str:
        """A text that tells its question from those of other checks."""
        return f"{self.check_name}:{write_text(self.value)}"

    @property
    def asks(self) -> bool:
        """Return whether a judge answers it."""
        return bool(self.kind_of_check.judge) or self.check_name == "judge"

    @property
    def reads(self) -> str:
        """The part of the case that it reads: `reference`, `context`, `trajectory`, or empty."""
        reads = self.kind_of_check.reads
        return "" if reads == "reference" and self.value is not None else reads

    @property
    def blocks(self) -> bool:
        return self.kind_of_check.blocks

    @property
    def names_files(self) -> bool:
        """Return whether its value names a file, code or a judge."""
        is_schema = self.check_name in ("json-schema", "contains-json")
        return self.kind_of_check.reaches or (is_schema and names_schema_file(self.value))

    @property
    def content(self) -> object:
        """Return the content of the file, or a hash of the function, that the check names, since a
        changed one makes another run; None if it names none."""
        if self.check_name == "function":
            return digest_code(function_name(self.value))
        return read_schema_value(self.value) if self.names_files and not self.asks else None

    def leaves(self) -> Iterator[Rule]:
        """Yield the checks of its list, and of their lists; itself if it has none."""
        if self._parts is None:
            yield self
            return
        yield from self._parts.leaves()

    def load(self, _folder: Path) -> None:
        """Open the function that it names.

        Raises:
            InputError: there is none.
        """
        if self._grader is None and self.kind_of_check.open:
            self._grader = self.kind_of_check.open_grader(self.value)

    def check(self, text: str, judged: CheckedCase) -> RuleFinding:
        outcome = self._grade(text, judged)
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        least = self.kind_of_check.least if self.threshold is None else self.threshold
        holds = outcome.passed if self._parts is not None else reaches(outcome.score, least)
        # The sign turns both; the reason speaks of what is not wanted then.
        score = 1 - outcome.score if self.negated else outcome.score
        hint = "" if self.negated else outcome.feedback
        if holds != self.negated:
            return RuleFinding(score, verdict=True)

        return RuleFinding(score, (self.feedback or f"Required: {self.label}. {hint}",), False)

    def _grade(self, text: str, judged: CheckedCase) -> EvaluationResult | Failure:
        if self._parts is not None:
            return self._grade_parts(self._parts, text, judged)
        if self.asks:
            unasked = Failure("failed", "it asks a model; use it with --judge checks or rules:FILE")
            return judged.answers.get((self.key, text), unasked)
        if self._grader is None:
            self.load(Path())
        assert self._grader is not None
        return read_score(self._grader(text, judged.case), self.kind_of_check.least)

    def _grade_parts(
        self, parts: RulesFile, text: str, judged: CheckedCase
    ) -> EvaluationResult | Failure:
        outcome = Rules(parts).grade(text, judged)
        if self.check_name == "all" or isinstance(outcome, Failure):
            return outcome
        scores: Mapping[str, float] = outcome.metadata["rules"]
        held = len(outcome.metadata[BROKEN]) < len(scores)
        return replace(outcome, score=max(scores.values()), passed=held)


def _as_rule(item: Any) -> Any:
    """Return the fields of a check as those of a rule; any other item unchanged."""
    if isinstance(item, _Rule) or "kind" in as_object(item):
        return item
    try:
        return {"kind": "check", **(item if "check" in as_object(item) else read_check(item))}
    except InputError as error:
        raise ValueError(str(error)) from None


ReadsFiles: TypeAlias = JsonSchema | Call | OutputCheck
"""The rules that may name a file."""

Rule = Annotated[
    Length | Pattern | JsonSchema | Keywords | Call | OutputCheck,
    Field(discriminator="kind"),
    BeforeValidator(_as_rule),
]
"""A rule of any kind."""


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


FAILED_GATES = "failed_gates"
"""The key in a result's metadata that holds the names of the gates that the text failed. Such a
text is never accepted, even with a high score."""
BROKEN = "broken"
"""The key that holds the names of all rules that do not hold, if one of them is a check."""


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
        """Return the name of each rule: its own, or its kind and place, such as `length 1`. Checks
        of one name are numbered."""
        names: list[str] = []
        for place, rule in enumerate(self.rules, 1):
            name = rule.name or f"{rule.kind} {place}"
            if isinstance(rule, OutputCheck):
                name = rule.name or rule.label
                same = sum(earlier.partition(" (")[0] == name for earlier in names)
                name = f"{name} ({same + 1})" if same else name
            names.append(name)

        return names

    def leaves(self) -> Iterator[Rule]:
        """Yield all rules, those of lists of checks in the place of the lists."""
        for rule in self.rules:
            if isinstance(rule, OutputCheck):
                yield from rule.leaves()
            else:
                yield rule

    @property
    def has_threshold(self) -> bool:
        return "threshold" in self.model_fields_set

    def is_gate(self, rule: Rule) -> bool:
        """Return whether a text that breaks a rule fails at any score. Checks are gates unless the
        list has a threshold, or their weight is 0."""
        if rule.gate is None:
            return not self.has_threshold and rule.weight > 0
        return rule.gate


Ask: TypeAlias = Callable[["OutputCheck", str, Case], Awaitable[Evaluation]]
"""A function that has the judge of a check judge a text of a case, alone."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A judge that applies all rules to each candidate. score = their weighted mean; passed = the
    score reaches the threshold and every gate holds; feedback = one line with an instruction for
    each broken rule, gates first; `metadata["rules"]` has each rule's score."""

    file: RulesFile
    ask: Ask | None = None

    async def __call__(self, case: Case, /) -> PlainEvaluation:
        """Judge each candidate of a case by the rules.

        Raises:
            InputError: the case cannot be judged.
        """
        check_case(case)
        reject_candidate_images(case, "a judge by rules")
        leaves = list(self.file.leaves())
        judged, usage = await self._ask_judges(case, leaves)
        if any(getattr(rule, "blocks", False) for rule in leaves):
            return PlainEvaluation(await search_apart(self._judge_all, judged), usage)
        if any(isinstance(rule, Call) for rule in leaves):
            # The user's function may take its time, or run an event loop of its own.
            return PlainEvaluation(await asyncio.to_thread(self._judge_all, judged), usage)

        return PlainEvaluation(self._judge_all(judged), usage)

    async def _ask_judges(self, case: Case, leaves: Sequence[Rule]) -> tuple[CheckedCase, Usage]:
        """Return the case with the answers of all judges that its checks ask, and their usage."""
        checks = [rule for rule in leaves if isinstance(rule, OutputCheck) and rule.asks]
        if self.ask is None or not checks:
            return CheckedCase(case), Usage()
        questions = {(check.key, text): check for check in checks for text in case.candidates}
        asked = [self.ask(check, text, case) for (_, text), check in questions.items()]
        evaluations = await asyncio.gather(*asked)
        outcomes = (evaluation.result[0] for evaluation in evaluations)
        answers = dict(zip(questions, outcomes, strict=True))
        usage = sum_usage(evaluations)

        return CheckedCase(case, answers), usage

    def _judge_all(self, judged: CheckedCase) -> tuple[EvaluationResult | Failure, ...]:
        return tuple(self.grade(text, judged) for text in judged.case.candidates)

    def judge(self, text: str, input: str = "") -> EvaluationResult | Failure:
        """Judge one text; if a rule cannot be applied, the whole result is a failure."""
        return self.grade(text, CheckedCase(Case(input, (text,))))

    def grade(self, text: str, judged: CheckedCase) -> EvaluationResult | Failure:
        """Judge one text of a case like `judge`."""
        findings: list[RuleFinding] = []
        for name, rule in zip(self.file.names, self.file.rules, strict=True):
            try:
                findings.append(rule.check(text, judged))
            except TextEvolveError as error:
                return replace(failure_of(error), reason=f"rule '{name}': {error}")
            except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code
                return Failure("failed", f"rule '{name}': {describe_error(error)}".rstrip(": "))

        return self._sum_up(findings)

    def _sum_up(self, findings: list[RuleFinding]) -> EvaluationResult:
        file = self.file
        judged = list(zip(file.names, file.rules, findings, strict=True))
        weight = sum(rule.weight for rule in file.rules)
        score = sum(finding.score * rule.weight for _, rule, finding in judged) / weight
        # Rounding may carry a sum of many weights out of the range.
        score = min(1.0, max(0.0, score))

        broken = [(name, rule) for name, rule, finding in judged if not finding.held]
        failed = [name for name, rule in broken if file.is_gate(rule)]
        # A rule without weight is observed, and decides nothing unless it is a gate.
        reached = not any(rule.weight for _, rule in broken)
        if file.has_threshold:
            reached = reaches(score, file.threshold)

        # Instructions of gates come first, since nothing passes without these.
        ordered = sorted(judged, key=lambda entry: not file.is_gate(entry[1]))
        lines = [line for _, _, finding in ordered for line in finding.instructions]

        metadata: dict[str, Any] = {"rules": {name: finding.score for name, _, finding in judged}}
        if any(isinstance(rule, OutputCheck) for rule in file.rules):
            metadata[BROKEN] = [name for name, _ in broken]
        metadata[FAILED_GATES] = failed

        return EvaluationResult(
            score=score,
            passed=not failed and reached,
            feedback="\n".join(join_lines(line) for line in lines),
            metadata=metadata,
        )


@dataclass(frozen=True, slots=True)
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
        if isinstance(rule, ReadsFiles) and rule.content is not None:
            contents[name] = rule.content

    return described | ({"contents": contents} if contents else {})


def parse_rules(text: str, source: str = "rules", folder: Path | None = None) -> Rules:
    """Parse rules from YAML text. `source` names the text in errors; file names in it are relative
    to `folder`.

    Raises:
        InputError: the text cannot be used; names the source, the line and the reason.
    """
    node, data = parse_yaml(text, f"rules {source}")
    content = {"rules": as_array(data)} if as_array(data) else data
    file = build_at(RulesFile, content, node, f"rules {source}")

    for n, rule in enumerate(file.rules):
        if isinstance(rule, ReadsFiles):
            try:
                rule.load(folder or Path())
            except InputError as error:
                raise InputError(f"rules {source}:{line_of(node, ('rules', n))}: {error}") from None

    return Rules(file)


# The checks of rows.


def columns_of_checks(shared: Sequence[Any], cell: Any) -> list[str]:
    """Return the names in braces in the checks of a study (`shared`) and of a row's `cell`: columns
    of the row that are read by its checks."""
    return list(placeholders_of(write_text([*shared, cell])))


def take_checks(
    shared: Sequence[Any], cell: Any, row: Mapping[str, Any], where: str
) -> dict[str, Any] | None:
    """Return the checks of a row, those of the study (`shared`) first, as the parameter of a case;
    None if it has none. `cell`: the row's own, in any form; `row`: its columns, which checks may
    name in braces. The threshold of a row's own list counts for all of its checks.

    Raises:
        InputError: a check cannot be used, or a row names a file or code; names the row.
    """
    listed = list_checks(cell)
    fields = as_object(listed)
    names = [name for name in ("checks", "assert", "rules") if name in fields]
    own = listed if isinstance(listed, list) else [fields]
    options: dict[str, Any] = {}
    if names:
        own = as_array(fields[names[0]])
        options = omit(fields, names[:1])
    own = [item for item in own if item]
    if not (own or options) and cell not in (None, "", []):
        raise InputError(f"{where}: checks must be a list of checks, not {cell!r:.60}")
    if not (own or shared):
        return None

    values = map_values(prompt_text, row)
    try:
        whole = [item for item in shared if find_named([item])]
        filled = [fill_check(item, values) for item in (*shared, *own) if item not in whole]
        # Neither the row's checks nor its columns name what only the study may.
        if named := find_named(filled):
            raise InputError(
                f"a row cannot name files, code or judges; write {named} for the study"
            )
        stored = json.loads(json.dumps({**options, "rules": [*whole, *filled]}, default=str))
        _open_stored(json.dumps(stored, sort_keys=True))
    except InputError as error:
        raise InputError(f"{where}: checks: {error}") from None

    return stored


def find_named(checks: Sequence[Any]) -> str:
    """Return the first check that names a file, code or a judge; empty if none does."""
    if not checks:
        return ""
    for rule in read_check_list(checks).leaves():
        if isinstance(rule, Call) or (isinstance(rule, OutputCheck) and rule.names_files):
            return rule.label if isinstance(rule, OutputCheck) else rule.kind
        if isinstance(rule, JsonSchema) and rule.file is not None:
            return rule.kind

    return ""


def is_checks(cell: Any) -> bool:
    """Return whether a cell of a table holds checks."""
    try:
        return take_checks((), cell, {}, "") is not None
    except InputError:
        return False


def read_check_list(checks: Sequence[Any]) -> RulesFile:
    """Return a list of checks, in any of their forms.

    Raises:
        InputError: a check cannot be used.
    """
    fields: dict[str, Any] = {"rules": list(checks)}
    return RulesFile(**fields)


def _list_checks(checks: Sequence[Any]) -> list[OutputCheck]:
    leaves = read_check_list(checks).leaves() if checks else ()
    return [rule for rule in leaves if isinstance(rule, OutputCheck)]


def describe_checks(checks: Sequence[Any]) -> dict[str, Any]:
    """Return what the files and functions that checks name hold, as a part of a run's identity;
    empty if they name none."""
    named = [check for check in _list_checks(checks) if check.content is not None]
    return {"checks": {check.label: check.content for check in named}} if named else {}


def asks_model(checks: Sequence[Any]) -> bool:
    """Return whether one of the checks asks a judge."""
    return any(check.asks for check in _list_checks(checks))


@lru_cache(maxsize=1024)
def _open_stored(text: str) -> RulesFile:
    file = RulesFile(**json.loads(text))
    for rule in file.leaves():
        if isinstance(rule, ReadsFiles):
            rule.load(Path())
    return file


def list_reads(parameter: Mapping[str, Any]) -> set[str]:
    """Return the parts of a case that checks made by `take_checks` read: `reference`, `context`,
    `trajectory`."""
    return {check.reads for check in _list_checks(parameter.get("rules", ()))}


def open_checks(parameter: Mapping[str, Any], ask: Ask) -> Rules:
    """Return the judge of the checks that `take_checks` made."""
    return Rules(_open_stored(json.dumps(parameter, sort_keys=True)), ask)
