"""The offline embedder: its own weights on real texts, and that it stays by itself."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from textevolve.errors import AnswerError, CapabilityError, FatalModelError
from textevolve.llm import embeddings
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.embeddings import Encoder, embed, embed_texts, probe_dimension
from textevolve.llm.model import Message, Request
from textevolve.llm.opening import open_client
from textevolve.llm.weights import fetch
from textevolve.settings import Settings, read_settings

NAME = "local/minilm"
# Of different lengths, so that they do and do not meet in one batch.
TEXTS = (
    "Ada was made head nurse of the ward.",
    "The nurse Ada was promoted and now leads her ward.",
    "The stock market fell sharply on Monday.",
    "Short.",
    "Kurz und auf Deutsch, mit Umlauten: Grüße aus Köln.",
    "A much longer text about railways, rivers and the trade between towns. " * 6,
    "",
)


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """Weights and tokenizer, which have no state, are loaded once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embeddings, "_open_session", cache(embeddings._open_session))
        patch.setattr(embeddings, "_open_tokenizer", cache(embeddings._open_tokenizer))
        yield


@pytest.fixture
def settings() -> Settings:
    """This machine's weights, fetched where they are missing: 23 MB."""
    found_settings = read_settings()
    try:
        fetch("minilm", found_settings)
    except FatalModelError as error:
        pytest.skip(f"the weights of minilm cannot be had here: {error}")
    return found_settings


@pytest.fixture
async def model(settings: Settings) -> AsyncIterator[Encoder]:
    async with AsyncExitStack() as stack:
        opened, _, _ = await open_client(NAME, settings, stack)
        assert isinstance(opened, Encoder)
        yield opened


def asked(text: str) -> Request:
    return Request(messages=(Message("user", (text,)),), embeds=True)


async def test_a_paraphrase_is_nearer_than_another_subject(model: Encoder):
    values, same, other, *_ = await embed_texts(model, TEXTS)
    assert values @ same > 0.7 > 0.3 > values @ other
    for vector in await embed_texts(model, TEXTS):
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert await probe_dimension(model) == 384


async def test_an_embedding_does_not_depend_on_what_is_embedded_beside_it(model: Encoder):
    alone = [await embed(model, text) for text in TEXTS]
    # Two of each, told apart by their last letter, so that groups of one length are computed.
    variants = [f"{text} {letter}" for text in TEXTS for letter in "ab"]
    together = await asyncio.gather(*(embed(model, text) for text in (*TEXTS, *variants)))
    assert together[: len(TEXTS)] == alone
    for text, vector in zip(variants, together[len(TEXTS) :], strict=True):
        assert vector == await embed(model, text)


async def test_it_is_what_the_weights_give_with_padding_and_a_mask(model: Encoder):
    """A reference that is computed another way: one batch, padded, pooled under the mask."""
    tokens = [model._read(text, None)[0].ids for text in TEXTS]
    ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, numbers in enumerate(tokens):
        ids[row, : len(numbers)], mask[row, : len(numbers)] = numbers, 1
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden = model._session.run(None, feed)[0]
    pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    for vector, reference in zip(await embed_texts(model, TEXTS), expected, strict=True):
        assert vector == pytest.approx(reference, abs=1e-5)


async def test_of_a_long_text_the_beginning_is_read_and_that_is_said(
    model: Encoder, caplog: pytest.LogCaptureFixture
):
    long = "seven " * 300 + "something else " * 9_000
    response = await model(asked(long))
    assert response.finish_reason == "length"
    assert response.usage.prompt_tokens == 256
    assert '"characters_read": 1523' in response.text  # 254 words, between the two marks
    assert await embed(model, long) == await embed(model, long[:1523])
    full_response = await model(asked(long[:1523]))
    assert (full_response.finish_reason, "characters_read" in full_response.text) == ("stop", False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


LEAVES_NOTHING = """
import asyncio, os, sys
from pathlib import Path
from textevolve.llm.embeddings import embed
from textevolve.llm.embeddings import Encoder

async def main():
    async with Encoder("local/minilm", Path(sys.argv[1]), Path(sys.argv[2]), 256, 1) as model:
        await embed(model, "Hello.")

asyncio.run(main())
sockets = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
           and os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
print(len(sockets))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_onnxruntime_sends_nothing_and_leaves_no_file(settings: Settings, tmp_path: Path):
    """It would: an identifier and a database in the user's cache, and what it ran to its maker."""
    entry = embedder_of(NAME)
    assert entry is not None
    files = [str(settings.weights_folder / file.file) for file in entry.files]
    hidden = ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING, *files],
        env={**environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bge-small", "colbert-small"])
async def test_quantised_weights_do_not_mix_texts(name: str):
    """Anush008/fastembed-rs#107: scales of a whole batch make a vector depend on its neighbours."""
    found_settings = read_settings()
    try:
        fetch(name, found_settings)
    except FatalModelError as error:
        pytest.skip(f"the weights of {name} cannot be had here: {error}")
    texts = [f"{text} {letter}" for text in TEXTS for letter in "abc"]
    async with AsyncExitStack() as stack:
        model, _, _ = await open_client(f"local/{name}", found_settings, stack)
        encode = embeddings.embed_tokens if name == "colbert-small" else embed
        together = await asyncio.gather(*(encode(model, text) for text in texts))
        for text, vector in zip(texts, together, strict=True):
            assert np.array_equal(vector, await encode(model, text))


@pytest.mark.slow
async def test_rankers_prefer_the_answer():
    found_settings = read_settings()
    try:
        for name in ("colbert-small", "cross-minilm"):
            fetch(name, found_settings)
    except FatalModelError as error:
        pytest.skip(f"the weights of {name} cannot be had here: {error}")
    question, answer, other = "Who leads the ward?", TEXTS[0], TEXTS[2]
    async with AsyncExitStack() as stack:
        late, _, _ = await open_client("local/colbert-small", found_settings, stack)
        cross, _, _ = await open_client("local/cross-minilm", found_settings, stack)
        packed = [await embeddings.embed_tokens(late, text) for text in (question, answer, other)]
        asked_tokens, *texts = [embeddings.unpack_tokens(each) for each in packed]
        right, wrong = [np.max(asked_tokens @ each.T, axis=1).mean() for each in texts]
        assert right > wrong
        right, wrong = [await embeddings.score_pair(cross, question, t) for t in (answer, other)]
        assert right > wrong
        with pytest.raises(CapabilityError):
            await embed(cross, answer)
        with pytest.raises(AnswerError, match="not an embedding"):
            await embed(late, answer)
