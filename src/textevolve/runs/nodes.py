"""Recorded runs of agents, judged and kept: a node is a case, and comes back with its judgements.

What needs no model is said before the nodes are taken in, and kept with them. Judges that ask
models answer from the journal when a run is gone on with, or only shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from textevolve.engine import sync
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, InputError, MismatchError
from textevolve.evaluation import Case, Evaluation, Evaluator, Failure, Usage
from textevolve.evaluators import keep_whole, open_evaluator, parse_evaluator
from textevolve.events import Listener, silence
from textevolve.node_eval.episodes import Episode, split_history
from textevolve.node_eval.evaluators import NodeEvaluator
from textevolve.node_eval.history import History
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.judging import JudgeEvaluator
from textevolve.node_eval.node_lines import NodeLine, describe_node, encode_line, parse_node
from textevolve.node_eval.offline import evaluate_episode
from textevolve.node_eval.traces import gather_episode
from textevolve.runs.estimate import PriceOf, UsageRange
from textevolve.runs.judge_estimate import estimate_judge
from textevolve.runs.judging import choose_judge
from textevolve.runs.measurement import cases_in_flight, open_judges
from textevolve.runs.node_checks import NO_INPUT, NO_OUTPUT, TextFirst
from textevolve.runs.spec import MeasurementSpec, specify_measurement
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, choose_model, replay_models

KIND = "nodes"
EPISODES_IN_FLIGHT = 16


async def specify_nodes(
    settings: Settings,
    judges: Sequence[str],
    model: str | None = None,
    *,
    input_key: str | None = None,
    output_key: str | None = None,
    only: Sequence[Instruction] = (),
) -> MeasurementSpec:
    """The specification of an evaluation; a model is looked for only where a judge names none.

    `input_key`, `output_key`: the fields of the states that the judges see. `only`: the types of
    nodes that they are asked about; all where it is empty.

    Raises:
        InputError: a judge cannot be used. SettingsError: no model can be had as asked.
    """
    for judge in judges:
        if judge.startswith(("rules:", "hybrid:")):
            raise InputError(f"judge '{judge}': rules are given apart from the judges, by --rules")
        choose_judge(judge)
    chosen, why = "", ""
    if judges:
        named = [parse_evaluator(judge).model for judge in judges]
        chosen, why = await choose_model(settings, model if None in named else model or named[0])
    shown = {"input_key": input_key, "output_key": output_key, "only": [one.name for one in only]}
    return specify_measurement(KIND, judges, chosen, shown if judges else {}, why)


def begin_nodes(
    store: Store,
    spec: MeasurementSpec,
    episodes: Iterable[Episode],
    checks: Sequence[NodeEvaluator] = (),
    *,
    name: str = "",
    source: str = "Python",
) -> RunRecord:
    """The run of these episodes, read lazily: a new one, or the one that is kept already. `checks`
    judge the nodes first, without a model.

    Raises:
        InputError: two evaluators have one name, or there is no node.
    """
    names = [*(check.name for check in checks), *spec.judges]
    if double := {one for one in names if names.count(one) > 1}:
        raise InputError(f"two evaluators have the name '{min(double)}'; names must differ")
    return take_in(store, spec, _as_cases(_check(episodes, checks)), name=name, source=source)


def _check(episodes: Iterable[Episode], checks: Sequence[NodeEvaluator]) -> Iterator[Episode]:
    if not checks:
        yield from episodes
        return

    async def judge() -> AsyncGenerator[Episode]:
        for episode in episodes:
            yield await evaluate_episode(episode, checks)

    yield from sync.iterate(judge())


def _as_cases(episodes: Iterable[Episode]) -> Iterator[Case]:
    seen: set[str] = set()
    number = 0
    for episode in episodes:
        if episode.id in seen:
            raise InputError(f"two episodes have the id '{episode.id}'; ids must differ")
        seen.add(episode.id)
        for step, item in episode.nodes:
            number += 1
            line = encode_line(describe_node(episode.id, step, item)).decode()
            yield Case(line, (), str(number))
    if not number:
        raise InputError("there is no node to keep: the history is empty")


def keep_history(
    store: Store, history: History, name: str = "", *, episode: str = "", source: str = "Python"
) -> RunRecord:
    """Keep what a monitor has watched, with what its evaluators said so far, as a run of the store;
    each run of the agent is an episode in it. The same history again is the same run.

    Raises:
        InputError: it has no node.
    """
    spec = specify_measurement(KIND, (), "", prompts={})
    run = begin_nodes(store, spec, split_history(history, episode), name=name, source=source)
    store.finish_run(run.id, "finished")
    return run


def read_kept(store: Store, run: RunRecord) -> Iterator[Episode]:
    """The episodes of a run as they were taken in, before any model was asked.

    Raises:
        MismatchError: another version wrote them.
    """
    lines: list[NodeLine] = []
    for case in store.iterate_cases(run.id):
        try:
            line = parse_node(f"node {case.id}", json.loads(case.input))
        except (InputError, ValueError) as error:
            raise MismatchError(
                f"run {run.id}: was made by another version of TextEvolve ({error}); evaluate the"
                " trace again"
            ) from None
        if lines and line.episode != lines[0].episode:
            yield gather_episode(lines)
            lines = []
        lines.append(line)
    if lines:
        yield gather_episode(lines)


async def do_nodes(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[Episode]:
    """The episodes of a run, in order, judged; only what is missing is asked.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    spec = MeasurementSpec.model_validate(run.spec)
    if not spec.judges:
        for episode in read_kept(store, run):
            yield episode
        store.finish_run(run.id, "finished")
        return
    whole = True
    async with open_judges(store, run, settings, limits, listener) as judges:
        gate = asyncio.Semaphore(cases_in_flight(spec, settings))
        results = _judge_all(read_kept(store, run), open_nodes(judges, spec), gate, listener)
        try:
            async for episode in results:
                whole = whole and not count_unasked(episode, spec.judges)
                yield episode
        finally:
            await results.aclose()
        if whole:
            store.finish_run(run.id, "finished")


async def read_nodes(store: Store, run: RunRecord) -> AsyncGenerator[Episode]:
    """The episodes of a run with what was said of them, from the store alone.

    Raises:
        MismatchError: the run holds no nodes, or other prompts were asked than would be now.
    """
    if run.spec.get("kind") != KIND:
        raise MismatchError(f"run {run.id}: holds no nodes of agents; see textevolve runs list")
    spec = MeasurementSpec.model_validate(run.spec)
    _refuse_other_prompts(run, spec)
    journal = store.journal(run.id)
    model_of = replay_models(journal, journal.errors)
    judges = {
        text: keep_whole(
            open_evaluator(parse_evaluator(text), spec.model, model_of, today=spec.today)
        )
        for text in spec.judges
    }
    results = _judge_all(read_kept(store, run), open_nodes(judges, spec), None, silence)
    try:
        async for episode in results:
            yield episode
    finally:
        await results.aclose()


def _refuse_other_prompts(run: RunRecord, spec: MeasurementSpec) -> None:
    if spec.judges:
        now = specify_measurement(KIND, spec.judges, spec.model, spec.parameters)
        if now.identity != spec.identity:
            raise MismatchError(
                f"run {run.id} cannot be shown: its judges were asked with other prompts or"
                " profiles than there are now; evaluate the trace again"
            )


def _judge_all(
    episodes: Iterable[Episode],
    evaluators: Sequence[NodeEvaluator],
    gate: asyncio.Semaphore | None,
    listener: Listener,
) -> AsyncGenerator[Episode]:
    judge = partial(evaluate_episode, evaluators=evaluators, gate=gate, listener=listener)
    return stream(episodes, judge, EPISODES_IN_FLIGHT)


def open_nodes(judges: Mapping[str, Evaluator], spec: MeasurementSpec) -> list[NodeEvaluator]:
    """The judges as evaluators of nodes, each under its spec as its name."""
    shown: Mapping[str, Any] = spec.parameters
    only = [Instruction[name] for name in shown.get("only", ())]
    return [
        TextFirst(
            name,
            partial(JudgeEvaluator, name, judge),
            shown.get("input_key"),
            shown.get("output_key"),
            only or None,
            needs_input=True,
        )
        for name, judge in judges.items()
    ]


def count_unasked(episode: Episode, judges: Sequence[str]) -> int:
    """How many judgements are still to be asked for, because a limit was reached."""
    ended = [item for item in episode.history.items if item.error is None]
    outcomes = [item.evaluation_results.get(judge) for item in ended for judge in judges]
    return sum(
        isinstance(outcome, Failure)
        and outcome.kind == "skipped"
        and outcome.reason not in (NO_INPUT, NO_OUTPUT)
        for outcome in outcomes
    )


def estimate_nodes(
    episodes: Iterable[Episode], spec: MeasurementSpec, price_of: PriceOf
) -> UsageRange:
    """What the judges may take on the nodes; the checks ask no model."""
    asked: dict[str, list[Case]] = {judge: [] for judge in spec.judges}
    evaluators = open_nodes({judge: _Noting(cases) for judge, cases in asked.items()}, spec)
    nodes = 0
    for episode in episodes:
        nodes += sum(1 for _ in episode.history.items)
        sync.run(evaluate_episode(episode, evaluators))
    ranges = [estimate_judge(cases, judge, spec.model, price_of) for judge, cases in asked.items()]
    return UsageRange(
        nodes,
        sum((one.least for one in ranges), Usage()),
        sum((one.most for one in ranges), Usage()),
    )


class _Noting:
    """Stands where a judge was, and notes what it would have been asked about."""

    def __init__(self, cases: list[Case]) -> None:
        self._cases = cases

    async def __call__(self, case: Case, /) -> Evaluation:
        self._cases.append(case)
        raise BudgetError("nothing is asked for an estimate")
