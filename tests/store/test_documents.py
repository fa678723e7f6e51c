"""Nothing is lost between an object and the bytes that are kept."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textevolve.errors import StoreError
from textevolve.evaluation import Case, Usage
from textevolve.llm.model import Message, Request, Response, TokenLogprobs, ToolCall
from textevolve.store import documents

# Any text: NUL, lone surrogates, and two of them that JSON's escapes would join into one character.
text = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20)
number = st.floats(allow_nan=False)
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
tool_calls = st.lists(st.builds(ToolCall, text, text, text), max_size=2).map(tuple)
messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.lists(text, max_size=4).map(tuple),
        images=st.lists(text, max_size=2).map(tuple),
        tool_calls=tool_calls,
        tool_call_id=st.none() | text,
    ),
    max_size=4,
).map(tuple)
requests = st.builds(
    Request,
    messages=messages,
    schema=st.none() | text,
    temperature=st.none() | number,
    max_tokens=st.none() | st.integers(),
    seed=st.none() | st.integers(),
    sample=st.integers(),
    top_logprobs=st.integers(0, 20),
    embeds=st.booleans(),
    questions=st.none() | text,
    forced=st.none() | text,
    tools=st.none() | text,
    tool_choice=st.none() | text,
)
pairs = st.lists(st.tuples(text, number), max_size=3).map(tuple)
logprobs = st.lists(st.builds(TokenLogprobs, text, number, pairs), max_size=3).map(tuple)
tokens = st.integers(0, 2**40)
costs = st.none() | st.floats(0, 1e6)
usages = st.builds(
    Usage, st.integers(0, 9), tokens, tokens, tokens, costs, tokens, st.floats(-1e6, 1e6)
)
responses = st.builds(
    Response,
    text=text,
    finish_reason=text,
    usage=usages,
    logprobs=logprobs,
    seconds=number,
    attempts=st.integers(0, 99),
    replayed=st.just(True),
    reasoning=text,
    tool_calls=tool_calls,
    member=text,
)


@given(requests)
@example(Request(messages=(Message("user", ("\ud83d\ude00", "\ud83d", "a\0b")),)))
def test_request_survives(request: Request) -> None:
    stored = documents.store_request(request)
    assert len(stored.parts) == 32 * len(stored.texts)
    texts = [documents.bytes_to_text(documents.text_to_bytes(part)) for part in stored.texts]
    assert documents.restore_request(stored.document, texts) == request


@given(responses)
@example(Response("\ud83d\ude00", "\ud83d\ude00", Usage(), replayed=True))
def test_response_survives(response: Response) -> None:
    u = response.usage
    content = documents.dump_response(response)
    back = documents.load_response(
        content, u.prompt_tokens, u.cached_tokens, u.completion_tokens, u.cost, u.saved
    )
    assert back == response


parameters = st.dictionaries(text, json_value, max_size=3)


@given(st.builds(Case, text, st.lists(text, max_size=3).map(tuple), text, parameters))
def test_case_survives(case: Case) -> None:
    content = documents.dump_case(case)
    assert documents.load_case(documents.text_to_bytes(case.id), content) == case


@pytest.mark.parametrize("length", [0, documents.PACK_FROM - 1, documents.PACK_FROM, 1_000_000])
def test_long_text_is_packed_and_comes_back(length: int) -> None:
    data = documents.text_to_bytes("ä" * (length // 2) + "x" * (length % 2))
    packed = documents.pack(data)
    assert (len(packed) < len(data)) == (length >= documents.PACK_FROM)
    assert documents.unpack(packed, len(data)) == data


def test_what_is_no_json_is_refused_by_name() -> None:
    case = Case("x", ("y",), "7", {"rounds": object()})
    with pytest.raises(StoreError, match="case '7' cannot be stored"):
        documents.dump_case(case)
