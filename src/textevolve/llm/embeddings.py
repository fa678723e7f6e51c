"""Embeddings of texts by a model. Each text is a call of its own, so it is computed once and then
found in the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, FatalModelError, SettingsError
from textevolve.evaluation import Usage, mend_text
from textevolve.llm.catalogue import require_packages
from textevolve.llm.hardware import free_cores
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.refusals import embeds_only
from textevolve.llm.wire import dump_vector


class _Answer(BaseModel):
    embedding: Annotated[list[FiniteFloat], Field(min_length=1)]


async def embed(model: Model, text: str) -> list[float]:
    """Return a model's embedding of a text, without white space at its ends. Some models read only
    the beginning of a long text, which the result does not show; for `local/minilm` the response in
    the journal then has the finish reason "length".

    Raises:
        AnswerError: the answer is not a vector. ModelError: there is no answer.
    """
    request = Request(messages=(Message("user", (text.strip(),)),), max_tokens=1, embeds=True)
    response = await model(request)
    try:
        return _Answer.model_validate_json(response.text).embedding
    except ValidationError:
        raise AnswerError(f"{model.name}: the answer is not an embedding") from None


async def probe_dimension(model: Model) -> int:
    """Return the dimension of a model's embeddings, found by one call with a fixed text.

    Raises:
        AnswerError: the answer is not a vector. ModelError: there is no answer.
    """
    return len(await embed(model, "dimension"))


async def embed_texts(
    model: Model, texts: Sequence[str], concurrency: int = 32
) -> list[npt.NDArray[np.float32]]:
    """Return the embeddings of texts, in order, each of length 1. Equal texts are embedded once.

    Raises:
        AnswerError: an answer is not a vector, is 0, or the dimensions differ.
    """
    distinct = list(dict.fromkeys(texts))
    embeddings = await gather_bounded(
        [lambda text=t: embed(model, text) for t in distinct], concurrency
    )
    sizes = {len(embedding) for embedding in embeddings}
    if len(sizes) > 1:
        raise AnswerError(f"{model.name}: its embeddings have different dimensions: {sizes}")
    vectors = {
        text: unit(embedding, model.name)
        for text, embedding in zip(distinct, embeddings, strict=True)
    }

    return [vectors[text] for text in texts]


def unit(vector: Sequence[float], whose: str) -> npt.NDArray[np.float32]:
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


# The offline embedder: all-MiniLM-L6-v2 in 8 bits, run by onnxruntime inside this process.
#
# Every other local model is served on loopback and called like an endpoint (`local`). This one has
# no state between calls, and an embedding takes some ten milliseconds, so a server would only add
# delay. Journal, budget and limits wrap it like any model.
#
# Texts that wait at the same time are computed in one batch if they have equally many tokens:
# without padding no computation is wasted, and no embedding depends on the other texts.
#
# Pooling, normalisation and the limit of 256 tokens follow the model card of all-MiniLM-L6-v2.

IN_FLIGHT = 256
"""The number of calls to keep in flight, so that enough texts of equal length meet in a batch."""
TOGETHER = 32
"""The most texts that are computed in one batch."""
LONGEST = 65_536
"""The most characters of a text that are tokenised: far more than the model reads."""

Tokens = Sequence[int]
Vectors = npt.NDArray[np.float32]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A text that waits for its embedding. `outcome`: the future that receives the embedding."""

    tokens: Tokens
    outcome: asyncio.Future[npt.NDArray[np.float32]]


class MiniLM:
    """A `Model` that answers requests for embeddings and rejects all others.

    Only the first `context` tokens of a longer text are read. Its response has the finish reason
    "length", like a truncated answer, and `characters_read` in addition to the embedding; the first
    such text is logged. Usage counts the tokens read, at no cost. Use it in `async with`, or call
    `aclose` at the end.
    """

    def __init__(
        self, name: str, weights: Path, tokenizer: Path, context: int, threads: int | None = None
    ) -> None:
        """Load the weights, which blocks for some tenths of a second.

        Raises:
            SettingsError: onnxruntime or tokenizers is missing.
        """
        require_packages(name)
        self.name = name
        self.context = context
        self._session = _open_session(weights, threads or free_cores())
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
        """Embed the text of a request.

        Raises:
            CapabilityError: the request is not for an embedding. FatalModelError: onnxruntime
                fails.
        """
        if not request.embeds:
            raise embeds_only(self.name)
        started = perf_counter()
        text = request.messages[-1].text
        tokens, characters_read = await asyncio.to_thread(self._read, text)
        outcome: asyncio.Future[npt.NDArray[np.float32]]
        outcome = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(len(tokens), []).append(_Waiting(tokens, outcome))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._compute_waiting())
        vector = await outcome
        cut = characters_read < len(text)
        if cut:
            self._warn_truncated(len(text), characters_read)
        vector_text = dump_vector(
            vector.tolist(), **({"characters_read": characters_read} if cut else {})
        )
        usage = Usage(1, len(tokens), 0, 0, 0.0)

        return Response(
            vector_text, "length" if cut else "stop", usage, seconds=perf_counter() - started
        )

    def _read(self, text: str) -> tuple[Tokens, int]:
        """Return the tokens of the beginning that the model reads, and its length in characters."""
        text = mend_text(text)[:LONGEST]
        encoded = self._tokenizer.encode(text)
        if encoded.overflowing:
            return encoded.ids, encoded.offsets[-2][1]  # the last is the mark of the end
        return encoded.ids, len(text)

    def _warn_truncated(self, characters: int, characters_read: int) -> None:
        if not self._told:
            logging.getLogger("textevolve").warning(
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
            group, remaining = group[:TOGETHER], group[TOGETHER:]
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

    def _compute(self, group: Sequence[Tokens]) -> Vectors:
        """Return unit vectors (texts, dimension): the mean over all tokens of each text. All texts
        must have the same number of tokens."""
        ids = np.asarray(group, dtype=np.int64)
        feed = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        hidden: npt.NDArray[np.float32] = self._session.run(None, feed)[0]
        pooled = hidden.mean(axis=1)

        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def _open_session(weights: Path, threads: int) -> Any:
    # Since 1.29 onnxruntime sends what it runs to its maker, and keeps an identifier in the user's
    # cache, unless this is set before its first import; a call later only stops what follows.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    runtime = _import("onnxruntime")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _open_tokenizer(path: Path, context: int) -> Any:
    tokenizer = _import("tokenizers").Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(context)
    return tokenizer


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise SettingsError(
            f"{package} is installed but does not load here ({error}): reinstall it, or name an"
            " endpoint as the embedder"
        ) from error
