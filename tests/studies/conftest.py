"""Results made by hand, so that every figure in a file can be checked against its source."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from textevolve.debate.context import debate_prompts
from textevolve.debate.modes import place_candidates
from textevolve.debate.profile import Profile, load_profile
from textevolve.debate.result import DebateResult, Points, Turn
from textevolve.evaluation import Case, Failure, Usage
from textevolve.memory.cue import Memory
from textevolve.runs.driver import Launch, RunPlan
from textevolve.runs.stored import StoredSpec
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.evaluate import STUDY, EvaluateSpec

MakeResult = Callable[..., DebateResult]


def _make(
    text: str = "plain",
    *,
    candidates: int = 3,
    rounds: int = 2,
    failed: tuple[tuple[int, int], ...] = (),
    index: int = 0,
    **fields: Any,
) -> DebateResult:
    profile = fields.pop("profile", None) or load_profile("general")
    generator = random.Random(index)
    labels = tuple(range(candidates, 0, -1))
    turns: list[Turn] = []
    for r in range(rounds):
        for i in range(len(profile.agents)):
            order = place_candidates(r * len(profile.agents) + i, labels, profile.order)
            usage = Usage(2, 100, 80, 20, 0.001)
            if (r, i) in failed:
                failure = Failure("failed", f"no use {text}")
                turns.append(Turn(r, i, "local/m", order, failure=failure, usage=usage))
                continue
            scores = tuple(
                tuple(round(generator.uniform(0, 10), 2) for _ in profile.components)
                for _ in range(candidates)
            )
            points = tuple(Points(f"good {text}", f"weak {text}", f"mend {text}") for _ in labels)
            turns.append(
                Turn(
                    *(r, i, f"local/m {text}", order, f"argued {text}", points, scores),
                    parse_mode="strict",
                    memories=(Memory(f"recalled {text}", f"source {text}", 0.5, {"recency": 0.5}),),
                    usage=usage,
                    seconds=1.5,
                )
            )
    new_fields: dict[str, Any] = {
        "case": Case(f"input {text}", tuple(f"{text} {n}" for n in range(candidates)), f"c{index}"),
        "profile": profile,
        "turns": tuple(turns),
        "convergence": tuple(0.3 / (r + 1) for r in range(rounds)),
        "stopped": "rounds",
        "labels": labels,
        "nonce": "n",
        "index": index,
    }
    return DebateResult(**{**new_fields, **fields})


@pytest.fixture
def registered() -> Callable[..., RunRecord]:
    """Registers a run of debates over cases."""

    def register(store: Store, cases: Iterable[Case], **fields: Any) -> RunRecord:
        stored = make_stored(**fields)
        plan = RunPlan(STUDY, EvaluateSpec(), Settings(), stored, cases, Launch())
        return plan.register(store).record

    return register


def make_stored(profile: Profile | None = None, **fields: Any) -> StoredSpec:
    spec = EvaluateSpec(profile=profile or load_profile("general"))
    kept = spec.model_dump(mode="json", exclude_defaults=True)
    new_fields = {
        "kind": "evaluate",
        "spec": kept,
        "model": "a/m",
        "why": "named",
        "today": "2026-01-01",
    }
    return StoredSpec(**{**new_fields, "prompts": debate_prompts(), **fields})


@pytest.fixture
def make_result() -> MakeResult:
    return _make


@pytest.fixture
def unusable() -> DebateResult:
    """The result of a case about which nothing could be asked."""
    return _make(
        candidates=0,
        rounds=0,
        index=7,
        labels=(),
        stopped="failed",
        failure=Failure("failed", "no candidates"),
    )
