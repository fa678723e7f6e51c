"""The judge by embeddings, on the scripted server."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Case, Failure
from textevolve.evaluators import Judges
from textevolve.judge_specs import parse_evaluator
from textevolve.judges.embedding import cosine
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, request_key
from textevolve.llm.testing import ScriptedServer

CASE = Case("Name a prime.", ("Seven.", "Nine."), "1", reference="Seven.")
NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)


async def judge(case=CASE, script=None):
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "scripted") as client:
        made = await Judges("scripted", lambda _: client).open("embedding")(case)
        vectors = await client.embed(["Seven.", "Nine."])
    return made, vectors


async def test_the_score_is_the_cosine_to_the_reference():
    made, (one, other) = await judge()
    wanted = sum(a * b for a, b in zip(one, other, strict=True))
    assert made.result[0].score == pytest.approx(1)
    assert made.result[1].score == pytest.approx(max(0, wanted), abs=1e-6)
    assert made.result[0].passed
    assert (made.usage.calls, made.usage.completion_tokens) == (3, 0)
    assert made.usage.prompt_tokens > 0


async def test_a_case_needs_a_reference_and_a_model_that_embeds():
    with pytest.raises(InputError, match="needs a field 'reference'"):
        await judge(Case("x", ("y",)))

    class Local:
        name = "local/qwen2.5-coder-1.5b"

    with pytest.raises(InputError, match="gives no embeddings"):
        Judges("m", lambda _: Local()).open("embedding")
    Local.name = "local/minilm"
    Judges("m", lambda _: Local()).open("embedding")
    with pytest.raises(InputError, match="it has none"):
        parse_evaluator("embedding+rules")


@pytest.mark.parametrize("text", ["", "[1]", '{"embedding": []}', '{"embedding": ["x"]}'])
async def test_what_is_no_vector_is_a_failure(text):
    class Broken:
        name = "broken"

        async def __call__(self, request):
            assert request.embeds
            async with (
                ScriptedServer() as server,
                OpenAIClient(server.url, "scripted") as client,
            ):
                made = await client(Request(messages=request.messages))
            return type(made)(text, "stop", made.usage)

    made = await Judges("m", lambda _: Broken()).open("embedding")(CASE)
    assert all(isinstance(one, Failure) and one.kind == "failed" for one in made.result)


@given(NUMBERS, NUMBERS, st.floats(0.1, 10))
def test_a_cosine_knows_direction_alone(one, other, length):
    assume(math.hypot(*one) > 1e-3 and math.hypot(*other) > 1e-3)
    found = cosine(one, other)
    assert -1 <= found <= 1
    assert cosine(other, one) == found
    assert cosine([length * part for part in one], other) == pytest.approx(found, abs=1e-9)
    assert cosine(one, one) == pytest.approx(1)


@pytest.mark.parametrize("vectors", [([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_vectors_that_cannot_be_compared(vectors):
    with pytest.raises(AnswerError):
        cosine(*vectors)


def test_an_embedding_is_another_request_and_others_keep_their_keys():
    plain = Request(messages=(Message("user", ("x",)),))
    embeds = Request(messages=plain.messages, embeds=True)
    assert request_key("m", plain) != request_key("m", embeds)


def test_embeddings_are_kept_in_the_journal(cli, server, model, home):
    rows = [{"input": "Name a prime.", "candidates": ["Seven.", "Nine."], "reference": "Seven."}]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("evaluate", "rows.jsonl", "--judge", f"embedding@{model}")
    assert (
        "calls              2\n" in cli(*asked, "--dry-run").out
    )  # one candidate is the reference
    first = cli(*asked, "-o", "one.csv")
    assert first.code == 0, first.err
    assert "From other runs  0 answers" in first.out
    again = cli(*asked, "--threshold", "0.9", "-o", "two.csv")
    assert again.code == 0, again.err
    assert "From other runs  2 answers" in again.out
    assert "1.0" in (home / "two.csv").read_text()
