"""What can be told of a judge by its text alone: its files, its kind, and what may sway it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textevolve.errors import InputError
from textevolve.judge_kinds import FITTED, JUDGES, METRIC, NAMES, RUBRIC, UNASKING
from textevolve.judge_specs import (
    judges_in,
    parse_evaluator,
    read_profile,
    read_rubric,
    split_rules,
)
from textevolve.judges.fitted_file import load_fitted
from textevolve.judges.looks import LOOK
from textevolve.judges.packages import describe_package
from textevolve.loops.rules import load_rules
from textevolve.metrics.label_metrics import describe_metric
from textevolve.user_code import OWN


def is_swayed(text: str) -> bool:
    """Whether the order of candidates may sway a judge. Those in `JUDGES` see one at a time, or ask
    about each two in both orders, but for a choice among all."""
    even = (*JUDGES, *UNASKING)
    swayed = any(spec.choice or spec.name not in even for spec in judges_in(text))
    return text.startswith(OWN) or swayed


def takes_rubric(text: str) -> bool:
    """Whether a judge within a cascade is handed the rubric: rules and metrics judge by their own
    measure."""
    return any(spec.name not in UNASKING for spec in judges_in(text))


def reads_decisions(text: str) -> bool:
    """Whether a judge's text names a debate with the readout `decide`."""
    _, judge = split_rules(text)
    spec = None if judge is None else parse_evaluator(judge)
    return spec is not None and spec.is_debate and read_profile(spec).readout == "decide"


def collections_of(text: str) -> tuple[str, ...]:
    """The collections of memories that the debaters of a judge recall from, each once."""
    profiles = [read_profile(spec) for spec in judges_in(text) if spec.is_debate]
    return tuple(dict.fromkeys(name for one in profiles for name in one.collections))


def check_absolute(text: str) -> None:
    """Raises InputError where a judge only compares candidates of one case with each other."""
    if any(spec.is_relative for spec in judges_in(text)):
        raise InputError(
            f"judge '{text}' compares candidates of one case with each other, so its scores of two"
            " cases cannot be compared; take another judge, such as probe+rules"
        )


def describe_judge(text: str) -> Mapping[str, Any]:
    """What stands behind a judge's text, as JSON: files, and the version of another's package. They
    make a run what it is, too."""
    rules, judge = split_rules(text)
    found: dict[str, Any] = {}
    if rules is not None:
        found["rules"] = load_rules(rules).file.model_dump(mode="json", by_alias=True)
    if judge is None:
        return found
    spec = parse_evaluator(judge)
    if spec.parts:
        said = {part: describe_judge(part) for part in spec.parts}
        found |= {part: about for part, about in said.items() if about}
        if spec.name == FITTED:
            found[FITTED] = load_fitted(spec.profile or "").model_dump(mode="json")
    elif spec.is_debate:
        found["profile"] = read_profile(spec).model_dump(mode="json")
    elif spec.name == METRIC:
        found[METRIC] = describe_metric(spec.profile or "")
    elif spec.name not in (*NAMES, LOOK):
        found["package"] = describe_package(spec.name)
    elif rubric := read_rubric(spec):
        found[RUBRIC] = rubric
    return found
