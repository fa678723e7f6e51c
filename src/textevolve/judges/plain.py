"""Judges that call no model of a run: a metric, a baseline, rules, and the user's own evaluator;
and `hybrid`, which asks another judge after the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

from textevolve.debate.context import debate_prompts
from textevolve.errors import InputError
from textevolve.evaluation import LABEL, ROW, Case, EvaluationResult, Evaluator, Failure, reaches
from textevolve.json_texts import unpack_value
from textevolve.judges.checks import ask_with
from textevolve.judges.context import PlainJudge, judge_prompts
from textevolve.judges.judge import (
    CombinedJudge,
    Judge,
    ModelOfJudge,
    first_word,
    judge,
    judge_argument,
    parse_judge,
)
from textevolve.judges.opening import Judges
from textevolve.judges.own_prompt import CriterionJudge
from textevolve.llm.decisions import probability
from textevolve.loading import late_regex, regex
from textevolve.loops.rules import Hybrid, OutputCheck, Rule, Rules, describe_rules, load_rules
from textevolve.metrics.label_metrics import (
    describe_metric,
    grade_output,
    is_shipped,
    needs_label,
    open_metric,
    reads_trajectory,
)
from textevolve.metrics.plain import LabelMetric
from textevolve.texts.prose import find_marked_words, fold_case
from textevolve.user_code import OWN, load_object, load_user_object


@judge("metric:FILE.py:FUNCTION", help="your own function of output, reference and row")
@judge("metric:NAME", help="a metric without a model, such as metric:rouge-l")
@dataclass(frozen=True)
class MetricJudge(PlainJudge):
    """A judge that grades each candidate by a metric, such as exact match, with the case's
    reference as the label. `metric`: its name, as `open_metric` takes it."""

    metric: str = judge_argument()
    title: ClassVar[str] = "a metric"
    usage: ClassVar[str] = "metric:NAME, such as metric:exact"

    @property
    def reads_reference(self) -> bool:
        return True

    @property
    def reads_trajectory(self) -> bool:
        return reads_trajectory(self.metric)

    @property
    def reads_context(self) -> bool:
        return ".py:" in self.metric or super().reads_context

    @property
    def reads_row(self) -> bool:
        return not is_shipped(self.metric)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("reference",) if needs_label(self.metric) else ()

    def check(self) -> None:
        open_metric(self.metric)

    def describe(self) -> Mapping[str, Any]:
        return {"metric": describe_metric(self.metric)}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        # A copy, which opens the metric anew: its file may have changed since the last run.
        opened = replace(self)
        _ = opened.opened_metric
        return opened if is_shipped(self.metric) else bench.take_own(self, opened)

    @cached_property
    def opened_metric(self) -> LabelMetric:
        return open_metric(self.metric)

    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        if case.reference is None and needs_label(self.metric):
            missing = f"the metric {self.metric} needs the case's reference, and it has none"
            return Failure("failed", missing)
        row = {"input": case.input, "reference": case.reference, "context": case.context}
        label: Any = case.reference
        if ROW in case.parameters:
            label = unpack_value(case.parameters[LABEL])
            row |= {"reference": label, **unpack_value(case.parameters[ROW])}
        row |= case.trajectory.as_row() if case.trajectory else {}

        return await grade_output(self.opened_metric, text, label, threshold, row)


USUAL = 100
"""The number of words of a text with the score 0.5."""
LOOK = "look"
LENGTH = "length"
FACTS = "facts"
LOOKS = (LENGTH, FACTS)
"""The names of what a `look` sees."""

_NUMBER = late_regex(r"\d+(?:[.,]\d+)*")
_NAME = late_regex(r"(?<!^)(?<![.!?] )\b\p{Lu}\w+")


@judge("look:length", help="the number of words, a baseline for other judges")
@judge("look:facts", help="numbers and names that the context has, too; a baseline, no model")
@dataclass(frozen=True)
class LookJudge(PlainJudge):
    """A judge by what can be seen without understanding: a baseline for other judges, and a signal
    of fitted ones. `length`: the number of words, as words / (words + `USUAL`); it says nothing
    about quality. `facts`: the share of a text's numbers and names that its context has; a text
    without any has no score. A false statement may have all of them.

    Raises:
        InputError: `look` is not in `LOOKS`.
    """

    look: str = judge_argument(LENGTH)
    title: ClassVar[str] = "a look"
    usage: ClassVar[str] = "look:length or look:facts"

    def __post_init__(self) -> None:
        if self.look not in LOOKS:
            raise InputError(f"no baseline judge '{self.look}'; there are: {', '.join(LOOKS)}")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("context",) if self.look == FACTS else ()

    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        if self.look == FACTS:
            return _grade_facts(case, text, threshold)
        odds = math.log(max(1, len(find_marked_words(text))) / USUAL)
        score = probability(odds)
        feedback = f"{LENGTH}: how many words a text has; that says nothing of its quality"
        return EvaluationResult(score, reaches(score, threshold), feedback, {"log_odds": odds})


def find_facts(text: str) -> list[str]:
    """Return the numbers of a text, and its names apart from the first words of sentences."""
    return [*_NUMBER.findall(text), *_NAME.findall(text)]


def _grade_facts(case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
    if case.context is None:
        return Failure("failed", "look:facts needs the case's context, and it has none")
    facts = find_facts(text)
    if not facts:
        return Failure("failed", "the text has no number and no name to compare")

    numbers = {number.replace(",", "") for number in _NUMBER.findall(case.context)}
    words = set(regex.findall(r"\w+", fold_case(case.context)))
    missing: list[str] = []
    for fact in facts:
        if fact.replace(",", "") not in numbers and fold_case(fact) not in words:
            missing.append(fact)

    score = 1 - len(missing) / len(facts)
    feedback = f"not in the context: {', '.join(missing)}" if missing else "all in the context"

    return EvaluationResult(score, reaches(score, threshold), feedback)


@judge("rules:FILE.yaml", help="length, patterns, JSON schema, ...; no model")
@dataclass(frozen=True)
class RulesJudge(Judge):
    """A judge by the rules of a file, whose verdict has no threshold. A rule may be a check, and
    rubrics among them ask the run's model."""

    file: str = judge_argument()
    usage: ClassVar[str] = "rules:FILE.yaml"

    @property
    def reads_reference(self) -> bool:
        return "reference" in self._reads()

    @property
    def reads_context(self) -> bool:
        return "context" in self._reads()

    @property
    def reads_trajectory(self) -> bool:
        return "trajectory" in self._reads()

    @property
    def prompts(self) -> dict[str, str]:
        asks = any(isinstance(rule, OutputCheck) and rule.asks for rule in self._leaves())
        return CriterionJudge().prompts if asks else {}

    def models(self, model: ModelOfJudge) -> tuple[str | ModelOfJudge, ...]:
        return (model,) if self.prompts else ()

    def _reads(self) -> set[str]:
        return {rule.reads for rule in self._leaves() if isinstance(rule, OutputCheck)}

    def _leaves(self) -> list[Rule]:
        with suppress(InputError):  # which `open` and `describe` raise
            return list(load_rules(self.file).file.leaves())
        return []

    def describe(self) -> Mapping[str, Any]:
        return describe_rules(self.file)

    def open(self, bench: Judges, rubric: str) -> Rules:
        return replace(load_rules(self.file), ask=ask_with(bench, bench.model))


@judge("hybrid:FILE.yaml:JUDGE", help="rules first, then a judge")
@dataclass(frozen=True)
class HybridJudge(CombinedJudge):
    """The rules of a file, then another judge, which sees only texts that pass their gates."""

    file: str = judge_argument()
    judge: Judge = judge_argument()
    usage: ClassVar[str] = "hybrid:FILE.yaml:JUDGE"

    def describe(self) -> Mapping[str, Any]:
        return {**RulesJudge(self.file).describe(), **self.judge.describe()}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        rules = RulesJudge(self.file).open(bench, rubric)
        (judge,) = bench.open_parts(self, rubric)
        return Hybrid(rules, judge, rules_weight=rules.file.share)

    def write(self) -> str:
        return f"{self.name}:{self.file}:{self.judge}"

    @classmethod
    def read(cls, text: str) -> Judge:
        file, _, judge = text.partition(":")[2].partition(":")
        if not file or not judge:
            raise InputError(f"judge '{text}': its file or its judge is missing; write {cls.usage}")

        return cls(file, parse_judge(judge), source=text)


@judge(f"{OWN}NAME")
@dataclass(frozen=True)
class OwnJudge(Judge):
    """An evaluator of the user: by the name under which the program passed it, or by `MODULE.NAME`,
    which is imported. It may also be a judge, or a class of judges, to which options may be given
    as to a shipped one: `python:MODULE.NAME+words=20`."""

    object_name: str = judge_argument()
    usage: ClassVar[str] = f"{OWN}NAME"

    @property
    def options(self) -> str:
        """The part of its text with the options of a class of judges; empty without any."""
        return self.object_name.removeprefix(first_word(self.object_name))

    @property
    def is_swayed(self) -> bool:
        return True

    @property
    def reads_reference(self) -> bool:
        return True

    @property
    def reads_context(self) -> bool:
        return True  # it receives the whole case

    @property
    def prompts(self) -> dict[str, str]:
        return debate_prompts() | judge_prompts()  # it may call any judge of this package

    def load(self, objects: Mapping[str, object]) -> object:
        """Return the user's object.

        Raises:
            InputError: it was not passed, and it cannot be imported.
        """
        path = self.object_name.removesuffix(self.options)
        name = f"{OWN}{path}"
        module, _, attribute = path.rpartition(".")
        if name not in objects and module and attribute.isidentifier():
            with suppress(InputError):  # then it is missing, whatever the reason
                loaded = load_object(f"{module}:{attribute}", Path())
                if loaded is not None:
                    return loaded

        return load_user_object(name, objects)

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        loaded = self.load(bench.objects)
        if isinstance(loaded, type) and issubclass(loaded, Judge):
            loaded = loaded.read(f"{loaded.name}{self.options}")
        elif self.options:
            raise InputError(
                f"judge '{self}': only a class of judges takes options, and this is another object"
            )
        if isinstance(loaded, Judge):
            return bench.take_own(self, loaded.open(bench, loaded.find_rubric(rubric)))
        return bench.take_own(self, cast("Callable[[Case], Any]", loaded))
