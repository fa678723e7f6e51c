"""The driver of all studies: it registers runs in the store, performs, resumes and finishes them,
and restores their records.

The journal, which stores every answer of a model by its request, is the only checkpoint: a resumed
run starts from the beginning and makes only the missing calls. Reports read the stored records, or
restore them from the journal without a model. The driver does not depend on any particular kind of
study.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from textevolve.agents.resources import split_name
from textevolve.debate.context import memory_prompts
from textevolve.engine import sync
from textevolve.errors import BusyError, InputError, MismatchError
from textevolve.evaluation import Case, Usage, empty_default
from textevolve.events import CallFinished, Listener, UsageListener, silence
from textevolve.judges.plain import OwnJudge
from textevolve.labelling.tasks import item_rows
from textevolve.ledger import collect_notes, log
from textevolve.llm.batches.ledger import check_takes_batches
from textevolve.llm.catalogue import find_missing_package
from textevolve.llm.prices import sources_of_prices
from textevolve.llm.providers import identify_address
from textevolve.llm.wrappers import Salted, replay_models
from textevolve.mappings import drop_empty, pick, read_fields
from textevolve.memory_snapshots import RowPins, pin_agents, pin_collections, pin_ranking
from textevolve.reach import allow_namespace, also_reach
from textevolve.rows.formats import write_rows
from textevolve.runs.chains import describe_chains
from textevolve.runs.cluster import check_spread, spread_cases, spread_run
from textevolve.runs.identity import (
    Fingerprint,
    describe_code,
    identify_case,
    identify_earlier,
    identify_run,
)
from textevolve.runs.stored import (
    RecordKeeper,
    StoredSpec,
    StudyRun,
    explain_differences,
    find_moved,
    models_asked,
    read_spec,
)
from textevolve.runs.study import AnyStudy, Asks, Study, StudySpec, find_study
from textevolve.settings import Settings, today
from textevolve.spec import files_read, option_properties
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.tracing.opening import open_tracing
from textevolve.wiring import Halt, Limits, Mode, Setting, choose_model, never, open_workbench

S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
LABELLING = "labelling:"
"""The beginning of a name that stands for a labelling task instead of a file."""
BUSY_SECONDS = 1.0
"""The seconds between two looks at a run on which another process works."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The options with which a run is started. They are not part of its identity, so another launch
    resumes the same run.

    Attributes:
        source: The caller, such as the command line.
        time_limit: The longest time in seconds; None: no limit.
        objects: The user's Python objects, by their names in the specification.
        ordered: Whether records come in the order of the cases; if not, they come as they are
            finished.
        ends: Whether all records are read without delay, so that other callers may wait for the
            same run.
        halt: A function that is called before each model call. If it returns a reason, the run
            stops as it does at a limit.
    """

    name: str = ""
    source: str = ""
    limits: Limits = Limits()
    time_limit: float | None = None
    listener: Listener = silence
    objects: Mapping[str, object] = empty_default(dict)
    ordered: bool = True
    ends: bool = True
    halt: Halt = never

    def __post_init__(self) -> None:
        if self.time_limit is not None and not 0 <= self.time_limit < float("inf"):
            raise InputError(f"the time limit must be 0 or more seconds, not {self.time_limit}")


async def specify(
    study: Study[S, R, Any],
    spec: S,
    settings: Settings,
    objects: dict[str, object] | None = None,
    *,
    asks_models: bool = True,
) -> StoredSpec:
    """Return the stored form of a specification, completed with everything that it leaves open: the
    model, the content of the judges' files, the date. `objects`: the user's Python objects by name,
    to which a study may add objects that it opens. `asks_models`: False for an estimate, which
    needs no keys.

    Raises:
        InputError: a judge cannot be used. SettingsError: the model is not available.
        CapabilityError: models or memories cannot be used on the cluster of the settings.
    """
    spec = study.complete(spec, settings)
    asks = study.asks(spec)
    objects = {} if objects is None else objects
    if len({judge.text for judge in asks.judges}) < len(asks.judges):
        raise InputError("a judge is named twice; to compare a judge with itself give it two seeds")
    for judge in asks.judges:
        for leaf in judge.leaves():
            if isinstance(leaf, OwnJudge):
                leaf.load(objects)  # refused before a run is stored
    if spec.model is not None and spec.plain_model is None and spec.model not in asks.chains:
        raise InputError(
            f"--model {spec.model}: a chain writes texts, and {study.kind} needs a model that"
            " judges; optimize, calibrate, compare and `run chains run` take chains"
        )
    chains = describe_chains(asks.chains, objects) if asks.chains else {}
    of_chains: list[str] = []
    for facts in chains.values():
        of_chains += facts["models"]

    # The run's own model is chosen only if something may call it: a study whose judges all name
    # their models needs none, and must not fail for lack of one.
    default_model = spec.plain_model or next(iter(of_chains), None)
    of_judges = [model for judge in asks.judges for model in judge.models(default_model)]
    further_model = next((model for model in (*of_judges, *asks.models) if model), None)
    by_default = any(facts["default"] for facts in chains.values())
    needs_own = asks.writes or None in of_judges or by_default
    perhaps_asked = any(facts["may_ask"] for facts in chains.values())
    perhaps_asked |= any(judge.may_ask for judge in asks.judges)
    has_model = further_model or (perhaps_asked and (default_model or settings.model))
    model = ""
    reason = ""
    if needs_own or has_model:
        chosen = default_model if needs_own else default_model or further_model
        model, reason = await choose_model(settings, chosen, asks=asks_models)

    # Agents and memories are pinned to the versions of this moment, so that a resumed run reads
    # what it was started with although they have changed since.
    described = dict(await study.describe(spec, settings, objects)) if study.describe else {}
    profiles = [profile for judge in asks.judges for profile in judge.profiles]
    names = [*asks.agents, *(name for profile in profiles for name in profile.stored_agents)]
    agents = await pin_agents(names, settings) if names else {}
    if agents:
        described["agents"] = {name: each.model_dump(mode="json") for name, each in agents.items()}
    recalled = [n for each in agents.values() if each.memory for n in each.memory.collections]
    if collections := (*_collections(asks), *recalled):
        pinned = await pin_collections(collections, settings)
        described["collections"] = {**described.get("collections", {}), **pinned}
        described |= pin_ranking(settings)
    if chains:
        described["chains"] = chains

    # Each further model is looked up now, so that a wrong name fails before anything is paid.
    of_agents = (agent.model for agent in agents.values() if agent.model)
    for further in (*asks.models, *of_chains, *of_agents):
        await choose_model(settings, further, asks=asks_models)
    stored = StoredSpec(
        kind=study.kind,
        spec=spec.model_dump(mode="json", exclude_defaults=True),
        model=model,
        why=reason,
        today=today(),
        described=described,
        **_read_inputs(asks, described, objects),
    )

    models = models_asked(asks, stored)
    if not asks_models:
        # An estimate opens no model, so it would not notice that the run cannot start.
        for missing in filter(None, map(find_missing_package, models)):
            log.warning(missing)
    if settings.batch:
        check_takes_batches(models, settings)
    if settings.on not in (None, "none"):
        check_spread(study, settings, models, described)

    addresses = drop_empty({model: identify_address(model, settings) for model in models})
    prices = sources_of_prices(models, settings)

    return stored.model_copy(update={"prices": prices, "addresses": addresses})


def _collections(asks: Asks) -> tuple[str, ...]:
    """Return the collections of memories that the agents of debates recall from."""
    names = dict.fromkeys(asks.collections)
    for judge in asks.judges:
        for profile in judge.profiles:
            names |= dict.fromkeys(profile.collections)

    return tuple(names)


def _read_inputs(
    asks: Asks, described: Mapping[str, Any], objects: Mapping[str, object]
) -> dict[str, Any]:
    """Return three fields of `StoredSpec`: `judges`, the content of the judges' files, `prompts`,
    the versions of all prompts that the run may use, and `code`, the content of the user's."""
    of_agents = any(agent["memory"] for agent in described.get("agents", {}).values())
    of_rows = FROM_ROWS in described and described.get("collections")
    judges: dict[str, Any] = {}
    prompts = dict(asks.prompts)
    for judge in asks.judges:
        prompts |= judge.prompts
        if content := judge.describe():
            judges[judge.text] = content
    if of_agents or of_rows or _collections(asks):
        prompts |= memory_prompts()

    return {
        "judges": judges,
        "prompts": prompts,
        "code": describe_code(asks, objects),
    }


def read_cases(study: Study[S, R, Any], spec: S, settings: Settings) -> Iterable[Case]:
    """Read the cases that a specification names, one after the other: those of its files, or the
    labels of a labelling task.

    Raises:
        InputError: the specification names nothing that can be read, or a task without labels.
    """
    tasks = [name for name in files_read(spec) if name.startswith(LABELLING)]
    if not tasks:
        return study.cases(spec)
    with TemporaryDirectory(prefix="textevolve-labels-") as folder:
        files = {name: _write_labels(name, settings, Path(folder)) for name in tasks}
        changed: dict[str, Any] = {}
        for name, field in type(spec).model_fields.items():
            if option_properties(field).get("reads"):
                value = getattr(spec, name)
                changed[name] = files.get(value, value)
                if isinstance(value, tuple):
                    changed[name] = tuple(
                        files.get(each, each) for each in cast("tuple[str, ...]", value)
                    )

        with also_reach(*files.values()):
            return list(study.cases(spec.model_copy(update=changed)))


def _write_labels(task_name: str, settings: Settings, folder: Path) -> str:
    """Write the labels of a task to a file, and return its path."""
    space, name = split_name(task_name.removeprefix(LABELLING), settings.namespace)
    allow_namespace(space)
    with closing(Store(settings.memory_location)) as resources:
        task = resources.read(stored_labels.find_task, space, name)
        items, labels = resources.read(stored_labels.read_task, task.id)
    rows = list(item_rows(task.spec, items, labels))
    if not rows:
        raise InputError(f"{task_name}: nobody has labelled anything yet")
    path = folder / f"{space}-{name}.jsonl"
    with path.open("wb") as target:
        write_rows(lambda: rows, target, ".jsonl")

    return str(path)


@dataclass(frozen=True)
class RunPlan:
    """A run that is about to begin, with all that its specification leaves open.

    Attributes:
        spec: The specification as it was given.
        stored: The complete specification, in the form that is stored with the run.
        cases: The cases; None: those that the specification names.
        launch: The options of the launch, with the objects that the study opened for its run.
    """

    study: AnyStudy
    spec: StudySpec
    settings: Settings
    stored: StoredSpec
    cases: Iterable[Case] | None
    launch: Launch

    def register(self, store: Store) -> StudyRun:
        """Return the stored run with this specification and these cases, or store a new one.

        The cases are copied to the store one after the other, and are not held in memory.
        """
        stored = self.stored
        if moved := find_moved(store, stored.addresses):
            described = {**stored.described, "addresses": moved}
            stored = stored.model_copy(update={"described": described})
        spec = read_spec(self.study, stored)
        asks = self.study.asks(spec)
        identity = identify_run(stored, spec)
        fingerprint = Fingerprint(identity, identify_earlier(identity, asks))
        reads = self.study.reads(spec)
        cases = self.cases
        if cases is None:
            cases = read_cases(self.study, self.spec, self.settings)

        row_pins = RowPins()

        def noted() -> Iterator[Case]:
            for case in cases:
                fingerprint.add(identify_case(reads(case)))
                if "agents" in case.parameters:
                    row_pins.add(case)
                yield case

        draft = store.create_run(
            stored.model_dump(mode="json"),
            f"draft-{secrets.token_hex(16)}",
            self.launch.name,
            self.launch.source,
        )

        try:
            with collect_notes() as notes:
                store.add_cases(draft.id, noted())
                for judge in asks.judges:
                    judge.note_levels(asks.rubric)
            for line in notes:  # the command line shows them at the end of the run
                log.warning(line, extra={"at_end": True})
            if row_pins.agents or row_pins.collections:
                pins = row_pins.pin(self.settings)
                fingerprint.add({**pins, **pin_ranking(self.settings)})
                stored = self._with_pins(stored, asks, pins)
                store.respecify(draft.id, stored.model_dump(mode="json"))
            record = store.settle_run(
                draft.id, *(digest.hexdigest() for digest in fingerprint.hashes)
            )
            run = StudyRun(_bring_up(store, record, stored, tuple(notes)))
            run.is_new = record.id == draft.id
        except BaseException:
            store.delete_run(draft.id)
            raise

        run.spec = spec
        run.asks = asks

        return run

    def _with_pins(self, stored: StoredSpec, asks: Asks, pins: Mapping[str, Any]) -> StoredSpec:
        """Return the stored specification with the agents and collections that rows name."""
        described: dict[str, Any] = {**stored.described, FROM_ROWS: True}
        for name, versions in pins.items():
            described[name] = {**described.get(name, {}), **versions}
        described |= pin_ranking(self.settings)
        inputs = _read_inputs(asks, described, self.launch.objects)

        return stored.model_copy(update={"described": described, **inputs})


async def plan_run(
    spec: StudySpec,
    settings: Settings,
    launch: Launch = Launch(),
    cases: Iterable[Case] | None = None,
    *,
    home: str = "",
    owner: str = "",
    fresh: str = "",
    asks_models: bool = True,
) -> RunPlan:
    """Plan the run of a specification: every way of starting a study begins with it.

    `cases`: the cases to run it on; None: those that the specification names. `home`: the namespace
    in which runs need no mark; a run in another namespace is another run, even of the same study.
    `owner`: the id of that other namespace, since a later one may get its name.
    `fresh`: a text that makes all calls of the run anew. `asks_models`: False for an estimate,
    which needs no keys.

    Raises:
        InputError, SettingsError, CapabilityError: as in `specify`.
    """
    study = find_study(spec.kind)
    objects = dict(launch.objects)
    stored = await specify(study, spec, settings, objects, asks_models=asks_models)
    changes: dict[str, Any] = {"fresh": fresh} if fresh else {}
    if home and settings.namespace != home:
        mark = drop_empty({"namespace": settings.namespace, "namespace_id": owner})
        changes["described"] = {**stored.described, **mark}
    stored = stored.model_copy(update=changes)

    return RunPlan(study, spec, settings, stored, cases, replace(launch, objects=objects))


FROM_ROWS = "from_rows"
"""The field of a run's description that says that rows name stored agents or collections."""
FACTS = {"spec", "judges", "described", "code", "addresses"}
"""The fields of a stored run that may be written anew: names of files, and what earlier versions
did not store."""


def _bring_up(
    store: Store, run: RunRecord, stored: StoredSpec, left_out: Sequence[str]
) -> RunRecord:
    """Update a stored run whose files were renamed, whose prices come from another source, or whose
    files now have other things that are left out."""
    stored_sources = run.spec.get("prices", [])
    # Their contents are equal, since the fingerprints are, but names of files may be others.
    changed = stored.model_dump(mode="json", include=FACTS)
    changed["prices"] = [
        *stored_sources,
        *(source for source in stored.prices if source not in stored_sources),
    ]
    changed["left_out"] = list(left_out)
    same = all(run.spec.get(name, type(value)()) == value for name, value in changed.items())

    return run if same else store.respecify(run.id, changed)


def require_unchanged(
    run: StudyRun, objects: Mapping[str, object], action: str = "resumed"
) -> None:
    """Check that prompts, chains, judges' files and the user's code are the same as when the run
    was started.

    Raises:
        MismatchError: some of them have changed; names the differences, and says by `action` what
            cannot be done with the run.
    """
    stored = run.stored
    asks = run.asks
    before: dict[str, Any] = {"judges": dict(stored.judges)}
    now = _read_inputs(asks, stored.described, objects)
    # An object of a Python program cannot be compared where it was not passed.
    shared = now["code"].keys() & stored.code.keys()
    before["code"] = pick(stored.code, shared)
    now["code"] = pick(now["code"], shared)
    # Runs of earlier versions name prompts that they do not use, or none of their judges'.
    of_judges: set[str] = set()
    for judge in asks.judges:
        of_judges |= judge.prompts.keys() - asks.prompts.keys()
    if of_judges.isdisjoint(stored.prompts):
        now["prompts"] = pick(now["prompts"], now["prompts"].keys() - of_judges)
    before["prompts"] = pick(stored.prompts, now["prompts"])
    if asks.chains:
        before["chains"] = stored.described.get("chains", {})
        now["chains"] = describe_chains(asks.chains, objects)
    if text := explain_differences(before, now):
        raise MismatchError(
            f"run {run.id} cannot be {action}: {text}; start a new run instead, or resume it with"
            " the options, files and version of TextEvolve that it was started with"
        )


async def perform(
    store: Store, run: StudyRun, settings: Settings, launch: Launch = Launch()
) -> AsyncGenerator[Any]:
    """Perform the missing part of a run: yield its records as they come, and store each of them.

    Raises:
        InputError: a Python object that the specification names is missing.
        FatalModelError: no call can succeed; all answers so far are stored.
        StoreError: the store cannot be written, or another process works on this run.
    """
    study = run.study

    async with hold(store, run.id, ends=launch.ends):
        if not run.is_new:  # the inputs of a new run have just been read
            require_unchanged(run, launch.objects)
        keeper = RecordKeeper(study, store, run.id)
        answers = Usage()

        def hear(event: CallFinished) -> None:
            nonlocal answers  # those of the journal count too: a resumed run hears of all
            answers += event.usage

        listener = UsageListener(hear, launch.listener)
        work = _work(store, run, settings, replace(launch, listener=listener))
        name = run.record.name
        facts = {"study": study.kind, "run_id": run.id, "run_name": name or None}
        work = open_tracing(settings).follow(f"{study.kind} {name or run.id}", facts, work)

        try:
            async with aclosing(work) as records:
                async for record in records:
                    await keeper.add(record)
                    yield record
        finally:
            await keeper.flush()
            # Kept also when the run breaks off, since its report says which answers are estimates.
            parts = read_fields(answers, "estimated", "models", "cut_prompts")
            facts_of_answers = drop_empty(parts)
            if facts_of_answers != run.stored.answers:
                store.respecify(run.id, {"answers": facts_of_answers})

        store.finish_run(run.id, "interrupted" if keeper.skipped else "finished")


async def work_alone(store: Store, run_id: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do some work on a run as soon as no other process works on it, such as one that is about to
    stop."""
    while True:
        run = await asyncio.to_thread(store.get_run, run_id)
        if run.status != "running":
            with suppress(BusyError):  # another process was faster
                return await work()
        await asyncio.sleep(BUSY_SECONDS)


async def _work(
    store: Store, run: StudyRun, settings: Settings, launch: Launch, mode: Mode = "live"
) -> AsyncGenerator[Any]:
    """Yield the records of a run, which is performed in this process or on a cluster, or replayed
    from its journal."""
    study = run.study
    stored = run.stored
    spec = run.spec
    answers = store.journal(run.id)
    cases = store.iterate_cases(run.id)
    setting = Setting(
        default_model=stored.model,
        models=run.models,
        today=stored.today,
        objects=launch.objects,
        time_limit=launch.time_limit,
        run=f"{run.id}-{run.record.fingerprint[:8]}",
        described=stored.world,
        mode=mode,
        ordered=launch.ordered,
    )
    salt = spec.salt(stored.described) + stored.fresh
    journal = Salted(answers, salt) if salt else answers
    models = None
    batches = None

    if mode == "replay":
        models = replay_models(journal, answers.errors, stored.described.get("addresses", {}))
    else:
        batches = store.batches(run.id)
        if settings.batch:
            check_takes_batches(setting.models, settings)
        if settings.on not in (None, "none") and study.independent:
            # A node reads the specification itself, with its own code.
            at_node = StudyRun(run.record)
            check = partial(require_unchanged, at_node, action="worked on at a node")
            spread = spread_run(run, setting, settings, launch, salt=salt, check=check)
            async with aclosing(spread_cases(spread, cases, answers, launch)) as records:
                async for record in records:
                    yield record
            return

        # Jobs of an earlier start are collected even if this one sends single calls.
        if not (settings.batch or batches.all_open()):
            batches = None

    opened = open_workbench(
        setting,
        settings,
        journal,
        launch.limits,
        launch.listener,
        models=models,
        halt=launch.halt,
        batches=batches,
    )

    async with opened as bench, aclosing(study.run(spec, cases, bench)) as records:
        async for record in records:
            yield record


def replay(
    store: Store, run: StudyRun, settings: Settings, launch: Launch = Launch()
) -> AsyncGenerator[Any]:
    """Compute the records of a run again from the answers in the journal, without a model call.

    Raises:
        MismatchError: the prompts have changed, so the journal has no answers to them.
    """
    require_unchanged(run, launch.objects, "shown")

    return _work(store, run, settings, launch, "replay")


async def restore_records(store: Store, run: StudyRun, settings: Settings) -> str:
    """Restore a run's records from its journal, if the run was stopped before all of them were
    stored, or if they were lost. A run that is being performed is left alone. If records cannot be
    restored, for instance because prompts have changed, those in the store stay, and the reason is
    returned; the result is empty otherwise.

    Raises:
        MismatchError, InputError: the records cannot be restored, and none are stored.
    """
    has_records = bool(store.count_records(run.id))
    status = run.record.status
    complete = status == "finished" and has_records
    if complete or status == "running" or not store.has_journal:
        return ""
    if has_records and store.has_erased(run.id):
        return f"run {run.id}: some of its answers were erased"
    keeper = RecordKeeper(run.study, store, run.id)

    try:
        records = replay(store, run, settings)
        first_record = await anext(records, None)
    except (InputError, MismatchError) as error:
        if not has_records:
            raise
        return str(error)

    async with aclosing(records):
        store.drop_records(run.id)
        if first_record is not None:
            await keeper.add(first_record)
        async for record in records:
            await keeper.add(record)

    await keeper.flush()

    return ""


@dataclass(frozen=True)
class _RunShare:
    """The work of one caller on a run in this process. `done` ends the wait of other callers."""

    loop: asyncio.AbstractEventLoop
    done: Future[None] = field(default_factory=Future[None])


_turns: dict[tuple[str, str], _RunShare] = {}
_guard = threading.Lock()


@asynccontextmanager
async def hold(store: Store, run_id: str, *, ends: bool = True) -> AsyncGenerator[None]:
    """Hold the lease of a run, which only one process may have, within the block. `ends`: whether
    the work ends by itself, so that other callers may wait for it; False for a caller that reads
    results one by one, and may never read them to the end.

    Raises:
        StoreError: the run is being performed by another process, or by a caller in this process
            that cannot be waited for.
    """
    key = store.place, run_id
    mine = _RunShare(asyncio.get_running_loop())

    while True:
        with _guard:
            other = _turns.setdefault(key, mine) if ends else _turns.get(key, mine)
        # Waiting for a loop that is blocked by this caller would never end.
        if other is mine or sync.is_blocked(other.loop):
            break
        await asyncio.shield(asyncio.wrap_future(other.done))

    try:
        with store.lease(run_id):
            yield
    finally:
        with _guard:
            if _turns.get(key) is mine:
                del _turns[key]
        mine.done.set_result(None)
