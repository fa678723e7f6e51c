"""`POST /v1/embeddings`: embeddings of texts by a served model, as numbers or in base64."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from textevolve.engine.local import gather_bounded
from textevolve.evaluation import check_text
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Model
from textevolve.server.decisions.deciders import spending
from textevolve.server.errors import bad_request
from textevolve.server.openai.requests import read_shape
from textevolve.server.openai.streams import JsonObject, NoteTokens

MOST_TEXTS = 2048
"""The most texts in one request, as in OpenAI's API."""
AT_ONCE = 64


class EmbeddingRequest(BaseModel):
    """`input`: one text or several."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None


async def embed_for(model: Model, body: JsonObject, note: NoteTokens) -> JsonObject:
    """Answer a request for embeddings, with a journaled call for each text; `note` is called with
    the tokens.

    Raises:
        ApiError: the request is invalid, or the vectors do not have the requested dimensions.
    """
    request = read_shape(EmbeddingRequest, body)
    texts = [request.input] if isinstance(request.input, str) else request.input
    for text in texts:
        check_text("the input", text)
    with spending(note) as spent:
        calls = [lambda text=text: embed(model, text) for text in texts]
        vectors = await gather_bounded(calls, AT_ONCE)
    for vector in vectors:
        if request.dimensions not in (None, len(vector)):
            raise bad_request(
                f"embeddings of {request.model} have {len(vector)} dimensions, not"
                f" {request.dimensions}",
                param="dimensions",
            )
    write = _encode if request.encoding_format == "base64" else list[float]
    tokens = spent.usage.prompt_tokens
    return {
        "object": "list",
        "model": request.model,
        "data": [
            {"object": "embedding", "index": n, "embedding": write(vector)}
            for n, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _encode(vector: Sequence[float]) -> str:
    """Write a vector as little-endian floats of 32 bits."""
    return base64.b64encode(array("f", vector).tobytes()).decode()
