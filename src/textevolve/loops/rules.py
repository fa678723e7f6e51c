"""Judging without a model: rules from a YAML file, alone or before a judge (`Hybrid`).

Both are `Evaluator`s. The kinds of rules are in `rule_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from textevolve.errors import InputError, TextEvolveError
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    choose_candidates,
    refuse_candidate_images,
)
from textevolve.loops.rule_kinds import Call, JsonSchema, Pattern, Rule, RuleFinding, RuleSubject
from textevolve.loops.scoring import instructions_of
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.texts.patterns import search_apart
from textevolve.texts.yaml_lines import build_at, line_of, parse_yaml

FAILED_GATES = "failed_gates"
"""The metadata in which a result names the gates that its text failed: such a text is not accepted,
whatever its score."""


class RulesFile(Frozen):
    """A rules file. `threshold`: the score from which a text passes, if it passes every gate.
    `share`: of the rules in the score where they come before a judge."""

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
        """Each rule's own name, or its kind and place: `length 1`."""
        return [r.name or f"{r.kind} {n}" for n, r in enumerate(self.rules, 1)]


@dataclass(frozen=True, slots=True)
class RulesJudgement:
    """One result or failure for each candidate; `usage` is nothing unless a judge was asked."""

    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    @property
    def coverage(self) -> float:
        scored = sum(isinstance(one, EvaluationResult) for one in self.result)
        return scored / len(self.result)


@dataclass(frozen=True)
class Rules:
    """All rules on each candidate. score = the weighted mean of theirs; passed = it reaches the
    threshold and every gate holds; feedback = an instruction on a line for each rule broken, gates
    first; `metadata["rules"]` has each rule's score.

    `count_tokens`: a tokeniser's count for rules on length in tokens.
    """

    file: RulesFile
    count_tokens: Callable[[str], int] | None = None

    async def __call__(self, case: Case, /) -> RulesJudgement:
        """
        Raises:
            InputError: the case cannot be judged.
        """
        check_case(case)
        refuse_candidate_images(case, "a judge by rules")
        if any(isinstance(r, Pattern | JsonSchema) and r.blocks for r in self.file.rules):
            return RulesJudgement(await search_apart(self._judge_all, case))
        return RulesJudgement(self._judge_all(case))

    def _judge_all(self, case: Case) -> tuple[EvaluationResult | Failure, ...]:
        return tuple(self.judge(text, case.input) for text in case.candidates)

    def judge(self, text: str, input: str = "") -> EvaluationResult | Failure:
        """One text; a failure where a rule itself could not be applied."""
        subject = RuleSubject(text, input, self.count_tokens)
        findings: list[RuleFinding] = []
        for name, rule in zip(self.file.names, self.file.rules, strict=True):
            try:
                findings.append(rule.check(subject))
            except TextEvolveError as error:
                return Failure("failed", f"rule '{name}': {error}")
            except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code
                kind = type(error).__name__
                return Failure("failed", f"rule '{name}': {kind}: {error}".rstrip(": "))
        return self._sum_up(findings)

    def _sum_up(self, findings: list[RuleFinding]) -> EvaluationResult:
        rules, names = self.file.rules, self.file.names
        weights = [rule.weight for rule in rules]
        score = sum(f.score * w for f, w in zip(findings, weights, strict=True)) / sum(weights)
        judged = list(zip(names, rules, findings, strict=True))
        failed = [name for name, rule, found in judged if rule.gate and not found.held]
        ordered = sorted(judged, key=lambda one: not one[1].gate)
        lines = [line for _, _, found in ordered for line in found.instructions]
        score = min(1.0, max(0.0, score))
        return EvaluationResult(
            score=score,
            passed=not failed and score >= self.file.threshold,
            feedback="\n".join(" ".join(line.split()) for line in lines),
            metadata={
                "rules": {name: found.score for name, _, found in judged},
                FAILED_GATES: failed,
            },
        )


@dataclass(frozen=True)
class Hybrid:
    """Rules first, then a judge on those candidates alone that pass every gate.

    score = rules_weight x rules + (1 - rules_weight) x judge. A candidate that fails a gate is not
    shown to the judge and costs nothing: its score is the rules' part alone, which is below that of
    the same text with its gates mended.
    """

    rules: Rules
    judge: Evaluator
    rules_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rules_weight <= 1:
            raise InputError(f"the rules' weight must be from 0 to 1, not {self.rules_weight}")

    async def __call__(self, case: Case, /) -> RulesJudgement:
        """
        Raises:
            InputError: the case cannot be judged. Whatever the judge raises.
        """
        ruled = await self.rules(case)
        outcomes = [self._part(outcome) for outcome in ruled.result]
        asked = [n for n, one in enumerate(ruled.result) if _passes_gates(one)]
        if not asked:
            return RulesJudgement(tuple(outcomes))
        left = choose_candidates(case, asked)
        judged = await self.judge(left)
        for place, n in enumerate(asked):
            outcomes[n] = self._join(ruled.result[n], judged, place)
        return RulesJudgement(tuple(outcomes), judged.usage)

    def _part(self, outcome: EvaluationResult | Failure) -> EvaluationResult | Failure:
        if isinstance(outcome, Failure):
            return outcome
        metadata = {**outcome.metadata, "rules_score": outcome.score}
        return replace(outcome, score=self.rules_weight * outcome.score, metadata=metadata)

    def _join(
        self, ruled: EvaluationResult | Failure, judged: Evaluation, place: int
    ) -> EvaluationResult | Failure:
        """`instructions` are those of the rules first, then the judge's."""
        content = judged.result[place]
        if isinstance(ruled, Failure) or isinstance(content, Failure):
            return content if isinstance(content, Failure) else ruled
        own = self.rules_weight
        score = own * ruled.score + (1 - own) * content.score
        told = [*ruled.feedback.splitlines(), *instructions_of(judged, place)]
        return EvaluationResult(
            score=min(1.0, max(0.0, score)),
            passed=ruled.passed and content.passed,
            feedback="\n".join(part for part in (ruled.feedback, content.feedback) if part),
            metadata={
                **content.metadata,
                **ruled.metadata,
                "rules_score": ruled.score,
                "judge_score": content.score,
                "instructions": told,
            },
        )


def _passes_gates(outcome: EvaluationResult | Failure) -> bool:
    return isinstance(outcome, EvaluationResult) and not outcome.metadata.get(FAILED_GATES)


def load_rules(path: str | Path, count_tokens: Callable[[str], int] | None = None) -> Rules:
    """The rules in a YAML file.

    Raises:
        InputError: the file cannot be used; names file, line and reason.
    """
    if isinstance(path, str) and "\0" in path:
        raise InputError(f"rules {path!r}: not the name of a file")
    text = read_text(str(path))
    return parse_rules(text, str(path), Path(path).parent, count_tokens)


def parse_rules(
    text: str,
    source: str = "rules",
    folder: Path | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Rules:
    """Rules from YAML text; `source` names it in errors, files it names are looked for in
    `folder`.

    Raises:
        InputError: as `load_rules`.
    """
    node, data = parse_yaml(text, f"rules {source}")
    file = build_at(RulesFile, data, node, f"rules {source}")
    for n, rule in enumerate(file.rules):
        if isinstance(rule, JsonSchema | Call):
            try:
                rule.load(folder or Path())
            except InputError as error:
                line = line_of(node, ("rules", n))
                raise InputError(f"rules {source}:{line}: {error}") from None
    return Rules(file, count_tokens)
