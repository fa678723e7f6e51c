"""A debate's result as one line of JSON, and back.

The record holds what the result is made of; under `metrics` stand the values computed from it, for
readers that are not this program. They are not read back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from textevolve.debate.profile import Profile, explain
from textevolve.debate.result import DebateResult, Sanitized, Stop, Turn
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.rows import mend_halves

FORMAT = 1


@with_config(ConfigDict(ser_json_inf_nan="strings"))
@dataclass(frozen=True)
class _Record:
    case: Case
    profile: Profile
    turns: tuple[Turn, ...]
    convergence: tuple[float, ...]
    stopped: Stop
    labels: tuple[int, ...]
    nonce: str
    sanitized: Sanitized
    summaries: tuple[str, ...]
    extra_usage: Usage
    index: int
    failure: Failure | None
    metadata: Mapping[str, Any]
    format: int = FORMAT
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[_Record]:
    return TypeAdapter(_Record)


def write_result(result: DebateResult, *, metrics: bool = True) -> str:
    """`metrics`: with the values computed from it, which are not read back."""
    computed = result_metrics(result) if metrics else {}
    record = _Record(**{name: getattr(result, name) for name in _KEPT}, metrics=computed)
    try:
        return _adapter().dump_json(record).decode()
    except ValueError:  # half a surrogate pair, as in a memory that the user's code recalled
        return mend_halves(json.dumps(_adapter().dump_python(record, mode="json")))


def read_result(text: str | bytes) -> DebateResult:
    try:
        record = _adapter().validate_json(text)
    except ValidationError as error:
        raise InputError(f"not a debate's result: {explain(error)}") from None
    if record.format != FORMAT:
        raise InputError(f"a result of format {record.format}; this version reads {FORMAT}")
    return DebateResult(**{name: getattr(record, name) for name in _KEPT})


_KEPT = (
    *("case", "profile", "turns", "convergence", "stopped", "labels", "nonce", "sanitized"),
    *("summaries", "extra_usage", "index", "failure", "metadata"),
)


def result_metrics(result: DebateResult) -> dict[str, Any]:
    """The computed values as JSON-ready data; a value that is missing is None."""
    return {
        "status": "scored" if result.scored else _first_failure(result).kind,
        "best": result.best,
        "tied": list(result.tied),
        "s_norm": finite(result.scores.tolist()),
        "probabilities": finite(result.probabilities.tolist()),
        "scores": [r.score if isinstance(r, EvaluationResult) else None for r in result.result],
        "passed": [r.passed if isinstance(r, EvaluationResult) else None for r in result.result],
        "spread": finite(result.spread.tolist()) if result.tensor.values.size else [],
        "components": _components(result),
        "round_one": finite(result.round_one.tolist()),
        "coverage": result.coverage,
        "rounds": len(result.convergence),
        "voters": list(result.voters),
        "certainty": result.certainty,
        "winner_changes": sum(s.changed for s in result.swings),
        "failures": [
            {
                "round": t.round + 1,
                "agent": result.agents[t.agent],
                "kind": t.failure.kind,
                "reason": t.failure.reason,
            }
            for t in result.turns
            if t.failure
        ],
        "tokens": result.usage.tokens,
        "calls": result.usage.calls,
        "cost": result.usage.cost,
        "seconds": round(result.seconds, 3),
    }


def finite(values: list[float]) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values]


def to_data(result: DebateResult) -> dict[str, Any]:
    """The record as plain data."""
    return json.loads(write_result(result))


def _components(result: DebateResult) -> list[dict[str, float] | None]:
    return [
        dict(r.metadata["components"]) if isinstance(r, EvaluationResult) else None
        for r in result.result
    ]


def _first_failure(result: DebateResult) -> Failure:
    return next(r for r in result.result if isinstance(r, Failure))
