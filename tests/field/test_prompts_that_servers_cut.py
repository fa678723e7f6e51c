"""A server cuts a prompt that is longer than its context, as Ollama does, and says so only by the
number of tokens that it counts. Honest counts of other scripts, tables and caches are believed."""

import json

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, text_request
from textevolve.llm.prompts import find_cut
from textevolve.llm.testing import Answer

RULES = " ".join(f"Rule {i}: every clerk keeps the ledger of day {i} closed." for i in range(1500))
CHINESE = "每个职员每天都要把账本合上，然后交给主管检查。" * 400
CASES = {
    "cut English": (RULES, 2050, True),
    "whole English": (RULES, 19_500, False),
    # Tokenizers of large vocabularies have up to six characters of prose a token.
    "few tokens": (RULES, len(RULES) // 6, False),
    "cut Chinese": (CHINESE, 2050, True),
    # Two signs a token are the fewest tokens that a vocabulary makes of Chinese prose.
    "whole Chinese": (CHINESE, len(CHINESE) // 2, False),
    "table": (("| name" + " " * 90 + "| value" + " " * 90 + "|\n") * 200, 200 * 6, False),
    "lines": (("=" * 80 + "\n") * 300, 300 * 2, False),
    "count of nothing": (RULES, 5, False),
}


@pytest.mark.parametrize("name", CASES)
def test_cut_prompts_are_found(name):
    text, counted, is_cut = CASES[name]
    assert bool(find_cut(text_request(text, 8, 0), counted)) == is_cut


def test_images_count_for_nothing():
    picture = "data:image/png;base64,iVBORw0KGgo="
    message = Message("user", ("What is this? " * 40,), images=(picture,) * 4)
    assert find_cut(Request(messages=(message,)), 150) == 0


USAGES = {
    "cut": ({"prompt_tokens": 2050, "completion_tokens": 12}, 1),
    "cached beside": (
        {"input_tokens": 120, "output_tokens": 12, "cache_read_input_tokens": 19_300},
        0,
    ),
    "written beside": (
        {"input_tokens": 120, "output_tokens": 12, "cache_creation_input_tokens": 19_300},
        0,
    ),
    "unsaid": ({}, 0),
}


@pytest.mark.parametrize("name", USAGES)
async def test_usage_has_cut_prompts(server, caplog, name):
    usage, cut_prompts = USAGES[name]
    server.script = lambda _body, _number: Answer(text="x", usage=usage)
    async with OpenAIClient(server.url, "scripted") as client:
        response = await client(text_request(RULES, 8, 0))
    assert response.usage.cut_prompts == cut_prompts
    assert ("counted 2,050 tokens of a prompt of about" in caplog.text) == bool(cut_prompts)


async def test_cut_embeddings_are_told(server, caplog):
    vector = {"index": 0, "embedding": [0.6, 0.8]}
    body = {"data": [vector], "usage": {"prompt_tokens": 512, "total_tokens": 512}}
    server.answer = lambda *_parts: Answer(body=json.dumps(body).encode())
    async with OpenAIClient(server.url, "scripted") as client:
        response = await client(Request(messages=(Message("user", (RULES,)),), embeds=True))
    assert response.usage.cut_prompts == 1
    assert "counted 512 tokens" in caplog.text


def test_rows_and_runs_warn(cli, home, server):
    """The warning stands in the row, in the report, and in those of a run that the journal
    answers."""
    usage = {"prompt_tokens": 2050, "completion_tokens": 12}
    server.script = lambda _body, _number: Answer(text="x", usage=usage)
    (home / "rows.jsonl").write_text(json.dumps({"q": RULES, "a": "x"}) + "\n", encoding="utf-8")
    (home / "p.txt").write_text("Answer: {q}", encoding="utf-8")
    words = ("compare", "-p", "p.txt", "-d", "rows.jsonl", "--label", "a", "--metric", "exact")
    for number in range(2):
        name = home / f"rows-{number}.jsonl"
        outcome = cli(*words, "-m", f"{server.url}#scripted", "-o", str(name))
        assert outcome.code == 0
        assert "1 prompt probably cut by the endpoint" in outcome.out
        assert json.loads(name.read_text(encoding="utf-8"))["usage"]["cut_prompts"] == 1
    assert server.calls == 1
