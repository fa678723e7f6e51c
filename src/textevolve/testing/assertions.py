"""The assertions that tests call, in async and blocking form, and their conversion to judgements of
the session's run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from textevolve.engine import sync
from textevolve.errors import InputError, TextEvolveError, UnjudgedError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, check_case, select_scored
from textevolve.rows import read_argument
from textevolve.rows.columns import join_passages
from textevolve.testing.session import JudgingSession, find_session

if TYPE_CHECKING:
    from textevolve.studies.assertions import Demand

P = ParamSpec("P")
T = TypeVar("T")

# A judge: its text, a list of checks such as "contains: 30 days", the user's evaluator or function,
# or None for the session's judge.
JudgeLike: TypeAlias = str | Sequence[Any] | Evaluator | Callable[[Case], object] | None
# An (input, output) pair, or a mapping with the arguments of `assert_text`.
TextLike: TypeAlias = tuple[str, str] | Mapping[str, Any]

NAMES = (
    "input",
    "output",
    "judge",
    "min_score",
    "rubric",
    "reference",
    "context",
    "model",
)

__tracebackhide__ = True  # pytest shows no frames of this file


async def aassert_text(
    input: str,
    output: str,
    *,
    judge: JudgeLike = None,
    min_score: float | None = None,
    rubric: str = "",
    reference: str | None = None,
    context: str | Sequence[str] | None = None,
    model: str | None = None,
) -> EvaluationResult:
    """Assert that an output is good enough, and return its result: a score in [0, 1] with feedback.

    `judge`: a judge's text, such as "probe+rules", a list of checks, such as ["contains: 30 days",
    "rubric: is polite"], or the user's evaluator or function; None: the judge of the session.
    `min_score`: the lowest score that passes; None: that of the session, or else the judge's own
    threshold; 0 lets every score pass. `rubric`: the criteria, as a text or @FILE. `reference`: an
    answer to compare with. `context`: the source texts, as one text or a list of passages, for
    judges of faithfulness. `model`: the model that the judge calls.

    Raises:
        AssertionError: the output is not good enough; shows it with its score and the feedback.
        UnjudgedError: there is no score, which never counts as 0.
        InputError: a text, the judge or the score cannot be used.
    """
    demand = {
        "input": input,
        "output": output,
        "judge": judge,
        "min_score": min_score,
        "rubric": rubric,
        "reference": reference,
        "context": context,
        "model": model,
    }

    return (await _judge([demand]))[0]


async def aassert_texts(
    texts: Iterable[TextLike],
    *,
    judge: JudgeLike = None,
    min_score: float | None = None,
    rubric: str = "",
    model: str | None = None,
) -> list[EvaluationResult]:
    """Assert that several outputs are good enough, and return their results in order. Each text is
    a pair (input, output), or a mapping with arguments of `assert_text` that override those of this
    call. All texts are judged, concurrently, before the test fails."""
    shared = {"judge": judge, "min_score": min_score, "rubric": rubric, "model": model}
    return await _judge([{**shared, **_read_text(t, n)} for n, t in enumerate(texts, 1)])


def _waiting(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the blocking form of an async assertion, for tests that are not async."""

    @wraps(verb)
    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return sync.run(verb(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
            raise _hide_frames(error) from error.__cause__

    wait.__name__ = wait.__qualname__ = verb.__name__.removeprefix("a")

    return wait


assert_text = _waiting(aassert_text)
assert_texts = _waiting(aassert_texts)


def _read_text(text: TextLike, number: int) -> Mapping[str, Any]:
    try:
        if not isinstance(text, Mapping):
            input, output = text
            return {"input": input, "output": output}
    except (TypeError, ValueError):
        text = {"": None}

    if not set(text) <= set(NAMES):
        raise InputError(f"text {number}: give a pair, or a mapping with {', '.join(NAMES)}")

    return text


async def _judge(texts: list[dict[str, Any]]) -> list[EvaluationResult]:
    """Judge the texts and return their results. Raise an error if one has no result or is not good
    enough."""
    session = find_session()
    run = session.open()
    try:
        assertions = await run.judge([_demand(session, text) for text in texts])
    except Exception as error:  # noqa: BLE001  a judge of the test's own may raise anything
        raise _hide_frames(error) from error.__cause__

    results = select_scored(assertion.result for assertion in assertions)
    failed = any(assertion.passed is False for assertion in assertions)
    if not failed and len(results) == len(assertions):
        return results
    from textevolve.testing.messages import describe_failures

    message = describe_failures(assertions, run.id)
    raise AssertionError(message) if failed else UnjudgedError(message)


def _demand(session: JudgingSession, text: Mapping[str, Any]) -> tuple[Case, Demand]:
    """Return a text as a case, with the judge and score that the case must satisfy."""
    name, place = session.name_next()
    context = text.get("context")
    values = text.get("reference"), context and join_passages(context)
    case = Case(text.get("input"), (text.get("output"),), name, {}, *values)  # pyright: ignore[reportArgumentType]  checked next
    try:
        check_case(case)
    except InputError as error:
        raise InputError(str(error).replace("candidate 1", "the output")) from None

    rubric = text.get("rubric") or ""
    least = text.get("min_score")
    demand = session.open().demand(
        text.get("judge"),
        case,
        model=text.get("model") or "",
        rubric=read_argument(rubric) if rubric else "",
        min_score=session.options.min_score if least is None else least,
        position=place,
    )

    return case, demand


def _hide_frames(error: Exception) -> Exception:
    """Return the error without this package's own frames at the start of its traceback."""
    if isinstance(error, TextEvolveError):
        error.__cause__ = None
    trace: TracebackType | None = error.__traceback__

    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("textevolve", "asyncio", "concurrent", "contextlib"):
            break
        trace = trace.tb_next

    return error.with_traceback(trace)
