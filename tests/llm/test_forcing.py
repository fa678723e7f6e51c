"""Texts forced in their own tokens: the grammar, what comes back, endpoints that cannot."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import TooLongError, UnavailableError
from textevolve.llm.client import OpenAIClient, Token, can_force, read_tokens, token_grammar
from textevolve.llm.model import Message, Request, request_key
from textevolve.llm.testing import Answer, Fault, ScriptedServer, misbehave
from textevolve.llm.testing.answers import answer_tokenize, forced_text, split_tokens

KEY = "3e2cfb2d082e48c3caa095579a5b8a463095c7827298f8aa65a101d678a1e674"
TEXT = "Name a prime below ten."
ODD = [
    TEXT,
    " begins with a space",
    'says "no"\n\tand C:\\n',
    "Größe 日本語 e\u0301",
    "astronaut \U0001f9d1\u200d\U0001f680, done",
    "\U0001f600",
    '<[7]> root ::= "\\U00000041"',
    "word " * 2000,
]


def as_request(text, **fields):
    schema = json.dumps({"type": "object", "properties": {"x": {"enum": [text]}}})
    given = {"schema": schema, "temperature": 0.0, "max_tokens": 9, "top_logprobs": 1, **fields}
    return Request(messages=(Message("user", ("What was asked?",)),), forced=text, **given)


def opened(server):
    return OpenAIClient(server.url, "scripted")


class Counting(ScriptedServer):
    """Counts what is asked besides chat."""

    def __init__(self, *given, tokenize=None, **named):
        super().__init__(*given, **named)
        self.paths = []
        self.tokenize = tokenize

    def answer(self, method, path, headers, body):
        self.paths.append(path)
        if path == "/tokenize" and self.tokenize is not None:
            return self.tokenize
        return super().answer(method, path, headers, body)


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


def test_a_grammar():
    tokens = [Token(id=12, piece="Hi"), Token(id=3, piece=[32, 0xC3]), Token(id=4, piece=[0xA4])]
    assert token_grammar(tokens) == ('root ::= <[12]> "\\U00000020\\U000000E4"', 1 + 3)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"count": 2, "max_model_len": 4096, "tokens": [1, 2]}',  # vLLM
        b'{"tokens": []}',
        b'{"tokens": [{"id": -1, "piece": "a"}]}',
        b'{"error": "Unexpected endpoint or method"}',
        b"<html>",
        b"\xff",
    ],
)
def test_what_is_no_answer_of_llamas_is_none(raw):
    assert read_tokens(raw) is None


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


@pytest.mark.parametrize("text", ODD)
def test_the_scripted_servers_tokens(text):
    tokens = read_tokens(answer_tokenize({"content": text}))
    assert b"".join(token.bytes for token in tokens).decode() == text
    assert forced_text(token_grammar(tokens)[0]) == text


# Through the client


@pytest.mark.parametrize("text", ODD)
async def test_a_text_is_answered_in_its_own_tokens(text):
    async with ScriptedServer(tokenizes=True) as server, opened(server) as client:
        said = await client(as_request(text))
    (asked,) = server.requests
    assert "response_format" not in asked
    assert asked["max_tokens"] >= len(text)
    assert (said.text, said.finish_reason) == (text, "stop")
    assert len(said.logprobs) == len(split_tokens(text))
    assert all(token.logprob < 0 for token in said.logprobs)


async def test_tokens_that_come_after_the_text_do_not_count():
    def script(body, _number):
        content = [
            {"token": c, "bytes": [ord(c)], "logprob": -1.0} for c in (*TEXT, "!", "<|im_end|>"[0])
        ]
        choice = {"message": {"content": f"{TEXT}!"}, "logprobs": {"content": content}}
        return Answer(body=json.dumps({"choices": [choice]}).encode())

    async with ScriptedServer(script, tokenizes=True) as server, opened(server) as client:
        said = await client(as_request(TEXT))
    assert said.text == TEXT
    assert len(said.logprobs) == len(TEXT)


async def test_without_tokenize_it_is_asked_by_schema_and_tokenize_once():
    async with Counting() as server, opened(server) as client:
        for text in (TEXT, "Another."):
            assert json.loads((await client(as_request(text))).text) == {"x": text}
    assert [path for path in server.paths if "tokenize" in path] == ["/tokenize"]
    assert all("grammar" not in asked for asked in server.requests)


async def test_a_request_without_a_forced_text_asks_for_no_tokens():
    async with Counting(tokenizes=True) as server, opened(server) as client:
        await client(Request(messages=(Message("user", ("Hello.",)),)))
    assert server.paths == ["/v1/chat/completions"]


REFUSES = b'{"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse'
REFUSES += b' grammar", "type": "invalid_request_error"}}'


@pytest.mark.parametrize("refusal", [Answer(status=400, body=REFUSES), Answer(text="Something.")])
async def test_a_server_whose_grammars_know_no_tokens_is_asked_by_schema_from_then_on(refusal):
    def script(body, _number):
        return refusal if "grammar" in body else None

    async with ScriptedServer(script, tokenizes=True) as server, opened(server) as client:
        for text in (TEXT, "Another."):
            assert json.loads((await client(as_request(text))).text) == {"x": text}
    assert ["grammar" in asked for asked in server.requests] == [True, False, False]


@pytest.mark.parametrize("text", ["half a pair \ud83d", "a\0b"])
async def test_a_text_that_no_grammar_can_have_is_asked_by_schema_alone(text):
    async with ScriptedServer(tokenizes=True) as server, opened(server) as client:
        assert json.loads((await client(as_request(text))).text) == {"x": text}
        assert (await client(as_request(TEXT))).text == TEXT


async def test_a_prompt_that_is_too_long_is_not_asked_again():
    async with (
        ScriptedServer(lambda *_: misbehave(Fault.TOO_LONG_LLAMACPP), tokenizes=True) as server,
        opened(server) as client,
    ):
        with pytest.raises(TooLongError):
            await client(as_request(TEXT))
        assert server.calls == 1


async def test_a_server_that_is_busy_is_worth_another_try():
    async with (
        Counting(tokenize=misbehave(Fault.OVERLOADED), tokenizes=True) as server,
        opened(server) as client,
    ):
        with pytest.raises(UnavailableError):
            await client(as_request(TEXT))
        server.tokenize = None
        assert (await client(as_request(TEXT))).text == TEXT


def test_a_forced_text_makes_another_request_and_changes_no_other():
    plain = Request(messages=(Message("user", ("Hello.",)),))
    forced = Request(messages=plain.messages, forced="a")
    keys = {request_key("m", one) for one in (plain, forced, as_request("a"), as_request("b"))}
    assert len(keys) == 4
    # As it was before there were forced texts.
    assert request_key("m", plain) == KEY
