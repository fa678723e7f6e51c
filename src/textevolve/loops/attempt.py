"""The shared parts of all loops: an attempt and its judgement, the reasons to stop, the time limit,
the similarity of texts, the prompts, the feedback for a writer, and user-defined judges.

A failed attempt is recorded and has no score; it never counts as one with the score 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from typing import Any, Literal, Protocol, cast

from textevolve.errors import BudgetError, CallError, InputError, TextEvolveError, describe_error
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    Usage,
    check_case,
    check_result,
    check_results,
    failure_of,
    is_reasoned,
    select_skipped,
)
from textevolve.events import Listener, StepStarted
from textevolve.json_texts import is_mapping, is_sequence
from textevolve.llm.decisions import probability, softmax
from textevolve.llm.model import Response
from textevolve.llm.structured import describe_fault
from textevolve.protocol.contents import LENGTH
from textevolve.spans import Span, step_span
from textevolve.texts.prose import fold_case, join_lines, space_out
from textevolve.user_code import UserCodeError, call_function, is_async

StopReason = Literal[
    "accepted", "converged", "oscillating", "max_iterations", "budget", "failed", "stopped"
]
"""Why a loop ended: an attempt was accepted, scores no longer rise (`converged`) or go up and down
(`oscillating`), the attempts (`max_iterations`) or a limit (`budget`) are used up, no attempt has a
score (`failed`), or the user stopped it."""


Made = Literal["written", "revised"]
"""How an attempt was made: written from the task alone, or revised from an earlier attempt."""


def draw_by_score(scores: Mapping[int, float], number: int, generator: Random) -> list[int]:
    """Draw `number` of the keys without repetition, each time by the softmax of their scores in
    [0, 1], taken to [0, 10] as the scores of a debate are."""
    remaining = dict(scores)
    drawn: list[int] = []
    while remaining and len(drawn) < number:
        odds = softmax([10 * score for score in remaining.values()])
        (key,) = generator.choices(list(remaining), odds)
        drawn.append(key)
        del remaining[key]

    return drawn


@dataclass(frozen=True, slots=True)
class Attempt:
    """One text that a loop generated, and its judgement. `iteration`: its number, from 1. `output`:
    None if none was generated. `evaluation`: the result, or the failure of generating or judging
    it. `similarity`: to the latest earlier attempt with a score, or to the input that was refined,
    in [0, 1]; None for the first. `notes`: remarks, such as a degenerate output that was requested
    again. `second`: the outcome of a second judge, whose scores the loop does not use; None without
    one. `instructions`: the changes that the judge wants. `made`: None for refined inputs and in
    records of early versions."""

    iteration: int
    output: str | None
    evaluation: EvaluationResult | Failure
    usage: Usage = Usage()
    seconds: float = 0.0
    similarity: float | None = None
    notes: tuple[str, ...] = ()
    second: EvaluationResult | Failure | None = None
    instructions: tuple[str, ...] = ()
    made: Made | None = None

    @property
    def score(self) -> float | None:
        return self.evaluation.score


TIME_IS_UP = "the time limit is reached; raise it to continue"
"""The message of an error, or of a failure, because of the time limit."""


@asynccontextmanager
async def within_time(seconds: float | None) -> AsyncGenerator[None]:
    """Limit the time of the code in the `async with` block; None means no limit.

    Raises:
        BudgetError: the time is up.
    """
    limit = asyncio.timeout(seconds)

    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise BudgetError(TIME_IS_UP) from None


def open_step(
    listener: Listener,
    phase: Literal["generate", "evaluate"],
    step: str,
    case: str = "",
    **details: object,
) -> AbstractContextManager[Span]:
    """Report to the listener that a step of a loop begins, and open its span."""
    listener(StepStarted(case, step, details))
    return step_span(phase, step, **details)


def stop_if_skipped(results: Iterable[object]) -> None:
    """Raise BudgetError with the reason of the first result that a limit prevented."""
    if skipped := select_skipped(results):
        raise BudgetError(skipped.reason)


class CutFailure(Failure):
    """The reason for a missing score if the output was cut at the token limit. It speaks for or
    against no prompt, but whoever rewrites the prompt is told."""

    __slots__ = ()


def failure_of_output(response: Response, option: str) -> Failure | None:
    """Return why an output is not complete; None if it is. `option`: the option that allows more
    tokens."""
    fault = describe_fault(response, "the output")
    if not fault:
        return None
    if response.finish_reason == LENGTH:
        return CutFailure("failed", f"{fault}; {option} may be too low")

    return Failure("failed", fault)


class Generator(Protocol):
    """A function that writes a text for a task. The first text is written from the task alone,
    later ones by revising `previous` according to `feedback`. It gets no other part of the history,
    so its prompt does not grow."""

    async def __call__(
        self,
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str: ...


WORDS_COMPARED = 1000
"""The number of words of each text that are compared, since the time grows with the product of both
numbers."""


def text_similarity(one: str, other: str) -> float:
    """Return the share in [0, 1] of the words of two texts that are in the same order in both; 1 if
    all words are equal. Case is ignored, and only the first `WORDS_COMPARED` words of each text
    count."""
    ours = _compared_words(one)[:WORDS_COMPARED]
    theirs = _compared_words(other)[:WORDS_COMPARED]
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


def _compared_words(text: str) -> list[str]:
    """Return the words of a text with the marks beside them, in small letters; in scripts without
    spaces each sign is a word."""
    return space_out(fold_case(text)).split()


NEAR_COPY = 0.998
"""The similarity to the text that it revises from which an attempt counts as a copy. One word added
to two hundred is still a change."""

SHRUNK = 0.1
GROWN = 10.0
"""The ratios of a revision's length to the length before, below (`SHRUNK`) and above (`GROWN`)
which it counts as degenerate; above only if the revision has more than 2,000 characters."""

LONGEST = 100_000
"""The number of characters above which a first attempt counts as degenerate."""


def notice_degenerate(output: str, previous: str | None) -> str:
    """Return the fault of an output that shows without a judge, or an empty text: it is blank,
    is absurdly short or long, or nearly copies `previous`, the text that it revises (None for a
    first attempt)."""
    if not output.strip():
        return "empty"
    if previous is None:
        return f"longer than {LONGEST:,} characters" if len(output) > LONGEST else ""
    ratio = len(output) / len(previous)
    if ratio < SHRUNK:
        return f"absurdly short: {len(output)} characters after {len(previous)}"
    if ratio > GROWN and len(output) > 2000:
        return f"absurdly long: {len(output):,} characters after {len(previous):,}"
    ours = _compared_words(output)
    theirs = _compared_words(previous)
    same_end = ours[WORDS_COMPARED:] == theirs[WORDS_COMPARED:]
    if same_end and text_similarity(output, previous) >= NEAR_COPY:
        return "a near copy of the attempt before"

    return ""


MOST_INSTRUCTIONS = 10
INSTRUCTION_SHOWN = 400
"""The limits on the instructions for a writer: their number, and the characters of each."""

CLEAR = 0.9
"""The probability of yes from which an answer to a judge's question asks for no change."""


def instructions_of(evaluation: Evaluation, index: int) -> tuple[str, ...]:
    """Return the instructions for changing a candidate, about one sentence each.

    They are taken from the first of these that exists: `metadata["instructions"]` of its result, a
    debate's `feedback`, a judge's questions that were not answered with a clear yes, the lines of
    the result's feedback.
    """
    result = evaluation.result[index]
    if isinstance(result, Failure):
        return ()
    instructions = result.metadata.get("instructions")
    if isinstance(instructions, Sequence) and not isinstance(instructions, str):
        return _tidy(cast(Sequence[object], instructions))
    if feedback := _feedback_of(evaluation):
        part = feedback[index]
        lines = getattr(part, "instructions", ()) or getattr(part, "weaknesses", ())
        if lines:
            return _tidy(lines)

    answers = result.metadata.get("answers")

    if is_mapping(answers):
        questions = sorted(answers.items(), key=lambda item: item[1])
        return _tidy(
            [
                f"Let the answer to this be a clear yes (now {probability(odds):.0%}): {question}"
                for question, odds in questions
                if probability(odds) < CLEAR
            ]
        )

    return _tidy(result.feedback.splitlines())


def _feedback_of(evaluation: Evaluation) -> tuple[Any, ...]:
    """Return a debate's feedback by candidate; other judges give none."""
    feedback: object = getattr(evaluation, "feedback", None)
    return cast(tuple[Any, ...], feedback) if isinstance(feedback, tuple) else ()


REASON_CHARACTERS: Mapping[str, int] = {
    "Instructions": 2000,
    "Weaknesses": 800,
    "Arguments": 1200,
    "Strengths": 300,
}
"""The maximum number of characters of each part of a judge's reasons for a writer, in the order of
the prompt."""


def reasons_of(evaluation: Evaluation) -> str:
    """Return a judge's reasons about the first candidate, for a model that rewrites its prompt: the
    feedback as it is, or for a debate its instructions, weaknesses, arguments of the last round,
    and strengths, in this order. Each part has its own limit, so that no part displaces another."""
    feedback = _feedback_of(evaluation)
    if not feedback:
        result = evaluation.result[0]
        return result.feedback if isinstance(result, EvaluationResult) else ""
    parts = {
        "Instructions": instructions_of(evaluation, 0),
        "Weaknesses": getattr(feedback[0], "weaknesses", ()),
        "Arguments": _arguments(evaluation),
        "Strengths": getattr(feedback[0], "strengths", ()),
    }
    shown_reasons = [
        f"{name}:\n{_within(lines, REASON_CHARACTERS[name])}"
        for name, lines in parts.items()
        if lines
    ]

    return "\n".join(shown_reasons)


def _arguments(evaluation: Evaluation) -> list[str]:
    """Return the arguments of the last round of a debate in which somebody argued, each once."""
    turns = [turn for turn in getattr(evaluation, "turns", ()) if not turn.is_silent]
    last = max((turn.round for turn in turns), default=0)
    return list(dict.fromkeys(turn.argument for turn in turns if turn.round == last))


def _within(lines: Sequence[str], characters: int) -> str:
    """List the lines as bullet points, cut so that all fit into `characters`, each with about the
    same share."""
    shown_texts: list[str] = []
    remaining = characters
    for number, line in enumerate(lines):
        text = _cut(join_lines(str(line)), max(remaining // (len(lines) - number), 1))
        remaining -= len(text)
        shown_texts.append(f"- {text}")

    return "\n".join(shown_texts)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


def _tidy(lines: Sequence[object]) -> tuple[str, ...]:
    """Put each instruction on one line without its bullet, cut to a maximum length; drop
    duplicates, and keep the first `MOST_INSTRUCTIONS`."""
    plain = (join_lines(str(line)).lstrip("-*• ") for line in lines)
    short = dict.fromkeys(_cut(line, INSTRUCTION_SHOWN) for line in plain if line)
    return tuple(short)[:MOST_INSTRUCTIONS]


async def ask_judge(judge: Evaluator, case: Case) -> Evaluation | Failure:
    """Have a judge judge a case; return its evaluation, or a failure for any error that concerns
    only this case.

    Raises:
        FatalModelError, SettingsError, StoreError: the error would be the same for all cases.
    """
    try:
        check_case(case)
        return await judge(case)
    except (CallError, BudgetError, InputError) as error:
        return failure_of(error)
    except TextEvolveError:
        raise
    except Exception as error:  # noqa: BLE001  the caller's own evaluator, on any text
        return Failure("failed", f"the evaluator raised {describe_error(error)}")


def outcome_of(evaluation: Evaluation) -> EvaluationResult | Failure:
    """Return the result of the first candidate; a failure if a user-defined judge returned no
    result, or no valid score."""
    if not evaluation.result:
        return Failure("failed", "the judge gave no result")
    return check_result(evaluation.result[0])


def as_evaluator(given: Callable[[Case], Any]) -> Evaluator:
    """Wrap a callable that takes a `Case` as an evaluator.

    The callable may return an `Evaluation`, or, for each candidate in order, an `EvaluationResult`,
    a `Failure` or a number from 0 to 1; for a single candidate also one of these without a list.
    For any other result, each candidate gets a failure with the reason. An exception becomes a
    `UserCodeError`, which runs treat as a failure of the one case.
    """

    async def judge(case: Case, /) -> Evaluation:
        try:
            return _read(await call_function(given, case), case)
        except TextEvolveError:
            raise
        except Exception as error:
            raise UserCodeError(given, error) from error

    return judge


def as_generator(generator: Callable[..., Any]) -> Generator:
    """Return a callable as an async generator; an async one is returned as it is."""
    if is_async(generator):
        return cast(Generator, generator)

    async def write(
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str:
        return await call_function(
            generator, task, previous=previous, feedback=feedback, temperature=temperature
        )

    return write


def _read(returned: Any, case: Case) -> Evaluation:
    is_evaluation = hasattr(returned, "result")
    listed: Any = returned.result if is_evaluation else returned
    # A pair of a score and its reason is one result, not those of two candidates.
    ones: Sequence[Any] = [listed]
    if is_sequence(listed) and not is_reasoned(listed):
        ones = listed
    results = check_results(ones, len(case.candidates))
    usable = is_evaluation and [*map(type, ones)] == [*map(type, results)]
    if usable and hasattr(returned, "usage") and hasattr(returned, "coverage"):
        return cast(Evaluation, returned)
    return PlainEvaluation(results, getattr(returned, "usage", Usage()))
