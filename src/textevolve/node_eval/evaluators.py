"""The base class of evaluators of nodes, the evaluator `ThresholdEvaluator`, which compares a
number with a threshold, and the checks of evaluators and their results. Other shipped evaluators
are in `checks.py` and `judging.py`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Mapping
from numbers import Real
from typing import Any, cast

from textevolve.errors import InputError, TextEvolveError
from textevolve.evaluation import EvaluationResult, Failure, check_result, failure_of
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.snapshots import SnapshotLimits, take_snapshot

ERROR_KEPT = 300
"""The maximum number of characters of an exception's message in a failure."""
NodeOutcome = EvaluationResult | Failure
"""The outcome of an evaluator for one node."""
Targets = Collection[Instruction | str] | None
"""The types of nodes that an evaluator judges, as instructions or their names; None: all."""


class NodeEvaluator(ABC):
    """The base of evaluators: it judges the node that ended last, `history.entries[-1][-1]`.

    `target_instructions`: the types of nodes that it judges, as instructions or their names; None:
    all. `background`: whether it takes long, for example because it calls a model; its result is
    then not waited for. `timeout`: the seconds after which it is abandoned; None: those of the
    monitor. `whole_run`: whether it judges only the last node of a recorded run, even if that node
    failed. `failed_calls`: whether it also judges recorded tool calls that failed.

    Raises InputError for a name or an instruction that cannot be used.
    """

    background: bool = False
    timeout: float | None = None
    whole_run: bool = False
    failed_calls: bool = False

    def __init__(self, name: str, target_instructions: Targets = None) -> None:
        self.name = name
        self.target_instructions = target_instructions
        check_evaluator(self)

    @abstractmethod
    def evaluate(self, history: History) -> NodeOutcome | Awaitable[NodeOutcome]:
        """Judge the node `history.entries[-1][-1]`; may be an async function. The history must not
        be changed. An exception is recorded, and the agent continues."""

    def judges(self, instruction: Instruction | None) -> bool:
        """Tell whether the evaluator judges nodes of this type."""
        targets = read_targets(self)
        return targets is None or instruction in targets

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class ThresholdEvaluator(NodeEvaluator):
    """An evaluator that compares a number with a threshold. score = `output_state[key]`, otherwise
    the recorded attribute of that name, otherwise 0.0; passed = the score is at least `threshold`.
    A value that is no number gets the score 0.0 and does not pass."""

    def __init__(
        self, name: str, key: str, threshold: float, target_instructions: Targets = None
    ) -> None:
        super().__init__(name, target_instructions)
        if not is_number(threshold):
            raise InputError(f"evaluator '{name}': the threshold must be a number")
        self.key = key
        self.threshold = threshold

    def evaluate(self, history: History) -> EvaluationResult:
        item = history.entries[-1][-1]
        value: Any = item.attributes.get(self.key, 0.0)
        if is_state(item.output_state):
            value = cast("dict[Any, Any]", item.output_state).get(self.key, value)
        metadata = {"key": self.key, "threshold": self.threshold, "value": value}
        if not is_number(value):
            shown = f"'{value[:40]}'" if isinstance(value, str) else str(value)[:40]
            said = f"{self.key} is not a number but {shown}: failed"
            return EvaluationResult(0.0, False, f"{said} (threshold {self.threshold})", metadata)
        passed = bool(value >= self.threshold)
        outcome = "passed" if passed else "failed"
        said = f"{self.key} = {value:.4g}, threshold {self.threshold}: {outcome}"
        return EvaluationResult(float(value), passed, said, metadata)


def is_state(state: object) -> bool:
    """Tell whether a value is a state: a mapping with named fields."""
    return type(state) is dict or isinstance(state, Mapping)


def is_number(value: object) -> bool:
    """Tell whether a value is a real number; True, False and NaN are not."""
    if type(value) is float:
        return value == value
    return type(value) is not bool and isinstance(value, Real) and not math.isnan(value)


def check_evaluator(evaluator: Any) -> None:
    """Check that an object is a usable evaluator of nodes.

    Raises:
        InputError: it is no NodeEvaluator with a name and usable targets.
    """
    name = getattr(evaluator, "name", None)
    if not isinstance(evaluator, NodeEvaluator) or not isinstance(name, str) or not name.strip():
        raise InputError(
            f"a {type(evaluator).__name__} cannot judge nodes: derive it from NodeEvaluator, and"
            " give it a name with super().__init__(name, target_instructions)"
        )
    read_targets(evaluator)


def read_targets(evaluator: NodeEvaluator) -> frozenset[Instruction] | None:
    """Return the types of nodes that an evaluator judges; None means all.

    Raises:
        InputError: one of them is no instruction type.
    """
    targets = evaluator.target_instructions
    if targets is None:
        return None
    try:
        return frozenset(Instruction(getattr(target, "name", target)) for target in targets)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"evaluator '{evaluator.name}': target_instructions: {error}; give a list of types"
        ) from None


def check_outcome(outcome: object, limits: SnapshotLimits) -> NodeOutcome:
    """Return a copy of an evaluator's result; a failure with the reason if it cannot be used.
    A score outside [0, 1] is not clipped, but a failure."""
    try:
        result = check_result(outcome)
        if isinstance(result, Failure):
            return result
        passed: Any = result.passed
        if type(passed).__module__ == "numpy":
            passed = bool(passed)
        feedback, metadata = take_snapshot((result.feedback, result.metadata), limits)
        parts = (passed, bool), (feedback, str), (metadata, dict)
        if not all(isinstance(part, kind) for part, kind in parts):
            return Failure("failed", f"not usable: {WRONG_PARTS}")
        return EvaluationResult(result.score, passed, str(feedback), metadata)
    except Exception as error:  # noqa: BLE001  what it returned may be of any kind
        return Failure("failed", f"not usable: reading it {describe_exception(error)}")


WRONG_PARTS = "'passed' must be true or false, the feedback a text, the metadata a mapping"
"""The reason for rejecting a result with fields of wrong types."""


def skip_broken(item: HistoryItem) -> Failure | None:
    """Return the reason to skip the evaluation of a node that failed or was interrupted; None for a
    node that ended well."""
    if item.error is None:
        return None
    return Failure("skipped", f"the node {'was interrupted' if item.interrupted else 'failed'}")


def as_failure(error: BaseException) -> Failure:
    """Convert an evaluator's exception to its outcome; our own errors already describe the
    fault."""
    if isinstance(error, TextEvolveError):
        return failure_of(error)
    return Failure("failed", describe_exception(error))


def describe_exception(error: BaseException) -> str:
    """Describe an exception on one line, even if its own text raises."""
    try:
        said = " ".join(str(error).split())[:ERROR_KEPT]
    except Exception:  # noqa: BLE001
        said = ""
    return f"raised {type(error).__name__}" + (f": {said}" if said else "")
