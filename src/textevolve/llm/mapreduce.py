"""Shorten texts of any length to a budget of tokens with a model, in chunks and on several levels.

A text is split into chunks at paragraphs and sentences, all chunks are shortened concurrently, and
the joined results are the text of the next level, until the budget is met. Every prompt begins with
the same words and ends with its chunk, so servers keep the prefix in their cache. Losses are
counted: chunks without an answer, and characters cut because a model exceeded its length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple

from textevolve.engine.local import stream
from textevolve.errors import AnswerError, BudgetError, CallError, InputError, TooLongError
from textevolve.evaluation import Usage
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.prompts import (
    CHARACTERS_A_TOKEN,
    Template,
    count_tokens,
    count_utf8,
    draw_nonce,
    fenced,
    load_template,
    prompt_versions,
)
from textevolve.llm.structured import describe_fault
from textevolve.protocol.contents import LENGTH
from textevolve.texts.prose import cut_at_seam, split_text, split_words

KEEP_INSTRUCTION = (
    "Keep what somebody who has to work with it needs: who and what it is about, names, numbers,"
    " dates, decisions and their reasons, and what is still open."
)
"""The default instruction on what a shortened text keeps."""
FOCUS = "Above all keep what bears on this: "
CONTEXT = 8192
"""The default size of the model's context in tokens."""
SHRINK = 6
"""The factor by which a chunk is shortened on one level; on the last level it may be smaller."""
SMALLEST_BUDGET = 16
SMALLEST_CHUNK = 400
"""The fewest characters of a half: a chunk that does not fit into the model's context is halved as
long as its halves are longer than this."""
BYTES_A_TOKEN = 3
"""The bytes of a token where a script has one for each sign, as of Japanese in older vocabularies;
English has more."""
RULES = 400
"""The tokens of the prompt in addition to the instruction and the chunk, with a reserve."""
WORDS_A_TOKEN = 0.6
"""The number of English words for a token of 4 characters; a little too low on purpose, since
models tend to write more than asked."""
JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class FailedChunk:
    """A chunk that has no answer, and is missing in the result.

    Attributes:
        level: The number of the level; 1 is the original text.
        characters: The length of the chunk.
        reason: Why it has no answer.
        skipped: Whether a limit was reached before the call.
    """

    level: int
    characters: int
    reason: str
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The losses of a compression.

    Attributes:
        failed: The chunks without an answer.
        asked_again: The number of answers that were too long at first.
        cuts: The number of answers that were still too long and were cut, at the end of a sentence
            if possible.
        cut_characters: The number of characters that were cut in total.
    """

    failed: tuple[FailedChunk, ...] = ()
    asked_again: int = 0
    cuts: int = 0
    cut_characters: int = 0

    @property
    def failed_characters(self) -> int:
        return sum(chunk.characters for chunk in self.failed)

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(
            (*self.failed, *other.failed),
            self.asked_again + other.asked_again,
            self.cuts + other.cuts,
            self.cut_characters + other.cut_characters,
        )


@dataclass(frozen=True, slots=True)
class Compressed:
    """A shortened text.

    Attributes:
        tokens: The tokens of the text, by `count_tokens`.
        characters: The length of the original text.
        levels: How often the whole text was shortened; 0 if it fitted unchanged.
        calls: The number of model calls.
        dropped: The losses.
    """

    text: str
    tokens: int
    characters: int
    levels: int = 0
    calls: int = 0
    dropped: Dropped = Dropped()
    usage: Usage = Usage()


class _Part(NamedTuple):
    """A shortened text with the losses of shortening it."""

    text: str
    dropped: Dropped


class _Answer(NamedTuple):
    """An answer. `is_cut`: whether the answer reached the endpoint's token limit."""

    text: str
    is_cut: bool

    def fits(self, size: int) -> bool:
        return len(self.text) <= size and not self.is_cut


@dataclass(frozen=True, slots=True)
class _Task:
    """The parameters that all calls of one compression share. `room`: the tokens of the context
    that a chunk and its answer may have."""

    model: UsageMeter
    instruction: str
    nonce: str
    seed: int
    room: int


async def compress(
    model: Model,
    texts: Sequence[str] | str,
    budget: int,
    *,
    instruction: str = KEEP_INSTRUCTION,
    context: int = CONTEXT,
    concurrency: int = 8,
    seed: int = 0,
) -> Compressed:
    """Shorten the joined texts to at most `budget` tokens of `count_tokens`.

    Texts that fit are returned unchanged, without a call. A chunk whose call fails is missing in
    the result, and is listed in `dropped`. `instruction`: full sentences on what to keep.
    `context`: the tokens of the model's context; a chunk takes about a quarter.

    Raises:
        InputError: the budget is below 16, or the context too small for a chunk.
        AnswerError, BudgetError: no chunk of a level has an answer. FatalModelError: no call can
            succeed.
    """
    size = _chunk_size(budget, context, instruction)
    text = texts if isinstance(texts, str) else JOINT.join(filter(str.strip, texts))
    characters = len(text)
    meter = UsageMeter(model)
    task = _Task(meter, instruction.strip(), draw_nonce([text], seed), seed, size)
    dropped = Dropped()
    levels = 0
    while count_tokens(text) > budget:
        levels += 1
        text, lost = await _shorten_all(task, text, budget, size, levels, concurrency)
        dropped += lost

    used = meter.usage

    return Compressed(text, count_tokens(text), characters, levels, used.calls, dropped, used)


def compression_prompts() -> dict[str, str]:
    """Return the version of each prompt that compresses texts, by the prompt's name."""
    return prompt_versions("llm", "compress", "compress_now", "compress_again")


def _chunk_size(budget: int, context: int, instruction: str) -> int:
    """Return the characters of a chunk, equal to the tokens that are available in the context. In
    prose a chunk takes a quarter of these tokens, which leaves room for two answers; in scripts
    with a token for each character, a chunk is halved before it is sent."""
    if budget < SMALLEST_BUDGET:
        raise InputError(f"the budget must be {SMALLEST_BUDGET} tokens or more, not {budget}")
    size = context - RULES - count_tokens(instruction)

    if size < SMALLEST_CHUNK:
        need = context - size + SMALLEST_CHUNK
        raise InputError(
            f"the model's context of {context} tokens is too small to shorten a text; this"
            f" instruction needs {need}"
        )

    return size


async def _shorten_all(
    task: _Task, text: str, budget: int, size: int, level: int, concurrency: int
) -> _Part:
    """Run one level: shorten each chunk of the text, and join them in order."""
    room = budget * CHARACTERS_A_TOKEN
    # Each chunk of several has at least a third of `size` characters.
    most_chunks = math.ceil(len(text) / (size // 3)) if len(text) > size else 1
    joints = len(JOINT) * (most_chunks - 1)
    # One chunk, or chunks that need to shrink by no more than one call achieves, meet the budget.
    is_last = len(text) <= max(size, room * SHRINK)
    share = (room - joints) / len(text) if is_last else 1 / SHRINK

    async def shorten(chunk: str) -> _Part:
        return await _shorten(task, chunk, max(1, int(share * len(chunk))), level)

    async with aclosing(stream(split_text(text, size), shorten, concurrency)) as parts:
        joined = _join([part async for part in parts])
    if not joined.text:
        failed = joined.dropped.failed[0]
        raise (BudgetError if failed.skipped else AnswerError)(
            f"no part of the text could be shortened: {failed.reason}"
        )

    return joined


def _join(parts: Sequence[_Part]) -> _Part:
    dropped = sum((part.dropped for part in parts), Dropped())
    return _Part(JOINT.join(part.text for part in parts if part.text), dropped)


async def _shorten(task: _Task, chunk: str, size: int, level: int) -> _Part:
    """Shorten a chunk to at most `size` characters. A longer answer is asked for once more, and
    then cut. A chunk that does not fit into the model's context is halved."""
    if len(chunk) <= size or not chunk.strip():
        return _Part(chunk.strip(), Dropped())
    request = _ask(task, chunk, size)
    can_be_halved = len(chunk) >= 2 * SMALLEST_CHUNK
    tokens = count_utf8(chunk) // BYTES_A_TOKEN + (request.max_tokens or 0)
    if can_be_halved and tokens > task.room:
        return await _shorten_halves(task, chunk, size, level)

    try:
        answer = await _read(task, request)
    except TooLongError as error:
        if can_be_halved:
            return await _shorten_halves(task, chunk, size, level)
        return _lost(chunk, level, error)
    except (CallError, BudgetError) as error:
        return _lost(chunk, level, error)

    if answer.fits(size):
        return _Part(answer.text, Dropped())
    again = await _ask_again(task, request, answer, size)
    if again.fits(size):
        return _Part(again.text, Dropped(asked_again=1))
    shorter = min(answer, again, key=lambda candidate: len(candidate.text))
    cut = cut_at_seam(shorter.text, min(size, len(shorter.text) - shorter.is_cut))

    return _Part(cut, Dropped((), 1, 1, len(shorter.text) - len(cut)))


async def _shorten_halves(task: _Task, chunk: str, size: int, level: int) -> _Part:
    halves = list(split_text(chunk, (len(chunk) + 2) // 2 + 1))
    room = size - len(JOINT) * (len(halves) - 1)
    sizes = [max(1, room * len(half) // len(chunk)) for half in halves]
    pairs = zip(halves, sizes, strict=True)
    return _join([await _shorten(task, half, most, level) for half, most in pairs])


def _lost(chunk: str, level: int, error: CallError | BudgetError) -> _Part:
    failed = FailedChunk(level, len(chunk), str(error), isinstance(error, BudgetError))
    return _Part("", Dropped((failed,)))


async def _ask_again(task: _Task, request: Request, answer: _Answer, size: int) -> _Answer:
    """Ask for a shorter answer; return the first answer if the second call fails."""
    again = _prompt("compress_again").render(
        counted=len(split_words(answer.text)), words=_words(size)
    )
    messages = (
        *request.messages,
        Message("assistant", (answer.text,)),
        Message("user", (again,)),
    )
    try:
        return await _read(task, replace(request, messages=messages))
    except (CallError, BudgetError):
        return answer


async def _read(task: _Task, request: Request) -> _Answer:
    """Return the model's answer without the marks of fences.

    Raises:
        AnswerError: the answer is empty, or the model refuses to answer.
    """
    response = await task.model(request)
    if fault := describe_fault(response, may_be_cut=True):
        raise AnswerError(f"{task.model.name}: {fault}")
    text = re.sub(rf"\[\[/?{task.nonce}[^\]\n]*\]\]", "", response.text).strip()
    if not text:
        raise AnswerError(f"{task.model.name}: the answer has only marks of the prompt")

    return _Answer(text, response.finish_reason == LENGTH)


def _ask(task: _Task, chunk: str, size: int) -> Request:
    rules = _prompt("compress").render(instruction=task.instruction, nonce=task.nonce)
    material = fenced("text", chunk, task.nonce)
    end = _prompt("compress_now").render(words=_words(size))
    bytes_a_character = len(chunk.encode("utf-8", "replace")) / len(chunk)
    return Request(
        messages=(Message("user", (rules, material, end)),),
        temperature=0.0,
        # Twice the target length, so that answers that are too long are recognised.
        max_tokens=32 + int(2 * size * bytes_a_character / CHARACTERS_A_TOKEN),
        seed=task.seed,
    )


def _words(size: int) -> int:
    return max(1, int(WORDS_A_TOKEN * size / CHARACTERS_A_TOKEN))


def _prompt(name: str) -> Template:
    return load_template("textevolve.llm", name)
