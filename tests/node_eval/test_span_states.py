"""Which attributes of a span are input and output, which are neither, and how messages are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_lines import document, span

from textevolve.loops.rules import parse_rules
from textevolve.node_eval import JudgeEvaluator
from textevolve.node_eval.evaluators import ThresholdEvaluator
from textevolve.node_eval.judging import evaluate_episodes
from textevolve.node_eval.span_states import SpanMessage, read_numbered, read_raw
from textevolve.node_eval.traces import read_episodes


@pytest.fixture
def read(tmp_path):
    """The episode of one span with these attributes."""

    def read(events=(), **values):
        path = tmp_path / "spans.json"
        names = {key.replace(".", "__"): value for key, value in values.items()}
        path.write_text(json.dumps(document(span("s", name="s", events=events, **names))))
        (episode,) = read_episodes(path)
        return episode

    return read


@pytest.fixture
def node(read):
    def node(**values):
        ((item,),) = read(**values).history.entries
        return item

    return node


KIND = {"openinference.span.kind": "CHAIN"}
OPERATION = {"gen_ai.operation.name": "chat"}
OUT = "llm.output_messages.0.message."


async def test_what_instrumentations_say_of_a_call_is_no_output(read):
    arguments = {
        "output.value": '{"messages": []}',
        "metadata": '{"langgraph_step": 1, "thread_id": "of no interest to a judge"}',
        "logfire.json_schema": '{"type": "object"}',
        "logfire.msg": "agent run",
        "pydantic_ai.all_messages": "[]",
        "model_request_parameters": '{"function_tools": []}',
        "confidence": 0.75,
    }
    episode = read(**KIND, **arguments)
    ((item,),) = episode.history.entries
    assert item.output_state == {"messages": []}
    assert item.attributes == {"metadata": arguments["metadata"], "confidence": 0.75}
    rules = parse_rules("rules: [{kind: length, unit: characters, max: 16}]")
    checks = [
        JudgeEvaluator("length", rules, needs_input=False),
        ThresholdEvaluator("sure", "confidence", 0.5),
    ]
    (judged,) = [node async for node in evaluate_episodes([episode], checks, 1)]
    item = judged.item
    assert [evaluation_result.passed for evaluation_result in item.evaluation_results.values()] == [
        True,
        True,
    ]
    assert item.evaluation_results["sure"].score == 0.75


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ({"contents.0.message_content.text": "1", "contents.1.message_content.text": "2"}, "1\n2"),
        ({"contents.10.message_content.text": "b", "contents.9.message_content.text": "a"}, "a\nb"),
        ({"tool_calls.0.tool_call.function.name": "look"}, "look(…)"),
        ({"function_call_name": "f", "function_call_arguments_json": '{"a": 1}'}, 'f({"a": 1})'),
        ({"content": "Look.", "tool_calls.0.tool_call.function.name": "f"}, "Look.\nf(…)"),
        # A key that is a value and has parts, or is no number that a list has.
        ({"content": "Both.", "content.9.text": "x", "contents.٣.message_content": "y"}, "Both."),
    ],
)
def test_messages_that_openinference_flattened(node, recorded, text):
    recorded = {OUT + key: value for key, value in recorded.items()}
    item = node(**KIND, **recorded, **{"output.value": "everything"})
    assert item.output_state["text"].startswith(text)


@pytest.mark.parametrize("value", [{"role": "assistant"}, {"role": "a", "content": ""}])
def test_the_value_stands_where_nothing_of_a_message_can_be_read(node, value):
    recorded = {OUT + key: one for key, one in value.items()}
    item = node(**KIND, **recorded, **{"output.value": '{"choices": [1]}', "input.value": "Q"})
    assert (item.input_state, item.output_state) == ({"text": "Q"}, {"choices": [1]})
    messages = json.dumps([{**value, "parts": []}])
    item = node(**OPERATION, **{"gen_ai.output.messages": messages, "output.value": "A"})
    assert item.output_state == {"text": "A"}


def test_an_empty_answer_is_one_and_an_answer_that_was_not_recorded_is_none(node):
    records = [{"role": "assistant", "parts": [{"type": "text", "content": ""}]}]
    item = node(**OPERATION, **{"gen_ai.output.messages": json.dumps(records)})
    assert item.output_state["text"] == ""
    silent = [{"role": "assistant", "parts": [], "finish_reason": "stop"}]
    item = node(**OPERATION, **{"gen_ai.output.messages": json.dumps(silent)})
    assert item.output_state is None


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
            "<image: https://a/b.png>",
        ),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, "<image>"),
        ({"type": "image", "image": {"image": {"url": "https://a/b"}}}, "<image: https://a/b>"),
        ({"type": "blob", "modality": "audio", "content": "UklGRg=="}, "<audio>"),
        ({"type": "uri", "modality": "video", "uri": "gs://a"}, "<video: gs://a>"),
        ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}, "<audio>"),
        ({"type": "tool_use", "name": "f", "input": {"a": 1}, "id": "1"}, 'f({"a": 1})'),
        ({"type": "tool_call", "name": "f", "args": {}, "id": "1"}, "f({})"),
        ({"type": "tool_call_response", "response": {"a": 1}}, '{"a": 1}'),
        ({"type": "tool_result", "content": [{"type": "text", "text": "12"}]}, "12"),
        ({"type": "reasoning", "content": "Hm."}, ""),
        ({"type": "odd", "a": 1}, '{"type": "odd", "a": 1}'),
    ],
)
def test_parts_of_a_content(part, text):
    assert read_raw({"role": "user", "content": [part]}, "").content == text
    assert read_raw({"role": "user", "content": json.dumps([part])}, "").content == text


def test_instructions_may_stand_in_the_event_with_the_messages(node):
    message = {
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Q"}]),
    }
    item = node(**OPERATION, events=[("gen_ai.client.inference.operation.details", message)])
    assert item.input_state["text"] == "system: Be brief.\n\nuser: Q"


def test_calls_of_tools_that_stand_beside_the_message_of_a_choice(node):
    call = {"function": {"name": "f", "arguments": "{}"}, "type": "function"}
    choice = {"message": {"content": ""}, "finish_reason": "tool_calls", "tool_calls": [call]}
    item = node(**OPERATION, events=[("gen_ai.choice", choice)])
    assert item.output_state["text"] == "f({})"


def test_documents_and_prompts_that_were_flattened(node):
    item = node(
        **{"openinference.span.kind": "RETRIEVER", "input.value": "tides"},
        **{f"retrieval.documents.{n}.document.content": f"Page {n}." for n in range(11)},
    )
    assert item.output_state["text"].splitlines()[::5] == ["Page 0.", "Page 5.", "Page 10."]
    item = node(**KIND, **{"llm.prompts.0.prompt.text": "Q", "llm.choices.0.completion.text": "A"})
    assert (item.input_state["text"], item.output_state["text"]) == ("Q", "A")


def test_an_agents_input_is_what_stood_before_its_own_first_message(node):
    talk = [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5")]
    messages = json.dumps([{"role": role, "content": answer} for role, answer in talk])
    run = {"gen_ai.operation.name": "invoke_agent", "pydantic_ai.all_messages": messages}
    assert node(**run).input_state["text"] == "1"
    item = node(**run, **{"pydantic_ai.new_message_index": 2})
    assert item.input_state["text"] == "user: 1\n\nassistant: 2\n\nuser: 3"


def test_tokens_of_a_whole_run(node):
    used = {"gen_ai.aggregated_usage.input_tokens": 40, "gen_ai.aggregated_usage.output_tokens": 14}
    assert node(**OPERATION, **used).tokens == 54
    assert node(**OPERATION, **used, **{"gen_ai.usage.input_tokens": 7}).tokens == 7


KEYS = st.lists(st.sampled_from(["0", "1", "10", "a", "role", "content"]), min_size=1, max_size=4)


@given(st.dictionaries(KEYS.map(".".join), st.text(max_size=3), max_size=8))
def test_any_flattened_keys_can_be_read(given):
    numbered = read_numbered({f"p.{key}": value for key, value in given.items()}, "p.")
    assert len(numbered) == len({key.split(".")[0] for key in given if key[0] in "01"})
    for one in numbered:
        assert isinstance(read_raw(one, "user"), SpanMessage)
