"""The options of verbs that are fields of a study's specification, as types.

A verb takes them as `**options: Unpack[...]` and passes them on, so that each option stands here
alone. `takes_options` shows them one by one where a verb is looked at, as by `help`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from textevolve.terms import advise

if TYPE_CHECKING:
    from pathlib import Path

    from textevolve.debate.profile import Profile

P = ParamSpec("P")
T = TypeVar("T")


class ModelOptions(TypedDict, total=False):
    model: str | None
    seed: int | None


class EvaluationOptions(ModelOptions, total=False):
    profile: str | Path | Profile | None
    agents: Sequence[str] | None
    rubric: str | None
    check: str | Sequence[Any] | None
    rounds: int | None
    weights: Mapping[str, float] | None
    threshold: float | None


class BatchOptions(EvaluationOptions, total=False):
    target_version: str | None
    map: Mapping[str, str] | None


class ChainOptions(TypedDict, total=False):
    map: Mapping[str, str] | None
    model: str | None


class LabelOptions(TypedDict, total=False):
    label: str | None
    seed: int | None


class CompareOptions(LabelOptions, ChainOptions, total=False):
    target_version: str | None
    outputs: str | Iterable[str] | None
    baseline: str | None
    samples: int | None
    temperature: float | None
    max_output_tokens: int | None


class CalibrateOptions(LabelOptions, total=False):
    step: str | None
    answer: str | None
    strategy: str | None
    budget: int | None
    map: Mapping[str, str] | None
    validation: float | None


class AnswerOptions(TypedDict, total=False):
    temperature: float | None
    max_answer_tokens: int | None


class LoopOptions(AnswerOptions, total=False):
    judge_model: str | None
    threshold: float | None


class OptimizeOptions(LoopOptions, total=False):
    max_iterations: int | None
    min_improvement: float | None
    mode: str | None
    seed: int | None


class InnovateOptions(LoopOptions, ModelOptions, total=False):
    outputs: int | None
    fresh: int | None
    rounds: int | None
    min_gain: float | None
    patience: int | None


class GuideOptions(AnswerOptions, ModelOptions, total=False):
    proposals: int | None
    proposal_temperature: float | None


class ProfileOptions(ModelOptions, total=False):
    agents: int | None


class SummaryOptions(ModelOptions, total=False):
    focus: str | None
    context: int | None


class FitOptions(ModelOptions, total=False):
    limit: int | None
    half: str | None
    orders: str | None
    good: str | float | None
    precision: float | None
    confidence: float | None
    map: Mapping[str, str] | None


class MemoryEvaluationOptions(ModelOptions, total=False):
    answer_model: str | None
    users: int | None
    sessions: int | None
    fresh: str | None


class CreationOptions(ModelOptions, total=False):
    about: str | None
    focus: str | None
    window: int | None
    overlap: int | None
    entities: bool | None
    trust_user: float | None
    trust_assistant: float | None
    trust_others: float | None


class ReflectionOptions(ModelOptions, total=False):
    newest: int | None
    budget: int | None
    min_trust: float | None


class IntegrationOptions(ReflectionOptions, total=False):
    threshold: float | None
    always: bool | None
    questions: int | None
    insights: int | None


class ReadingOptions(ModelOptions, total=False):
    chunk_tokens: int | None
    trust: float | None
    importance: float | None
    role: str | None


class EvolutionOptions(ReflectionOptions, total=False):
    propose: bool | None
    changes: int | None
    persona_tokens: int | None


class ChatOptions(TypedDict, total=False):
    user: str | None
    session: str | None
    memory: bool | None
    answer_tokens: int | None
    context: int | None
    temperature: float | None
    model: str | None


LAST = ("model", "seed", "name")
"""The options that are shown behind all others, in this order."""


def takes_options(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for a verb that takes these options as `**options`. Its signature shows
    each of them, and a call with any other one raises TypeError, as for plain parameters."""

    def decorate(verb: Callable[P, T]) -> Callable[P, T]:
        listed = _list_options(signature(verb), options)

        @wraps(verb)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in listed.parameters and (advice := advise(name)):
                    raise TypeError(f"got an unexpected keyword argument '{name}'; {advice}")
            listed.bind(*args, **kwargs)
            return verb(*args, **kwargs)

        vars(call)["__signature__"] = listed
        return call

    return decorate


def _list_options(plain: Signature, options: type[Any]) -> Signature:
    """Return a signature with each option in the place of `**options`."""
    keyword = Parameter.KEYWORD_ONLY
    written = [*plain.parameters.values()][:-1]  # the last one is `**options`
    listed = [
        Parameter(name, keyword, default=None, annotation=of_type)
        for name, of_type in options.__annotations__.items()
    ]
    positional = [parameter for parameter in written if parameter.kind is not keyword]
    keywords = [parameter for parameter in written if parameter.kind is keyword]
    by_name = {parameter.name: parameter for parameter in (*keywords, *listed)}
    last = [by_name.pop(name) for name in LAST if name in by_name]

    return plain.replace(parameters=[*positional, *by_name.values(), *last])
