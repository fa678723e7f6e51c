"""Texts forced in their own tokens: the grammar, what comes back, endpoints that cannot."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.llm.client import OpenAIClient, Token, can_force, token_grammar
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.testing.answers import split_tokens

TEXT = "Name a prime below ten."
ODD = [
    TEXT,
    " begins with a space",
    'says "no"\n\tand C:\\n',
    "Größe 日本語 e\u0301",
    "astronaut \U0001f9d1\u200d\U0001f680, done",
    "\U0001f600",
    '<[7]> root ::= "\\U00000041"',
]


def as_request(text, **fields):
    schema = json.dumps({"type": "object", "properties": {"x": {"enum": [text]}}})
    arguments = {"schema": schema, "temperature": 0.0, "max_tokens": 9, "top_logprobs": 1, **fields}
    return Request(messages=(Message("user", ("What was asked?",)),), forced=text, **arguments)


def opened(server):
    return OpenAIClient(server.url, "scripted")


# The grammar


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.data())
def test_a_grammar_lets_the_text_come_however_it_is_split(text, data):
    whole = text.encode()
    cuts = data.draw(st.sets(st.integers(1, len(whole))))
    ends = sorted(cuts | {len(whole)})
    pieces = [whole[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    tokens = [Token(id=n, piece=list(piece)) for n, piece in enumerate(pieces)]
    grammar, most = token_grammar(tokens)
    written = b""
    signs = re.findall(r'<\[(\d+)\]>|"((?:\\U[0-9A-F]{8})+)"', grammar)
    for id, characters in signs:
        if id:
            pieces[int(id)].decode()  # a token of its own writes whole characters
            written += pieces[int(id)]
        else:
            written += characters.encode().decode("unicode_escape").encode()
    assert written == whole
    assert len(signs) <= most <= len(whole)


@pytest.mark.parametrize(
    ("pieces", "text", "able"),
    [
        (["Na", "me"], "Name", True),
        ([" Na", "me"], "Name", True),  # a tokeniser that begins each text with a space
        (["na", "me"], "Name", False),  # one that writes another text
        (["Na", "", "me"], "Name", False),
        (["a", "\0"], "a\0", False),
    ],
)
def test_only_a_text_that_its_tokens_write_is_forced(pieces, text, able):
    assert can_force([Token(id=1, piece=piece) for piece in pieces], text) is able


# Through the client


@pytest.mark.parametrize("text", ODD)
async def test_a_text_is_answered_in_its_own_tokens(text):
    async with ScriptedServer(tokenizes=True) as server, opened(server) as client:
        response = await client(as_request(text))
    (requests,) = server.requests
    assert "response_format" not in requests
    assert requests["max_tokens"] >= len(text)
    assert (response.text, response.finish_reason) == (text, "stop")
    assert len(response.logprobs) == len(split_tokens(text))
    assert all(token.logprob < 0 for token in response.logprobs)


REFUSES = b'{"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse'
REFUSES += b' grammar", "type": "invalid_request_error"}}'


@pytest.mark.parametrize("refusal", [Answer(status=400, body=REFUSES), Answer(text="Something.")])
async def test_a_server_whose_grammars_know_no_tokens_is_asked_by_schema_from_then_on(refusal):
    def script(body, _number):
        return refusal if "grammar" in body else None

    async with ScriptedServer(script, tokenizes=True) as server, opened(server) as client:
        for text in (TEXT, "Another."):
            assert json.loads((await client(as_request(text))).text) == {"x": text}
    assert ["grammar" in request for request in server.requests] == [True, False, False]
