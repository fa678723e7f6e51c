"""Cases judged by a judge that is no debate: JSONL by case, CSV and Parquet by candidate.

What is missing is an empty cell or a null, never 0. Pages are there for debates alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export.tables import Row, choose_format, open_rows, write_text
from textevolve.judges.judged import JudgedCase

COLUMNS: Mapping[str, type] = {
    "index": int,
    "id": str,
    "candidate": int,
    "text": str,
    "score": float,
    "log_odds": float,
    "passed": bool,
    "best": bool,
    "status": str,
    "reason": str,
    "case_calls": int,
    "case_tokens": int,
    "case_cost": float,
    "feedback": str,
}


@contextmanager
def open_judged(path: str | Path) -> Generator[Callable[[JudgedCase], None]]:
    """Yields a function that writes each case; the file appears when the block is left.

    Raises:
        InputError: the file's format is not known, or it cannot be written.
        SettingsError: Parquet is wanted and pyarrow is not installed.
    """
    whole = choose_format(path) == "jsonl"
    with open_rows(path, COLUMNS) as add:

        def write(judged: JudgedCase) -> None:
            for row in [case_record(judged)] if whole else candidate_rows(judged):
                add(row)

        yield write


def case_record(judged: JudgedCase) -> dict[str, Any]:
    """All of a case as JSON-ready data."""
    usage = judged.usage
    return {
        "index": judged.index,
        "id": write_text(judged.case.id),
        "input": write_text(judged.case.input),
        "best": judged.best,
        "candidates": [
            {"text": write_text(text), **_outcome(outcome)}
            for text, outcome in zip(judged.case.candidates, judged.result, strict=False)
        ],
        "status": judged.failure.kind if judged.failure else "scored",
        "reason": judged.failure.reason if judged.failure else None,
        "usage": asdict(usage),
    }


def candidate_rows(judged: JudgedCase) -> Iterator[Row]:
    """A row for each candidate; one without a candidate for a case that has none."""
    if not judged.case.candidates:
        why = judged.failure.reason if judged.failure else None
        case_id = write_text(judged.case.id)
        yield {"index": judged.index, "id": case_id, "status": "failed", "reason": why}
    for j, (text, outcome) in enumerate(zip(judged.case.candidates, judged.result, strict=False)):
        yield {
            "index": judged.index,
            "id": write_text(judged.case.id),
            "candidate": j + 1,
            "text": write_text(text),
            "best": None if judged.best is None else j == judged.best,
            **_outcome(outcome),
            "case_calls": judged.usage.calls,
            "case_tokens": judged.usage.tokens,
            "case_cost": judged.usage.cost,
        }


def _outcome(outcome: EvaluationResult | Failure) -> Row:
    if isinstance(outcome, Failure):
        return {"score": None, "status": outcome.kind, "reason": write_text(outcome.reason)}
    return {
        "score": outcome.score,
        "log_odds": outcome.metadata.get("log_odds"),
        "passed": outcome.passed,
        "status": "scored",
        "feedback": write_text(outcome.feedback) or None,
    }
