"""The judge `checks`, which applies the checks of each row, and the judges that checks ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import (
    CHECKS,
    Case,
    Evaluation,
    Evaluator,
    Failure,
    PlainEvaluation,
    settings_of,
)
from textevolve.json_texts import as_array
from textevolve.judges.context import CaseOptions
from textevolve.judges.judge import AskingJudge, ModelOfJudge, judge, parse_judge
from textevolve.judges.opening import Judges, keep_whole
from textevolve.judges.own_prompt import CriterionJudge
from textevolve.loops.attempt import ask_judge
from textevolve.loops.checks import RUBRIC
from textevolve.loops.rules import Ask, OutputCheck, open_checks

NO_CHECKS = "the row has no checks, in a column 'checks' or 'assert', and the study has none"


@judge("checks", help="the checks of each row, such as contains: 30 days")
@dataclass(frozen=True)
class ChecksJudge(AskingJudge):
    """A judge by the checks of each row and of the study. Only checks that ask a judge, such as
    rubrics, call its model."""

    @property
    def reads_checks(self) -> bool:
        return True

    @property
    def reads_reference(self) -> bool:
        return True

    @property
    def reads_trajectory(self) -> bool:
        return True

    @property
    def threshold(self) -> float | None:
        return None

    @property
    def may_ask(self) -> bool:
        return True

    @property
    def prompts(self) -> dict[str, str]:
        return CriterionJudge().prompts

    def models(self, model: ModelOfJudge) -> tuple[str | ModelOfJudge, ...]:
        # Rows may have no check that asks, so that a run without a model is possible.
        return tuple(filter(None, (self.model or model,)))

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        ask = ask_with(bench, self.model or bench.model)

        async def judge_checks(case: Case, /) -> Evaluation:
            parameter: Mapping[str, Any] | None = case.parameters.get(CHECKS)
            if parameter is None:
                failure = Failure("failed", NO_CHECKS)
                return PlainEvaluation((failure,) * len(case.candidates))
            settings = settings_of(case)
            if "threshold" in settings and "threshold" not in parameter:
                parameter = {**parameter, "threshold": CaseOptions(**settings).threshold}
            return await open_checks(parameter, ask)(case)

        return judge_checks


def ask_with(bench: Judges, model: str) -> Ask:
    """Return the function that has the judge of a check judge a text. `model`: that of judges that
    name none; empty if the run has none."""
    return partial(ask_check, bench, model)


async def ask_check(
    bench: Judges, model: str, check: OutputCheck, text: str, case: Case
) -> Evaluation:
    """Have the judge of a check judge a text of a case, alone; a judge without a model fails."""
    kind = check.kind_of_check
    name = str(check.value) if check.check_name == "judge" else kind.judge
    asked_judge = CriterionJudge() if name == RUBRIC else parse_judge(name)
    asked_judge = asked_judge.with_model(model or None)
    if not model and None in asked_judge.models(None):
        reason = "no model: name one with --model, or in the judge, checks@MODEL"
        return PlainEvaluation((Failure("failed", reason),))
    if asked_judge.is_relative:
        raise InputError(f"check {check.label}: the judge compares texts, and a check has one")

    alone = replace(case, candidates=(text,), parameters={})
    if kind.is_reference and check.value is not None:
        alone = replace(alone, reference=str(check.value))
    asked_judge.check()
    rubric = asked_judge.find_rubric()
    if kind.judge in (RUBRIC, "trajectory") and check.value:
        # The criterion is a text or a list of texts.
        rubric = "\n".join(map(str, as_array(check.value) or [check.value]))
    outcome = await ask_judge(keep_whole(asked_judge.open(bench, rubric)), alone)

    return PlainEvaluation((outcome,)) if isinstance(outcome, Failure) else outcome
