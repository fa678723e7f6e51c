"""Doing a run: each case judged, results in order or as they come, everything kept in the store.

The journal is the only checkpoint. A run that is started again asks only what is missing; showing
or replaying one is doing it again with models that answer from the journal alone.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from textevolve.debate.profile import Profile, explain
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult
from textevolve.engine.local import stream
from textevolve.errors import InputError, MismatchError
from textevolve.evaluation import Case, Failure
from textevolve.events import Listener, silence
from textevolve.memory.recall import Recall, nothing
from textevolve.runs.holding import hold
from textevolve.runs.spec import (
    Fingerprint,
    MeasurementSpec,
    RunSpec,
    name_recall,
    refuse_mismatch,
)
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, open_models, replay_models

DEBATES_IN_FLIGHT = 32


def begin(
    store: Store,
    spec: RunSpec,
    cases: Iterable[Case],
    *,
    name: str = "",
    source: str = "",
    resume: str | None = None,
) -> RunRecord:
    """The run of this specification over these cases: a new one, or the one that is kept already.

    The cases are read once, lazily, into the store. `resume`: the run that it has to be.

    Raises:
        MismatchError: it is not the run to be resumed; says what differs.
    """
    wanted = store.get_run(resume) if resume is not None else None
    if wanted is not None:
        refuse_mismatch(wanted.id, read_spec(wanted), spec)
    return take_in(store, spec, cases, name=name, source=source, wanted=wanted)


def take_in(
    store: Store,
    spec: RunSpec | MeasurementSpec,
    cases: Iterable[Case],
    *,
    name: str = "",
    source: str = "",
    wanted: RunRecord | None = None,
) -> RunRecord:
    """Keep the cases; gives the run that they and the specification make, which may be an old one.

    Raises:
        MismatchError: it is not the run `wanted`.
    """
    fingerprint = Fingerprint(spec.identity)

    def noted() -> Iterable[Case]:
        for case in cases:
            fingerprint.add(case)
            yield case

    draft = store.create_run(
        spec.model_dump(mode="json"), f"draft-{secrets.token_hex(16)}", name, source
    )
    try:
        store.add_cases(draft.id, noted())
        if wanted is not None and wanted.fingerprint != fingerprint.hexdigest():
            raise MismatchError(
                f"run {wanted.id} cannot be resumed: its cases differ; start a new run instead"
            )
        return store.settle_run(draft.id, fingerprint.hexdigest())
    except BaseException:
        store.delete_run(draft.id)
        raise


def read_spec(run: RunRecord) -> RunSpec:
    """The specification that a run was begun with.

    Raises:
        MismatchError: it was written by another version, which this one cannot follow.
    """
    kind = run.spec.get("kind")
    if kind == "metric":
        raise MismatchError(
            f"run {run.id}: holds what a metric asked, and no debates of its own; a new metric of"
            " the same judge finds its answers"
        )
    if kind:
        raise MismatchError(
            f"run {run.id}: holds no debates of its own; give its textevolve {_command(str(kind))}"
            " command again to see or finish it, which asks nothing twice"
        )
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError as error:
        raise MismatchError(
            f"run {run.id}: was made by another version of TextEvolve ({explain(error)});"
            " start a new run instead"
        ) from None


def _command(kind: str) -> str:
    """Which command makes runs of this kind that are not debates."""
    if kind in ("profile", "nodes"):
        return {"profile": "profile generate", "nodes": "nodes evaluate"}[kind]
    own = ("evaluate", "optimize", "calibrate", "innovate", "guide", "memory-eval")
    return kind if kind in own else f"bench {kind}"


@dataclass(frozen=True)
class Work:
    """What it takes to do a run. `ordered`: results in the cases' order, else as they finish.

    `offline`: no model is called; what the journal lacks is skipped. `ends`: all results are read
    without delay, so that others who want the same run wait for it.
    """

    store: Store
    settings: Settings
    limits: Limits = Limits()
    recall: Recall = nothing
    listener: Listener = silence
    ordered: bool = True
    offline: bool = False
    ends: bool = False
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


async def do_run(run: RunRecord, work: Work) -> AsyncGenerator[DebateResult]:
    """The results of a run, one for each case; a case that cannot be judged fails alone.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    spec = read_spec(run)
    async with hold(work.store, run.id, ends=work.ends):
        refuse_mismatch(run.id, spec, _present(spec, work))
        complete = True
        results = _judge_all(run, spec, work)
        try:
            async for result in results:
                complete = complete and result.stopped != "budget"
                yield result
        finally:
            await results.aclose()
        if complete:
            work.store.finish_run(run.id, "finished")


async def read_run(run: RunRecord, work: Work) -> AsyncGenerator[DebateResult]:
    """The results of a run from the journal alone, scored anew under `work.parameters`.

    Raises:
        MismatchError: other prompts were asked than can be made here, so nothing would be found.
    """
    spec = read_spec(run)
    refuse_mismatch(run.id, spec, _present(spec, work), "shown")
    results = _judge_all(run, spec, replace(work, offline=True))
    try:
        async for result in results:
            yield result.rescore(**work.parameters) if work.parameters else result
    finally:
        await results.aclose()


def _present(spec: RunSpec, work: Work) -> RunSpec:
    """What the run would be here and now: with the prompts and the recall that there are."""
    recall = name_recall(work.recall)
    return RunSpec(profile=spec.profile, model=spec.model, recall=recall)


async def _judge_all(run: RunRecord, spec: RunSpec, work: Work) -> AsyncGenerator[DebateResult]:
    journal = work.store.journal(run.id)
    async with AsyncExitStack() as stack:
        if work.offline:
            model_of = replay_models(journal, journal.errors)
        else:
            model_of = await stack.enter_async_context(
                open_models(work.settings, journal, work.limits, work.listener)
            )
        local = all(name.startswith("local/") for name in spec.models)
        debate = Debate(
            profile=spec.profile,
            model_of=lambda agent: model_of(agent.model or spec.model),
            recall=work.recall,
            listener=work.listener,
            side_by_side=1 if local else 64,
            today=spec.today,
        )

        async def judge(numbered: tuple[int, Case]) -> DebateResult:
            index, case = numbered
            try:
                return replace(await debate(case), index=index)
            except InputError as error:
                return unusable(case, index, spec.profile, str(error))

        in_flight = work.settings.concurrency
        if in_flight is None:
            in_flight = work.settings.local.slots if local else DEBATES_IN_FLIGHT
        cases = enumerate(work.store.iterate_cases(run.id))
        results = stream(cases, judge, in_flight, ordered=work.ordered)
        try:
            async for result in results:
                yield result
        finally:
            await results.aclose()


def unusable(case: Case, index: int, profile: Profile, reason: str) -> DebateResult:
    """The result of a case about which nothing could be asked."""
    return DebateResult(
        case=case,
        profile=profile,
        turns=(),
        convergence=(),
        stopped="failed",
        labels=(),
        nonce="",
        index=index,
        failure=Failure("failed", reason),
    )
