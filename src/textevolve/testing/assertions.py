"""The assertions that tests make, plain and async, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

FIELDS = ("input", "output", "judge", "min_score", "rubric", "reference", "context", "model")


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
    """What a judge makes of an output: its score in [0, 1], its feedback, whether it lets it pass.

    `judge`: its name, such as "probe+rules", or an evaluator or function of your own; None: that of
    the session. `rubric`: what to judge by, a text or @FILE. `reference`: an answer to compare
    with. `context`: the texts that the output must keep to, for judges of faithfulness. `model`:
    whom the judge asks.

    Raises:
        UnjudgedError: no score came. InputError: a text or the judge cannot be used.
    """
    __tracebackhide__ = True
    text = _text(input, output, judge, None, rubric, reference, context, model)
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
    __tracebackhide__ = True
    return _wait([_text(input, output, judge, min_score, rubric, reference, context, model)])[0]


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
    __tracebackhide__ = True
    return _wait(_read_texts(texts, judge, min_score, rubric, model))


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
    __tracebackhide__ = True
    text = _text(input, output, judge, None, rubric, reference, context, model)
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
    __tracebackhide__ = True
    text = _text(input, output, judge, min_score, rubric, reference, context, model)
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
    __tracebackhide__ = True
    return await _await(_read_texts(texts, judge, min_score, rubric, model))


def _text(*given: Any) -> dict[str, Any]:
    return dict(zip(FIELDS, given, strict=True))


def _read_texts(
    texts: Iterable[GivenText],
    judge: Judge,
    min_score: float | None,
    rubric: str,
    model: str | None,
) -> list[dict[str, Any]]:
    __tracebackhide__ = True
    if isinstance(texts, str | Mapping):
        raise InputError("texts must be a list of pairs (input, output), or of mappings")
    shared = {"judge": judge, "min_score": min_score, "rubric": rubric, "model": model}
    found: list[dict[str, Any]] = []
    for number, given in enumerate(texts, 1):
        text = _read_pair(given)
        if text is None or not {"input", "output"} <= set(text):
            raise InputError(f"text {number}: give a pair, or a mapping with input and output")
        if unknown := [name for name in text if name not in FIELDS]:
            raise InputError(f"text {number}: no '{unknown[0]}'; there are: {', '.join(FIELDS)}")
        found.append({"reference": None, "context": None, **shared, **text})
    return found


def _read_pair(given: object) -> dict[str, Any] | None:
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    pair = cast("Sequence[Any]", given)
    if isinstance(given, tuple | list) and len(pair) == 2:
        return {"input": pair[0], "output": pair[1]}
    return None


def _wait(texts: list[dict[str, Any]], *, asserted: bool = True) -> list[EvaluationResult]:
    __tracebackhide__ = True
    session = find_session()
    try:
        made = session.open().wait([_ask(session, text, asserted) for text in texts])
    except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
        raise _hide_ours(error) from error.__cause__
    return _settle(session, made)


async def _await(texts: list[dict[str, Any]], *, asserted: bool = True) -> list[EvaluationResult]:
    __tracebackhide__ = True
    session = find_session()
    try:
        made = await session.open().judge([_ask(session, text, asserted) for text in texts])
    except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
        raise _hide_ours(error) from error.__cause__
    return _settle(session, made)


def _hide_ours(error: Exception) -> Exception:
    """The error as a test sees it: where one of ours was raised is none of its business."""
    if isinstance(error, TextEvolveError):
        error.__cause__ = None
        return error.with_traceback(None)
    return error.with_traceback(_foreign(error.__traceback__))


def _foreign(trace: TracebackType | None) -> TracebackType | None:
    """The end of a traceback that is not ours, such as in a judge of the test's own."""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("textevolve", "asyncio", "concurrent"):
            return trace
        trace = trace.tb_next
    return None


def _ask(session: JudgingSession, text: Mapping[str, Any], asserted: bool) -> Asked:
    """The case that a text is, and what is asked of it."""
    name, place = session.name_next()
    reference, context = text["reference"], text["context"]
    case = Case(text["input"], (text["output"],), name, reference=reference, context=context)
    try:
        check_case(case)
    except InputError as error:
        raise InputError(str(error).replace("candidate 1", "the output")) from None
    least = text["min_score"]
    demand = session.open().demand(
        text["judge"],
        text["model"],
        rubric=read_argument(text["rubric"]) if text["rubric"] else "",
        min_score=session.options.min_score if least is None and asserted else least,
        asserted=asserted,
        reference=reference is not None,
        context=context is not None,
    )
    return case, replace(demand, position=place)


def _settle(session: JudgingSession, made: list[Assertion]) -> list[EvaluationResult]:
    """The results, where all texts have one and are good enough."""
    __tracebackhide__ = True
    from textevolve.testing.messages import say_failures, say_unjudged

    run = session.open().id
    if any(one.demand.asserted and one.passed is False for one in made):
        raise AssertionError(say_failures(made, run))
    results = [one.result for one in made if isinstance(one.result, EvaluationResult)]
    if len(results) == len(made):
        return results
    said = say_unjudged(made, run)
    if session.options.unjudged == "skip":
        import pytest

        pytest.skip(said.splitlines()[0])
    raise UnjudgedError(said)
