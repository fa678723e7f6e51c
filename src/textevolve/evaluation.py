"""The data types of judging: an `Evaluator` judges a `Case` and returns an `Evaluation`.

Every judge in this project, from a rule to a debate, is an `Evaluator`, so judges are
interchangeable. Other packages compute the scores; nothing here calls a model. All verbs return a
`Result`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from os.path import commonprefix
from typing import Any, ClassVar, Literal, Protocol, TypeGuard, TypeVar, cast

from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
)
from textevolve.images import check_image, image_reference
from textevolve.json_texts import is_mapping
from textevolve.ledger import note_line
from textevolve.mappings import drop_empty, omit
from textevolve.showing import Drawing, Shown
from textevolve.trajectory import Trajectory

T = TypeVar("T")


def empty_default(kind: Callable[[], object]) -> Any:
    """Declare a field of a dataclass whose default is a new empty collection, such as `dict`, for
    each object. The return type is Any, so that the annotation of the field decides its type."""
    return field(default_factory=kind)


@dataclass(frozen=True, slots=True)
class Case:
    """An input, and the candidate texts to be judged for it.

    `parameters` are settings of this case (`rounds`, `weights`, ...), which override the run's, the
    ids of the span that it comes from (`span_id`, `trace_id`), and the `group` of the cases that
    depend on each other.
    `reference`: a gold answer; a judge with a reference reads it instead of writing its own.
    `context`: the texts that an answer must agree with; only judges of faithfulness read them.
    `images`: the images of the input, as data URLs. `candidate_images`: one tuple of data URLs for
    each candidate, or empty if no candidate has an image (`textevolve.read_image` turns files into
    data URLs). `trajectory`: the steps by which the application reached the only candidate, for
    judges and metrics of trajectories.
    """

    input: str
    candidates: tuple[str, ...]
    id: str = ""
    parameters: Mapping[str, Any] = empty_default(dict)
    reference: str | None = None
    context: str | None = None
    images: tuple[str, ...] = field(default=(), repr=False)
    candidate_images: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    trajectory: Trajectory | None = None

    def __post_init__(self) -> None:
        # Here, where the texts of every command become a case, so that all judges and stores get
        # the same text, and none loses its score by one character.
        texts = (self.input, *self.candidates, self.reference, self.context)
        if "\0" in "".join(map(str, texts)):
            note_line("U+0000, which no database can hold, became U+FFFD in the texts of cases")
            for name in ("input", "candidates", "reference", "context"):
                object.__setattr__(self, name, mend_texts(getattr(self, name)))


# Parameters that are no settings, but name the span that a case comes from.
SPAN_IDS = ("span_id", "trace_id")
ROW = "row"
LABEL = "label"
"""The parameters that hold the whole row and its label as they were, for a metric that is the
user's function."""
CHECKS = "checks"
SPENT = "spent"
"""The parameters that hold the checks of a row, and what its output has cost: `cost` in US dollars,
and `seconds`."""
GROUP = "group"
EQUAL_TO = "equal_to"
"""The parameters that hold the group of a case, and the id of an earlier case that is equal to it.
Cases of one group, and equal cases, are no independent observations."""
TITLE = "row_title"
"""The parameter that holds the name by which people know a case without an id, such as its ticket.
It changes no judgement, and no run."""
NO_SETTINGS = (*SPAN_IDS, ROW, LABEL, CHECKS, SPENT, GROUP, EQUAL_TO, TITLE)


def settings_of(case: Case) -> dict[str, Any]:
    """Return the parameters of a case that are settings of its judge."""
    return omit(case.parameters, NO_SETTINGS)


def cluster_of(parameters: Mapping[str, Any]) -> str:
    """Return the name of the cluster to which a case with these parameters belongs: its group, or
    the id of the case that it is equal to. Empty: the case is a cluster of its own."""
    if GROUP in parameters:
        return f"{GROUP} {parameters[GROUP]}"
    return parameters.get(EQUAL_TO, "")


PASSES = 0.5
"""The passing threshold for results that are a plain number without a verdict."""
ROUNDING = 1e-9
"""The difference of two scores that rounding can make: five rules of which four hold may come to
0.7999999999999999, which passes from 0.8 on; a cosine of equal texts may be above 1, and is 1."""


def reaches(score: float, threshold: float) -> bool:
    """Tell whether a score passes from a threshold on."""
    return score >= threshold - ROUNDING


IMAGE_ALONE = "(image)"
"""The text of a candidate that consists only of an image."""


def refer_to_images(case: Case) -> Case:
    """Return the case in the form that records store: each image is replaced by a short reference,
    since the store has the image already."""
    if not case.images and not case.candidate_images:
        return case
    return replace(
        case,
        images=tuple(map(image_reference, case.images)),
        candidate_images=tuple(
            tuple(map(image_reference, images)) for images in case.candidate_images
        ),
    )


def choose_candidates(case: Case, numbers: Sequence[int]) -> Case:
    """Return the case with only the candidates at these indices, in this order, and their
    images."""
    images = case.candidate_images
    return replace(
        case,
        candidates=tuple(case.candidates[n] for n in numbers),
        candidate_images=tuple(images[n] for n in numbers) if images else (),
    )


def check_case(case: Case) -> None:
    """Raise InputError if the case has no candidate, or has a text or an image that cannot be
    judged."""
    if not case.candidates:
        raise InputError(
            "no candidates: the output to be judged is missing or empty"
            " (compare has a model write outputs)"
        )
    check_text("the input", case.input)
    for number, text in enumerate(case.candidates, 1):
        check_text(f"candidate {number}", text)
    for name, text in (("the reference", case.reference), ("the context", case.context)):
        if text is not None:
            check_text(name, text)
    if case.images or case.candidate_images:
        check_images(case)


def check_images(case: Case) -> None:
    """Raise InputError if an image is not a valid data URL, or if the number of lists of candidate
    images differs from the number of candidates."""
    for number, url in enumerate(case.images, 1):
        check_image(f"image {number} of the input", url)
    if case.candidate_images and len(case.candidate_images) != len(case.candidates):
        raise InputError(
            f"candidate_images: has {len(case.candidate_images)} entries for"
            f" {len(case.candidates)} candidates; give one list of images for each candidate"
        )

    for place, own_names in enumerate(case.candidate_images, 1):
        for number, url in enumerate(own_names, 1):
            check_image(f"image {number} of candidate {place}", url)


def reject_candidate_images(case: Case, judge: str) -> None:
    """Raise InputError if a candidate has images, because this judge reads only texts. `judge`: its
    name for the message."""
    if any(case.candidate_images):
        raise InputError(
            f"{judge} reads texts alone, and the candidates have images: use a judge whose model"
            " sees images, such as probe or pairwise"
        )


def check_text(name: str, text: str) -> None:
    """Raise InputError if a text is blank, or has characters that cannot be sent or stored. `name`:
    how the message names the text."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"{name} is not a text but {type(text).__name__}")
    if not text.strip():
        raise InputError(f"{name} is blank")
    if (mended := mend_text(text)) != text:
        position = len(commonprefix((text, mended)))  # noqa: RUF071  of characters
        raise InputError(
            f"{name} has a NUL character or half a surrogate pair at position {position}: not valid"
            " text"
        )


def mend_text(text: str) -> str:
    """Return the text with U+0000, and each lone half of a surrogate pair, replaced by U+FFFD,
    since files, databases and requests reject them. Two halves in a row become the character that
    they encode."""
    text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mend_texts(value: Any) -> Any:
    """Apply `mend_text` to a text, or to all texts in nested mappings and lists; return other
    values unchanged."""
    if isinstance(value, str):
        return mend_text(value)
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return {mend_texts(name): mend_texts(inner) for name, inner in items}
    if type(value) in (list, tuple):
        return type(value)(map(mend_texts, value))

    return value


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a text has no score. A failure never counts as a score of zero.

    `failed`: the judge was called and gave no usable answer. `skipped`: it was not called (a
    budget, a rule).
    """

    kind: Literal["failed", "skipped"]
    reason: str
    score: ClassVar[None] = None

    @property
    def feedback(self) -> str:
        return self.reason


def failure_of(error: Exception) -> Failure:
    """Convert an error into a failure: `skipped` if a budget prevented the call, otherwise
    `failed`."""
    return Failure("skipped" if isinstance(error, BudgetError) else "failed", str(error))


def error_of(failure: Failure) -> BudgetError | AnswerError:
    """Convert a failure into an error to raise where a result is needed: BudgetError for `skipped`,
    AnswerError for `failed`."""
    return (BudgetError if failure.kind == "skipped" else AnswerError)(failure.reason)


def select_failure(outcomes: Iterable[object]) -> Failure | None:
    """Return the first failure among the outcomes, one that a limit caused (`skipped`) before
    others; None if there is none."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    return min(failures, key=lambda failure: failure.kind != "skipped", default=None)


def select_skipped(outcomes: Iterable[object]) -> Failure | None:
    """Return the first failure that a limit caused (`skipped`); None if there is none."""
    failure = select_failure(outcomes)
    return failure if failure is not None and failure.kind == "skipped" else None


async def attempt(work: Awaitable[T], *caught: type[TextEvolveError]) -> T | Failure:
    """Await calls to models, and return their result. If a call fails, or a limit forbids it,
    return a failure; errors of the types in `caught` also become failures.

    Raises:
        FatalModelError: no call can succeed.
    """
    try:
        return await work
    except FatalModelError:
        raise
    except (ModelError, BudgetError, *caught) as error:
        return failure_of(error)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The judgement of one text. `score`: in [0, 1], higher is better. `passed`: the verdict.
    `feedback`: the judge's text for people; empty if it gives none. `metadata`: further figures of
    the judge."""

    score: float
    passed: bool
    feedback: str = ""
    metadata: Mapping[str, Any] = empty_default(dict)


def find_score_fault(score: object) -> str:
    """Return the reason why a score cannot be used; empty for a number from 0 to 1. Other scores
    are not clipped, unless the difference is one of rounding."""
    if not isinstance(score, Real):
        return f"the score is not a number but {type(score).__name__}"
    if -ROUNDING <= float(score) <= 1 + ROUNDING:
        return ""
    return f"the score {score} is outside 0 to 1"  # NaN, too


def as_number(value: object) -> float | None:
    """Return a number of any library, such as a truth of numpy or a Decimal; None for a text and
    for anything else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(cast("Any", value))
    except (TypeError, ValueError, OverflowError):
        return None


SCORES = ("score", "value")
REASONS = ("feedback", "comment", "reason", "rationale")
"""The fields in which results of other tools hold the score (`SCORES`) and the reason (`REASONS`):
`comment` is that of openevals, `reason` of DeepEval, `value` and `rationale` of MLflow's
`Feedback`; autoevals has a `rationale` in its metadata."""
VERDICTS = {"yes": 1.0, "no": 0.0}
"""The scores of verdicts in words, which the judges of MLflow give."""


def is_reasoned(result: object) -> TypeGuard[tuple[Any, str]]:
    """Return whether a result is a pair of a score and its reason."""
    if not isinstance(result, tuple):
        return False
    parts = cast("tuple[object, ...]", result)
    return len(parts) == 2 and isinstance(parts[1], str)


def read_parts(result: Any) -> tuple[Any, str]:
    """Read the score and the reason from a result: a pair of both, or a mapping or an object of
    another tool. The score is None and the reason empty if the result has none."""
    if is_reasoned(result):
        return result

    def read(name: str) -> Any:
        if is_mapping(result):
            return result.get(name)
        return getattr(result, name, None)

    score = next((value for name in SCORES if (value := read(name)) is not None), None)
    score = VERDICTS.get(score, score) if isinstance(score, str) else score
    inner = read("metadata")
    reasons: list[Any] = list(map(read, REASONS))
    reasons += [inner.get("rationale")] if is_mapping(inner) else []

    return score, next((text for text in reasons if isinstance(text, str) and text), "")


def check_result(value: Any) -> EvaluationResult | Failure:
    """Convert the result of any judge for one text into an `EvaluationResult`. A result without a
    verdict of its own, such as a number, passes if its score is `PASSES` or more. Return a failure
    if the value is a `Failure` or no result, or if its score cannot be used."""
    if isinstance(value, Failure):
        return replace(value, reason=mend_text(value.reason))
    if isinstance(value, EvaluationResult):
        result = value
    else:
        number = as_number(value)
        score, reason = (value, "") if number is not None else read_parts(value)
        score = as_number(score)
        if score is None:
            error = reason or getattr(value, "error", None)
            return Failure(
                "failed",
                f"the judge gave {type(value).__name__} for a candidate: it must give a number from"
                " 0 to 1, an EvaluationResult or a Failure, or an Evaluation of all"
                + (f"; it says: {error}" if error else ""),
            )

        result = EvaluationResult(score, reaches(score, PASSES), reason)

    if fault := find_score_fault(result.score):
        return Failure("failed", f"the judge's result cannot be used: {fault}")
    feedback = mend_texts(result.feedback)
    metadata = mend_texts(result.metadata)

    score = min(1.0, max(0.0, float(result.score)))

    return EvaluationResult(score, result.passed, feedback, metadata)


def check_results(
    results: Sequence[Any], candidates: int
) -> tuple[EvaluationResult | Failure, ...]:
    """Apply `check_result` to each result of a judge. If the number of results differs from the
    number of candidates, all candidates get a failure, since results cannot be assigned to them."""
    if len(results) == candidates:
        return tuple(map(check_result, results))
    gave = f"the judge gave {len(results)} results for {candidates} candidates"
    return (Failure("failed", f"{gave}: it must give one for each, in their order"),) * candidates


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of model calls. `cost` is in US dollars, None if the cost of any call is unknown.
    `cached_tokens` are included in `prompt_tokens`, `reasoning_tokens` in `completion_tokens`.
    `saved`: the US dollars that prompt caching saved, less the cost of writing the cache; None if
    unknown for any call. `estimated`: the number of calls whose endpoint reported no tokens, so
    that tokens were counted from the texts. `models`: the number of answers by another model than
    the requested one, by the names of both (`ANSWERED_BY`). `cut_prompts`: the number of calls
    whose endpoint counted so few tokens that it has probably cut the prompt."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    reasoning_tokens: int = 0
    saved: float | None = 0.0
    estimated: int = 0
    models: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    cut_prompts: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return self._add(other, 1)

    def __sub__(self, before: Usage) -> Usage:
        """Return the usage since `before`, an earlier state of the same sum."""
        return self._add(before, -1)

    def _add(self, other: Usage, sign: int) -> Usage:
        models = self.models
        if other.models:
            names = {**self.models, **other.models}
            sums = {n: models.get(n, 0) + sign * other.models.get(n, 0) for n in names}
            models = drop_empty(sums)
        cost = None
        if self.cost is not None and other.cost is not None:
            cost = self.cost + sign * other.cost
        saved = None
        if self.saved is not None and other.saved is not None:
            saved = self.saved + sign * other.saved

        return Usage(
            self.calls + sign * other.calls,
            self.prompt_tokens + sign * other.prompt_tokens,
            self.cached_tokens + sign * other.cached_tokens,
            self.completion_tokens + sign * other.completion_tokens,
            cost,
            self.reasoning_tokens + sign * other.reasoning_tokens,
            saved,
            self.estimated + sign * other.estimated,
            models,
            self.cut_prompts + sign * other.cut_prompts,
        )


ANSWERED_BY = " was answered by "
"""The separator in the keys of `Usage.models`, between the requested model and the model that
answered."""


class HasUsage(Protocol):
    @property
    def usage(self) -> Usage: ...


class Evaluation(HasUsage, Protocol):
    """The return value of every judge: a result or a failure for each candidate, in the case's
    order."""

    @property
    def result(self) -> tuple[EvaluationResult | Failure, ...]: ...

    @property
    def coverage(self) -> float:
        """The share in [0, 1] of the planned model calls that gave a usable answer."""
        ...


def sum_usage(parts: Iterable[HasUsage]) -> Usage:
    """Return the usage of all parts together."""
    return sum((part.usage for part in parts), Usage())


def share_scored(outcomes: Sequence[EvaluationResult | Failure]) -> float:
    """Return the share of candidates that have a score."""
    return len(select_scored(outcomes)) / len(outcomes)


def select_scored(outcomes: Iterable[EvaluationResult | Failure]) -> list[EvaluationResult]:
    """Return the results of the candidates that have a score."""
    return [outcome for outcome in outcomes if isinstance(outcome, EvaluationResult)]


@dataclass(frozen=True, slots=True)
class PlainEvaluation:
    """An evaluation that consists of the result or the failure of each candidate, and of the usage
    of a model, if one was asked."""

    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    @property
    def coverage(self) -> float:
        return share_scored(self.result)


class Evaluator(Protocol):
    """A judge: an async function that returns the `Evaluation` of a case."""

    async def __call__(self, case: Case, /) -> Evaluation: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run.

    Attributes:
        value: The figure; None if it cannot be computed.
        low: The lower end of its interval, and `high` the upper end; None without an interval.
        n: The number of records or items behind a figure with an interval; None if it is unknown.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Result(Shown):
    """The base class of the results of all verbs.

    Attributes:
        run: The id of the run in the store.
    """

    run: str
    _figures: Callable[[], Mapping[str, Figure]]
    _plots: Callable[[], Drawing]

    @cached_property
    def aggregates(self) -> Mapping[str, Figure]:
        """The figures of the result by name, the same as `aggregates` in its JSON."""
        return self._figures()

    def plot(self) -> Drawing:
        """Return the plots of the result, which a notebook shows as inline SVG: its scores, the
        agreement with people by threshold, or the steps of agents."""
        return self._plots()


class Results(tuple[T, ...], Result):
    """A tuple with a result for each of several tasks or documents. Each result has rows and
    figures of its own."""
