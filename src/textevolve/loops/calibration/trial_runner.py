"""Programs with named templates (a plain prompt has one template), and trials of templates on rows:
outputs are generated, then judged or graded, each step as one batch. Other modules adapt chains,
graphs and functions as programs.

An output is generated exactly as in use: the filled template is the whole prompt. A judge sees the
output only as a candidate of a `Case`. A failure that the output causes (it is empty, or the metric
cannot read it) counts as the score 0; otherwise a template with empty answers in difficult cases
would win. A failed call to a model gives no score.

Rows are split into training and validation by a hash of their group, or else of the values that are
read, so that the split does not depend on their order, and rows that differ only in white space and
case are on the same side. Ids and times of logs make no row different.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, BudgetError, CallError, InputError, RejectedError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    empty_default,
    failure_of,
)
from textevolve.events import Listener, StepStarted, silence
from textevolve.json_texts import pack_value
from textevolve.llm.chains.scope import PromptUse
from textevolve.llm.model import Model, Response, text_hash, text_request
from textevolve.loops.attempt import (
    CutFailure,
    ask_judge,
    failure_of_output,
    outcome_of,
    reasons_of,
    stop_if_skipped,
)
from textevolve.metrics.label_metrics import Grader
from textevolve.rows.columns import (
    check_prompt_value,
    find_contents,
    find_group,
    leave_out_columns,
    prompt_text,
)
from textevolve.spans import step_span
from textevolve.statistics.comparisons import fewest_units
from textevolve.texts.placeholders import Hidden, check_spelling, fill, require_placeholders
from textevolve.texts.prose import join_lines

MOST_CLASSES = 12
"""The number of different labels up to which they count as classes."""
TRAINING_ROWS = 25
"""The number of training rows that is enough for a search, unless there are many more rows."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row for a template. `values`: the texts by placeholder. `label`: the expected output,
    with which a metric compares; None: none. `row`: all columns of the row, if a metric or a
    program needs them; otherwise None. `group`: what it shares with the rows that depend on it;
    empty: rows with equal values alone."""

    id: str
    values: Mapping[str, str] = empty_default(dict)
    label: Any = None
    row: Mapping[str, Any] | None = None
    group: str = ""

    @property
    def known(self) -> Mapping[str, Any]:
        """Return all columns of the row if they are stored, otherwise the values of its
        placeholders."""
        return self.values if self.row is None else self.row


@dataclass(frozen=True, slots=True)
class ProgramNames:
    """The names that a program uses. `inputs`: the columns that it receives; None: all except the
    label. `slots`: the placeholders of each of its templates, by the template's name. `whole`:
    whether it has several templates, or code that fills them in, so that each must keep exactly its
    placeholders, which may be none."""

    inputs: tuple[str, ...] | None
    slots: tuple[tuple[str, tuple[str, ...]], ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Material:
    """A template with its data. `names`: its placeholders. `columns`: all columns except the label.
    `training`, `validation`: the rows. `slots`: for a program, the placeholders that each template
    has to keep, by the template's name. `is_share_set`: whether the user set the share of
    validation rows."""

    template: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    training: tuple[Example, ...]
    validation: tuple[Example, ...]
    slots: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_share_set: bool = False

    @property
    def examples(self) -> tuple[Example, ...]:
        return (*self.training, *self.validation)


def take_examples(
    template: str,
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    label: str | None,
    program: ProgramNames | None = None,
    keep_rows: bool = False,
) -> tuple[list[Example], tuple[str, ...]]:
    """Convert rows to examples; return them with the names of all columns except the label.

    Of rows that are equal in all relevant columns one is kept. `program`: the template belongs to a
    program, whose inputs are the values, and whose placeholders may be other values, too.
    `keep_rows`: a metric or a program receives whole rows, so all their columns are relevant.

    Raises:
        InputError: there is no row, a value is missing, or the template shows the label or no
            column.
    """
    placed = [
        # A table's index has no name, and {} in a template is text.
        (where, {str(name): value for name, value in row.items() if str(name).strip()})
        for where, row in rows
    ]
    if not placed:
        raise InputError("no data: give rows with values for the template's placeholders")
    columns = dict.fromkeys(name for _, row in placed for name in row)
    if label is not None and label not in columns:
        raise InputError(f"no row has the label column '{label}'; columns: {', '.join(columns)}")
    if program is None:
        hidden: dict[str, Hidden] = {} if label is None else {label: "label"}
        shown_columns = [name for name in columns if name != label]
        check_spelling(template, shown_columns, "the template", hidden)
    names = require_names(template, columns, program)
    inputs = names if program is None else program.inputs
    if inputs is not None and label in inputs:
        raise InputError(
            f"the program takes the label {{{label}}}, which gives the answer away; remove it"
        )

    examples: dict[str, Example] = {}
    used = {*(inputs or ()), *names, label, "id"}

    for where, row in placed:
        if program is None:
            for name in names:
                check_prompt_value(where, name, row.get(name))
        present = [n for n in columns if n != label and row.get(n) is not None]
        needed = present if inputs is None else inputs
        example = _example(row, where, needed, label, keep_rows)
        group = find_group(row, inputs or ())
        if group is not None:
            used.add(group[0])
            example = replace(example, group=group[1])
        examples.setdefault(example.id, example)

    if inputs is not None and not keep_rows:
        leave_out_columns([name for name in columns if name not in used])
    visible = tuple(name for name in columns if name != label or name in names)

    return list(examples.values()), visible


def part_examples(
    template: str,
    examples: Sequence[Example],
    columns: tuple[str, ...],
    label: str | None,
    validation: float | None,
    program: ProgramNames | None,
) -> Material:
    """Split the examples into training and validation. `columns`: all columns except the label.

    Raises:
        InputError: there are too few to split.
    """
    template = template.replace("\r\n", "\n")  # else a rewrite that changes nothing seems to
    names = require_names(template, (*columns, *([] if label is None else [label])), program)
    if program is not None and program.inputs is None:
        examples = group_equal(examples, label)
    training, held_out = split_examples(examples, validation)
    slots = program.slots if program is not None and program.whole else ()

    is_share_set = validation is not None

    return Material(template, names, columns, tuple(training), tuple(held_out), slots, is_share_set)


def require_names(
    template: str, columns: Collection[str], program: ProgramNames | None
) -> tuple[str, ...]:
    """Return the placeholders of a template, or of all templates of a program.

    Raises:
        InputError: a prompt has none, so that every row would make the same one.
    """
    if program is None:
        return require_placeholders(template, columns)
    slots = tuple(dict.fromkeys(slot for _, names in program.slots for slot in names))

    return slots if program.whole else require_placeholders(template, slots)


def _example(
    row: Mapping[str, Any], where: str, names: Sequence[str], label: str | None, keep_row: bool
) -> Example:
    for name in names:
        if row.get(name) is None:
            raise InputError(f"{where}: the column '{name}', which the template needs, is missing")
    values = {name: prompt_text(row[name]) for name in names}
    if label is not None and row.get(label) is None:
        raise InputError(f"{where}: the label column '{label}' is missing or empty")
    answer = None if label is None else row[label]
    counted = [values, str(answer), *([pack_value(row)] if keep_row else [])]
    key = text_hash(json.dumps(counted, sort_keys=True, ensure_ascii=False))

    return Example(key[:12], values, answer, row=dict(row) if keep_row else None)


def group_equal(examples: Sequence[Example], label: str | None) -> list[Example]:
    """Return the examples of a program that receives whole rows, and may read any column: rows that
    differ in their ids alone are a group."""
    contents = find_contents([example.known for example in examples], [label or ""])
    return [
        replace(example, group=example.group or content)
        for example, content in zip(examples, contents, strict=True)
    ]


def split_examples(
    examples: Collection[Example], share: float | None
) -> tuple[list[Example], list[Example]]:
    """Split examples into training and validation rows; validation gets as near to `share` of all
    rows as whole groups allow. None means the share of `share_held_out` for so many groups. Each
    class of labels that has several groups is in training.

    Raises:
        InputError: one side would be empty.
    """
    groups = Counter(map(hash_group, examples))
    share = share_held_out(len(groups)) if share is None else share

    if len(groups) < 2:
        raise InputError(
            "the data must have at least two different rows, of which one is held out for"
            " validation"
        )

    size = min(max(round(share * len(examples)), 1), len(examples) - 1)
    held_out: set[str] = set()

    for key in sorted(groups)[:-1]:
        if size <= 0:
            break
        held_out.add(key)
        size -= groups[key]

    _bring_into_training(examples, held_out)
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in sorted(examples, key=lambda e: (hash_group(e), e.id)):
        parts[hash_group(example) in held_out].append(example)

    return parts


def count_groups(examples: Iterable[Example]) -> int:
    """Return the number of independent groups of examples."""
    return len(set(map(hash_group, examples)))


def _bring_into_training(examples: Collection[Example], held_out: set[str]) -> None:
    """Exchange groups so that each class of labels with several groups has one in training: a
    search cannot learn a class that it does not see. `held_out`: the keys of groups."""
    by_class: dict[str, set[str]] = {}
    for example in examples:
        if example.label is not None:
            by_class.setdefault(str(example.label), set()).add(hash_group(example))
    if len(by_class) > min(MOST_CLASSES, len(examples) // 2):
        return

    for name in sorted(by_class):
        groups = by_class[name]
        if len(groups) < 2 or not groups <= held_out:
            continue
        # The most frequent class of the training rows can spare one.
        largest = max(sorted(by_class), key=lambda other: len(by_class[other] - held_out))
        spare = sorted(by_class[largest] - held_out)
        if len(spare) > 1:
            held_out.remove(max(groups))
            held_out.add(spare[0])


def share_held_out(rows: int) -> float:
    """Return the default share of independent rows to hold out for validation: two thirds; more
    from 76 rows on, three quarters from 100 on; of 8 rows as many as a significant gain needs.

    A search needs few rows to find failures, while a significance test needs many.
    docs/measurements.md says how often gains are accepted.
    """
    training = max(min(rows / 3, TRAINING_ROWS), rows / 4)
    least = fewest_units()

    return 1 - (min(training, rows - least) if rows >= least + 2 else training) / rows


def hash_group(example: Example) -> str:
    """Return a hash of an example's group, or else of its values, which ignores case and white
    space; examples with the same hash stay on the same side of the split, and count as one."""
    if example.group:
        return text_hash(example.group)
    plain = {name: join_lines(text.casefold()) for name, text in example.values.items()}
    return text_hash(json.dumps(plain, sort_keys=True, ensure_ascii=False))


PROMPT = "prompt"
"""The name of the only template of a plain prompt."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The texts of a program's templates by their names, in the program's order; hashable."""

    parts: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        return dict(self.parts)[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parts)

    def with_text(self, name: str, text: str) -> Templates:
        """Return these templates with another text for one of them."""
        return replace(self, parts=tuple((n, text if n == name else t) for n, t in self.parts))

    def alike(self, other: Templates) -> bool:
        """Tell whether the templates are the same except for white space around each."""
        texts = [[text.strip() for _, text in templates.parts] for templates in (self, other)]
        return texts[0] == texts[1]

    @property
    def text(self) -> str:
        """Return all templates as one text for people: a single one as it is, several under their
        names."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        return "\n\n".join(f"# {name}\n{text}" for name, text in self.parts)


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """A program's output for a row. `trace`: its steps, if the program has any."""

    response: Response
    trace: tuple[PromptUse, ...] = ()


class ProgramError(AnswerError):
    """The error of a program that returned no usable output for a row. `trace`: the prompts that it
    used before it failed, with the answers. `missing`: it speaks
    against no template, such as an exception of the program's own client."""

    def __init__(self, reason: str, trace: tuple[PromptUse, ...], *, missing: bool = False) -> None:
        super().__init__(reason)
        self.trace = trace
        self.missing = missing


class Program(Protocol):
    """A program with named templates, which computes an output for a row. `ask` uses other texts
    for the templates, and `show` returns the input for judges."""

    @property
    def templates(self) -> Templates:
        """Return the original templates."""
        ...

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        """Run the program on a row with these templates instead of its own. `count` is called with
        the usage, also if the program fails.

        Raises:
            AnswerError: it returned no usable output. ModelError, BudgetError: as its models.
        """
        ...

    def show(self, templates: Templates, example: Example, /) -> str:
        """Return the input that judges see, under these templates."""
        ...


@dataclass(frozen=True, slots=True)
class PromptProgram:
    """A program of one template: the filled template is the whole prompt of one call."""

    templates: Templates
    model: Model
    temperature: float | None = 0.0
    max_output_tokens: int = 512
    seed: int = 0

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        prompt = self.show(templates, example)
        response = await self.model(
            text_request(prompt, self.max_output_tokens, self.seed, self.temperature)
        )
        count(response.usage)
        return ProgramOutput(response)

    def show(self, templates: Templates, example: Example, /) -> str:
        return fill(templates[PROMPT], example.values)


T = TypeVar("T")
STAGE = "stage"
"""The name of the step that events report for each batch of calls, such as all outputs of a
round."""


class OutputFailure(Failure):
    """The reason for a missing score if the output, or the prompt made by its template, is at
    fault: empty, refused, too long, or unreadable for the metric."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A template's output for one row, with its judgement. `trace`: the steps that led to the
    output, if the program has any."""

    example: Example
    output: str | None
    result: EvaluationResult | Failure
    trace: tuple[PromptUse, ...] = ()

    @property
    def score(self) -> float | None:
        if isinstance(self.result, EvaluationResult):
            return self.result.score
        return 0.0 if isinstance(self.result, OutputFailure) else None

    @property
    def is_unfinished(self) -> bool:
        """Tell whether the output has no score for a reason that another template may remove."""
        is_broken = isinstance(self.result, Failure) and bool(self.trace)
        return self.score is None and (isinstance(self.result, CutFailure) or is_broken)

    @property
    def failure(self) -> Failure | None:
        return self.result if isinstance(self.result, Failure) else None

    @property
    def reasons(self) -> str:
        """Return the reasons that the judge or the metric gives for its score."""
        return self.result.feedback if isinstance(self.result, EvaluationResult) else ""


@dataclass
class TrialRunner:
    """A runner of trials: it generates the output of a template for a row, and scores it by
    `metric` or `evaluator`. Outputs are cached and not generated again. `round`: the number that
    events report."""

    program: Program
    evaluator: Evaluator | None
    metric: Grader | None
    concurrency: int = 64
    listener: Listener = silence
    usage: Usage = Usage()
    round: int = 1
    outputs: dict[tuple[Templates, str], ProgramOutput] = empty_default(dict)

    async def ask_all(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]], **details: object
    ) -> list[T | Failure]:
        """Run all calls of one stage (a batch, such as all outputs of a round; `name` names it)
        concurrently, within the limit of calls in flight, and return their results in order. A call
        that a model refuses or a limit forbids becomes a failure; the others continue.

        Raises:
            FatalModelError: no call can succeed.
        """

        async def ask(piece: Callable[[], Awaitable[T]]) -> T | Failure:
            try:
                return await piece()
            except (CallError, BudgetError) as error:
                return failure_of(error)

        self.listener(StepStarted("", STAGE, {"stage": name, "pieces": len(work), **details}))
        phase = "evaluate" if name in ("outputs", "judge") else "generate"
        with step_span(phase, STAGE, stage=name, iteration=self.round, pieces=len(work)):
            return await gather_bounded([partial(ask, piece) for piece in work], self.concurrency)

    async def try_all(self, pairs: Sequence[tuple[Templates, Example]]) -> list[TrialOutcome]:
        """Generate and judge the output of each pair of template and row, and return the outcomes.

        Raises:
            BudgetError: a limit prevented some trials; the answers so far are in the journal.
            FatalModelError: no call can succeed.
        """
        work = [partial(self._try, *pair) for pair in pairs]
        tried = await self.ask_all("outputs", work, judged=self.evaluator)
        outcomes = [
            TrialOutcome(example, None, output) if isinstance(output, Failure) else output
            for (_, example), output in zip(pairs, tried, strict=True)
        ]
        stop_if_skipped([outcome.result for outcome in outcomes])

        return outcomes

    async def judge_outputs(
        self, judge: Evaluator, outcomes: Sequence[TrialOutcome]
    ) -> list[float | None]:
        """Return another judge's scores of the outputs; None for a missing score.

        Raises:
            BudgetError: a limit prevented some judgements. FatalModelError: no call can succeed.
        """
        texts = [
            (outcome.example, outcome.output) for outcome in outcomes if outcome.output is not None
        ]
        work = [partial(self._judge, judge, example, text) for example, text in texts]
        judged = await self.ask_all("judge", work)
        stop_if_skipped(judged)
        remaining = iter(judged)
        results = [None if outcome.output is None else next(remaining) for outcome in outcomes]

        return [None if result is None else result.score for result in results]

    async def _try(self, templates: Templates, example: Example) -> TrialOutcome:
        """Generate an output for an example, and judge it."""
        output = self.outputs.get((templates, example.id))
        if output is None:
            try:
                output = await self.program.ask(templates, example, self.count)
            except (AnswerError, RejectedError) as error:
                trace = error.trace if isinstance(error, ProgramError) else ()
                missing = isinstance(error, ProgramError) and error.missing
                kind = Failure if missing else OutputFailure
                return TrialOutcome(example, None, kind("failed", str(error)), trace)

            if fault := failure_of_output(output.response, "--max-output-tokens"):
                return TrialOutcome(example, None, fault)
            self.outputs[templates, example.id] = output

        text = output.response.text
        if self.evaluator is not None:
            result = await self._judge(self.evaluator, example, text)
            return TrialOutcome(example, text, result, output.trace)
        assert self.metric is not None
        result = await self.metric(text, example.label, row=example.known)
        return TrialOutcome(example, text, result, output.trace)

    def count(self, usage: Usage) -> None:
        self.usage += usage

    async def _judge(
        self, judge: Evaluator, example: Example, text: str
    ) -> EvaluationResult | Failure:
        """Judge an output as the answer to the original templates, filled with the row; otherwise a
        template could win by asking for something easier. The feedback begins with what matters
        most to a writer."""
        case = Case(self.program.show(self.program.templates, example), (text,), example.id)
        try:
            check_case(case)
        except InputError as error:  # the text cannot be judged
            return OutputFailure("failed", str(error))

        evaluation = await ask_judge(judge, case)
        if isinstance(evaluation, Failure):
            return evaluation
        self.usage += evaluation.usage
        outcome = outcome_of(evaluation)
        if isinstance(outcome, Failure):
            return outcome

        return replace(outcome, feedback=reasons_of(evaluation))
