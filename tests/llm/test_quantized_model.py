"""A real model, quantised: llama.cpp loads what was made, and it says almost the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from textevolve.llm.client import OpenAIClient
from textevolve.llm.local import serve
from textevolve.llm.model import Message, Request
from textevolve.llm.quantize import quantize_file, quantized_name
from textevolve.settings import Local

ASKED = Request(
    messages=(Message("user", ("What is the capital of France?",)),), max_tokens=8, temperature=0.0
)
FORCED = replace(ASKED, forced="The capital of France is Paris.", top_logprobs=1)


async def ask(path: Path) -> tuple[str, list[float]]:
    """What it answers, and the log-probabilities of the tokens of an answer that is given."""
    with serve(path, Local(slots=1, context=512, threads=1)) as server:
        arguments = {"name": path.stem, "key": SecretStr(server.api_key), "watched": True}
        async with OpenAIClient(server.base_url, "model", **arguments) as client:
            answer, forced = await client(ASKED), await client(FORCED)
    assert forced.text == FORCED.forced
    return answer.text, [token.logprob for token in forced.logprobs]


@pytest.mark.slow
def test_a_quantised_model_loads_and_answers_almost_the_same(smollm: Path, tmp_path: Path):
    _, before = asyncio.run(ask(smollm))
    distances: dict[str, float] = {}
    for to in ("q8_0", "q4_0"):
        into = tmp_path / quantized_name(smollm, to)
        quantize_file(smollm, to, into)
        answer, after = asyncio.run(ask(into))
        assert answer.strip()
        pairs = zip(before, after, strict=True)
        distances[to] = sum(abs(a - b) for a, b in pairs) / len(before)
        into.unlink()
    assert distances["q8_0"] < 0.1
    assert distances["q8_0"] < distances["q4_0"] < 2
