"""Decisions on the attempts that there are: which is the best, and whether the next one revises or
is written anew, by what the judge said of the first revision. Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from textevolve.evaluation import EvaluationResult
from textevolve.loops.attempt import Attempt, best_attempt
from textevolve.loops.controller import notice_degenerate
from textevolve.loops.rules import FAILED_GATES

OptimizationMode: TypeAlias = Literal["auto", "revise", "best-of-n"]
"""How attempts after the first are made; auto tries one revision and goes by its score."""

ROUNDING = 1e-9
"""0.70 less 0.65 is a gain of 0.05, whatever binary fractions make of it."""


def why_anew(attempts: Sequence[Attempt], mode: OptimizationMode, least: float) -> str:
    """Why the next attempt is written anew; empty where one with a score is revised, if there is
    any. `least`: what the first revision must gain in score for others to follow."""
    if mode == "best-of-n":
        return "each attempt is"
    at = next((n for n, attempt in enumerate(attempts) if attempt.made == "revised"), None)
    if mode == "revise" or at is None:
        return ""
    before = next(one for one in reversed(attempts[:at]) if one.score is not None)
    return _find_fault(before, attempts[at], least)


def _find_fault(before: Attempt, revision: Attempt, least: float) -> str:
    """Why a revision is no reason for another one. One without a score has shown nothing, and
    writing anew has come to a score once; a degenerate one may have a score that it does not
    deserve."""
    number = before.iteration
    if before.score is None or revision.score is None:
        return "the first revision has no score"
    if wrong := notice_degenerate(revision.output or "", before.output):
        return f"the first revision is degenerate ({wrong})"
    if fails_gate(revision) != fails_gate(before):
        fails = fails_gate(revision)
        return f"the first revision fails a gate that attempt {number} does not" if fails else ""
    gain = revision.score - before.score
    if gain > 0 and gain >= least - ROUNDING:
        return ""
    wanted = f"{least:g} or more" if least else "more than 0"
    return f"the first revision gained {gain:+.3f} on attempt {number}, not {wanted}"


def choose_best(attempts: Sequence[Attempt]) -> Attempt | None:
    """As `best_attempt`; but one that fails a gate is no better than one that does not."""
    whole = [a for a in attempts if a.score is not None and not fails_gate(a)]
    return best_attempt(whole or attempts)


def fails_gate(attempt: Attempt) -> bool:
    """Whether an attempt breaks a rule that is a gate."""
    outcome = attempt.evaluation
    return isinstance(outcome, EvaluationResult) and bool(outcome.metadata.get(FAILED_GATES))
