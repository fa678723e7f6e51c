"""Use any evaluator as a metric: in plain Python, as DSPy's `metric(example, pred, trace)`, and for
GEPA.

DSPy is imported on first use; the arguments of a call show which framework calls. A text without a
score raises an error, or gets the score that the user chose for such texts; it never counts as 0
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Self, TypeAlias

from textevolve.engine import sync
from textevolve.errors import AnswerError, BudgetError, InputError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, check_case, reaches
from textevolve.json_texts import is_mapping
from textevolve.loops.attempt import outcome_of
from textevolve.mappings import omit

Pick: TypeAlias = str | Callable[[Any], str] | None
"""How the text of an example or a prediction is found: the name of a field, or a function that
returns it; None: all fields."""

REASONING = ("reasoning", "rationale", "completions")
"""The fields of a prediction that do not belong to the answer, if no field is named."""


@dataclass(frozen=True)
class Metric:
    """An evaluator as a metric that is called without `await`, even while an event loop runs.

    `input` and `output`: how the texts of an example and a prediction are found. `threshold`: the
    score from which a text passes; None: the judge's own. `missing`: the score in [0, 1] of a text
    that could not be judged; None: raise an error. `release`: called when the metric is closed.
    """

    evaluator: Evaluator
    input: Pick = None
    output: Pick = None
    threshold: float | None = None
    missing: float | None = None
    release: Callable[[], object] = field(default=lambda: None, repr=False)

    def __post_init__(self) -> None:
        for name in ("threshold", "missing"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name} must be between 0 and 1, not {value}")

    def __call__(self, example: Any, pred: Any, trace: object = None) -> float | bool:
        """Return the score in [0, 1]; with a `trace`, as in DSPy's bootstrapping, whether the text
        passes.

        Raises:
            AnswerError: it could not be judged, and `missing` is None.
            BudgetError: a limit is reached. InputError: a text cannot be found, or is blank.
        """
        result = self.measure(example, pred)
        if trace is None:
            return result.score
        if self.threshold is None or result.metadata.get("missing"):
            return result.passed

        return reaches(result.score, self.threshold)

    def with_feedback(
        self,
        example: Any,
        pred: Any,
        trace: object = None,
        pred_name: str | None = None,
        pred_trace: object = None,
    ) -> Any:
        """Return score and feedback as a `dspy.Prediction`, as `dspy.GEPA` expects of a metric.

        Raises:
            AnswerError, BudgetError, InputError: as when the metric is called.
        """
        result = self.measure(example, pred)
        dspy: Any = import_module("dspy")

        return dspy.Prediction(score=result.score, feedback=result.feedback)

    def measure(self, example: Any, pred: Any) -> EvaluationResult:
        """Return the complete evaluation result of a text.

        Raises:
            AnswerError, BudgetError, InputError: as when the metric is called.
        """
        return sync.run(self.ameasure(example, pred))

    async def ameasure(self, example: Any, pred: Any) -> EvaluationResult:
        """Return the same as `measure`, in async code."""
        case = Case(_find(example, self.input, "input"), (_find(pred, self.output, "output"),), "1")
        check_case(case)
        outcome = outcome_of(await self.evaluator(case))
        if isinstance(outcome, EvaluationResult):
            return outcome
        if outcome.kind == "skipped":
            raise BudgetError(outcome.reason)
        if self.missing is None:
            raise AnswerError(f"the text could not be judged: {outcome.reason}")

        return EvaluationResult(
            self.missing,
            False,
            f"This could not be judged ({outcome.reason}); the score stands for that.",
            {"missing": True},
        )

    def close(self) -> None:
        """Release the models and the store that the metric opened."""
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _find(value: Any, pick: Pick, role: str) -> str:
    """Return the text of an example or a prediction: one field, or all fields with their names.

    Raises:
        InputError: there is none; lists the existing fields.
    """
    if callable(pick):
        return pick(value)
    if isinstance(value, str):
        return value
    fields = _fields(value, role)
    if pick is not None and pick not in fields:
        raise InputError(
            f"the {role} has no field '{pick}'; there are: {', '.join(fields) or 'none'}"
        )

    if not fields:
        raise InputError(f"the {role} has no fields; name one, or give a function")
    if pick is not None or len(fields) == 1:
        return str(fields[pick or next(iter(fields))])

    return "\n".join(f"{name}: {text}" for name, text in fields.items())


def _fields(value: Any, role: str) -> dict[str, Any]:
    """Return the input fields of an example or the output fields of a prediction, by name; accepts
    DSPy's objects and any mapping."""
    if role == "input" and getattr(value, "_input_keys", None):
        value = value.inputs()
    items: Any = value.toDict() if hasattr(value, "toDict") else value
    if not is_mapping(items):
        raise InputError(f"the {role} is a {type(value).__name__}; give a text or a mapping")
    fields = {str(name): value for name, value in items.items()}
    answers = omit(fields, REASONING)

    return answers if role == "output" and answers else fields
