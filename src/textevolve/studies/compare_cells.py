"""One cell of a comparison: its output is generated or taken from the row, and graded by metrics
and judges.

`compare` plans the cells and aggregates them; `compare_rows` reads the rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from textevolve.agents.simulated_user import ConversationEnd, SimulatedUser, write_message
from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.evaluation import (
    CHECKS,
    GROUP,
    ROW,
    SPENT,
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    attempt,
    cluster_of,
    empty_default,
    reaches,
    sum_usage,
)
from textevolve.images import named_images
from textevolve.json_texts import pack_value
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.scope import TraceRecorder
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Message, Request, draw_sample
from textevolve.llm.structured import describe_fault
from textevolve.llm.targets import Target
from textevolve.loops.attempt import ask_judge
from textevolve.mappings import drop_none
from textevolve.metrics.label_metrics import Grader, is_shipped
from textevolve.protocol.contents import LENGTH
from textevolve.rows.chats import (
    ASSISTANT,
    Chat,
    ChatTurn,
    read_chat,
    read_texts,
    speaker_of,
    write_chat,
)
from textevolve.rows.columns import IMAGES, join_passages
from textevolve.runs.chains import chain_response
from textevolve.spans import current_span, span
from textevolve.studies.compare_spec import MOST_SAMPLES
from textevolve.studies.conversations import (
    SESSION,
    ConversationTurn,
    Grade,
    check_calls,
    join_grades,
    join_trajectories,
    turn_row,
)
from textevolve.studies.row_values import RowValues
from textevolve.studies.rows import ask_target, write_request
from textevolve.trajectory import NO_ANSWER, RECORDED, Trajectory, read_trajectory
from textevolve.user_code import OWN
from textevolve.wiring import Workbench


@dataclass(frozen=True)
class Output:
    """One cell of the matrix: the output of a variant for a row, and its grades.

    Attributes:
        position: The position of the cell in the run.
        row: The id of the row.
        prompt: The name of the variant's prompt; empty without one.
        sample: The number of the output among those of the same variant and row, from 0.
        input: The input that judges see, with its `images`.
        reference: The right answer, if the row has one.
        columns: The row's other columns, for tables and pages; no prompt or judge gets them here.
        used: The names of the columns that the variants read, for pages.
        trajectory: The retrieved passages, tool calls and steps of an application.
        text: The output; for a conversation the whole dialogue.
        score: The score in [0, 1] by the metric or judge that decides; `passed` and `reason` are
            also its.
        grades: The grades by each metric and judge, by name.
        failure: The reason for a missing output or score.
        cut: Whether the output ended at the token limit.
        usage: The usage of the output alone, like `seconds`, its time.
        judging: The usage of the output's judges. For outputs judged side by side it is counted
            with the first of them; for conversations it includes the simulated user.
        turns: The messages and answers of a conversation; `ending`: why it ended.
        group: The group of the row, whose rows depend on each other; empty if it has none.
        equal_to: The id of the earlier row that the row equals; empty without one.
    """

    position: int
    row: str
    variant: str
    prompt: str = ""
    model: str = ""
    sample: int = 0
    input: str = ""
    reference: str | None = None
    context: str | None = None
    images: tuple[str, ...] = field(default=(), repr=False)
    columns: Mapping[str, Any] = empty_default(dict)
    used: tuple[str, ...] = ()
    trajectory: Trajectory | None = None
    text: str = ""
    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    grades: Mapping[str, Grade] = empty_default(dict)
    failure: Failure | None = None
    cut: bool = False
    usage: Usage = Usage()
    judging: Usage = Usage()
    seconds: float | None = None
    turns: tuple[ConversationTurn, ...] = ()
    ending: ConversationEnd = ""
    group: str = ""
    equal_to: str = ""

    @property
    def cluster(self) -> str:
        """The name that this output shares with the outputs that depend on it."""
        return cluster_of({GROUP: self.group}) if self.group else self.equal_to

    def amend(self, **changes: Any) -> Output:
        """Return a copy with these fields changed, at a tenth of the cost of `dataclasses.replace`,
        which sets all fields anew."""
        output = object.__new__(Output)
        output.__dict__.update(self.__dict__, **changes)
        return output


@dataclass(slots=True)
class ChatState:
    """The session id and the cookies that an application has set in a conversation. They are sent
    with each later turn, so that the application knows the conversation again."""

    session: Any = None
    cookies: Mapping[str, str] = empty_default(dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell before it is filled.

    Attributes:
        empty: The cell with its row, variant and input, to which the output is added; a column of
            existing outputs has set it already.
        answer: Gives the cell its output: `ask_model`, `call_target` or `ask_steps`. None if the
            output exists already.
        values: The values of its row.
        user: The simulated user of a conversation, or the user's messages; empty if there is no
            conversation.
        chats: Lets in as many conversations at once as the application holds; None: any number.
        state: What the application gets back at the next turn of the conversation.
    """

    empty: Output
    answer: Answering | None
    values: RowValues
    user: SimulatedUser | tuple[str, ...] = ()
    chats: AbstractAsyncContextManager[Any] | None = None
    state: ChatState = field(default_factory=ChatState)

    @property
    def sample(self) -> int:
        """The number of the sample among all that ask the same, also of other rows."""
        return self.values.draw * MOST_SAMPLES + self.empty.sample


Answering: TypeAlias = Callable[[Workbench, Planned, Sequence[Message]], Awaitable[Output]]
"""A function that fills a cell, or answers the messages of a conversation so far."""


@dataclass(frozen=True, slots=True)
class Scorers:
    """The metrics and judges of a comparison by name.

    Attributes:
        alone: The judges that see one output at a time.
        together: The judges that see all outputs of a row at once.
        decides: The name of the metric or judge whose score counts.
        threshold: The score in [0, 1] from which an output passes; None: the scorer's own verdict
            counts.
        each_turn: The names of the metrics and judges that grade each answer of a conversation.
        of_rows: The names of the judges that read the row, and `of_checks`, of those that apply
            its checks.
    """

    metrics: Mapping[str, Grader]
    alone: Mapping[str, Evaluator]
    together: Mapping[str, Evaluator]
    decides: str
    threshold: float | None = None
    each_turn: tuple[str, ...] = ()
    of_rows: tuple[str, ...] = ()
    of_checks: tuple[str, ...] = ()


async def fill_cells(
    bench: Workbench, scorers: Scorers, group: Sequence[Planned]
) -> Sequence[Output]:
    """Fill the cells of a group. Judges that compare see the outputs of the group side by side.
    Failures are recorded in the cells.

    Raises:
        FatalModelError: no call can succeed.
    """
    fill = [partial(_fill_alone, bench, scorers, planned) for planned in group]
    outputs = await gather_bounded(fill, bench.concurrency if scorers.together else 1)
    for name, judge in scorers.together.items():
        outputs = await _judge_together(name, judge, outputs)

    return [_conclude(output, scorers) for output in outputs]


async def _fill_alone(bench: Workbench, scorers: Scorers, planned: Planned) -> Output:
    """Return the cell with its output, graded by the metrics and judges that see it alone."""
    cell = planned.empty
    name = f"case {cell.row}: {cell.variant}"
    with span("case", name, variant=cell.variant, sample=cell.sample, input=cell.input) as here:
        answers: Sequence[Output] = ()
        if planned.user:
            async with planned.chats or nullcontext():
                output, chat, answers = await _converse(bench, planned)
        else:
            output = await _answer(bench, planned)
            chat = read_chat(output.text) if scorers.each_turn else None

        if scorers.each_turn and output.failure is None:
            output = await _grade_turns(scorers, planned, output, chat or (), answers)
        if output.failure is None:
            output = await _grade_output(scorers, planned, output, each_turn=False)
        here.note(output=output.text, failure=output.failure)
        return output


async def _grade_output(
    scorers: Scorers, planned: Planned, output: Output, *, each_turn: bool
) -> Output:
    """Return the output with grades by the metrics and judges that see one output at a time: for
    each turn of a conversation, or for the output as a whole."""
    grades = dict(output.grades)
    used = output.judging
    row = _graded_row(planned, output)

    for name, metric in scorers.metrics.items():
        if (name in scorers.each_turn) == each_turn:
            label = output.reference if is_shipped(name) or each_turn else planned.values.label
            graded = await metric(output.text, label, row=row)
            current_span.get().judge(name, graded)
            grades[name] = _grade(graded)

    judged_output = output
    if scorers.alone:
        with suppress(InputError):  # which judges of trajectories report as missing
            judged_output = output.amend(trajectory=read_trajectory(row, output.row))
    text = NO_ANSWER if judged_output.trajectory and not output.text.strip() else output.text

    for name, judge in scorers.alone.items():
        if (name in scorers.each_turn) == each_turn:
            parameters = _judge_parameters(scorers, name, planned, output, row)
            (outcome,), more = await _judge(judge, judged_output, (text,), parameters)
            grades[name] = _grade(outcome)
            used = used + more

    return output.amend(grades=grades, judging=used)


def _judge_parameters(
    scorers: Scorers, name: str, planned: Planned, output: Output, row: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a judge reads of the row besides the input: its columns, or its checks with what
    the output cost, which is known only of an output that was made for the run."""
    parameters: dict[str, Any] = {}
    if name in scorers.of_rows:
        parameters[ROW] = pack_value(dict(row))
    if name in scorers.of_checks and planned.values.checks is not None:
        parameters[CHECKS] = planned.values.checks
        cost = output.usage.cost if output.usage.calls else None
        parameters[SPENT] = drop_none({"cost": cost, "seconds": output.seconds})

    return parameters


def _graded_row(planned: Planned, output: Output) -> Mapping[str, Any]:
    """Return the row that metrics see. Tool calls recorded in the row are left out unless the
    output is the row's own."""
    row = dict(planned.values.row)
    if planned.answer is not None:
        for name in RECORDED:
            row.pop(name, None)
    if output.trajectory:
        row |= output.trajectory.as_row()

    return row


async def _converse(bench: Workbench, planned: Planned) -> tuple[Output, Chat, list[Output]]:
    """Hold the conversation of a user with a variant. Return the cell, the chat, and each answer. A
    failed turn ends the conversation."""
    user = planned.user
    judging = Usage()
    ending = ""
    chat: Chat = ()
    messages: list[Message] = []
    answers: list[Output] = []
    failure: Failure | None = None

    while failure is None and not ending:
        if isinstance(user, tuple):
            text = "".join(user[len(answers) : len(answers) + 1])
        else:
            player = UsageMeter(bench.model_of(user.model))
            writing = write_message(user, player, chat, planned.sample, persists=bench.is_rehearsal)
            move = await attempt(writing)
            judging += player.usage
            if isinstance(move, Failure):
                failure = replace(move, reason=f"the simulated user: {move.reason}")
                break
            text, ending = move

        if not text:
            break
        messages.append(Message("user", (text,), () if messages else planned.empty.images))
        if not ending:  # the last words of a user belong to the dialogue, and need no answer
            with span("part", f"turn {len(answers) + 1}", input=text) as here:
                answer = await _answer(bench, planned, messages)
                here.note(output=answer.text, failure=answer.failure)
            answers.append(answer)
            if (failure := answer.failure) is None:
                messages.append(Message("assistant", (answer.text,)))
        chat = tuple(ChatTurn(speaker_of(message.role), message.text) for message in messages)

    if failure is not None:
        failure = replace(failure, reason=f"turn {len(chat) // 2 + 1}: {failure.reason}")
    trajectories = [answer.trajectory for answer in answers]
    check_calls(trajectories, planned.empty.variant)
    trajectory = join_trajectories(trajectories)
    context = join_passages(trajectory.contexts) if trajectory else ""
    pairs = zip(chat[::2], chat[1::2], strict=False)
    output = replace(
        planned.empty,
        text=write_chat(chat) if len(chat) > 1 else "",
        context=context or planned.empty.context,
        trajectory=trajectory,
        failure=failure,
        cut=any(answer.cut for answer in answers),
        usage=sum_usage(answers),
        judging=judging,
        seconds=sum(answer.seconds or 0.0 for answer in answers) if answers else None,
        turns=tuple(ConversationTurn(question.text, reply.text) for question, reply in pairs),
        ending=ending,
    )

    return output, chat, answers


async def _grade_turns(
    scorers: Scorers, planned: Planned, output: Output, chat: Chat, answers: Sequence[Output]
) -> Output:
    """Return the output with grades for each answer of a conversation, judged with the dialogue
    before it as the input, and for the whole conversation: the mean of its answers, which passes if
    all answers pass."""
    replies = [
        (chat[:place], turn)
        for place, turn in enumerate(chat)
        if place and turn.speaker == ASSISTANT
    ]

    if not replies:
        return replace(
            output,
            failure=Failure(
                "failed",
                "--each-turn needs a conversation: a list of messages with roles, and an"
                " answer in it",
            ),
        )

    labels = read_texts(output.reference)
    turns: list[ConversationTurn] = []
    used = output.judging

    for number, (before, reply) in enumerate(replies):
        turn = replace(
            answers[number] if answers else output,
            input=write_chat(before),
            text=write_chat((reply,)),
            reference=labels[number] if len(labels) == len(replies) else output.reference,
            judging=Usage(),
        )
        turn = await _grade_output(scorers, planned, turn, each_turn=True)
        used += turn.judging
        turns.append(ConversationTurn(before[-1].text, turn.text, turn.grades))

    grades = {name: join_grades([turn.grades[name] for turn in turns]) for name in turns[0].grades}

    return output.amend(text=write_chat(chat), turns=tuple(turns), grades=grades, judging=used)


async def _answer(bench: Workbench, planned: Planned, messages: Sequence[Message] = ()) -> Output:
    """Return the cell with its output, or with the failure to get one."""
    return (
        planned.empty if planned.answer is None else await planned.answer(bench, planned, messages)
    )


async def _attempt(
    bench: Workbench, cell: Output, answer: Callable[[], Awaitable[Output]]
) -> Output:
    async def answer_in_time() -> Output:
        bench.require_time()
        return await answer()

    output = await attempt(answer_in_time())
    return cell.amend(failure=output) if isinstance(output, Failure) else output


async def ask_model(
    request: Request, bench: Workbench, planned: Planned, messages: Sequence[Message]
) -> Output:
    """Return the model's answer to a filled prompt and the messages after it."""
    cell = planned.empty
    model = UsageMeter(bench.model_of(planned.empty.model))

    request = replace(request, messages=(*request.messages, *messages))

    async def ask() -> Output:
        response = await model(draw_sample(request, planned.sample))
        cut = response.finish_reason == LENGTH
        failure = None
        if fault := describe_fault(response, "the output"):
            # More tokens help only where they were used up, by the text or by thoughts.
            hint = "; --max-output-tokens may be too low" if cut else ""
            failure = Failure("failed", f"{fault}{hint}")

        return cell.amend(text=response.text, cut=cut, failure=failure, seconds=model.seconds)

    return replace(await _attempt(bench, cell, ask), usage=model.usage)


async def call_target(
    target: Target,
    version: str,
    bench: Workbench,
    planned: Planned,
    messages: Sequence[Message],
) -> Output:
    """Return the answer of the user's application to a row, or to the messages of a conversation.
    `version`: the application's version, which its requests state."""
    cell = planned.empty
    model = UsageMeter(bench.target_of(target))
    row = planned.values.columns
    # Prompts have their names; an application gets the images themselves, as it gets its chats.
    if images := named_images(str(row.get(IMAGES, "")), cell.images):
        row = {**row, IMAGES: list(images)}
    state = planned.state
    if messages:
        row = turn_row(row, messages, all_columns=target.body is None)
        if target.session and (target.body is not None or state.session is not None):
            row[SESSION] = state.session
    request = write_request(target, row, version, planned.sample, state.cookies)

    async def ask() -> Output:
        answer = await ask_target(model, target, request)
        if answer.session is not None:
            state.session = answer.session
        if answer.cookies is not None:
            state.cookies = answer.cookies
        return replace(
            cell,
            text=answer.text,
            context=answer.context or cell.context,
            trajectory=answer.trajectory,
            usage=answer.usage or Usage(),
            seconds=model.seconds,
        )

    return await _attempt(bench, cell, ask)


async def ask_steps(
    chain: Chain, bench: Workbench, planned: Planned, _messages: Sequence[Message]
) -> Output:
    """Return the output of a chain for a row."""
    cell = planned.empty
    spent = TraceRecorder(chain.name, "chain")

    async def ask() -> Output:
        response = await chain_response(
            bench, chain, planned.values.columns, spent, cell.row, sample=planned.sample
        )
        return cell.amend(text=response.text, seconds=response.seconds)

    return replace(await _attempt(bench, cell, ask), usage=spent.trace.usage)


async def _judge(
    judge: Evaluator,
    output: Output,
    texts: tuple[str, ...],
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Sequence[EvaluationResult | Failure], Usage]:
    """Return a result for each text, and the judge's usage. `parameters`: those of the case."""
    case = Case(
        output.input,
        texts,
        output.row,
        parameters or {},
        reference=output.reference,
        context=output.context,
        images=output.images,
        trajectory=output.trajectory if len(texts) == 1 else None,
    )
    judged = await ask_judge(judge, case)
    if isinstance(judged, Failure):
        return [judged] * len(texts), Usage()

    return judged.result, judged.usage


async def _judge_together(name: str, judge: Evaluator, outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs; this judge's grade is added to each that exists. If only one exists, its
    grade is a failure, since there is nothing to compare it with."""
    present = [output for output in outputs if output.failure is None]
    results = [_ALONE] * len(present)
    used = Usage()
    if len(present) > 1:
        texts = tuple(output.text for output in present)
        results, used = await _judge(judge, present[0], texts)
    grades = dict(zip((output.variant for output in present), map(_grade, results), strict=True))
    judged: list[Output] = []

    for output in outputs:
        if grade := grades.get(output.variant):
            graded = {**output.grades, name: grade}
            output = output.amend(grades=graded, judging=output.judging + used)
            used = Usage()  # it counts with the first output

        judged.append(output)

    return judged


_ALONE = Failure("failed", "this row has no other output to compare with")


def _grade(outcome: EvaluationResult | Failure) -> Grade:
    if isinstance(outcome, Failure):
        return Grade(failure=outcome)
    return Grade(outcome.score, outcome.passed, outcome.feedback)


def _conclude(output: Output, scorers: Scorers) -> Output:
    """Return the output with the score, verdict and reason of the metric or judge that decides."""
    decided = output.grades.get(scorers.decides)
    if output.failure is not None or decided is None:
        return output
    if decided.failure is not None or decided.score is None:
        return output.amend(failure=decided.failure)
    threshold = scorers.threshold
    passed = decided.passed if threshold is None else reaches(decided.score, threshold)
    grades = {scorers.decides: decided, **output.grades}

    return output.amend(score=decided.score, passed=passed, reason=decided.reason, grades=grades)


def scorer_label(scorer: str) -> str:
    """Return the display name of a metric or judge."""
    return scorer.removeprefix(OWN)
