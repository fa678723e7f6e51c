"""`POST /v1/embeddings`: vectors of texts, as numbers or in base64, by a model that is served."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from textevolve.engine.local import gather_bounded
from textevolve.evaluation import check_text
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Model
from textevolve.llm.wire import Embeddings
from textevolve.server.decisions.spending import spending
from textevolve.server.errors import INVALID, ApiError
from textevolve.server.openai.completions import JsonObject, NoteTokens
from textevolve.server.openai.requests import read_shape
from textevolve.server.state import ServerState

MOST_TEXTS = 2048
"""Of one request, as in OpenAI's API."""
AT_ONCE = 64

TextOrTokens = str | Annotated[list[int], Field(min_length=1)]


class EmbeddingRequest(BaseModel):
    """`input`: one text or several; tokens are taken where the model's endpoint takes them."""

    model: str
    input: TextOrTokens | Annotated[list[TextOrTokens], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


async def embed_for(
    server: ServerState, model: Model, body: JsonObject, note: NoteTokens
) -> JsonObject:
    """The answer to a request for embeddings; `note` hears of the tokens.

    Raises:
        ApiError: the request cannot be used, or vectors have other dimensions than asked for.
    """
    asked = read_shape(EmbeddingRequest, body)
    if embedder_of(model.name) is not None:
        vectors, tokens = await _embed_here(model, asked, note)
    else:
        vectors, tokens = await _embed_there(server, model.name, asked, note)
    for vector in vectors:
        if asked.dimensions not in (None, len(vector)):
            said = f"embeddings of {asked.model} have {len(vector)} dimensions"
            raise ApiError(400, INVALID, f"{said}, not {asked.dimensions}", param="dimensions")
    write = _encode if asked.encoding_format == "base64" else list[float]
    return {
        "object": "list",
        "model": asked.model,
        "data": [
            {"object": "embedding", "index": n, "embedding": write(vector)}
            for n, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _inputs(asked: EmbeddingRequest) -> list[Any]:
    given: Any = asked.input
    single = isinstance(given, str) or isinstance(given[0], int)
    return [given] if single else list(given)


async def _embed_here(
    model: Model, asked: EmbeddingRequest, note: NoteTokens
) -> tuple[Sequence[Sequence[float]], int]:
    """By a model inside this process; what was computed before comes from the journal."""
    texts = _inputs(asked)
    for text in texts:
        if not isinstance(text, str):
            said = "send texts, not tokens; in LangChain: check_embedding_ctx_length=False"
            raise ApiError(400, INVALID, said, param="input")
        check_text("the input", text)
    with spending(note) as spent:
        calls = [lambda text=text: embed(model, text) for text in texts]
        vectors = await gather_bounded(calls, AT_ONCE)
    return vectors, spent.usage.prompt_tokens


async def _embed_there(
    server: ServerState, spec: str, asked: EmbeddingRequest, note: NoteTokens
) -> tuple[Sequence[Sequence[float]], int]:
    """By an endpoint, all texts at once."""
    body: JsonObject = {"input": asked.input, "encoding_format": "float"}
    body |= {"dimensions": asked.dimensions} if asked.dimensions else {}
    async with server.relays.begun(spec, "/embeddings", body, note) as (answer, reader):
        raw = await answer.whole()
        reader.read(raw)
        try:
            found = Embeddings.model_validate_json(raw)
        except ValidationError:
            said = "the model's endpoint gave no embeddings"
            raise ApiError(502, "upstream_error", said) from None
    vectors = [one.embedding for one in sorted(found.data, key=lambda one: one.index)]
    if len(vectors) != len(_inputs(asked)):
        raise ApiError(502, "upstream_error", "the endpoint gave another number of embeddings")
    return vectors, reader.usage.prompt_tokens


def _encode(vector: Sequence[float]) -> str:
    """As little-endian floats of 32 bits."""
    numbers = array("f", vector)
    return base64.b64encode(numbers.tobytes()).decode()
