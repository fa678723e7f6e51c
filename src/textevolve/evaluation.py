"""The nouns of judging: a `Case` is judged by an `Evaluator`, and out comes an `Evaluation`.

Whatever judges in this project, from a rule to a debate, is an `Evaluator`, and they are
interchangeable. How a score is found lives in the rooms; nothing here calls a model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Protocol, TypeVar, cast

from textevolve.errors import (
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
)
from textevolve.images import check_image, image_reference
from textevolve.trajectory import Trajectory

T = TypeVar("T")


def empty_default(kind: Callable[[], object]) -> Any:
    """Return the default of a dataclass's field: an empty collection, a new one each time. The
    field's annotation alone says what it holds."""
    return field(default_factory=kind)


@dataclass(frozen=True, slots=True)
class Case:
    """One input and the candidate texts to be judged against it.

    `parameters` are this case's own settings (`rounds`, `weights`, ...), which win over the run's.
    `reference`: a gold answer, which a judge with a reference sees in place of one of its own.
    `context`: the texts that an answer must keep to, for judges of faithfulness; others ignore it.
    `images`: those of the input, as data URLs; `candidate_images`: those of each candidate, one
    tuple for each, or empty where none has any (`textevolve.read_image` makes data URLs of files).
    `trajectory`: how the application came to the only candidate, for judges and metrics of that.
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


PASSES = 0.5
"""The score from which a bare number passes."""
IMAGE_ALONE = "(image)"
"""The text of a candidate that is an image and nothing else."""


def refer_to_images(case: Case) -> Case:
    """The case as records have it: each image by a short name, since the store has it already."""
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
    """The case with these of its candidates, in this order, and their images."""
    images = case.candidate_images
    return replace(
        case,
        candidates=tuple(case.candidates[n] for n in numbers),
        candidate_images=tuple(images[n] for n in numbers) if images else (),
    )


def check_case(case: Case) -> None:
    """Raises InputError where the case has nothing that can be judged."""
    if not case.candidates:
        raise InputError("no candidates: the output to be judged is missing or empty")
    texts = [("the input", case.input)]
    texts += [(f"candidate {n}", text) for n, text in enumerate(case.candidates, 1)]
    texts += [
        (name, text)
        for name, text in (("the reference", case.reference), ("the context", case.context))
        if text is not None
    ]
    for name, text in texts:
        check_text(name, text)
    if case.images or case.candidate_images:
        check_images(case)


def check_images(case: Case) -> None:
    """Raises InputError where an image is no data URL of one, or belongs to no candidate."""
    for number, url in enumerate(case.images, 1):
        check_image(f"image {number} of the input", url)
    if case.candidate_images and len(case.candidate_images) != len(case.candidates):
        own, texts = len(case.candidate_images), len(case.candidates)
        raise InputError(f"candidate_images: has {own} entries for {texts} candidates")
    for place, own in enumerate(case.candidate_images, 1):
        for number, url in enumerate(own, 1):
            check_image(f"image {number} of candidate {place}", url)


def reject_candidate_images(case: Case, judge: str) -> None:
    """Raises InputError where candidates have images, which this judge of texts does not see."""
    if any(case.candidate_images):
        raise InputError(
            f"{judge} reads texts alone, and the candidates have images: take a judge that asks a"
            " model which sees them, such as probe or pairwise"
        )


def check_text(name: str, text: str) -> None:
    """Raises InputError where it is blank, or no text that can be sent and kept. `name` is what the
    message calls it."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"{name} is not a text but {type(text).__name__}")
    if not text.strip():
        raise InputError(f"{name} is blank")
    if "\0" in text:
        raise InputError(f"{name} has a NUL character at position {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has half a surrogate pair at position {error.start}: not valid text"
        ) from None


def mend_text(text: str) -> str:
    """The text with each half of a surrogate pair as U+FFFD: no file, database or request takes
    one. Halves that stand side by side are the character that they make."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mend_texts(value: Any) -> Any:
    """`mend_text` of a text, and of all texts in mappings and lists."""
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
    """Why there is no score. A failure is never counted as a zero.

    `failed`: asked, and no usable answer came. `skipped`: not asked (a budget, a rule).
    """

    kind: Literal["failed", "skipped"]
    reason: str


def failure_of(error: Exception) -> Failure:
    """`skipped` for what a budget kept from being asked, else `failed`."""
    return Failure("skipped" if isinstance(error, BudgetError) else "failed", str(error))


async def attempt(work: Awaitable[T], *caught: type[TextEvolveError]) -> T | Failure:
    """Await calls to models: one that fails, or that a limit forbids, gives a failure; so do errors
    of the `others`.

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
    """The judgement of one text: `score` in [0, 1], higher is better."""

    score: float
    passed: bool
    feedback: str = ""
    metadata: Mapping[str, Any] = empty_default(dict)


def find_score_fault(score: object) -> str:
    """Why a score cannot be used; empty for a number from 0 to 1. A score is never clipped."""
    if not isinstance(score, Real):
        return f"the score is not a number but {type(score).__name__}"
    return "" if 0 <= float(score) <= 1 else f"the score {score} is outside 0 to 1"  # NaN, too


SCORES = ("score", "value")
REASONS = ("feedback", "comment", "reason", "rationale")
"""Names under which results of other tools have their score and their reason: `comment` is that of
openevals, `reason` of DeepEval, `value` and `rationale` of MLflow's `Feedback`; autoevals has a
`rationale` in its metadata."""


def read_parts(result: Any) -> tuple[Any, str]:
    """Read the score of another tool's result, None if it has none, and the reason."""

    def read(name: str) -> Any:
        if isinstance(result, Mapping):
            return cast("Mapping[str, Any]", result).get(name)
        return getattr(result, name, None)

    score = next((value for name in SCORES if (value := read(name)) is not None), None)
    inner = read("metadata")
    reasons: list[Any] = [read(name) for name in REASONS]
    reasons += [cast("Any", inner).get("rationale")] if isinstance(inner, Mapping) else []
    return score, next((str(reason) for reason in reasons if reason), "")


def check_result(value: Any) -> EvaluationResult | Failure:
    """The judgement of one text, as any judge may give it: a failure where it is none, or where its
    score cannot be used."""
    if isinstance(value, Failure):
        return replace(value, reason=mend_text(value.reason))
    reason = ""
    if not isinstance(value, (EvaluationResult, Real)):
        score, reason = read_parts(value)
        value = score if isinstance(score, Real) else value
    if not isinstance(value, (EvaluationResult, Real)):
        return Failure(
            "failed",
            f"the judge gave {type(value).__name__} for a candidate: it must give a number from 0"
            " to 1, an EvaluationResult or a Failure, or an Evaluation of all",
        )
    is_whole = isinstance(value, EvaluationResult)
    result = value if is_whole else EvaluationResult(float(value), False, reason)
    if fault := find_score_fault(result.score):
        return Failure("failed", f"the judge's result cannot be used: {fault}")
    score = float(result.score)
    passed = result.passed if result is value else score >= PASSES
    return EvaluationResult(score, passed, mend_texts(result.feedback), mend_texts(result.metadata))


def check_results(
    results: Sequence[Any], candidates: int
) -> tuple[EvaluationResult | Failure, ...]:
    """`check_result` of each; where their number is another than that of the candidates, nobody
    knows whose they are, and each candidate has a failure."""
    if len(results) == candidates:
        return tuple(map(check_result, results))
    gave = f"the judge gave {len(results)} results for {candidates} candidates"
    return (Failure("failed", f"{gave}: it must give one for each, in their order"),) * candidates


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of model calls. `cost` is in US dollars, None as soon as one part of it is unknown.
    `cached_tokens` are a part of the prompt's, `reasoning_tokens` a part of the completion's.
    `saved`: how much more it would have cost without prompt caching, with what writing into the
    cache costs taken off; None as soon as one part of it is unknown. `estimated`: calls whose
    endpoint reported no tokens, so that these are counted by their texts. `models`: answers that
    named another model than the request, by both names (`ANSWERED_BY`)."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    reasoning_tokens: int = 0
    saved: float | None = 0.0
    estimated: int = 0
    models: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        is_known = self.cost is not None and other.cost is not None
        priced = self.saved is not None and other.saved is not None
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            (self.cost or 0.0) + (other.cost or 0.0) if is_known else None,
            self.reasoning_tokens + other.reasoning_tokens,
            (self.saved or 0.0) + (other.saved or 0.0) if priced else None,
            self.estimated + other.estimated,
            _add_counts(self.models, other.models),
        )

    def __sub__(self, before: Usage) -> Usage:
        """Return the usage since `before`, an earlier state of the same sum."""
        is_known = self.cost is not None and before.cost is not None
        priced = self.saved is not None and before.saved is not None
        return Usage(
            self.calls - before.calls,
            self.prompt_tokens - before.prompt_tokens,
            self.cached_tokens - before.cached_tokens,
            self.completion_tokens - before.completion_tokens,
            (self.cost or 0.0) - (before.cost or 0.0) if is_known else None,
            self.reasoning_tokens - before.reasoning_tokens,
            (self.saved or 0.0) - (before.saved or 0.0) if priced else None,
            self.estimated - before.estimated,
            _add_counts(self.models, {name: -n for name, n in before.models.items()}),
        )


def _add_counts(counts: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    if not more:
        return counts
    sums = {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}
    return {name: number for name, number in sums.items() if number}


ANSWERED_BY = " was answered by "
"""In the keys of `Usage.models`, between the model that was asked and the one that is named."""


class Evaluation(Protocol):
    """The return value of every judge: one result or failure for each candidate, in the case's
    order."""

    @property
    def result(self) -> tuple[EvaluationResult | Failure, ...]: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def coverage(self) -> float:
        """Share in [0, 1] of what was to be asked that has a usable answer."""
        ...


class Evaluator(Protocol):
    async def __call__(self, case: Case, /) -> Evaluation: ...
