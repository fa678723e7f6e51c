"""What one side of a chat writes, the other side reads as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Usage
from textevolve.llm.model import Request
from textevolve.llm.prices import usage_of
from textevolve.llm.wire import chat_body
from textevolve.protocol.chat import (
    ChatBody,
    ChatReply,
    Completion,
    CompletionChunk,
    join_chunks,
    read_calls,
    read_reply,
    read_text_and_images,
    split_message,
    write_chat_message,
    write_chunk,
    write_completion,
    write_head,
    write_reply,
    write_usage_chunk,
)
from textevolve.protocol.contents import (
    Message,
    ReportedUsage,
    ToolCall,
    write_chat_usage,
    write_usage,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# A text that begins with a tag of reasoning is split, which is not the subject here.
PLAIN = TEXTS.filter(lambda text: "<th" not in text)
NAMES = st.text("abc_", min_size=1, max_size=8)
CALL = st.builds(ToolCall, NAMES, NAMES, TEXTS)
CALLS = st.lists(CALL, unique_by=lambda call: call.id, max_size=3)
REASONS = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
URLS = st.lists(st.just("data:image/png;base64,AA=="), max_size=2).map(tuple)
HEAD = write_head("1", "any")


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    prompt = draw(st.integers(1, 10_000))
    answered = draw(st.integers(1, 10_000))
    return Usage(
        calls=1,
        prompt_tokens=prompt,
        cached_tokens=draw(st.integers(0, prompt)),
        completion_tokens=answered,
        reasoning_tokens=draw(st.integers(0, answered)),
    )


@given(PLAIN, TEXTS, CALLS, REASONS)
def test_answers_are_read_as_written(text, reasoning, calls, reason):
    message = write_reply(text, calls) | {"reasoning": reasoning}
    completion = Completion.model_validate(write_completion(HEAD, message, reason))
    reply = read_reply(completion)
    assert reply == ChatReply(text, reason, reasoning, tuple(calls), written=reply.written)


@given(PLAIN, TEXTS, CALLS, REASONS, st.integers(1, 9), usages())
def test_joined_chunks_are_the_answer(text, reasoning, calls, reason, size, usage):
    message = write_reply(text, calls) | {"reasoning_content": reasoning}
    words = [text[start : start + size] for start in range(0, len(text), size)]
    bodies = [write_chunk(HEAD, delta) for delta in split_message(message, words, size)]
    bodies += [write_chunk(HEAD, {}, reason), write_usage_chunk(HEAD, write_chat_usage(usage))]
    joined = join_chunks([CompletionChunk.model_validate(body) for body in bodies], str)

    full_completion = write_completion(HEAD, message, reason, usage=write_chat_usage(usage))
    completion = Completion.model_validate(full_completion)
    assert read_reply(joined) == read_reply(completion)
    assert joined.usage == completion.usage


def test_refused_answers_have_no_text():
    message = write_reply("", refusal="I would rather not")
    chunks = [write_chunk(HEAD, delta) for delta in split_message(message, [], 7)]
    joined = join_chunks([CompletionChunk.model_validate(chunk) for chunk in chunks], str)
    completion = Completion.model_validate(write_completion(HEAD, message, "stop"))
    assert read_reply(completion) == read_reply(joined) == ChatReply("", "refusal")


@given(usages())
def test_usage_is_read_by_both_names(usage):
    for write in (write_chat_usage, write_usage):
        reported = usage_of(ReportedUsage.model_validate(write(usage)), None)
        assert (reported.tokens, reported.cached_tokens) == (usage.tokens, usage.cached_tokens)
        assert reported.prompt_tokens == usage.prompt_tokens
        assert reported.reasoning_tokens == usage.reasoning_tokens


@given(TEXTS, URLS)
def test_contents_keep_their_images(text, images):
    body = write_chat_message(Message("user", (text,), images))
    assert read_text_and_images(body["content"]) == (text, images)


@given(TEXTS, CALLS, st.sampled_from([None, "auto", "none", "required", "search"]))
def test_requests_are_read_by_servers(text, calls, choice):
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    schema = json.dumps({"type": "object", "properties": {"answer": {"type": "string"}}})
    messages = (
        Message("user", (text,)),
        Message("assistant", ("",), tool_calls=tuple(calls)),
        Message("tool", (text,), tool_call_id="call_1"),
    )
    tools = json.dumps([tool])
    request = Request(messages=messages, schema=schema, tools=tools, tool_choice=choice)
    body = ChatBody.model_validate_json(json.dumps(chat_body("any", request, "max_tokens")))

    assert [message.role for message in body.messages] == ["user", "assistant", "tool"]
    assert [message.content or "" for message in body.messages] == [text, "", text]
    assert read_calls(body.messages[1].tool_calls or ()) == tuple(calls)
    assert body.messages[2].tool_call_id == "call_1"
    assert body.response_format is not None
    assert body.response_format.schema_text == schema
    assert body.called_tool == choice
    assert [entry.model_dump() for entry in body.tools or ()] == [tool]
