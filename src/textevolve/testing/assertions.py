"""The assertions that tests make, plain and async, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from textevolve.errors import InputError, TextEvolveError, UnjudgedError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, check_case
from textevolve.rows import read_argument
from textevolve.testing.session import JudgingSession, find_session

if TYPE_CHECKING:
    from textevolve.api.assertions import Asked
    from textevolve.studies.assertions import Assertion

Judge: TypeAlias = str | Evaluator | None
GivenText: TypeAlias = tuple[str, str] | Mapping[str, Any]

__tracebackhide__ = True  # pytest shows no frames of this file


@dataclass(frozen=True)
class TextToJudge:
    """A text with what is demanded of it: the arguments of `assert_text`."""

    input: str
    output: str
    judge: Judge = None
    min_score: float | None = None
    rubric: str = ""
    reference: str | None = None
    context: str | None = None
    model: str | None = None


def judge_text(
    input: str,
    output: str,
    *,
    judge: Judge = None,
    rubric: str = "",
    reference: str | None = None,
    context: str | None = None,
    model: str | None = None,
) -> EvaluationResult:
    """Judge an output: its score in [0, 1], the feedback, whether the judge lets it pass.

    `judge`: its name, such as "probe+rules", or an evaluator or function of your own; None: that of
    the session. `rubric`: what to judge by, a text or @FILE. `reference`: an answer to compare
    with. `context`: the texts that the output must keep to, for judges of faithfulness. `model`:
    whom the judge asks.

    Raises:
        UnjudgedError: no score came. InputError: a text or the judge cannot be used.
    """
    text = TextToJudge(input, output, judge, None, rubric, reference, context, model)
    return _wait([text], asserted=False)[0]


def assert_text(
    input: str,
    output: str,
    *,
    judge: Judge = None,
    min_score: float | None = None,
    rubric: str = "",
    reference: str | None = None,
    context: str | None = None,
    model: str | None = None,
) -> EvaluationResult:
    """Assert that an output is good enough: its score is `min_score` or more. Where there is none
    for the session either, the judge says what passes. See `judge_text`.

    Raises:
        AssertionError: it is not; shows output, score and what the judge said.
        UnjudgedError: no score came, which is never counted as 0.
        InputError: a text, the judge or the score cannot be used.
    """
    text = TextToJudge(input, output, judge, min_score, rubric, reference, context, model)
    return _wait([text])[0]


def assert_texts(
    texts: Iterable[GivenText],
    *,
    judge: Judge = None,
    min_score: float | None = None,
    rubric: str = "",
    model: str | None = None,
) -> list[EvaluationResult]:
    """The same of many texts, which are judged at once: pairs (input, output), or mappings with
    what else `assert_text` takes, which wins over what is said for all. All are judged before the
    test fails.
    """
    return _wait(_read_texts(texts, TextToJudge("", "", judge, min_score, rubric, model=model)))


async def ajudge_text(
    input: str,
    output: str,
    *,
    judge: Judge = None,
    rubric: str = "",
    reference: str | None = None,
    context: str | None = None,
    model: str | None = None,
) -> EvaluationResult:
    """`judge_text` for async tests."""
    text = TextToJudge(input, output, judge, None, rubric, reference, context, model)
    return (await _await([text], asserted=False))[0]


async def aassert_text(
    input: str,
    output: str,
    *,
    judge: Judge = None,
    min_score: float | None = None,
    rubric: str = "",
    reference: str | None = None,
    context: str | None = None,
    model: str | None = None,
) -> EvaluationResult:
    """`assert_text` for async tests; several may be awaited at once."""
    text = TextToJudge(input, output, judge, min_score, rubric, reference, context, model)
    return (await _await([text]))[0]


async def aassert_texts(
    texts: Iterable[GivenText],
    *,
    judge: Judge = None,
    min_score: float | None = None,
    rubric: str = "",
    model: str | None = None,
) -> list[EvaluationResult]:
    """`assert_texts` for async tests."""
    shared = TextToJudge("", "", judge, min_score, rubric, model=model)
    return await _await(_read_texts(texts, shared))


def _read_texts(texts: Iterable[GivenText], shared: TextToJudge) -> list[TextToJudge]:
    if isinstance(texts, str | Mapping):
        raise InputError("texts must be a list of pairs (input, output), or of mappings")
    read: list[TextToJudge] = []
    for number, text in enumerate(texts, 1):
        try:
            if isinstance(text, Mapping):
                read.append(replace(shared, **{"input": None, "output": None, **text}))
            else:
                input, output = text
                read.append(replace(shared, input=input, output=output))
        except (TypeError, ValueError):
            names = ", ".join(asdict(shared))
            raise InputError(f"text {number}: give a pair, or a mapping with {names}") from None
    return read


def _wait(texts: list[TextToJudge], *, asserted: bool = True) -> list[EvaluationResult]:
    session = find_session()
    try:
        made = session.open().wait([_ask(session, text, asserted) for text in texts])
    except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
        raise _hide_frames(error) from error.__cause__
    return _settle(session, made)


async def _await(texts: list[TextToJudge], *, asserted: bool = True) -> list[EvaluationResult]:
    session = find_session()
    try:
        made = await session.open().judge([_ask(session, text, asserted) for text in texts])
    except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
        raise _hide_frames(error) from error.__cause__
    return _settle(session, made)


def _hide_frames(error: Exception) -> Exception:
    """The error as a test sees it: without the frames of ours that it came through."""
    if isinstance(error, TextEvolveError):
        error.__cause__ = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("textevolve", "asyncio", "concurrent"):
            break
        trace = trace.tb_next
    return error.with_traceback(trace)


def _ask(session: JudgingSession, text: TextToJudge, asserted: bool) -> Asked:
    """The case that a text is, and what is asked of it."""
    name, place = session.name_next()
    reference, context, least = text.reference, text.context, text.min_score
    case = Case(text.input, (text.output,), name, reference=reference, context=context)
    try:
        check_case(case)
    except InputError as error:
        raise InputError(str(error).replace("candidate 1", "the output")) from None
    demand = session.open().demand(
        text.judge,
        text.model,
        rubric=read_argument(text.rubric) if text.rubric else "",
        min_score=session.options.min_score if least is None and asserted else least,
        asserted=asserted,
        reference=reference is not None,
        context=context is not None,
    )
    return case, replace(demand, position=place)


def _settle(session: JudgingSession, made: list[Assertion]) -> list[EvaluationResult]:
    """The results, where all texts have one and are good enough."""
    from textevolve.testing.messages import describe

    if any(one.demand.asserted and one.passed is False for one in made):
        raise AssertionError(describe(made, session.open().id))
    if all(isinstance(one.result, EvaluationResult) for one in made):
        return [cast(EvaluationResult, one.result) for one in made]
    message = describe(made, session.open().id)
    if session.options.unjudged == "skip":
        import pytest

        pytest.skip(message.splitlines()[0])
    raise UnjudgedError(message)
