"""Embeddings of texts by a model, one vector a text or one a token, and scores of pairs of texts.
Each text or pair is a call of its own, so it is computed once and then found in the journal.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, FatalModelError
from textevolve.evaluation import Usage, mend_text
from textevolve.ledger import log
from textevolve.llm.catalogue import EncoderOutput, import_engine, require_packages
from textevolve.llm.hardware import free_cores
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.refusals import embeds_only
from textevolve.llm.wire import dump_vector
from textevolve.loading import NDArray, np

Vectors: TypeAlias = "NDArray[np.float32]"


class _Answer(BaseModel):
    embedding: Annotated[list[FiniteFloat], Field(min_length=1)]


class _TokensAnswer(BaseModel):
    width: Annotated[int, Field(ge=1)]
    tokens: bytes


class _ScoreAnswer(BaseModel):
    score: FiniteFloat


async def embed(model: Model, text: str) -> list[float]:
    """Return a model's embedding of a text, without white space at its ends. Some models read only
    the beginning of a long text, which the result does not show; for `local/minilm` the response in
    the journal then has the finish reason "length".

    Raises:
        AnswerError: the answer is not a vector. ModelError: there is no answer.
    """
    response = await model(_embedding_request(text))
    try:
        return _Answer.model_validate_json(response.text).embedding
    except ValidationError:
        raise AnswerError(f"{model.name}: the answer is not an embedding") from None


PackedTokens: TypeAlias = "NDArray[np.uint8]"
"""The vectors of the tokens of a text: two bits a number, four numbers a byte, shape (tokens,
dimension / 4). On LoCoMo they rank as well as 32 bits do (docs/measurements.md)."""

_BOUNDS = (-0.9816, 0.0, 0.9816)
_LEVELS = (-1.51, -0.4528, 0.4528, 1.51)
"""The best two bits for numbers of a normal distribution with the variance 1: bounds and levels
(Max, Quantizing for Minimum Distortion, 1960, table I)."""
_SHIFTS = (6, 4, 2, 0)


@cache
def _unpack_bytes() -> Vectors:
    """Return the four numbers of each byte, shape (256, 4)."""
    codes = np.arange(256, dtype=np.uint8)[:, None] >> np.array(_SHIFTS, np.uint8)
    return np.array(_LEVELS, np.float32)[codes & 3]


def pack_tokens(vectors: Vectors) -> PackedTokens:
    """Round unit vectors of shape (tokens, dimension) to two bits a number. The dimension must be a
    multiple of four."""
    scaled = vectors * vectors.shape[1] ** 0.5  # of the variance 1
    codes = np.asarray(sum(scaled > bound for bound in _BOUNDS), dtype=np.uint8)
    return np.bitwise_or.reduce(
        codes.reshape(len(vectors), -1, 4) << np.array(_SHIFTS, np.uint8), axis=-1
    )


def unpack_tokens(packed: PackedTokens) -> Vectors:
    """Return the unit vectors of packed ones, shape (tokens, dimension)."""
    numbers = _unpack_bytes()
    vectors = numbers.take(packed, axis=0).reshape(len(packed), -1)
    squares = (numbers**2).sum(axis=1)
    vectors /= np.sqrt(squares.take(packed).sum(axis=1))[:, None]
    return vectors


async def embed_tokens(model: Model, text: str) -> PackedTokens:
    """Return the vectors of all tokens of a text, by a model for late interaction such as
    `local/colbert-small`.

    Raises:
        AnswerError: the answer has no such vectors. ModelError: there is no answer.
    """
    response = await model(_embedding_request(text))
    try:
        answer = _TokensAnswer.model_validate_json(response.text)
        return np.frombuffer(base64.b64decode(answer.tokens), np.uint8).reshape(-1, answer.width)
    except ValueError:
        raise AnswerError(f"{model.name}: the answer has no vectors of tokens") from None


async def score_pair(model: Model, query: str, text: str) -> float:
    """Return how well a text answers a query, by a cross-encoder such as `local/cross-minilm`: any
    number, higher is better.

    Raises:
        AnswerError: the answer is not a score. ModelError: there is no answer.
    """
    response = await model(_embedding_request(query, text))
    try:
        return _ScoreAnswer.model_validate_json(response.text).score
    except ValidationError:
        raise AnswerError(f"{model.name}: the answer is not a score") from None


def _embedding_request(*texts: str) -> Request:
    messages = tuple(Message("user", (text.strip(),)) for text in texts)
    return Request(messages=messages, max_tokens=1, embeds=True)


async def probe_dimension(model: Model) -> int:
    """Return the dimension of a model's embeddings, found by one call with a fixed text.

    Raises:
        AnswerError: the answer is not a vector. ModelError: there is no answer.
    """
    return len(await embed(model, "dimension"))


TEXTS_AT_ONCE = 32
"""The number of texts that `embed_texts` embeds concurrently."""


async def embed_texts(model: Model, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """Return the embeddings of texts, in order, each of length 1. Equal texts are embedded once.

    Raises:
        AnswerError: an answer is not a vector, is 0, or the dimensions differ.
    """
    distinct = list(dict.fromkeys(texts))
    work = [lambda text=text: embed(model, text) for text in distinct]
    embeddings = await gather_bounded(work, TEXTS_AT_ONCE)
    sizes = {len(embedding) for embedding in embeddings}
    if len(sizes) > 1:
        raise AnswerError(f"{model.name}: its embeddings have different dimensions: {sizes}")
    vectors = {
        text: unit(embedding, model.name)
        for text, embedding in zip(distinct, embeddings, strict=True)
    }

    return [vectors[text] for text in texts]


def unit(vector: Sequence[float], whose: str) -> NDArray[np.float32]:
    """Scale a vector to length 1; `whose`: the model's name, for messages.

    Raises:
        AnswerError: the length of the vector is 0 or infinite, so it has no direction.
    """
    wide = np.asarray(vector, dtype=np.float64)
    size = float(np.linalg.norm(wide))
    if not size or not np.isfinite(size):
        raise AnswerError(
            f"{whose}: an embedding has only zeros or too large numbers, so it has no direction"
        )

    return (wide / size).astype(np.float32)


# The offline encoders in 8 bits, run by onnxruntime inside this process.
#
# Every other local model is served on loopback and called like an endpoint (`local`). These have
# no state between calls, and an embedding takes some ten milliseconds, so a server would only add
# delay. Journal, budget and limits wrap them like any model.
#
# Texts that wait at the same time are computed in one batch if they have equally many tokens:
# without padding no computation is wasted, and no embedding depends on the other texts. Weights
# that scale their activations over a whole batch get one text at a time, for the same reason.
#
# Pooling, normalisation and the limits of tokens follow the cards of the models.

IN_FLIGHT = 256
"""The number of calls to keep in flight, so that enough texts of equal length meet in a batch."""
LONGEST = 65_536
"""The most characters of a text that are tokenised: far more than the model reads."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of a text, or of a pair of texts. `types`: 0 for the first text, 1 for the
    second."""

    ids: Sequence[int]
    types: Sequence[int]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A text that waits for its embedding. `outcome`: the future that receives the embedding."""

    tokens: _Tokens
    outcome: asyncio.Future[NDArray[np.float32]]


class Encoder:
    """A `Model` that answers requests for embeddings and rejects all others. By its entry of the
    catalogue it answers with one vector, with the vectors of all tokens, or with a score of two
    texts.

    Only the first `context` tokens of a longer text are read. Its response has the finish reason
    "length", like a truncated answer, and `characters_read` in addition to the embedding; the first
    such text is logged. Usage counts the tokens read, at no cost. Use it in `async with`, or call
    `aclose` at the end.
    """

    def __init__(
        self,
        name: str,
        weights: Path,
        tokenizer: Path,
        context: int,
        threads: int | None = None,
        *,
        output: EncoderOutput = "mean",
        together: int = 32,
    ) -> None:
        """Load the weights, which blocks for some tenths of a second. `together`: the most texts
        that are computed in one batch.

        Raises:
            SettingsError: onnxruntime or tokenizers is missing.
        """
        require_packages(name)
        self.name = name
        self.context = context
        self.output = output
        self._together = together
        self._session = _open_session(weights, threads or free_cores())
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        self._tokenizer = _open_tokenizer(tokenizer, context)
        self._waiting: dict[int, list[_Waiting]] = {}
        self._work: asyncio.Task[None] | None = None
        self._told = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish the running computation, and cancel the waiting ones."""
        for waiting in (entry for group in self._waiting.values() for entry in group):
            waiting.outcome.cancel()
        self._waiting.clear()
        if self._work is not None:
            await asyncio.gather(self._work, return_exceptions=True)

    async def __call__(self, request: Request, /) -> Response:
        """Embed the text of a request, or score its two texts.

        Raises:
            CapabilityError: the request is not for an embedding, or a pair is not two texts.
            FatalModelError: onnxruntime fails.
        """
        if not request.embeds or (len(request.messages) == 2) != (self.output == "score"):
            raise embeds_only(self.name)
        started = perf_counter()
        text = request.messages[-1].text
        query = request.messages[0].text if self.output == "score" else None
        tokens, characters_read = await asyncio.to_thread(self._read, text, query)
        outcome: asyncio.Future[NDArray[np.float32]]
        outcome = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(len(tokens.ids), []).append(_Waiting(tokens, outcome))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._compute_waiting())
        vector = await outcome
        cut = characters_read < len(text)
        if cut:
            self._warn_truncated(len(text), characters_read)
        more = {"characters_read": characters_read} if cut else {}
        usage = Usage(1, len(tokens.ids), 0, 0, 0.0)

        return Response(
            self._write(vector, more),
            "length" if cut else "stop",
            usage,
            seconds=perf_counter() - started,
        )

    def _write(self, output: Vectors, more: dict[str, int]) -> str:
        """Return the text of a response: a vector, a score, or packed token vectors in base64."""
        if self.output == "score":
            return json.dumps({"score": float(f"{float(output[0]):.7g}"), **more})
        if self.output == "tokens":
            packed = pack_tokens(output)
            tokens = base64.b64encode(packed.tobytes()).decode()
            return json.dumps({"width": packed.shape[1], "tokens": tokens, **more})
        return dump_vector(output.tolist(), **more)

    def _read(self, text: str, query: str | None) -> tuple[_Tokens, int]:
        """Return the tokens of the beginning that the model reads, and its length in characters."""
        text = mend_text(text)[:LONGEST]
        pair = (text,) if query is None else (mend_text(query)[:LONGEST], text)
        encoded = self._tokenizer.encode(*pair)
        tokens = _Tokens(encoded.ids, encoded.type_ids)
        if encoded.overflowing:
            return tokens, encoded.offsets[-2][1]  # the last is the mark of the end
        return tokens, len(text)

    def _warn_truncated(self, characters: int, characters_read: int) -> None:
        if not self._told:
            log.warning(
                "%s reads only the first %d tokens of a text: of a text with %d characters it"
                " read %d (this warning comes once)",
                self.name,
                self.context,
                characters,
                characters_read,
            )

        self._told = True

    async def _compute_waiting(self) -> None:
        """Compute one group of equal length after the other, the longest-waiting one first."""
        while self._waiting:
            size = next(iter(self._waiting))
            group = [entry for entry in self._waiting.pop(size) if not entry.outcome.done()]
            group, remaining = group[: self._together], group[self._together :]
            if remaining:
                self._waiting[size] = remaining
            if not group:
                continue
            try:
                vectors = await asyncio.to_thread(self._compute, [entry.tokens for entry in group])
            except Exception as error:  # noqa: BLE001 - onnxruntime's own errors have no common root
                failed = FatalModelError(f"{self.name}: onnxruntime fails: {error}")
                for entry in group:
                    if not entry.outcome.done():
                        entry.outcome.set_exception(failed)
                continue

            for entry, vector in zip(group, vectors, strict=True):
                if not entry.outcome.done():
                    entry.outcome.set_result(vector)

    def _compute(self, group: Sequence[_Tokens]) -> Vectors:
        """Return the output for each text: unit vectors of shape (texts, dimension), or (texts,
        tokens, dimension), or scores of shape (texts, 1). All texts must have the same number of
        tokens."""
        ids = np.asarray([tokens.ids for tokens in group], dtype=np.int64)
        types = np.asarray([tokens.types for tokens in group], dtype=np.int64)
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
        feed = {name: arrays[name] for name in self._inputs}
        hidden: NDArray[np.float32] = self._session.run(None, feed)[0]
        if self.output == "score":
            return hidden
        if self.output == "mean":
            hidden = hidden.mean(axis=1)
        elif self.output == "first":
            hidden = hidden[:, 0]

        return hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)


def _open_session(weights: Path, threads: int) -> Any:
    # Since 1.29 onnxruntime sends what it runs to its maker, and keeps an identifier in the user's
    # cache, unless this is set before its first import; a call later only stops what follows.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    runtime = import_engine("onnxruntime", "embedder")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _open_tokenizer(path: Path, context: int) -> Any:
    tokenizer = import_engine("tokenizers", "embedder").Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(context)
    return tokenizer
