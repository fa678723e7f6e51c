"""The judge by embeddings, on the scripted server."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.judges.judge import parse_judge
from textevolve.judges.measures import EmbeddingSimilarity, cosine
from textevolve.judges.opening import Judges
from textevolve.llm.client import OpenAIClient
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Request
from textevolve.llm.testing import ScriptedServer

CASE = Case("Name a prime.", ("Seven.", "Nine."), "1", reference="Seven.")
NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)


async def judge(case=CASE, script=None):
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "scripted") as client:
        evaluation = await Judges("scripted", lambda _: client).open(EmbeddingSimilarity())(case)
        vectors = [await embed(client, text) for text in ("Seven.", "Nine.")]
    return evaluation, vectors


async def test_the_score_is_the_cosine_to_the_reference():
    evaluation, (values, other) = await judge()
    expected_total = sum(a * b for a, b in zip(values, other, strict=True))
    assert evaluation.result[0].score == pytest.approx(1)
    assert evaluation.result[1].score == pytest.approx(max(0, expected_total), abs=1e-6)
    assert evaluation.result[0].passed
    assert (evaluation.usage.calls, evaluation.usage.completion_tokens) == (3, 0)
    assert evaluation.usage.prompt_tokens > 0


async def test_a_case_needs_a_reference_and_a_model_that_embeds():
    with pytest.raises(InputError, match="needs a field 'reference'"):
        await judge(Case("x", ("y",)))

    class Local:
        name = "local/qwen2.5-coder-1.5b"

    with pytest.raises(InputError, match="gives no embeddings"):
        Judges("m", lambda _: Local()).open(EmbeddingSimilarity())
    Local.name = "local/minilm"
    Judges("m", lambda _: Local()).open(EmbeddingSimilarity())
    with pytest.raises(InputError, match="it has none"):
        parse_judge("embedding+rules")


@pytest.mark.parametrize("text", ["", "[1]", '{"embedding": []}', '{"embedding": ["x"]}'])
async def test_what_is_no_vector_is_a_failure(text):
    class Broken:
        name = "broken"

        async def __call__(self, request):
            assert request.embeds
            async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
                made = await client(Request(messages=request.messages))
            return type(made)(text, "stop", made.usage)

    made = await Judges("m", lambda _: Broken()).open(EmbeddingSimilarity())(CASE)
    assert all(isinstance(result, Failure) and result.kind == "failed" for result in made.result)


@given(NUMBERS, NUMBERS, st.floats(0.1, 10))
def test_a_cosine_knows_direction_alone(one, other, length):
    assume(math.hypot(*one) > 1e-3 and math.hypot(*other) > 1e-3)
    value = cosine(one, other)
    assert -1 <= value <= 1
    assert cosine(other, one) == value
    assert cosine([length * part for part in one], other) == pytest.approx(value, abs=1e-9)
    assert cosine(one, one) == pytest.approx(1)
