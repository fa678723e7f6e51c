"""Judged cases as the rows of a matrix: a column for each candidate, and what was said of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from textevolve.debate import tensor as arithmetic
from textevolve.debate.record import result_metrics
from textevolve.debate.result import DebateResult
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.report import wording
from textevolve.report.blocks import Entry, MatrixRow, Section
from textevolve.studies.debate_words import reason
from textevolve.studies.judged_report import TOP, facts_of, say_images, say_verdict, show_case
from textevolve.studies.judged_rows import Judged

COMPACT = 2000
"""Characters of each text that are kept of a case that is not shown in full."""

Figures: TypeAlias = tuple[Mapping[str, float | None], Mapping[str, str]]
"""Scores by component, and other figures in words, each by its name."""

NOTHING: Figures = ({}, {})


def name_case(judged: Judged) -> str:
    return wording.shorten(str(judged.case.id), 30) or str(judged.index + 1)


def whole_rows(found: Sequence[Judged], _variants: Sequence[str]) -> Iterator[MatrixRow]:
    return (whole_row(judged) for judged in found)


def whole_row(judged: Judged) -> MatrixRow:
    """A case with its whole texts and all that was said, to be opened in place."""
    found = Section(say_verdict(judged), show_case(judged), facts_of(judged))
    return make_row(judged, None, (found,))


def make_row(judged: Judged, most: int | None, details: tuple[Section, ...] = ()) -> MatrixRow:
    """A case with at most so many characters of each text."""

    def cut(text: object) -> str:
        return str(text) if most is None else wording.clip(str(text), most)

    case = judged.case
    figures = _debated(judged) if isinstance(judged, DebateResult) else _judged(judged)
    texts = tuple(case.candidates) or ("",) * max(1, len(judged.result))
    entries: list[Entry] = []
    for j, text in enumerate(texts):
        outcome = judged.result[j] if j < len(judged.result) else None
        scores, facts = figures[j] if j < len(figures) else NOTHING
        facts = {**facts, **say_images(case.candidate_images[j] if case.candidate_images else ())}
        entries.append(_entry(judged, cut(text), outcome, scores, facts))
    reference = "" if case.reference is None else cut(case.reference)
    facts = {**_facts_in_line(judged), **say_images(case.images)}
    return MatrixRow(name_case(judged), cut(case.input), entries, reference, facts, details)


def _entry(
    judged: Judged,
    text: str,
    outcome: EvaluationResult | Failure | None,
    scores: Mapping[str, float | None],
    facts: Mapping[str, str],
) -> Entry:
    if isinstance(outcome, EvaluationResult):
        said = {"feedback": outcome.feedback} if outcome.feedback else {}
        return Entry(text, {"score": outcome.score, **scores}, outcome.passed, said, facts=facts)
    if isinstance(judged, DebateResult):
        why = reason(judged) or (outcome.reason if outcome else "")
    else:
        why = outcome.reason if outcome else ""
    if outcome is not None and outcome.kind == "skipped":  # what was not asked has not failed
        return Entry(text, facts={**facts, "not judged": why})
    return Entry(text, failure=f"failed: {why}", facts=facts)


def _debated(result: DebateResult) -> list[Figures]:
    """Of each candidate the components' scores from 0 to 1, and its other figures."""
    figures = result_metrics(result)
    found: list[Figures] = []
    for j in range(len(result.case.candidates)):
        named = {
            "s_norm": wording.number(figures["s_norm"][j]),
            "softmax": wording.percent(figures["probabilities"][j], 1),
            "round 1": wording.number(figures["round_one"][j]),
            "± agents": wording.number(figures["spread"][j] if figures["spread"] else None),
        }
        components: Mapping[str, float] = figures["components"][j] or {}
        scores = {name: score / TOP for name, score in components.items()}
        found.append((scores, {n: said for n, said in named.items() if said != wording.DASH}))
    return found


def _judged(judged: Judged) -> list[Figures]:
    """Of each candidate its log-odds, where the judge has them."""
    found: list[Figures] = []
    for outcome in judged.result:
        odds = outcome.metadata.get("log_odds") if isinstance(outcome, EvaluationResult) else None
        known = isinstance(odds, float) and math.isfinite(odds)
        found.append(({}, {"log-odds": f"{odds:.2f}"} if known else {}))
    return found


def _facts_in_line(judged: Judged) -> dict[str, str]:
    """Who won, and of a debate how it went, in a few words."""
    if not isinstance(judged, DebateResult):
        several = judged.best is not None and len(judged.result) > 1
        return {"winner": wording.letter(judged.best or 0)} if several else {}
    facts: dict[str, str] = {}
    if judged.best is not None and len(judged.case.candidates) > 1:
        facts["winner"] = wording.letters(judged.tied or (judged.best,))
        facts["round 1"] = wording.letters(arithmetic.top_candidates(judged.round_one))
    facts["rounds"] = str(len(judged.convergence))
    facts["coverage"] = wording.percent(judged.coverage)
    return facts
