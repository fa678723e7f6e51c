"""The base class of evaluators of nodes, the evaluator `ThresholdEvaluator`, which compares a
number with a threshold, and the checks of evaluators and their results. Other shipped evaluators
are in `checks.py` and `judging.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Collection, Iterator
from contextlib import suppress
from numbers import Real
from typing import Any, Literal

from textevolve.errors import InputError, TextEvolveError
from textevolve.evaluation import EvaluationResult, Failure, check_result, failure_of, reaches
from textevolve.json_texts import is_array, is_mapping, is_sequence, write_text
from textevolve.messages import drop_media, drop_thoughts
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.snapshots import SnapshotLimits, find_loss, take_snapshot
from textevolve.texts.prose import fold_case, join_lines, split_words

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
    """An evaluator that compares a number with a threshold. score = the output's field `key`, which
    may be a path such as `outputs.sure`, otherwise the recorded attribute, otherwise 0.0; passed =
    the score is at least `threshold`. A value that is no number gets the score 0.0 and does not
    pass."""

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
        value: Any = 0.0
        for state in (item.output_state, item.attributes):
            with suppress(LookupError):
                value = _find(state, self.key)
                break
        metadata = {"key": self.key, "threshold": self.threshold, "value": value}
        if not is_number(value):
            shown_value = f"'{value[:40]}'" if isinstance(value, str) else str(value)[:40]
            answer = f"{self.key} is not a number but {shown_value}: failed"
            return EvaluationResult(0.0, False, f"{answer} (threshold {self.threshold})", metadata)

        passed = bool(value >= self.threshold)
        outcome = "passed" if passed else "failed"
        answer = f"{self.key} = {value:.4g}, threshold {self.threshold}: {outcome}"

        return EvaluationResult(float(value), passed, answer, metadata)


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
        answer = join_lines(str(error))[:ERROR_KEPT]
    except Exception:  # noqa: BLE001
        answer = ""

    return f"raised {type(error).__name__}" + (f": {answer}" if answer else "")


# Read a field of a node's state for an evaluator by its key, unchanged or as a text. A field that
# is missing or was truncated cannot be judged, and raises an error.

NO_OUTPUT = "no output was recorded"
NO_INPUT = "no input was recorded"
TEXT = "text"
"""The field that is read if no key is set."""


class FieldError(InputError):
    """An error for a node's field that is missing or was truncated, and so cannot be judged."""


def read_value(state: Any, key: str | None, place: str) -> Any:
    """Return the value of a field; without a key the field `text` of the state, or the whole state
    if it has none. A key such as `messages.-1.content` is a path: each dot leads one level down,
    and numbers index lists. `place`: "input" or "output"; outputs are read without thoughts.

    Raises:
        FieldError: there is no such field, or it was truncated.
    """
    if key is None and is_mapping(state) and isinstance(state.get(TEXT), str):
        key = TEXT
    try:
        value = state if key is None else _find(state, key)
    except LookupError:
        raise FieldError(f"the {place} has no field '{key}'") from None

    if place == "output":
        value = drop_thoughts(value)
    if loss := find_loss(value):
        place_name = f"the {place}'s field '{key}'" if key is not None else f"the {place}"
        raise FieldError(f"{place_name} was not recorded in full: {loss}")

    return value


def _find(state: Any, key: str) -> Any:
    """Return the field with this key, otherwise the one to which the key leads as a path with
    dots.

    Raises:
        LookupError: there is no such field.
    """
    if is_mapping(state) and key in state:
        return state[key]
    head, dot, remaining_key = key.partition(".")

    if dot and is_mapping(state):
        inner = state[head]
    elif is_sequence(state) and head.removeprefix("-").isdecimal():
        inner = state[int(head)]
    else:
        raise KeyError(key)

    return _find(inner, remaining_key) if dot else inner


def read_state_text(state: Any, key: str | None, place: str) -> str:
    """Return a field as a text, in which embedded media are named.

    Raises:
        FieldError: there is no such field, or it was truncated.
    """
    return as_text(drop_media(read_value(state, key, place)))


def as_text(value: Any) -> str:
    """Return a text unchanged, a generator's texts joined, and any other value as JSON."""
    if isinstance(value, str):
        return str(value)
    if is_array(value) and value and all(isinstance(part, str) for part in value):
        return "".join(value)

    return write_text(value)


# Evaluators of nodes that call no model: consistency with earlier nodes, duration and tokens.
#
# They judge the output of the agent. If the field to judge is missing or was truncated, the
# evaluation is a failure, and the node has no score. `state_fields.py` reads fields.

LOOK_BACK = 200
"""The number of supersteps that are searched for earlier nodes."""


class ConsistencyEvaluator(NodeEvaluator):
    """An evaluator that compares a field of the output with the last `earlier` nodes of the same
    kind. score = the mean similarity to them; passed = the score is at least `threshold`. Earlier
    nodes that failed or lack the field are passed over; without a usable one there is no score.

    `key`: the field to compare; None: the text of the output. `of_same`: whether nodes of the same
    name, or of the same instruction, are compared. The similarity of numbers is their ratio, and
    that of other values the share of common words.
    """

    def __init__(
        self,
        name: str,
        key: str | None = None,
        *,
        earlier: int = 5,
        threshold: float = 0.5,
        of_same: Literal["node", "instruction"] = "node",
        target_instructions: Targets = None,
    ) -> None:
        super().__init__(name, target_instructions)
        self.key = key
        self.earlier = earlier
        self.threshold = threshold
        self.of_same = of_same

    def evaluate(self, history: History) -> NodeOutcome:
        item = history.entries[-1][-1]
        if item.output_state is None:
            return Failure("skipped", NO_OUTPUT)
        value = read_value(item.output_state, self.key, "output")
        shares: list[float] = []

        for other in self._earlier(history, item):
            try:
                shares.append(similarity(value, read_value(other.output_state, self.key, "output")))
            except FieldError:  # that one has nothing to compare with
                continue

            if len(shares) == self.earlier:
                break

        if not shares:
            return Failure("skipped", "no earlier node to compare with")
        score = min(1.0, sum(shares) / len(shares))
        passed = reaches(score, self.threshold)

        return EvaluationResult(
            score,
            passed,
            f"{score:.0%} similar to {len(shares)} earlier nodes; {self.threshold:.0%} is needed",
            {"compared": len(shares)},
        )

    def _earlier(self, history: History, item: HistoryItem) -> Iterator[HistoryItem]:
        """Yield the earlier successful nodes of the same kind, the nearest first."""
        same_step = history.entries[-1][:-1]
        for step in (same_step, *reversed(history.entries[-LOOK_BACK - 1 : -1])):
            for other in reversed(step):
                same = getattr(other, self.of_same) == getattr(item, self.of_same)
                if same and other.error is None:
                    yield other


def similarity(one: Any, other: Any) -> float:
    """Return how similar two plain values are, in [0, 1]; 1 if they are equal."""
    if one == other:
        return 1.0
    if is_number(one) and is_number(other):
        return max(0.0, 1 - abs(one - other) / max(abs(one), abs(other)))
    return _share_of_words(as_text(one), as_text(other))


def _share_of_words(one: str, other: str) -> float:
    """Return the Dice similarity: twice the number of common words, divided by the words of
    both."""
    left, right = (Counter(split_words(fold_case(text))) for text in (one, other))
    words = left.total() + right.total()
    return 2 * (left & right).total() / words if words else 0.0


class LatencyEvaluator(NodeEvaluator):
    """An evaluator that compares the duration of a node with a budget in seconds. passed = it took
    at most `budget`. score = 1 within the budget; above it, budget / measured seconds."""

    unit = "seconds"

    def __init__(self, name: str, budget: float, *, target_instructions: Targets = None) -> None:
        super().__init__(name, target_instructions)
        if not is_number(budget) or not 0 < budget < math.inf:
            raise InputError(f"evaluator '{name}': the budget must be a number above 0")
        self.budget = budget

    def evaluate(self, history: History) -> NodeOutcome:
        used: float | None = getattr(history.entries[-1][-1], self.unit)
        if used is None:
            return Failure("skipped", f"how many {self.unit} the node used is not known")
        passed = used <= self.budget
        shown_amounts = [
            f"{n:,}" if isinstance(n, int) else f"{n:.3g}" for n in (used, self.budget)
        ]
        feedback = f"{shown_amounts[0]} of {shown_amounts[1]} {self.unit}"
        score = 1.0 if passed else self.budget / used
        return EvaluationResult(score, passed, feedback, {self.unit: used})


class TokenEvaluator(LatencyEvaluator):
    """An evaluator that compares the number of tokens of a node with a budget, as
    `LatencyEvaluator` compares seconds."""

    unit = "tokens"
