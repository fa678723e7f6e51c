"""Shared parts of all loops: an attempt and its judgement, the reasons to stop, the time limit,
text similarity, the prompts, the feedback that a writer gets, and user-defined judges.

A failed attempt is recorded and has no score; it never counts as one of score 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from importlib import resources
from typing import Any, Literal, Protocol, cast

from textevolve.errors import BudgetError, CallError, InputError, TextEvolveError
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    check_result,
    check_results,
    failure_of,
)
from textevolve.llm.choice_logprobs import probability
from textevolve.llm.model import text_hash
from textevolve.user_code import UserCodeError, call_function, is_async

StopReason = Literal[
    "accepted", "converged", "oscillating", "max_iterations", "budget", "failed", "stopped"
]
"""Why a loop ended. `stopped`: by the user; `failed`: no attempt has a score."""


Made = Literal["written", "revised"]
"""How an attempt was made: from the task alone, or from an attempt before."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One text that a loop made, and what became of it. `iteration` counts from 1.

    `output` is None where none was generated; `evaluation` says why in either case where there is
    no result. `similarity` in [0, 1] to the attempt before. `notes`: what was noticed, such as a
    degenerate output that was asked for again. `second`: of a judge that the loop never sees.
    `instructions`: what the judge wants changed. `made`: None where that was not noted.
    """

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
        return self.evaluation.score if isinstance(self.evaluation, EvaluationResult) else None


TIME_IS_UP = "the time limit is reached; raise it to go on"


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


class Generator(Protocol):
    """Makes a text for a task: the first from the task alone, later ones by revising `previous` as
    `feedback` instructs. Nothing else of the history reaches it, so its prompt does not grow."""

    async def __call__(
        self,
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str: ...


@cache
def prompts_version() -> dict[str, str]:
    """Return a hash of each prompt of the loops by its name; a run with another prompt is another
    run."""
    folder = resources.files("textevolve.loops") / "prompts"
    return {
        f"loops.{file.name.removesuffix('.md')}": text_hash(file.read_text(encoding="utf-8"))[:12]
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".md")
    }


WORDS_COMPARED = 1000
"""Of longer texts only the first so many words are compared: the time grows with their product."""


def text_similarity(one: str, other: str) -> float:
    """Return the share in [0, 1] of the words of two texts that stand in the same order in both; 1
    if all words are equal."""
    ours, theirs = (text.casefold().split()[:WORDS_COMPARED] for text in (one, other))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


NEAR_COPY = 0.998
"""Similarity to the attempt before from which one counts as a copy; a word put into a text of two
hundred is a change."""

SHRUNK, GROWN = 0.1, 10.0
"""A revision of less or more than so many times the length before is absurd."""

LONGEST = 100_000
"""Characters above which a first attempt is absurdly long."""


def notice_degenerate(output: str, previous: str | None) -> str:
    """Return what is wrong with an output by length and similarity alone; empty if nothing is."""
    if not output.strip():
        return "empty"
    if "\0" in output:
        return "it holds a NUL character"
    if previous is None:
        return f"longer than {LONGEST:,} characters" if len(output) > LONGEST else ""
    ratio = len(output) / len(previous)
    if ratio < SHRUNK:
        return f"absurdly short: {len(output)} characters after {len(previous)}"
    if ratio > GROWN and len(output) > 2000:
        return f"absurdly long: {len(output):,} characters after {len(previous):,}"
    ours, theirs = output.casefold().split(), previous.casefold().split()
    same_end = ours[WORDS_COMPARED:] == theirs[WORDS_COMPARED:]
    if same_end and text_similarity(output, previous) >= NEAR_COPY:
        return "a near copy of the attempt before"
    return ""


MOST_INSTRUCTIONS = 10
INSTRUCTION_SHOWN = 400
"""The limits on the instructions that a writer gets: their number, and the characters of each."""

CLEAR = 0.9
"""P(yes) from which a judge's question asks for nothing more."""


def instructions_of(evaluation: Evaluation, index: int) -> tuple[str, ...]:
    """Return the instructions for changing a candidate, about one sentence each.

    From `metadata["instructions"]` of its result, a debate's `feedback`, a judge's questions that
    were not answered with a clear yes, or the lines of the result's feedback: the first there is.
    """
    result = evaluation.result[index]
    if isinstance(result, Failure):
        return ()
    instructions = result.metadata.get("instructions")
    if isinstance(instructions, Sequence) and not isinstance(instructions, str):
        return _tidy(cast(Sequence[object], instructions))
    by_candidate: Any = getattr(evaluation, "feedback", None)
    if by_candidate and isinstance(by_candidate, tuple):
        instructions = cast(tuple[Any, ...], by_candidate)[index]
        lines = getattr(instructions, "instructions", ()) or getattr(instructions, "weaknesses", ())
        if lines:
            return _tidy(lines)
    answers = result.metadata.get("answers")
    if isinstance(answers, Mapping):
        return _tidy(_from_questions(cast(Mapping[str, float], answers)))
    return _tidy(result.feedback.splitlines())


REASON_CHARACTERS: Mapping[str, int] = {
    "Instructions": 2000,
    "Weaknesses": 800,
    "Arguments": 1200,
    "Strengths": 300,
}
"""Characters of each part of a judge's reasons that a writer is shown, in this order."""


def reasons_of(evaluation: Evaluation) -> str:
    """Return a judge's reasons about a candidate, for the rewriter of its prompt: the changes come
    first, and each part has its own budget, so that none crowds out another. Of a debate the
    arguments of its last round are among it, as LLM_grad is handed them.
    """
    by_candidate: Any = getattr(evaluation, "feedback", None)
    if not (by_candidate and isinstance(by_candidate, tuple)):
        result = evaluation.result[0]
        return result.feedback if isinstance(result, EvaluationResult) else ""
    reasons = cast(tuple[Any, ...], by_candidate)[0]
    parts = {
        "Instructions": instructions_of(evaluation, 0),
        "Weaknesses": getattr(reasons, "weaknesses", ()),
        "Arguments": _arguments(evaluation),
        "Strengths": getattr(reasons, "strengths", ()),
    }
    shown = [
        f"{name}:\n{_within(lines, REASON_CHARACTERS[name])}"
        for name, lines in parts.items()
        if lines
    ]
    return "\n".join(shown)


def _arguments(evaluation: Evaluation) -> list[str]:
    """Return the arguments of the last round of a debate."""
    turns = [turn for turn in getattr(evaluation, "turns", ()) if turn.argument]
    last = max((turn.round for turn in turns), default=0)
    return [turn.argument for turn in turns if turn.round == last]


def _within(lines: Sequence[str], characters: int) -> str:
    """List the lines as bullet points, cut so that all fit into `characters`, each with about the
    same share."""
    shown: list[str] = []
    remaining = characters
    for number, line in enumerate(lines):
        text = _cut(" ".join(str(line).split()), max(remaining // (len(lines) - number), 1))
        remaining -= len(text)
        shown.append(f"- {text}")
    return "\n".join(shown)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


def _from_questions(answers: Mapping[str, float]) -> list[str]:
    """Turn the questions that a judge did not answer with a clear yes into instructions, the worst
    first."""
    return [
        f"Let the answer to this be a clear yes (now {probability(odds):.0%}): {question}"
        for question, odds in sorted(answers.items(), key=lambda one: one[1])
        if probability(odds) < CLEAR
    ]


def _tidy(lines: Sequence[object]) -> tuple[str, ...]:
    """Put each instruction on one line without its bullet, cut to a maximum length; drop
    duplicates, and keep the first `MOST_INSTRUCTIONS`."""
    plain = (" ".join(str(line).split()).lstrip("-*• ") for line in lines)
    short = dict.fromkeys(_cut(line, INSTRUCTION_SHOWN) for line in plain if line)
    return tuple(short)[:MOST_INSTRUCTIONS]


async def ask_judge(judge: Evaluator, case: Case) -> Evaluation | Failure:
    """Ask a judge about a case; return its evaluation, or a failure for any error of this case
    alone.

    Raises:
        FatalModelError, SettingsError, StoreError: it would be the same for all cases.
    """
    try:
        check_case(case)
        return await judge(case)
    except (CallError, BudgetError, InputError) as error:
        return failure_of(error)
    except TextEvolveError:
        raise
    except Exception as error:  # noqa: BLE001  the caller's own evaluator, on any text
        return Failure("failed", f"the evaluator raised {type(error).__name__}: {error}")


def outcome_of(evaluation: Evaluation) -> EvaluationResult | Failure:
    """Return the outcome for the candidate; a user-defined judge may return none, or no score."""
    if not evaluation.result:
        return Failure("failed", "the judge gave no result")
    return check_result(evaluation.result[0])


@dataclass(frozen=True, slots=True)
class PlainEvaluation:
    """An evaluation that holds given results, usage and coverage."""

    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage
    coverage: float


def as_evaluator(given: Callable[[Case], Any]) -> Evaluator:
    """Wrap a callable that takes a `Case` as an evaluator.

    It may give an `Evaluation`; or, for each candidate in order, an `EvaluationResult`, a `Failure`
    or a number from 0 to 1; for a single candidate also one of these alone. Where it gives anything
    else, each candidate has a failure that says what is wrong; what it raises comes as a
    `UserCodeError`, which every run takes for a failure of the one case.
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
    ones = cast("Sequence[Any]", listed) if isinstance(listed, list | tuple) else [listed]
    results = check_results(ones, len(case.candidates))
    usable = is_evaluation and [*map(type, ones)] == [*map(type, results)]
    if usable and hasattr(returned, "usage") and hasattr(returned, "coverage"):
        return cast(Evaluation, returned)
    scored = sum(isinstance(result, EvaluationResult) for result in results)
    return PlainEvaluation(results, getattr(returned, "usage", Usage()), scored / len(results))
