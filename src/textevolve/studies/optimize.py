"""Optimize (prompt optimisation's sibling for one text, self-refine): a text for a task, revised as
a judge asks, of which the best is kept.

The loop is in `textevolve.loops.optimization`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import model_validator
from pydantic_core import from_json

from textevolve.engine.local import stream
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, check_case
from textevolve.evaluators import check_absolute, with_model
from textevolve.events import Aside, Event, Listener, StepFinished, StepStarted
from textevolve.llm.model import Model
from textevolve.loops.attempt import Attempt, Generator, as_generator, prompts_version
from textevolve.loops.optimization import (
    DONE,
    ModelGenerator,
    Optimization,
    OptimizationContext,
    OptimizationPlan,
    StepImprover,
    composition_prompts,
    optimize_text,
)
from textevolve.reach import is_file
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Column,
    Diff,
    Note,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Utterance,
)
from textevolve.rows import SUFFIXES, names_rows, read_rows
from textevolve.rows.columns import find_roles, is_text_column
from textevolve.spans import span
from textevolve.spec import option
from textevolve.studies.case_rows import MappedSpec
from textevolve.studies.chained import ChainWriter, chains_among, open_chain_named, reject_rehearsal
from textevolve.studies.study import (
    Asks,
    RecordStatus,
    Row,
    Study,
    json_decoder,
    note_attempt,
    write_json,
)
from textevolve.user_code import OWN, load_function, own_object
from textevolve.wiring import Workbench

DEFAULT_JUDGE = "single"


class OptimizeSpec(OptimizationPlan, MappedSpec):
    """Write a text for a task, have it judged, revise it as the judge asks, and keep the best.

    Known elsewhere as self-refine, and best-of-n. For a file of tasks, each of them is optimised.
    """

    kind: ClassVar[str] = "optimize"

    task: str = option(
        description="The task, @FILE or -; or a file of rows with the column task.",
        argument=True,
        text="rows",
        identity=False,
    )
    judge: str = option(
        DEFAULT_JUDGE, "The judge, such as probe+rules.", short="-j", group="Judging"
    )
    second_judge: str | None = option(
        None, "A judge that scores too, and steers nothing.", group="Advanced"
    )
    judge_model: str | None = option(None, "The model for judges that name none.", group="Advanced")
    step_judge: Mapping[str, str] = option(
        {},
        "A judge for a step of the chain that --model names; a step that fails is revised before"
        " the next: draft=probe+rules.",
        group="Judging",
        metavar="STEP=JUDGE",
    )
    split: bool = option(
        False,
        "Split the task of a step that still fails into smaller ones, and join their results.",
        group="Advanced",
    )
    generator: str | None = option(
        None, "A function that writes attempts: FILE.py:FUNCTION.", group="Advanced"
    )

    @model_validator(mode="after")
    def _usable(self) -> OptimizeSpec:
        for judge in (*judges_of(self), *step_judges(self).values()):
            check_absolute(judge)
        if self.step_judge and not chains_among(self.model):
            raise InputError("--step-judge: --model names no chain, whose steps could be judged")
        if self.split and not self.step_judge:
            raise InputError("--split: only steps with a judge are split: --step-judge STEP=JUDGE")
        if self.generator is not None and not self.generator.startswith(OWN):
            load_function(self.generator, Path())
        return self


def judges_of(spec: OptimizeSpec) -> tuple[str, ...]:
    """The judge, and the second one if there is one."""
    named = [spec.judge] if spec.second_judge is None else [spec.judge, spec.second_judge]
    return tuple(with_model(judge, spec.judge_model) for judge in named)


def step_judges(spec: OptimizeSpec) -> dict[str, str]:
    """The judges of a chain's steps, by the names of steps."""
    return {step: with_model(judge, spec.judge_model) for step, judge in spec.step_judge.items()}


def ask(spec: OptimizeSpec) -> Asks:
    chains = chains_among(spec.model) if spec.generator is None else ()
    writes = spec.generator is None and not chains
    whole = judges_of(spec)
    of_steps = dict.fromkeys(judge for judge in step_judges(spec).values() if judge not in whole)
    prompts = {**prompts_version(), **(composition_prompts() if spec.split else {})}
    return Asks((*whole, *of_steps), writes=writes, prompts=prompts, chains=chains)


def read_cases(spec: OptimizeSpec) -> Iterator[Case]:
    """The task, or those of the file that is named: rows with `task` (or `input`) and an optional
    `id`.

    Raises:
        InputError: the file cannot be read, or a row has no task; names file and line.
    """
    if not _is_file(spec.task):
        yield task_case(spec.task)
        return
    ids = set[str]()
    for where, row in read_rows(spec.task, "task", _is_text, spec.map):
        named = ("task", *find_roles(tuple(row)).inputs)
        text, given = next((row[one] for one in named if one in row), None), row.get("id")
        if not isinstance(text, str):
            raise InputError(f"{where}: 'task' must be there, and a text")
        id = str(len(ids) + 1 if given in (None, "") else given)
        if id in ids:
            raise InputError(f"{spec.task}: two tasks have the id '{id}'; ids must differ")
        ids.add(id)
        yield task_case(text, id, where)
    if not ids:
        raise InputError(f"{spec.task}: no tasks: it is empty")


def _is_text(column: str) -> bool:
    return column == "task" or is_text_column(column)


def _is_file(task: str) -> bool:
    """Whether a file of tasks is meant: a name that ends like one and has no space, or exists."""
    try:
        if task.startswith("hf:"):
            return names_rows(task)
        ends = Path(task).suffix.lower() in SUFFIXES
        return ends and (not any(map(str.isspace, task)) or is_file(task))
    except (OSError, ValueError):
        return False


def task_case(task: str, id: str = "1", where: str = "the task") -> Case:
    """A task as a run keeps it: a case that has no candidates yet.

    Raises:
        InputError: it is blank, or no valid text.
    """
    try:
        check_case(Case(task, ("x",)))
    except InputError as error:
        raise InputError(f"{where}: {str(error).replace('the input', 'the task')}") from None
    return Case(task, (), id)


def run(
    spec: OptimizeSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Optimization]:
    """What became of each task, as they finish."""
    first = list(islice(source := iter(cases), 2))
    listener = bench.listener if len(first) < 2 else _ends_only(bench.listener)
    judge, *second = (bench.whole_judge_of(name) for name in judges_of(spec))

    async def work(placed: tuple[int, Case]) -> Optimization:
        position, case = placed
        context = OptimizationContext(
            generator=_open_generator(spec, bench, case.id, listener),
            evaluator=judge,
            second_judge=second[0] if second else None,
            time_limit=bench.seconds_left,
            listener=listener,
        )
        with span("case", f"case {case.id}"):
            return await optimize_text(case.input, spec, context, case.id, position)

    placed = enumerate(chain(first, source))
    return stream(placed, work, bench.concurrency, ordered=False)


def _ends_only(listener: Listener) -> Listener:
    """Of many tasks at once, only the ends are worth a line."""

    def hear(event: Event) -> None:
        if isinstance(event, StepStarted | StepFinished) and event.step != DONE:
            event = Aside(event)
        listener(event)

    return hear


def _open_generator(
    spec: OptimizeSpec, bench: Workbench, case: str, listener: Listener
) -> Generator:
    if spec.generator is not None and bench.mode == "rehearsed":
        return _write_nothing  # the user's own function may cost something
    if spec.generator is None:
        return ModelGenerator(
            _open_model(spec, bench, case, listener),
            temperature=spec.temperature,
            max_tokens=spec.max_answer_tokens,
            seed=spec.seed,
        )
    if spec.generator.startswith(OWN):
        return as_generator(cast("Generator", own_object(spec.generator, bench.objects)))
    return as_generator(load_function(spec.generator, Path()))


async def _write_nothing(task: str, **_given: Any) -> str:
    return task


def _open_model(spec: OptimizeSpec, bench: Workbench, case: str, listener: Listener) -> Model:
    """The model, or the chain that stands for one."""
    if spec.model is None or spec.plain_model is not None:
        return bench.model
    reject_rehearsal(spec.model, bench.mode)
    chain = open_chain_named(spec.model, bench.objects)
    for step in spec.step_judge:
        chain.template_of(step)
    judges = {step: bench.whole_judge_of(judge) for step, judge in step_judges(spec).items()}
    improve = StepImprover(judges, spec, spec.split, listener, case)
    return ChainWriter(chain, bench, improve if judges else None)


def find_row(made: Optimization) -> Row:
    status: RecordStatus = "failed" if made.score is None else "scored"
    if made.status == "budget":
        status = "skipped"
    judged = made.best.evaluation if made.best else None
    passed = judged.passed if isinstance(judged, EvaluationResult) else None
    return Row(made.id, made.position, made.id, made.score, status, made.reason, passed=passed)


def encode(made: Optimization) -> bytes:
    """The fields of the record, and what they amount to."""
    best = made.best
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    whole = {
        **fields,
        "score": made.score,
        "output": made.output,
        "best": best.iteration if best else None,
        "usage": made.usage,
    }
    return write_json(whole, "null")


def flatten(made: Optimization) -> Iterator[Mapping[str, Any]]:
    """A row for each task; its attempts are within."""
    yield cast("Mapping[str, Any]", from_json(encode(made)))


def data(_spec: OptimizeSpec, found: Sequence[Optimization]) -> Mapping[str, Any]:
    return {"tasks": [next(flatten(made)) for made in found]}


def write_text(_spec: OptimizeSpec, found: Sequence[Optimization]) -> str:
    """Write the best texts, one below the other."""
    texts = [made.output.rstrip() for made in found if made.output]
    return "\n\n".join(texts) + "\n" if texts else ""


def report(spec: OptimizeSpec, found: Sequence[Optimization]) -> Report:
    return make_report(spec, judges_of(spec), found)


STUDY = Study(
    aggregates=True,
    spec=OptimizeSpec,
    cases=read_cases,
    take=lambda _spec, tasks, _objects: map(task_case, tasks),
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=json_decoder(Optimization),
    summarise=lambda _spec, records: tuple(records),
    report=report,
    data=data,
    flat=flatten,
    note=note_attempt,
    texts={".txt": write_text},
    streams=True,
)


def make_report(
    plan: OptimizationPlan, judges: Sequence[str], found: Sequence[Optimization]
) -> Report:
    facts = {"Judge": ", beside it ".join(judges)}
    if len(found) == 1:
        (made,) = found
        return Report(wording.shorten(made.task, 120), _say_end(made), _draw(made), facts)
    reached = sum(made.status == "accepted" for made in found)
    sentence = f"{reached:,} of {len(found):,} tasks reached the threshold of {plan.threshold:g}."
    return Report(f"{len(found):,} tasks", sentence, _draw_all(found), facts)


def _say_end(made: Optimization) -> str:
    return f"Ended as {made.status}: {made.reason}"


def _draw_all(found: Sequence[Optimization]) -> Iterator[Block]:
    columns = (
        Column("task"),
        Column("ended"),
        Column("first", "score", 3),
        Column("best", "score", 3),
        Column("attempts", "count"),
        Column("tokens", "count"),
    )
    rows = [
        (
            wording.shorten(f"{made.id}  {made.task}", 60),
            made.status,
            made.attempts[0].score if made.attempts else None,
            made.score,
            len(made.attempts),
            made.usage.tokens,
        )
        for made in found
    ]
    links = [f"task-{n}" for n in range(len(found))]
    yield Table("Tasks", columns, rows, links=links)
    for link, made in zip(links, found, strict=True):
        name = wording.shorten(f"{made.id}  {made.task}", 120)
        yield Section(name, [Note(_say_end(made)), *_draw(made)], folded=True, anchor=link)


def _draw(made: Optimization) -> Iterator[Block]:
    """A task: its attempts, what each was told, what has changed, and the best."""
    if not made.attempts:
        return
    yield _table(made)
    written = Transcript("", [_utter(attempt) for attempt in made.attempts])
    yield Section("What was written", [written], folded=True)
    first, best = next((a for a in made.attempts if a.output), None), made.best
    if first is not None and best is not None and first.iteration != best.iteration:
        title = f"From attempt {first.iteration} to attempt {best.iteration}"
        yield Diff(title, first.output or "", best.output or "")
    if best is not None and best.output is not None:
        yield Texts(f"The best: attempt {best.iteration}", [("", best.output)])


def _table(made: Optimization) -> Table:
    second = any(attempt.second is not None for attempt in made.attempts)
    columns = [Column("attempt", "text"), Column("score", "score", 3)]
    columns += [Column("second judge", "score", 3)] * second
    columns += [
        Column("made", "text"),
        Column("like before", "percent", 0),
        Column("characters", "count"),
        Column("tokens", "count"),
        Column("time", "duration"),
    ]
    rows = [
        [
            f"attempt {a.iteration}",
            a.score,
            *([_score(a.second)] * second),
            a.made,
            a.similarity,
            None if a.output is None else len(a.output),
            a.usage.tokens,
            a.seconds,
        ]
        for a in made.attempts
    ]
    best = made.best
    marked = {n for n, a in enumerate(made.attempts) if best and a.iteration == best.iteration}
    notes = [(a.iteration, [*_why(a.evaluation), *_why(a.second), *a.notes]) for a in made.attempts]
    note = "\n".join(f"Attempt {n}: {'; '.join(said)}" for n, said in notes if said)
    return Table("Attempts", columns, rows, frozenset(marked), note)


def _score(outcome: EvaluationResult | Failure | None) -> float | None:
    return outcome.score if isinstance(outcome, EvaluationResult) else None


def _why(outcome: EvaluationResult | Failure | None) -> list[str]:
    return [f"{outcome.kind}: {outcome.reason}"] if isinstance(outcome, Failure) else []


def _utter(attempt: Attempt) -> Utterance:
    """An attempt, and what the judge wants changed."""
    outcome = attempt.evaluation
    points = [("wanted", line) for line in attempt.instructions]
    return Utterance(
        f"attempt {attempt.iteration}" + (f", {attempt.made}" if attempt.made else ""),
        attempt.output or "",
        wording.number(attempt.score, 3),
        points,
        "; ".join(_why(outcome)),
    )
