"""The optimize study (self-refine): a model writes a text for a task, and revises it by a judge's
feedback; the best version is the result.

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
from textevolve.evaluation import Case, EvaluationResult, Failure, Results, check_case
from textevolve.events import Listener, silence
from textevolve.judges.judge import Judge, parse_judge, require_absolute
from textevolve.llm.model import Model
from textevolve.llm.prompts import prompt_versions
from textevolve.loops.attempt import Attempt, Generator, as_generator
from textevolve.loops.optimization import (
    ModelGenerator,
    Optimization,
    OptimizationContext,
    OptimizationPlan,
    StepImprover,
    optimize_text,
)
from textevolve.mappings import first_of, map_values, read_fields
from textevolve.reach import is_file
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Cell,
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
from textevolve.rows import is_row_file, names_rows, read_rows
from textevolve.rows.columns import Columns, find_roles, is_text_column
from textevolve.runs.chains import ChainWriter, chains_among, open_chain_named, reject_rehearsal
from textevolve.runs.study import (
    Asks,
    RecordStatus,
    Row,
    Study,
    json_decoder,
    note_attempt,
    write_json,
)
from textevolve.spans import span
from textevolve.spec import option
from textevolve.studies.rows import MappedSpec
from textevolve.user_code import OWN, FirstResults, load_function, load_user_object
from textevolve.wiring import Workbench

DEFAULT_JUDGE = parse_judge("single")


class OptimizeSpec(OptimizationPlan, MappedSpec):
    """Write a text for a task, judge it, revise it by the feedback, and return the best version.

    Known elsewhere as self-refine, and best-of-n. For a file of tasks, each of them is optimised.
    """

    kind: ClassVar[str] = "optimize"

    task: str = option(
        description="The task as a text, @FILE or - (standard input); or a file of rows with the"
        " column task.",
        argument=True,
        text="rows",
        identity=False,
    )
    judge: Judge = option(
        DEFAULT_JUDGE,
        "The judge that scores attempts, such as probe+rules.",
        short="-j",
        group="Judging",
    )
    second_judge: Judge | None = option(
        None,
        "A second judge, whose scores are reported and do not influence the loop.",
        group="Advanced",
    )
    judge_model: str | None = option(
        None,
        "The model of judges that name none; default: the model of the study.",
        group="Advanced",
    )
    step_judge: Mapping[str, Judge] = option(
        {},
        "A judge for a step of the chain in --model, such as draft=probe+rules; an output that"
        " fails is revised before the next step. Repeatable.",
        group="Judging",
        metavar="STEP=JUDGE",
    )
    generator: str | None = option(
        None, "A function that writes attempts: FILE.py:FUNCTION.", group="Advanced"
    )

    @model_validator(mode="after")
    def _usable(self) -> OptimizeSpec:
        for judge in (*judges_of(self), *step_judges(self).values()):
            require_absolute(judge)
        if self.step_judge and not chains_among(self.model):
            raise InputError("--step-judge: needs a chain as --model, since it judges its steps")
        if self.generator is not None and not self.generator.startswith(OWN):
            load_function(self.generator, Path())
        return self


def judges_of(spec: OptimizeSpec) -> tuple[Judge, ...]:
    """Return the judge, and the second one if there is one."""
    judges = [spec.judge] if spec.second_judge is None else [spec.judge, spec.second_judge]
    return tuple(judge.with_model(spec.judge_model) for judge in judges)


def step_judges(spec: OptimizeSpec) -> dict[str, Judge]:
    """Return the judges of a chain's steps by the step's name."""
    return {step: judge.with_model(spec.judge_model) for step, judge in spec.step_judge.items()}


def ask(spec: OptimizeSpec) -> Asks:
    chains = chains_among(spec.model) if spec.generator is None else ()
    writes = spec.generator is None and not chains
    text_judges = judges_of(spec)
    of_steps = dict.fromkeys(
        judge for judge in step_judges(spec).values() if judge not in text_judges
    )
    prompts = prompt_versions("loops")
    code = () if spec.generator is None else (spec.generator,)
    return Asks(
        (*text_judges, *of_steps),
        writes=writes,
        prompts=prompts,
        chains=chains,
        decides=text_judges[0].text,
        code=code,
    )


def read_cases(spec: OptimizeSpec) -> Iterator[Case]:
    """Read the task, or those of a file: rows with `task` (or `input`) and an optional `id`.

    Raises:
        InputError: the file cannot be read, or a row has no task; names file and line.
    """
    if not _is_file(spec.task):
        yield task_case(spec.task)
        return
    ids: set[str] = set()
    unread = Columns()

    for where, row in read_rows(spec.task, "task", _is_text, spec.map):
        columns = ("task", *find_roles(tuple(row)).inputs)
        text = first_of(row, columns)
        unread.note_unread(row, ("id", *columns))
        row_id = row.get("id")
        if not isinstance(text, str):
            raise InputError(f"{where}: the column 'task' is missing or not a text")
        id = str(len(ids) + 1 if row_id in (None, "") else row_id)
        if id in ids:
            raise InputError(f"{spec.task}: two tasks have the id '{id}'; ids must differ")
        ids.add(id)
        yield task_case(text, id, where)

    unread.leave_out_unread()
    if not ids:
        raise InputError(f"{spec.task}: no tasks: it is empty")


def _is_text(column: str) -> bool:
    return column == "task" or is_text_column(column)


def _is_file(task: str) -> bool:
    """Tell whether a task is the name of a file of tasks, or of a data set of the hub (`hf:...`): a
    file's name has the ending of such a file, and contains a space only if the file exists."""
    try:
        if task.startswith("hf:"):
            return names_rows(task)
        return is_row_file(task) and (not any(map(str.isspace, task)) or is_file(task))
    except (OSError, ValueError):
        return False


def task_case(task: str, id: str = "1", where: str = "TASK") -> Case:
    """Return a task as a case without candidates.

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
    """Optimise each task, and yield the results in the order in which they are finished."""
    first_cases = list(islice(source := iter(cases), 2))
    listener = bench.listener if len(first_cases) < 2 else silence
    first_results = FirstResults("the model")
    if spec.generator is not None:
        first_results = bench.first_results(f"generator {spec.generator.removeprefix(OWN)}")
    judge, *second_judges = map(bench.whole_judge_of, judges_of(spec))

    async def work(placed: tuple[int, Case]) -> Optimization:
        position, case = placed
        context = OptimizationContext(
            generator=_open_generator(spec, bench, case.id, listener),
            evaluator=judge,
            second_judge=second_judges[0] if second_judges else None,
            time_limit=bench.seconds_left,
            listener=listener,
            first_results=first_results,
        )
        with span("case", f"case {case.id}"):
            return await optimize_text(case.input, spec, context, case.id, position)

    placed = enumerate(chain(first_cases, source))

    return stream(placed, work, bench.concurrency, ordered=False)


def _open_generator(
    spec: OptimizeSpec, bench: Workbench, case: str, listener: Listener
) -> Generator:
    if spec.generator is not None and bench.is_rehearsal:
        return _write_nothing  # the user's own function may cost something
    if spec.generator is None:
        return ModelGenerator(_open_model(spec, bench, case, listener), spec)
    if spec.generator.startswith(OWN):
        return as_generator(cast("Generator", load_user_object(spec.generator, bench.objects)))

    return as_generator(load_function(spec.generator, Path()))


async def _write_nothing(task: str, **_given: Any) -> str:
    return task


def _open_model(spec: OptimizeSpec, bench: Workbench, case: str, listener: Listener) -> Model:
    """Open the model that writes the text, or the chain that is used instead."""
    if spec.model is None or spec.plain_model is not None:
        return bench.model
    reject_rehearsal(bench, spec.model)
    chain = open_chain_named(spec.model, bench.objects)
    for step in spec.step_judge:
        chain.template_of(step)
    judges = map_values(bench.whole_judge_of, step_judges(spec))
    improve = StepImprover(judges, spec, listener, case)

    return ChainWriter(chain, bench, improve if judges else None)


def find_row(optimization: Optimization) -> Row:
    status: RecordStatus = "failed" if optimization.score is None else "scored"
    if optimization.status == "budget":
        status = "skipped"
    judged = optimization.best.evaluation if optimization.best else None
    passed = judged.passed if isinstance(judged, EvaluationResult) else None
    return Row(
        optimization.id,
        optimization.position,
        optimization.id,
        optimization.score,
        status,
        optimization.reason,
        passed=passed,
    )


def encode(optimization: Optimization) -> bytes:
    """Encode the fields of the record, with figures derived from them, as JSON."""
    fields = read_fields(optimization, *optimization.__dataclass_fields__)
    content = {
        **fields,
        "score": optimization.score,
        "output": optimization.output,
        "best": optimization.best.iteration if optimization.best else None,
        "usage": optimization.usage,
    }

    return write_json(content, "null")


def flatten(optimization: Optimization) -> Iterator[Mapping[str, Any]]:
    """Yield the table row of a task, with all its attempts."""
    yield from_json(encode(optimization))


def data(_spec: OptimizeSpec, optimizations: Sequence[Optimization]) -> Mapping[str, Any]:
    return {"tasks": [next(flatten(optimization)) for optimization in optimizations]}


def write_text(_spec: OptimizeSpec, optimizations: Sequence[Optimization]) -> str:
    """Write the best texts, one below the other."""
    texts = [optimization.output.rstrip() for optimization in optimizations if optimization.output]
    return "\n\n".join(texts) + "\n" if texts else ""


def report(spec: OptimizeSpec, optimizations: Sequence[Optimization]) -> Report:
    return make_report(spec, judges_of(spec), optimizations)


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
    summarise=lambda _spec, records: Results(records),
    report=report,
    data=data,
    flat=flatten,
    note=note_attempt,
    texts={".txt": write_text},
    streams=True,
)


def make_report(
    plan: OptimizationPlan, judges: Sequence[Judge], optimizations: Sequence[Optimization]
) -> Report:
    facts = {"Judge": ", second judge ".join(map(str, judges))}
    if len(optimizations) == 1:
        (optimization,) = optimizations
        return Report(
            wording.shorten(optimization.task, 120),
            _describe_end(optimization),
            _draw(optimization),
            facts,
        )

    reached = sum(optimization.status == "accepted" for optimization in optimizations)

    return Report(
        f"{len(optimizations):,} tasks",
        f"{reached:,} of {len(optimizations):,} tasks reached the threshold of {plan.threshold:g}.",
        _draw_all(optimizations),
        facts,
    )


def _describe_end(optimization: Optimization) -> str:
    return f"Ended as {optimization.status}: {optimization.reason}"


def _draw_all(optimizations: Sequence[Optimization]) -> Iterator[Block]:
    columns = (
        "task",
        "ended",
        Column("first", "score", 3),
        Column("best", "score", 3),
        Column("attempts", "count"),
        Column("tokens", "count"),
    )
    rows = [
        (
            wording.shorten(f"{optimization.id}  {optimization.task}", 60),
            optimization.status,
            optimization.attempts[0].score if optimization.attempts else None,
            optimization.score,
            len(optimization.attempts),
            optimization.usage.tokens,
        )
        for optimization in optimizations
    ]
    links = [f"task-{n}" for n in range(len(optimizations))]
    yield Table("Tasks", columns, rows, links=links)

    for link, optimization in zip(links, optimizations, strict=True):
        name = wording.shorten(f"{optimization.id}  {optimization.task}", 120)
        yield Section(
            name,
            [Note(_describe_end(optimization)), *_draw(optimization)],
            folded=True,
            anchor=link,
        )


def _draw(optimization: Optimization) -> Iterator[Block]:
    """Yield the blocks of a task: its attempts with their feedback, the changes, and the best
    version."""
    if not optimization.attempts:
        return
    yield _table(optimization)
    written = Transcript("", list(map(_utter, optimization.attempts)))
    yield Section("Written texts", [written], folded=True)
    first_attempt = next((a for a in optimization.attempts if a.output), None)
    best = optimization.best

    if first_attempt is not None and best is not None and first_attempt.iteration != best.iteration:
        yield Diff(
            f"From attempt {first_attempt.iteration} to attempt {best.iteration}",
            first_attempt.output or "",
            best.output or "",
        )

    if best is not None and best.output is not None:
        yield Texts(f"The best: attempt {best.iteration}", [("", best.output)])


def _table(optimization: Optimization) -> Table:
    has_second = any(attempt.second is not None for attempt in optimization.attempts)
    columns = [Column("attempt", "text"), Column("score", "score", 3)]
    if has_second:
        columns.append(Column("second judge", "score", 3))
    columns += [
        Column("made", "text"),
        Column("like before", "percent", 0),
        Column("characters", "count"),
        Column("tokens", "count"),
        Column("time", "duration"),
    ]
    best = optimization.best
    rows: list[list[Cell]] = []
    marked: set[int] = set()
    notes: list[str] = []

    for number, attempt in enumerate(optimization.attempts):
        second_scores = [getattr(attempt.second, "score", None)] if has_second else []
        characters = None if attempt.output is None else len(attempt.output)
        rows.append(
            [
                f"attempt {attempt.iteration}",
                attempt.score,
                *second_scores,
                attempt.made,
                attempt.similarity,
                characters,
                attempt.usage.tokens,
                attempt.seconds,
            ]
        )
        if best is not None and attempt.iteration == best.iteration:
            marked.add(number)
        failures = filter(None, map(_describe_failure, (attempt.evaluation, attempt.second)))
        if remarks := "; ".join([*failures, *attempt.notes]):
            notes.append(f"Attempt {attempt.iteration}: {remarks}")

    return Table("Attempts", columns, rows, frozenset(marked), "\n".join(notes))


def _describe_failure(outcome: EvaluationResult | Failure | None) -> str:
    return f"{outcome.kind}: {outcome.reason}" if isinstance(outcome, Failure) else ""


def _utter(attempt: Attempt) -> Utterance:
    """Return an attempt, with the judge's instructions for the next one, as a message of the
    transcript."""
    title = f"attempt {attempt.iteration}"
    if attempt.made:
        title += f", {attempt.made}"

    return Utterance(
        title,
        attempt.output or "",
        wording.number(attempt.score, 3),
        [("wanted", line) for line in attempt.instructions],
        _describe_failure(attempt.evaluation),
    )
