"""Embeddings of texts by a model. Each text is a call of its own, so it is computed once and then
found in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError
from textevolve.llm.model import Message, Model, Request


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
