"""What a judged case is for other programs: a line of JSON, and rows of tables.

A debate's line is the whole of it (`DebateResult.from_json` reads it back). Tables are in long
form: a row for each candidate, or for each turn of a debate and candidate. What is missing is None,
never 0. What belongs to a whole case (`case_tokens`, ...) or turn stands in each of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from textevolve.debate import tensor as arithmetic
from textevolve.debate.record import finite, result_metrics
from textevolve.debate.result import DebateResult, Turn
from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.images import image_reference
from textevolve.judges.cascade import DECIDED_BY
from textevolve.judges.judged import JudgedCase
from textevolve.studies.debate_words import reason

Judged: TypeAlias = DebateResult | JudgedCase
"""A case with what a judge made of it: a debate, which has more to tell, or any other judge."""

ResultRow: TypeAlias = dict[str, Any]
COMPONENT = "component_"
OF_CASCADES = (DECIDED_BY, "certainty", "first_failed")
"""What a cascade notes of a result: see `judges.cascade`."""


def write_line(judged: Judged) -> str:
    return judged.to_json() if isinstance(judged, DebateResult) else json.dumps(_record(judged))


def candidate_rows(judged: Judged) -> Iterator[ResultRow]:
    """A row for each candidate; one without a candidate for a case that has none."""
    return _of_debate(judged) if isinstance(judged, DebateResult) else _of_judged(judged)


def turn_rows(judged: Judged) -> Iterator[ResultRow]:
    """A row for each turn and candidate; none where a judge does not debate."""
    if isinstance(judged, DebateResult):
        for turn in judged.turns:
            yield from _of_turn(judged, turn)


def plain_text(text: str) -> str:
    """Half surrogate pairs, which no file format can hold, are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _of_debate(result: DebateResult) -> Iterator[ResultRow]:
    metrics = result_metrics(result)
    candidates = result.case.candidates
    first: ResultRow = {"index": result.index, "id": plain_text(result.case.id)}
    whole: ResultRow = {
        "coverage": metrics["coverage"],
        "rounds": metrics["rounds"],
        "stopped": result.stopped,
        "voters": metrics["voters"][-1] if metrics["voters"] else None,
        "certainty": metrics["certainty"],
        "status": metrics["status"],
        "reason": plain_text(reason(result)) or None,
        "winner_changes": metrics["winner_changes"] if result.scored else None,
        "case_calls": metrics["calls"],
        "case_tokens": metrics["tokens"],
        "case_cost": metrics["cost"],
        "case_seconds": metrics["seconds"],
    }
    for j, text in enumerate(candidates):
        components: dict[str, float] = metrics["components"][j] or {}
        named = {COMPONENT + name: components.get(name) for name in result.components}
        yield {
            **first,
            "candidate": j + 1,
            "text": plain_text(text),
            **shown_images(result.case, j),
            "score": metrics["scores"][j],
            "s_norm": metrics["s_norm"][j],
            "probability": metrics["probabilities"][j],
            "passed": metrics["passed"][j],
            "best": j == result.best if result.scored else None,
            "spread": metrics["spread"][j] if metrics["spread"] else None,
            "round_one_s_norm": metrics["round_one"][j],
            **whole,
            "feedback": plain_text(str(result.feedback[j])) or None,
            **named,
        }
    if not candidates:
        yield {**first, **whole}


def _of_turn(result: DebateResult, turn: Turn) -> Iterator[ResultRow]:
    first: ResultRow = {
        "index": result.index,
        "id": plain_text(result.case.id),
        "round": turn.round + 1,
        "agent": result.agents[turn.agent],
        "model": plain_text(turn.model),
    }
    by = turn.decided_by
    whole: ResultRow = {
        "argument": plain_text(turn.argument) or None,
        "parse_mode": turn.parse_mode,
        "decider": plain_text(by.model) if by else None,
        "emulated": by.emulated if by else None,
        "left_out": by.cut if by else None,
        "status": turn.failure.kind if turn.failure else "scored",
        "reason": plain_text(turn.failure.reason) if turn.failure else None,
        "turn_calls": turn.usage.calls,
        "turn_tokens": turn.usage.tokens,
        "turn_cost": turn.usage.cost,
        "turn_seconds": round(turn.seconds, 3),
    }
    weighted: list[float | None] = [None] * len(result.case.candidates)
    if turn.scores is not None:
        scores = arithmetic.turn_scores(np.array(turn.scores), result.weights)
        weighted = finite(scores.tolist())
    for j in range(len(result.case.candidates)):
        points = turn.points[j] if turn.points else None
        scored = turn.scores[j] if turn.scores is not None else (None,) * len(result.components)
        yield {
            **first,
            "candidate": j + 1,
            "label": result.labels[j] if result.labels else None,
            "position": turn.order.index(j) + 1 if j in turn.order else None,
            "weighted": weighted[j],
            "strengths": plain_text(points.strengths) if points else None,
            "weaknesses": plain_text(points.weaknesses) if points else None,
            "instructions": plain_text(points.instructions) if points else None,
            **whole,
            **{COMPONENT + n: s for n, s in zip(result.components, scored, strict=False)},
        }


def _record(judged: JudgedCase) -> ResultRow:
    """All of a case, as JSON-ready data."""
    return {
        "index": judged.index,
        "id": plain_text(judged.case.id),
        "input": plain_text(judged.case.input),
        **shown_images(judged.case),
        "best": judged.best,
        "candidates": [
            {"text": plain_text(text), **_own_images(judged.case, j), **_outcome(outcome)}
            for j, (text, outcome) in enumerate(
                zip(judged.case.candidates, judged.result, strict=False)
            )
        ],
        "status": judged.failure.kind if judged.failure else "scored",
        "reason": judged.failure.reason if judged.failure else None,
        "usage": asdict(judged.usage),
    }


def _of_judged(judged: JudgedCase) -> Iterator[ResultRow]:
    first: ResultRow = {"index": judged.index, "id": plain_text(judged.case.id)}
    if not judged.case.candidates:
        why = judged.failure.reason if judged.failure else None
        yield {**first, "status": "failed", "reason": why}
    for j, (text, outcome) in enumerate(zip(judged.case.candidates, judged.result, strict=False)):
        found = _outcome(outcome)
        yield {
            **first,
            "candidate": j + 1,
            "text": plain_text(text),
            **shown_images(judged.case, j),
            "score": found["score"],
            "log_odds": found.get("log_odds"),
            "passed": found.get("passed"),
            "best": None if judged.best is None else j == judged.best,
            "status": found["status"],
            "reason": found.get("reason"),
            DECIDED_BY: found.get(DECIDED_BY),
            "certainty": found.get("certainty"),
            "case_calls": judged.usage.calls,
            "case_tokens": judged.usage.tokens,
            "case_cost": judged.usage.cost,
            "feedback": found.get("feedback"),
        }


def shown_images(case: Case, candidate: int | None = None) -> ResultRow:
    """The images of a case by their short names, with those of a candidate; nothing where there are
    none."""
    found: ResultRow = {"images": list(map(image_reference, case.images))} if case.images else {}
    if candidate is not None and (own := _own_images(case, candidate)):
        found["candidate_images"] = own["images"]
    return found


def _own_images(case: Case, candidate: int) -> ResultRow:
    own = case.candidate_images[candidate] if case.candidate_images else ()
    return {"images": list(map(image_reference, own))} if own else {}


def _outcome(outcome: EvaluationResult | Failure) -> ResultRow:
    if isinstance(outcome, Failure):
        return {"score": None, "status": outcome.kind, "reason": plain_text(outcome.reason)}
    return {
        "score": outcome.score,
        "log_odds": outcome.metadata.get("log_odds"),
        "passed": outcome.passed,
        "status": "scored",
        "feedback": plain_text(outcome.feedback) or None,
        **{name: outcome.metadata[name] for name in OF_CASCADES if name in outcome.metadata},
    }
