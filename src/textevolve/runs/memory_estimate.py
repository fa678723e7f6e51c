"""What an evaluation of a memory system may take of models, before anything is fed or asked.

What a system extracts and finds is not known then. The least is that it extracts and finds nothing,
and answers itself where it may be able to; the most, that it extracts twice as many memories as
there are points, finds as many as it is asked for, and leaves the answers to a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from textevolve.evaluation import Usage
from textevolve.memory_eval import answering, judging
from textevolve.memory_eval.choosing import case_of
from textevolve.memory_eval.dialogues import Session, User
from textevolve.memory_eval.feeding import QUESTION_LIMIT, UPDATE_LIMIT
from textevolve.memory_eval.judgement import TASKS, Subject, Task
from textevolve.memory_eval.judging import OWN, SHARED
from textevolve.memory_eval.recorded import RECORDED, Kept, read_recorded
from textevolve.memory_eval.subjects import Timed, Unanswered, write_dialogue
from textevolve.runs.estimate import PriceOf, UsageRange
from textevolve.runs.judge_estimate import FENCE, estimate_judge
from textevolve.runs.memory_evaluation import Plan, Survey, read_data
from textevolve.runs.spec import MeasurementSpec
from textevolve.settings import Price

TIMES_EXTRACTED = 2
SHORT_VERDICT = 20
REPAIR = 2_500
"""Characters that asking once more adds: what was answered, and what is wrong with it."""


@dataclass(slots=True)
class _Asked:
    """So many things of one kind, and the characters of their texts."""

    number: int = 0
    characters: int = 0

    def add(self, characters: int, number: int = 1) -> None:
        self.number += number
        self.characters += characters * number


@dataclass(slots=True)
class _Sizes:
    judged: dict[Task, _Asked] = field(default_factory=lambda: {task: _Asked() for task in TASKS})
    answered: _Asked = field(default_factory=_Asked)


def estimate_memory_evaluation(
    path: str, spec: MeasurementSpec, plan: Plan, price_of: PriceOf
) -> tuple[UsageRange, Survey]:
    """The range of what models may take, and what there is in the data, which is read once.

    Raises:
        InputError: the data or the judge cannot be used.
    """
    survey, least, most = Survey(path), _Sizes(), _Sizes()
    for found in read_data(path, plan):
        survey.note(found)
        if isinstance(found, User):
            if plan.system == RECORDED:
                _count_recorded(found, least)
            else:
                _count_least(found, plan.system, least)
                _count_most(found, plan.system, most)
    if plan.system == RECORDED:
        most = least
    price = price_of(str(spec.parameters.get("answer_model") or spec.model))
    used = [
        _sum_up(sizes, spec, plan, price_of, price, longest=longest)
        for sizes, longest in ((least, False), (most, True))
    ]
    return UsageRange(survey.users, used[0], used[1]), survey


def _count_recorded(user: User, sizes: _Sizes) -> None:
    for piece in read_recorded(user, Kept(True, True)):
        if isinstance(piece, Timed | Unanswered) or piece.failure or piece.by_rule is not None:
            continue
        sizes.judged[piece.task].add(sum(len(text) for text in piece.texts.values()))


def _count_least(user: User, system: str, sizes: _Sizes) -> None:
    """Nothing is extracted or found, so only answers are judged; a whole context is found."""
    for session, context in _scored(user, system):
        for question in session.questions:
            given = len(question.question) + len(question.answer) + sum(map(len, question.evidence))
            sizes.judged["question"].add(given)
            if system == "none" or context is not None:
                sizes.answered.add(len(question.question) + (context or 0))
        if context is not None:
            _count_updates(session, context, sizes)


def _count_most(user: User, system: str, sizes: _Sizes) -> None:
    for session, context in _scored(user, system):
        lengths = [len(point.content) for point in session.points]
        gold, longest = sum(lengths), max(lengths, default=0)
        extracted = 0 if system == "none" or context is not None else TIMES_EXTRACTED * len(lengths)
        if extracted:
            for length in lengths:
                sizes.judged["integrity"].add(length + TIMES_EXTRACTED * gold)
            dialogue = len(write_dialogue(session.dialogue))
            sizes.judged["accuracy"].add(dialogue + gold + longest, extracted)
        found = context if context is not None else UPDATE_LIMIT * longest * (system != "none")
        if system != "none":
            _count_updates(session, found, sizes)
        found = context if context is not None else QUESTION_LIMIT * longest * (system != "none")
        for question in session.questions:
            given = len(question.question) + len(question.answer) + sum(map(len, question.evidence))
            sizes.judged["question"].add(given + answering.MAX_TOKENS * 4)
            sizes.answered.add(len(question.question) + found)


def _count_updates(session: Session, found: int, sizes: _Sizes) -> None:
    for point in session.points:
        if point.is_update:
            sizes.judged["update"].add(len(point.content) + sum(map(len, point.originals)) + found)


def _scored(user: User, system: str) -> Iterator[tuple[Session, int | None]]:
    """The sessions that are scored, each with the characters of the dialogue that the system
    `context` finds there; None for every other system."""
    name, _, options = system.partition(":")
    last = options.removeprefix("last=")
    most = int(last) if last.isdecimal() else None
    turns: list[int] = []
    for session in user.sessions:
        turns += [len(turn.content) + len(turn.role) + 24 for turn in session.dialogue]
        if not session.is_generated_qa:
            held = sum(turns if most is None else turns[-most:]) if name == "context" else None
            yield session, held


def _sum_up(
    sizes: _Sizes,
    spec: MeasurementSpec,
    plan: Plan,
    price_of: PriceOf,
    answer_price: Price | None,
    *,
    longest: bool,
) -> Usage:
    bare = len(judging.prompt("answer").render(memories="", question="")) + 2 * FENCE
    answered, length = sizes.answered, answering.MAX_TOKENS if longest else 1  # unknown
    used = _calls(answered, bare, length, 1, answer_price, longest=longest)
    for task, asked in sizes.judged.items():
        if not asked.number:
            continue
        if plan.judge is not None:
            used += _by_evaluator(task, asked, spec, plan.judge, price_of, longest=longest)
            continue
        said = [judging.prompt(task).render(), judging.prompt("marks").render()]
        bare = len("".join(said) + judging.prompt("request").render(task=task))
        bare += FENCE * len((*SHARED[task], *OWN[task]))
        length = judging.MAX_TOKENS if longest else SHORT_VERDICT
        times = 2 if longest else 1
        used += _calls(asked, bare, length, times, price_of(spec.model), longest=longest)
    return used


def _calls(
    asked: _Asked, bare: int, answer: int, times: int, price: Price | None, *, longest: bool
) -> Usage:
    """`times` calls for each; the second one shows the first answer, too."""
    characters = times * (asked.characters + asked.number * bare)
    characters += (times - 1) * asked.number * REPAIR
    prompts = round(characters / (3.0 if longest else 5.0))
    answers = times * asked.number * answer
    cost = None if price is None else (prompts * price.input + answers * price.output) / 1e6
    return Usage(times * asked.number, prompts, 0, answers, cost)


def _by_evaluator(
    task: Task,
    asked: _Asked,
    spec: MeasurementSpec,
    judge: str,
    price_of: PriceOf,
    *,
    longest: bool,
) -> Usage:
    """As often as what the judge takes for a subject of the mean size."""
    names = (*SHARED[task], *OWN[task])
    size = asked.characters // asked.number
    texts = dict.fromkeys(names, "") | {names[0]: "x" * max(1, size)}
    subject = Subject(task, "", 0, 0, texts)
    used = Usage()
    for question in (task, *(("included",) if task == "accuracy" else ())):
        found = estimate_judge([case_of(subject, question)], judge, spec.model, price_of)
        used += _times(found.most if longest else found.least, asked.number)
    return used


def _times(usage: Usage, number: int) -> Usage:
    return Usage(
        usage.calls * number,
        usage.prompt_tokens * number,
        0,
        usage.completion_tokens * number,
        None if usage.cost is None else usage.cost * number,
    )
