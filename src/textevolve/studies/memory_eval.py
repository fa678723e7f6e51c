"""The evaluation of a memory system: its extraction of memories, hallucinations, updates, and
answers to questions, after HaluMem (arXiv 2511.03506).

`textevolve.memory_eval` feeds dialogues to a system and judges its memories; `memory_report.py` has
the report. Feeding and judging run concurrently, in one stream over all users.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, cast

from pydantic import TypeAdapter
from pydantic_core import from_json

from textevolve.agents.resources import CollectionSpec
from textevolve.engine.local import pipe
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError, describe_error
from textevolve.evaluation import Case, Evaluator, Failure, failure_of
from textevolve.events import RecordsExpected
from textevolve.judges.judge import Judge
from textevolve.ledger import log
from textevolve.llm.embeddings import embed
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Model, text_hash
from textevolve.llm.refusals import one_line
from textevolve.mappings import drop_empty, map_values
from textevolve.memory.creation import creation_prompts
from textevolve.memory.record import MemoryStore
from textevolve.memory_eval.dataset import Malformed, User
from textevolve.memory_eval.evaluation import (
    METRICS,
    EvaluationRecord,
    MemoryEvaluation,
    MetricEstimate,
    MetricPair,
    Scope,
    SessionTimes,
    clip_texts,
    collect,
    score_of,
    to_row,
)
from textevolve.memory_eval.evaluation import to_json as metrics_to_json
from textevolve.memory_eval.finding import names_code, open_system
from textevolve.memory_eval.judging import (
    MemoryJudgement,
    Subject,
    answer_question,
    evaluation_prompts,
    judge_by_evaluator,
    judge_subject,
)
from textevolve.memory_eval.system_operations import (
    NO_POINTS,
    RECORDED,
    Health,
    PieceToJudge,
    Survey,
    Unanswered,
    count_planned,
    feed,
    find_unmeasured,
    open_instance,
    read_data,
    read_recorded,
    with_answer,
)
from textevolve.memory_eval.systems import Adapted, Capabilities, MemorySystem, RehearsedSystem
from textevolve.memory_eval.textevolve_system import (
    CAPABILITIES,
    TextEvolveSystem,
    names_own,
    read_own,
)
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Estimate, Note, Report, Table
from textevolve.runs.study import Asks, Row, Study, StudySpec, record_status, write_json
from textevolve.settings import Settings, folder_beside
from textevolve.spec import NonEmpty, option
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.user_code import OWN, load_user_object
from textevolve.wiring import Workbench, choose_model

# The report on the evaluation of a memory system: its metrics by memory type and question type,
# with intervals.

# The titles of the metrics in reports, by the metric's name.
TITLES: Mapping[str, str] = {
    "recall": "recall",
    "weighted_recall": "weighted recall",
    "fmr": "false memory resistance",
    "target_precision": "target precision",
    "accuracy": "accuracy",
    "f1": "extraction F1",
    "update_correct": "updates correct",
    "update_hallucination": "updates hallucinated",
    "update_omission": "updates omitted",
    "update_other": "other wrong updates",
    "question_correct": "answers correct",
    "question_hallucination": "answers hallucinated",
    "question_omission": "answers omitting",
    "memory_accuracy": "memory accuracy",
}
TYPE_SHOWN = ("recall", "fmr", "update_correct", "memory_accuracy")
"""The metrics for each memory type. False memory resistance (fmr) is always shown next to
recall."""
QUESTION_SHOWN = ("question_correct", "question_hallucination", "question_omission")
"""The metrics for each question type."""
HEADLINES = ("recall", "fmr", "accuracy", "update_correct", "question_correct")
"""The metrics of the summary sentence."""

MEANING = (
    "“All” counts missing verdicts as not reached; “valid” leaves them out. Intervals (95 %) are"
    " drawn over users. False memory resistance rises if nothing is stored: compare it with recall"
)
REASONS_SHOWN = 20

Pairs: TypeAlias = Sequence[tuple[str, MetricPair]]


def report(spec: MemoryEvaluationSpec, evaluation: MemoryEvaluation) -> Report:
    return Report(
        f"Memory of {spec.system_name}",
        _sentence(evaluation),
        _blocks(evaluation),
        _facts(spec, evaluation),
    )


def _sentence(evaluation: MemoryEvaluation) -> str:
    figures: list[str] = []
    for name in HEADLINES:
        value = evaluation.metrics.overall[name].all.value
        if value is not None:
            figures.append(f"{TITLES[name]} {wording.percent(value, 1)}")

    sentence = f"{', '.join(figures)}." if figures else "nothing could be measured."
    if not evaluation.complete:
        return f"Not finished; so far: {sentence}"
    return sentence[0].upper() + sentence[1:]


def _facts(spec: MemoryEvaluationSpec, evaluation: MemoryEvaluation) -> dict[str, str]:
    """Return the facts about the evaluation: the sources of its figures, and the time it took."""
    minutes = evaluation.metrics.minutes
    spent = {"adding": minutes.adding, "searching": minutes.searching}
    spent |= {"adding and searching": minutes.total}
    took = [f"{name} {wording.duration(60 * m)}" for name, m in spent.items() if m is not None]
    users = wording.count(evaluation.scope.users, "user")
    sessions = wording.count(evaluation.scope.sessions, "session")
    malformed = f"; {len(evaluation.malformed)} malformed, skipped" if evaluation.malformed else ""

    return {
        "System": spec.system_name,
        "Data": f"{spec.data}: {users}, {sessions}{malformed}",
        "Judge": spec.judge.text if spec.judge else "",
        "Answers by": spec.answer_model or "",
        "Time": ", ".join(took),
    }


def _blocks(evaluation: MemoryEvaluation) -> Iterator[Block]:
    metrics = evaluation.metrics
    rows = [(TITLES[n], metrics.overall[n]) for n in METRICS if _is_known(metrics.overall[n])]
    if rows:
        reasons = sorted({pair.all.reason for _, pair in rows if pair.all.reason})
        note = ". ".join((MEANING, *map(str.capitalize, reasons)))
        yield _table("Metrics", rows, f"{note}.")
    for names, reason in _unmeasured(evaluation).items():
        yield Note(f"Not measured: {names}: {reason}", "warning")
    for title, parts, metric_names in (
        ("By memory type", metrics.by_type, TYPE_SHOWN),
        ("By question type", metrics.by_question_type, QUESTION_SHOWN),
    ):
        rows = [
            (f"{part}: {TITLES[name]}", pairs[name])
            for part, pairs in parts.items()
            for name in metric_names
            if _is_known(pairs[name])
        ]
        if rows:
            yield _table(title, rows)

    yield from _token_f1(evaluation)
    yield _coverage(evaluation)
    if evaluation.failures:
        yield _failures(evaluation)


def _token_f1(evaluation: MemoryEvaluation) -> Iterator[Block]:
    if evaluation.needs:
        need = f'needs {evaluation.needs}: pip install "textevolve[metrics]"'
        yield Note(f"Not measured: token F1 as LoCoMo publishes it {need}", "warning")
    if figures := evaluation.published_f1:
        columns = ("", Column("F1", "number", 3), Column("of", "count"))
        rows = [(kind, *figure.values()) for kind, figure in figures.items()]
        yield Table("Token F1, as LoCoMo publishes it", columns, rows)


def _is_known(pair: MetricPair) -> bool:
    return pair.all.value is not None or pair.valid.value is not None


def _cell(figure: MetricEstimate) -> Estimate:
    return Estimate(figure.value, figure.low, figure.high)


def _table(title: str, rows: Pairs, note: str = "") -> Table:
    columns = (
        "",
        Column("all", "number", 3),
        Column("valid", "number", 3),
        Column("of", "count", 1),
    )
    cells = [(name, _cell(pair.all), _cell(pair.valid), pair.all.of) for name, pair in rows]
    return Table(title, columns, cells, note=note)


def _unmeasured(evaluation: MemoryEvaluation) -> dict[str, str]:
    """Return the reasons why metrics are not measured; the key of each reason lists the titles of
    its metrics."""
    reasons: dict[str, list[str]] = {}
    for name in METRICS:
        pair = evaluation.metrics.overall[name]
        if not _is_known(pair):
            reason = pair.all.reason or pair.valid.reason
            reasons.setdefault(reason.removeprefix("not measured: "), []).append(TITLES[name])

    return {", ".join(titles): reason for reason, titles in reasons.items()}


def _coverage(evaluation: MemoryEvaluation) -> Table:
    counts = [Column(name, "count") for name in ("judged", "failed", "not asked")]
    columns = ("judgements", *counts, Column("coverage", "percent"))
    rows = [
        (task, coverage.valid, coverage.failed, coverage.skipped, coverage.share)
        for task, coverage in evaluation.metrics.coverage.items()
        if coverage.asked or coverage.skipped
    ]

    return Table("Coverage", columns, rows)


def _failures(evaluation: MemoryEvaluation) -> Table:
    rows = [
        (number, f"{task}: {wording.shorten(reason, 300)}")
        for task, reason, number in evaluation.failures[:REASONS_SHOWN]
    ]
    hidden = sum(number for *_, number in evaluation.failures[REASONS_SHOWN:])
    note = f"{hidden:,} more for other reasons." if hidden else ""
    columns = (Column("judgements", "count"), "failed")
    return Table("Why there is no verdict", columns, rows, note=note)


USERS_IN_FLIGHT = 8
BASELINES = ("none", "context")
"""The systems that make no model calls; an estimate uses them as they are."""
OPENED = "opened system"
"""The name, among the Python objects of a run, of the memory system that was opened to describe
it."""


class MemoryEvaluationSpec(StudySpec):
    """Feed dialogues to a memory system, and judge its extraction, updates and answers.

    The metrics are those of the HaluMem benchmark. The same command again resumes the run without
    repeated calls. Limits apply to judging and answering, not to the memory system itself.
    """

    kind: ClassVar[str] = "memory-eval"

    data: NonEmpty = option(
        description="A file of users with their sessions, as JSON, one user a line; or a file of"
        " LoCoMo, LongMemEval, PersonaMem or BEAM.",
        argument=True,
        identity=False,
        reads=True,
    )
    system: NonEmpty = option(
        description="The memory system to measure: none, context, recorded, textevolve, http:URL,"
        " mem0, MODULE:ATTRIBUTE, or FILE.py:ATTRIBUTE.",
        short="-s",
        group="Memory system",
    )
    judge: Judge | None = option(
        None,
        "The judge of memories, such as debate:general or jury. By default --model makes each"
        " judgement with one structured call.",
        short="-j",
        group="Judging",
    )
    answer_model: str | None = option(
        None,
        "The model that answers questions from the retrieved memories; by default --model. A"
        " system that answers by itself needs none.",
        group="Models",
    )
    users: int | None = option(
        None,
        "The most users to measure, the first ones; default: all.",
        group="Data",
        ge=1,
        identity=False,
    )
    sessions: int | None = option(
        None,
        "The most sessions of each user, the first ones; default: all.",
        group="Data",
        ge=1,
    )
    seed: int = option(
        0, "The seed of the model's judgements and answers, and of the bootstrap.", group="Judging"
    )
    fresh: str = option(
        "",
        "Any text; another text makes a new run, which feeds all sessions again and repeats all"
        " calls.",
    )

    def salt(self, described: Mapping[str, Any]) -> str:
        return self.fresh

    @property
    def system_name(self) -> str:
        """The name of the memory system in the journal keys of its operations."""
        return self.system.removeprefix(OWN)


def ask(spec: MemoryEvaluationSpec) -> Asks:
    judges = () if spec.judge is None else (spec.judge,)
    models = () if spec.answer_model is None else (spec.answer_model,)
    code = (spec.system,) if names_code(spec.system) else ()
    return Asks(judges, models, writes=True, prompts=evaluation_prompts(), code=code)


async def describe(
    spec: MemoryEvaluationSpec, settings: Settings, objects: dict[str, object]
) -> Mapping[str, Any]:
    """Return the name of the memory system, which may include its configuration, and its
    capabilities (not for recorded results), with the models that it and the answers use."""
    described: dict[str, Any] = {}
    if spec.answer_model is not None:
        described["answer_model"], _ = await choose_model(settings, spec.answer_model, asks=False)
    if names_own(spec.system):
        plan = read_own(spec.system)
        if plan.model is not None:
            described["system_model"], _ = await choose_model(settings, plan.model, asks=False)
        embedder = plan.embedder or settings.embedder
        described["textevolve"] = {"embedder": embedder, "prompts": creation_prompts()}
        described |= {"system": spec.system.strip(), "capabilities": asdict(CAPABILITIES)}
    elif spec.system != RECORDED:
        system = _open_system(spec, settings, objects)
        objects[OPENED] = system
        described |= {"system": system.name, "capabilities": asdict(system.capabilities)}

    return described


def _open_system(
    spec: MemoryEvaluationSpec, settings: Settings, objects: Mapping[str, object]
) -> MemorySystem:
    if not spec.system.startswith(OWN):
        return open_system(spec.system, settings)
    return Adapted(
        load_user_object(spec.system, objects), spec.system_name, settings.timeouts.deadline
    )


def read_cases(spec: MemoryEvaluationSpec) -> Iterator[Case]:
    """Yield a case for each user of the data. Its input is the hash of the user's line, which the
    run reads again and checks."""
    survey = Survey()
    for line in read_data(spec.data, spec.users, spec.sessions):
        survey.note(line)
        if isinstance(line, User):
            yield Case(line.sha256, (), line.id)

    if spec.system == RECORDED:
        survey.check_recorded(spec.data)


def _survey(spec: MemoryEvaluationSpec, hashes: Mapping[str, str]) -> Survey:
    """Count the users with these hashes, with their sessions and questions, and the malformed lines
    of the data."""
    survey = Survey()
    for line in read_data(spec.data, spec.users, spec.sessions):
        if isinstance(line, Malformed) or line.id in hashes:
            survey.note(line)
    return survey


def _users(spec: MemoryEvaluationSpec, hashes: Mapping[str, str]) -> Iterator[tuple[int, User]]:
    """Yield the users of a run with their numbers. `hashes`: the hash of each user's line, by id.

    Raises:
        InputError: the data of a user has changed since the run was started.
    """
    lines = read_data(spec.data, None, spec.sessions)
    users = (line for line in lines if isinstance(line, User))

    for number, (name, sha256) in enumerate(hashes.items(), 1):
        user = next((user for user in users if user.id == name), None)
        if user is None or user.sha256 != sha256:
            raise InputError(
                f"{spec.data}: has changed since the run was started; start a new run with the"
                " same command"
            )

        yield number, user


async def run(
    spec: MemoryEvaluationSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[EvaluationRecord]:
    """Yield the scope of the data and its malformed lines, then judgements and times in the order
    in which they are finished."""
    hashes = {case.id: case.input for case in cases}
    survey = _survey(spec, hashes)
    can = None if spec.system == RECORDED else Capabilities(**bench.described["capabilities"])
    unmeasured = find_unmeasured(survey, can)
    if can is not None and unmeasured.get("accuracy") == NO_POINTS:
        can = replace(can, extracts=False)
    expected = survey.planned(spec.system) + survey.sessions + len(survey.malformed) + 1
    bench.listener(RecordsExpected(expected))
    yield Scope(survey.users, survey.sessions, unmeasured, bench.run.rpartition("-")[0])
    for line in survey.malformed:
        yield line
    async with AsyncExitStack() as stack:
        system = None if can is None else _system_of(spec, bench)
        if system is not None:
            stack.push_async_callback(_close_system, system)
        judge = spec.judge and bench.whole_judge_of(spec.judge)
        answering = bench.described.get("answer_model", bench.default_model)
        stages = Stages(
            bench=bench,
            survey=survey,
            # Another content of its code is another system, whose operations are done anew.
            name=spec.system_name + bench.described.get("code", {}).get(spec.system, ""),
            can=can,
            system=system,
            judge=judge or None,
            answering=bench.model_of(answering),
            seed=spec.seed,
            expected=expected,
        )
        stream = pipe(
            _users(spec, hashes),
            stages.produce,
            stages.settle,
            source_concurrency=min(USERS_IN_FLIGHT, bench.concurrency),
            concurrency=bench.concurrency,
        )
        async with aclosing(stream) as done:
            async for record in done:
                yield record


def _system_of(spec: MemoryEvaluationSpec, bench: Workbench) -> MemorySystem | None:
    """Open the memory system; None in a replay, and in an estimate if the system would cost
    something."""
    is_baseline = spec.system.partition(":")[0] in BASELINES
    if bench.is_replay or (bench.is_rehearsal and not is_baseline):
        return None
    if names_own(spec.system):
        return open_own(spec.system, bench)
    opened = cast("MemorySystem | None", bench.objects.get(OPENED))

    return opened or _open_system(spec, bench.settings, bench.objects)


async def _close_system(system: MemorySystem) -> None:
    """Close a memory system. An error is only logged, since all judgements are made by then."""
    try:
        await system.aclose()
    except Exception as error:  # noqa: BLE001  it is logged, and nothing depends on it
        reason = one_line(describe_error(error))
        log.warning("%s: cannot be closed: %s", system.name, reason)


def find_row(record: EvaluationRecord) -> Row:
    """Return the store columns of a record. The case of a judgement is its user. A judged point has
    the same key in every attempt, so that a repeated judgement replaces a failed one."""
    match record:
        case Scope():
            return Row("data", -1)
        case Malformed():
            return Row(
                f"line {record.line}",
                -1,
                status="failed",
                reason=f"skipped, not a user: {record.reason}",
            )
        case SessionTimes():
            status = "skipped" if record.stopped else "scored"
            return Row(
                f"{record.user}/{record.session + 1:03}",
                case=record.user,
                status=status,
                reason=record.stopped,
            )
        case MemoryJudgement():
            subject = record.subject
            kind = {"accuracy": "memory", "question": "question"}.get(subject.task, "point")
            return Row(
                f"{subject.user}/{subject.session + 1:03}/{kind}/{subject.item:03}",
                case=subject.user,
                score=score_of(record),
                status=record_status(record.outcome),
                reason=record.outcome.reason,
            )


_RECORDS: Mapping[str, type[EvaluationRecord]] = {
    "Judgement": MemoryJudgement,
    "SessionTimes": SessionTimes,
    "Scope": Scope,
    "Malformed": Malformed,
}
"""The types of records by their names in stores, which do not change if a class is renamed."""
_NAMES = {kind: name for name, kind in _RECORDS.items()}
_CODECS: Mapping[str, TypeAdapter[Any]] = map_values(TypeAdapter, _RECORDS)


def encode(record: EvaluationRecord) -> bytes:
    return write_json({_NAMES[type(record)]: record})


def decode(body: bytes) -> EvaluationRecord:
    ((name, fields),) = from_json(body).items()
    return _CODECS[name].validate_python(fields)


def flatten(record: EvaluationRecord) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each judgement."""
    if isinstance(record, MemoryJudgement):
        yield to_row(record)


def data(spec: MemoryEvaluationSpec, evaluation: MemoryEvaluation) -> Mapping[str, Any]:
    """Return all data except the judgements."""
    labels: dict[str, dict[str, int]] = {}
    for (task, label), number in evaluation.labels.items():
        labels.setdefault(task, {})[str(label)] = number
    return {
        "parameters": spec.model_dump(mode="json"),
        "whole": evaluation.complete,
        "sessions": evaluation.scope.sessions,
        "malformed": list(map(asdict, evaluation.malformed)),
        "judgements": evaluation.counts,
        "labels": labels,
        "failures": [
            {"task": task, "reason": reason, "number": number}
            for task, reason, number in evaluation.failures
        ],
        "not_measured": evaluation.scope.not_measured,
        **metrics_to_json(evaluation.metrics),
        **drop_empty({"token_f1": evaluation.published_f1}),
        "usage": asdict(evaluation.usage),
    }


def summarise(spec: MemoryEvaluationSpec, records: Iterable[EvaluationRecord]) -> MemoryEvaluation:
    return collect(records, spec.seed)


NAMESPACE = "memory-eval"
FOLDER = "memory-eval"


def open_own(spec: str, bench: Workbench) -> TextEvolveSystem:
    """Open this package's memory system for a run, which gives the models. `spec`: its options, as
    `textevolve:NAME=VALUE,NAME=VALUE`. Its memories are in a store of their own beside the run's.

    Raises:
        InputError: an option cannot be used.
    """
    plan = read_own(spec)
    embedder = bench.described["textevolve"]["embedder"]
    folder = folder_beside(bench.settings.store) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    resources = Store(str(folder / f"{bench.run}.db"))
    opened: dict[str, str] = {}
    opening = asyncio.Lock()

    async def open_memories(user: str) -> tuple[MemoryStore, str]:
        async with opening:
            if user not in opened:
                opened[user] = await _create(resources, embedder, user, bench)
        return resources.memories(NAMESPACE), opened[user]

    model = bench.model if plan.model is None else bench.model_of(plan.model)

    return TextEvolveSystem(spec.strip(), plan, open_memories, bench.embed, model, resources.close)


async def _create(resources: Store, embedder: str, user: str, bench: Workbench) -> str:
    """Return the collection of a user, created if it does not exist."""
    name = f"user-{text_hash(user)[:24]}"

    def find() -> bool:
        resources.ensure_namespace(NAMESPACE)
        collections = resources.read(kinds.list_all, kinds.COLLECTIONS, NAMESPACE)
        return any(collection.name == name for collection in collections)

    if not await asyncio.to_thread(find):
        dimension = len(await embed(bench.model_of(embedder), "How many numbers?"))
        collection_spec = CollectionSpec(name=name, embedder=embedder, dimension=dimension)
        await asyncio.to_thread(
            resources.write, kinds.create, kinds.COLLECTIONS, NAMESPACE, collection_spec
        )

    return name


@dataclass
class Stages:
    """The two concurrent stages of a run: one feeds the memory system, the other judges its
    memories and answers.

    Attributes:
        survey: The counts of the data set.
        name: The name of the memory system.
        can: The system's capabilities; None if results were recorded earlier.
        system: The memory system; None for recorded results, in a replay, and if an estimate uses a
            made-up system.
        judge: The user's judge; None if a structured call of the model makes each judgement.
        answering: The model that answers questions from memories.
        expected: The number of records, as far as it is known.
        health: The count of the system's operations that failed in a row.
        stopped: Set when a limit is reached, so that nothing more is fed.
    """

    bench: Workbench
    survey: Survey
    name: str
    can: Capabilities | None
    system: MemorySystem | None
    judge: Evaluator | None
    answering: Model
    seed: int
    expected: int
    health: Health = field(default_factory=Health)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def produce(self, numbered: tuple[int, User]) -> AsyncGenerator[PieceToJudge]:
        """Feed a user's dialogues to the system, and yield what is to be judged. It ends when a
        limit is reached, and in a replay where the journal ends."""
        number, user = numbered
        pieces = self._read(user) if self.can is None else self._feed(user, number, self.can)

        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    if self.stopped.is_set():
                        return
                    yield piece
            except BudgetError:
                return

    async def _read(self, user: User) -> AsyncGenerator[PieceToJudge]:
        for piece in read_recorded(user, self.survey):
            yield piece

    async def _feed(
        self, user: User, number: int, can: Capabilities
    ) -> AsyncGenerator[PieceToJudge]:
        bench = self.bench
        key = f"{self.bench.run}-{number}"
        system = self.system or RehearsedSystem(user, can)
        instance = await open_instance(system, self.name, user, key, bench.journal, self.health)

        async with aclosing(feed(user, key, can, bench.keep(instance))) as pieces:
            async for piece in pieces:
                if isinstance(piece, SessionTimes):
                    self.expected += piece.judgements - count_planned(user.sessions[piece.session])
                    bench.listener(RecordsExpected(self.expected))
                yield piece

    async def settle(self, piece: PieceToJudge) -> EvaluationRecord:
        """Judge one piece, such as a memory, and return its record; a question is answered first.
        The times of a session are a record already, and are not judged."""
        if isinstance(piece, SessionTimes):
            if piece.stopped:
                self.stopped.set()
            return piece

        if isinstance(piece, Subject):
            judgement = await self._judge(piece)
        else:
            metered = UsageMeter(self.answering)
            answer = await self._answer(piece, metered)
            judgement = await self._judge(with_answer(piece.subject, answer))
            judgement = replace(judgement, usage=judgement.usage + metered.usage)

        skipped = isinstance(judgement.outcome, Failure) and judgement.outcome.kind == "skipped"
        if skipped and not self.bench.is_replay:
            self.stopped.set()

        return clip_texts(judgement)

    async def _answer(self, piece: Unanswered, model: Model) -> str | Failure:
        question = piece.subject.texts["question"]
        try:
            self.bench.require_time()
            answer = await answer_question(model, question, piece.memories, seed=self.seed)
        except FatalModelError:
            raise
        except (ModelError, BudgetError) as error:
            return replace(failure_of(error), reason=f"no answer to judge: {error}")

        return answer.text

    async def _judge(self, subject: Subject) -> MemoryJudgement:
        try:
            self.bench.require_time()
            if self.judge is not None:
                return await judge_by_evaluator(self.judge, subject)
            return await judge_subject(self.bench.model, subject, seed=self.seed)
        except (BudgetError, InputError) as error:  # a limit; a text that it cannot be given
            return MemoryJudgement(subject, failure_of(error))


STUDY = Study(
    spec=MemoryEvaluationSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    describe=describe,
)
