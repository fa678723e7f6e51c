"""Thoughts before an answer are kept apart from it; why a text is missing is said."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Usage
from textevolve.llm.model import Message, Request, Response, TokenLogprobs, ToolCall
from textevolve.llm.prices import usage_of
from textevolve.llm.structured import describe_fault
from textevolve.llm.testing import Answer
from textevolve.llm.wire import AnswerPiece, ask_streaming
from textevolve.protocol.contents import (
    ReportedUsage,
    StreamedThoughts,
    align_tokens,
    split_reasoning,
)
from textevolve.settings import Price


def ask(**more) -> Request:
    return Request(messages=(Message("user", ("How good is it?",)),), **more)


@pytest.mark.parametrize(
    ("text", "finish_reason", "parts"),
    [
        ("<think>a</think>b", "stop", ("a", "b")),
        ("\n<thinking>\na <b>\n</thinking>\n\n b ", "stop", ("a <b>", "b ")),
        ("<thought>a</thought>", "stop", ("a", "")),
        ("<think></think>b", "stop", ("", "b")),
        ("<think>a", "length", ("a", "")),
        ("<think>a", "stop", ("", "<think>a")),
        ("The tag <think>a</think>b", "stop", ("", "The tag <think>a</think>b")),
        ("<thinker>a</thinker>", "stop", ("", "<thinker>a</thinker>")),
        ("plain", "length", ("", "plain")),
        # Traces and saved chats were read so already.
        ("<THINK>a</THINK>b", "stop", ("a", "b")),
    ],
)
def test_only_what_an_answer_begins_with_is_reasoning(text, finish_reason, parts) -> None:
    assert split_reasoning(text, finish_reason) == parts


@given(
    thoughts=st.sampled_from(["", "a", "x < y", "</thin", "<think>"]),
    tag=st.sampled_from(["think", "thinking", "thought", ""]),
    gap=st.sampled_from(["", "\n", " \n\n "]),
    text=st.text(alphabet="ab <>/\n", max_size=8),
    cuts=st.lists(st.integers(0, 60), max_size=12),
)
def test_what_is_told_of_a_stream_is_the_beginning_of_its_text(
    thoughts, tag, gap, text, cuts
) -> None:
    full_text = f"{gap}<{tag}>{thoughts}</{tag}>{gap}{text}" if tag else f"{gap}{text}"
    places = sorted({0, len(full_text), *(cut for cut in cuts if cut < len(full_text))})
    stream = StreamedThoughts()
    message = "".join(stream.pass_text(full_text[a:b]) for a, b in pairwise(places))
    assert split_reasoning(full_text, "stop")[1].startswith(message)


async def test_a_listener_hears_no_thoughts(server, client) -> None:
    server.script = lambda _body, _number: Answer(
        text="The moon does it.", reasoning="Hm, the sun?", reasoning_field="text"
    )
    pieces: list[AnswerPiece] = []
    response = await ask_streaming(client, ask(), pieces.append)
    assert not any(piece.anew for piece in pieces)
    assert "".join(piece.text for piece in pieces) == response.text == "The moon does it."
    assert response.reasoning == "Hm, the sun?"


@pytest.mark.parametrize(
    ("total", "answered", "cost"), [(17, 7, 17.0), (15, 5, 15.0), (None, 5, 15.0)]
)
def test_reasoning_that_is_counted_beside_the_answer_is_a_part_of_it(total, answered, cost) -> None:
    reported_usage = ReportedUsage.model_validate(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "completion_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": total,
        }
    )
    usage = usage_of(reported_usage, Price(input=1e6, output=1e6))
    assert (usage.completion_tokens, usage.reasoning_tokens, usage.cost) == (answered, 2, cost)


@pytest.mark.parametrize(
    ("pieces", "visible"),
    [
        (["<thi", "nk>a", "b", "</think>", " c", "d"], ["", "", "", "", "c", "d"]),
        (["plain", " text"], ["plain", " text"]),
        (["<", "b> x", " y"], ["", "<b> x", " y"]),
        (["<think>a </th", "x> b", "</think>z"], ["", "", "z"]),
        (["<think>a", "b"], ["", ""]),
    ],
)
def test_streams_show_only_the_answer(pieces, visible) -> None:
    stream = StreamedThoughts()
    assert [stream.pass_text(piece) for piece in pieces] == visible


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        (("ab", "cd", "e"), "abcde", "ab cd e"),
        (("ab", "cd", "e"), "cde", "cd e"),
        ((">\n\n", "cd", "e"), "cde", "cd e"),
        (("ab>cd", "e"), "cde", ""),
        (("<think>", "</think>\n\nYes"), "Yes", ""),
        (("<think>", "</think>", "\n\nYes"), "Yes", "\n\nYes"),
        (("Yes", "<|im_end|>"), "Yes", "Yes <|im_end|>"),
        (("Yes", " or", " No"), "Yes", ""),
        (("pia", "no"), "no", "no"),
        (("piano",), "no", ""),
        (("ĠYes",), "Yes", "ĠYes"),
        (("Yes",), "Yes, it is.", "Yes"),
        (("Okay",), "Yes", ""),
        ((), "Yes", ""),
        (("Yes",), "", ""),
    ],
)
def test_tokens_of_a_text(tokens, text, expected) -> None:
    aligned = align_tokens([TokenLogprobs(token, -0.1) for token in tokens], text)
    assert " ".join(token.token for token in aligned) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response("", "stop", Usage(1)), "the answer was empty"),
        (
            Response("", "content_filter", Usage(1)),
            "the endpoint's content filter cut off the answer (content_filter)",
        ),
        (Response("No.", "length", Usage(1)), "the answer was cut at the token limit"),
        (Response("", "length", Usage(1)), "the answer was cut at the token limit"),
        (Response("No.", "stop", Usage(1)), ""),
        (Response("No.", "eos", Usage(1)), ""),
        (Response("No.", "model_length", Usage(1)), "the answer was cut at the token limit"),
        (Response("No.", "abort", Usage(1)), "the endpoint could not finish the answer (abort)"),
        (Response("", "refusal", Usage(1)), "the model refused to give the answer"),
        (Response("", "stop", Usage(1), reasoning="Hm."), "the answer was empty"),
        (
            Response("", "length", Usage(1, completion_tokens=9), reasoning="Hm."),
            "the model was still thinking when its 9 tokens were used up",
        ),
        (
            Response("", "length", Usage(1, completion_tokens=9, reasoning_tokens=9)),
            "the model was still thinking when its 9 tokens were used up",
        ),
        (
            Response(
                "",
                "tool_calls",
                Usage(1),
                tool_calls=tuple(ToolCall("", name, "{}") for name in ("find", "", "find")),
            ),
            "the model called find, a function without a name instead of giving the answer",
        ),
    ],
)
def test_missing_texts_have_a_reason(response, expected) -> None:
    assert describe_fault(response).partition(";")[0] == expected
