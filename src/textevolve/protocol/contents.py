"""The contents of bodies in any protocol: messages, tool calls, the tokens of an answer, typed
questions and their answers.

The types are plain data without a wire form. `chat` and `decisions` write them as bodies and read
them from bodies; the journal stores them in forms of its own. Optional fields of other programs'
bodies are read leniently: what cannot be read is None, so that a usable answer is kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Field,
    GetCoreSchemaHandler,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import with_default_schema

from textevolve.errors import InputError
from textevolve.evaluation import Usage, mend_text
from textevolve.loading import late_re
from textevolve.messages import split_thought

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """An assistant's call of a tool. `arguments`: JSON as the model wrote it, not validated."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message.

    Attributes:
        role: Who speaks.
        parts: The parts of the text, which are joined when it is sent.
        images: Data URLs (`data:image/png;base64,...`), placed before the text.
        tool_calls: The tool calls of an assistant's message.
        tool_call_id: The id of the call that a message of the role "tool" answers.
    """

    role: Role
    parts: tuple[str, ...]
    images: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of an answer with its natural log-probability. `top`: the most probable tokens at its
    place, with their log-probabilities."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


# Why an answer ended.

AnswerEnding: TypeAlias = Literal["whole", "cut", "filtered", "failed", "refused"]
"""How an answer ended: `whole` at its own end; `cut` at a limit of tokens; `filtered` by a content
filter; `failed` by an error in the middle of the generation; `refused` by the model."""

LENGTH = "length"
FILTERED = "content_filter"
REFUSAL = "refusal"

_ENDINGS: Mapping[str, AnswerEnding] = {
    **dict.fromkeys((LENGTH, "model_length", "max_tokens", "max_output_tokens"), "cut"),
    **dict.fromkeys(("model_context_window_exceeded", "pause_turn"), "cut"),
    **dict.fromkeys((FILTERED, "safety", "recitation", "prohibited_content"), "filtered"),
    **dict.fromkeys(("blocklist", "spii", "sensitive", "guardrail_intervened"), "filtered"),
    **dict.fromkeys(("error", "abort", "aborted", "cancelled", "network_error"), "failed"),
    **dict.fromkeys(("insufficient_system_resource", "malformed_function_call"), "failed"),
    REFUSAL: "refused",
}
"""What the finish reasons of OpenAI, Anthropic, Gemini, Mistral, DeepSeek, Zhipu, Bedrock, vLLM and
SGLang mean, in lower case."""


def answer_ending(finish_reason: str) -> AnswerEnding:
    """Return how an answer with this finish reason ended; an unknown reason is a whole answer."""
    return _ENDINGS.get(finish_reason.lower(), "whole")


# Separate a model's reasoning from its answer.
#
# Most endpoints return the reasoning in a field of its own; some leave it in the text, between
# tags at the beginning. How much a model reasons is a setting of its provider
# (`reasoning_effort`), which `client` sends.

_THOUGHTS = late_re(r"\s*<(think|thinking|thought)>(.*?)</\1>\s*", re.DOTALL)
_TAGS = ("<think>", "<thinking>", "<thought>")
_LONGEST = len("</thinking>")
_BEGUN = late_re(r"\s*<(?:think|thinking|thought)>(.*)", re.DOTALL)


def split_reasoning(text: str, finish_reason: str) -> tuple[str, str]:
    """Split a text into the reasoning at its beginning and the answer after it. Reasoning without
    an end tag is recognised only in truncated answers, since a text may also be about the tag."""
    if not ("<" in text or "[THINK]" in text or "◁" in text):  # nearly always
        return "", text
    thought, answer = split_thought(text)
    if len(answer) < len(text):
        return thought, answer
    if finish_reason == "length" and (begun := _BEGUN.match(text)):
        return begun[1].strip(), ""

    return "", text


class StreamedThoughts:
    """A filter that removes the reasoning at the beginning of a streamed text. Reasoning that never
    ends is withheld; `split_reasoning` decides once the text is complete."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tail = ""
        self._within = self._passed = False

    def pass_text(self, text: str) -> str:
        """Return the part of the text that may be shown now, after the parts returned before."""
        if self._passed:
            return text
        self._parts.append(text)
        self._tail = self._tail[-_LONGEST:] + text
        if self._within and "</th" not in self._tail:  # nearly always, of long thoughts
            return ""
        full_text = "".join(self._parts)
        start = full_text.lstrip()
        if any(tag.startswith(start) for tag in _TAGS):
            return ""
        match = _THOUGHTS.match(start)
        self._within = match is None and start.startswith(_TAGS)
        if self._within:
            return ""
        answer = full_text if match is None else start[match.end() :]
        self._passed = bool(answer)

        return answer


_AFTER_ANSWER = late_re(r"(?:\s|<[^<>]*>|\[[^\[\]]*\])*")
"""The pattern of tokens after the end of an answer: white space and the model's special tokens."""
_WORD_SIGN = late_re(r"[^\W_Ġ]")


def align_tokens(tokens: Sequence[TokenLogprobs], text: str) -> tuple[TokenLogprobs, ...]:
    """Return the tokens of an answer's text, without those of a thought before it, which some
    servers list, too. Return none if the tokens are not those of the text.

    A token that has the end of a mark and the beginning of the text belongs to the text. An
    endpoint may list the first tokens alone.
    """
    joined = "".join(token.token for token in tokens)
    trimmed = text.strip()
    start = joined.rfind(text)
    length = len(text)

    if start < 0:
        start = joined.rfind(trimmed)
        length = len(trimmed)
    if not trimmed or not joined.strip():
        return ()
    if start < 0:
        return tuple(tokens) if trimmed.startswith(joined.strip()) else ()
    if not _AFTER_ANSWER.fullmatch(joined, start + length):
        return ()

    passed = 0
    for number, token in enumerate(tokens):
        before = token.token[: max(0, start - passed)]
        passed += len(token.token)
        if passed > start:
            # The text may also be the end of a longer word, as "no" is of "piano".
            return () if _WORD_SIGN.search(before) else tuple(tokens[number:])

    return ()


# Typed questions about a text, and their answers. The terms are those of OpenAI's Decisions API;
# System One calls a predicate a noul.

UNSURE = 1e-6
"""The distance from 0 and 1 that a probability is moved to before it is converted into log-odds, so
that they stay finite."""


def log_odds(share: float) -> float:
    """Return the log-odds of a probability, or of a score in [0, 1]; they stay finite at 0 and
    1."""
    bounded = min(max(share, UNSURE), 1 - UNSURE)
    return math.log(bounded) - math.log1p(-bounded)


QuestionKind = Literal["predicate", "choice", "score"]
Wire = Literal["systemone", "decisions"]
"""The protocols that endpoints speak: System One, and OpenAI's Decisions API."""

SUM_TOLERANCE = 0.02
"""The largest difference from 1 of the sum of probabilities that an endpoint rounded."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a question. `value`: its name in the answer. `description`: when the option
    applies; may be empty."""

    value: str
    description: str = ""

    @property
    def text(self) -> str:
        return f"{self.value}: {self.description}" if self.description else self.value


@dataclass(frozen=True, slots=True)
class Question:
    """A typed question.

    Attributes:
        name: The name that distinguishes it from other questions about the same state.
        kind: "predicate" (yes or no), "choice" (one of several options) or "score" (a level).
        instructions: The question itself.
        options: No and yes for a predicate, the choices for a choice, the levels in ascending order
            for a score.
    """

    name: str
    kind: QuestionKind
    instructions: str
    options: tuple[Option, ...]


def predicate(name: str, instructions: str, *, yes: str = "", no: str = "") -> Question:
    """Return a yes / no question. `yes` and `no` describe the two outcomes, if the question alone
    is not clear."""
    return Question(name, "predicate", instructions, (Option("no", no), Option("yes", yes)))


def choice(name: str, instructions: str, options: Mapping[str, str] | Sequence[str]) -> Question:
    """Return a question that asks for one of several options. `options`: names, or names with
    descriptions; at least two.

    Raises:
        InputError: there are fewer than two options, or two have the same name.
    """
    descriptions = dict.fromkeys(options, "") if isinstance(options, Sequence) else options
    choices = tuple(Option(value, description) for value, description in descriptions.items())
    if len(choices) < max(2, len(options)):
        raise InputError(f"question '{name}': a choice needs two or more different options")

    return Question(name, "choice", instructions, choices)


def score(name: str, instructions: str, levels: Sequence[str]) -> Question:
    """Return a question that asks for a level. `levels`: descriptions of at least two levels, the
    lowest first.

    Raises:
        InputError: there are fewer than two levels.
    """
    if len(levels) < 2:
        raise InputError(f"question '{name}': a score needs two or more levels")

    return Question(
        name, "score", instructions, tuple(Option(str(n), text) for n, text in enumerate(levels))
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question. `probabilities`: one for each option, in the question's order;
    their sum is 1."""

    probabilities: tuple[float, ...]

    @property
    def best(self) -> int:
        """Return the index of the most probable option, the first one if several are equal."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def share(self) -> float:
        """Return the position of the answer between the first option (0) and the last (1): P(yes)
        of a predicate, the expected level of a score divided by the highest."""
        most = len(self.probabilities) - 1
        return min(max(self.expected / most, 0.0), 1.0)

    @property
    def expected(self) -> float:
        """Return the expected number of the option, counted from 0: the level of a score."""
        return sum(n * p for n, p in enumerate(self.probabilities))

    @property
    def log_odds(self) -> float:
        """Return the log-odds of `share`."""
        return log_odds(self.share)


Read = TypeVar("Read")
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


class _Readable:
    """A validator for optional fields: an unreadable value becomes None, so that a usable answer is
    kept."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(handler(source), default=None, on_error="default")


READABLE = _Readable()


KnownText = Annotated[str | None, READABLE]


def as_count(value: object) -> object:
    """Return a whole number that was written as 16.0, as some servers do."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A whole number, also one that was written as 16.0 or as a text, as some servers do."""
KnownCount = Annotated[_Count | None, READABLE]


def read_loosely(parse: Callable[[bytes], Read], body: bytes) -> Read:
    """Parse a body with `parse`. If that fails, replace the bytes that are not valid text by
    U+FFFD, and parse it once more.

    Raises:
        ValueError: the body is invalid even with these bytes replaced.
    """
    try:
        return parse(body)
    except _UNREADABLE:
        # Bytes that are not UTF-8 and lone surrogates come from tokens that are parts of characters
        # and must not cost the whole answer.
        loose = json.loads(body.decode("utf-8", "replace"))
        mended = mend_text(json.dumps(loose, ensure_ascii=False)).encode()

    try:
        return parse(mended)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the fields are not those of an answer: {error}") from error


def either(*names: str) -> Any:
    """Return a field that is read by the first of these names."""
    return Field(validation_alias=AliasChoices(*names))


def _detail(name: str, *kinds: str) -> Any:
    paths = (AliasPath(f"{kind}_tokens_details", name) for kind in kinds)
    return Field(validation_alias=AliasChoices(*paths))


class ReportedUsage(BaseModel):
    """The usage that an endpoint reports. Each field is read by its name in chat completions, or by
    its name in newer protocols."""

    prompt_tokens: Annotated[KnownCount, either("prompt_tokens", "input_tokens")] = None
    completion_tokens: Annotated[KnownCount, either("completion_tokens", "output_tokens")] = None
    cached_tokens: Annotated[KnownCount, _detail("cached_tokens", "prompt", "input")] = None
    cache_write_tokens: Annotated[KnownCount, _detail("cache_write_tokens", "prompt", "input")] = (
        None
    )
    reasoning_tokens: Annotated[KnownCount, _detail("reasoning_tokens", "completion", "output")] = (
        None
    )
    prompt_cache_hit_tokens: Annotated[
        KnownCount, either("prompt_cache_hit_tokens", "cache_read_input_tokens")
    ] = None
    cache_creation_input_tokens: KnownCount = None
    total_tokens: KnownCount = None
    cost: Annotated[
        Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None, READABLE
    ] = None

    @property
    def whole_prompt(self) -> int:
        """The most tokens that the prompt has: some endpoints count cached ones beside the others,
        which this counts twice where they are among them."""
        cached = self.cached_tokens or self.prompt_cache_hit_tokens or 0
        written = self.cache_write_tokens or self.cache_creation_input_tokens or 0
        return (self.prompt_tokens or 0) + cached + written


class ReportedTimings(BaseModel):
    """The timings that llama.cpp's server reports. `cache_n`: the number of tokens found in its
    prompt cache."""

    cache_n: KnownCount = None


def write_chat_usage(usage: Usage) -> dict[str, Any]:
    """Return usage by its names in chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return usage by its names in newer protocols: Responses and Decisions."""
    details = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.tokens,
    }
