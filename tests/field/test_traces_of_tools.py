"""Situations of people who judge the traces that other tools write: cut, embedded, doubled and
skewed data are neither an answer nor a reason to lose a step.

Each right value was worked out by reading the recording, as a person would.
"""

import base64
import json

import pytest

from textevolve.node_eval.evaluators import FieldError, ThresholdEvaluator, read_state_text
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.traces import read_episodes

TRACE = "0af7651916cd43dd8448eb211c80319c"
PILOT = "00f067aa0ba902b7"
CALL = "b7ad6b7169203331"
ANSWER = "High tide is at 4:10 in the morning, and again in the afternoon."
MESSAGES = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
OUTPUT = {"gen_ai.output.messages": json.dumps(MESSAGES)}
PICTURE = base64.b64encode(bytes(range(256)) * 4).decode()


def span(span_id, name, attributes, parent="", start=1, end=2):
    pairs = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(start * 10**9),
        "endTimeUnixNano": str(end * 10**9),
        "attributes": pairs,
    }


def call(attributes, **places):
    return span(CALL, "chat m", {"gen_ai.operation.name": "chat", **attributes}, **places)


def agent(span_id=PILOT, **places):
    names = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "pilot"}
    return span(span_id, "invoke_agent pilot", names, **places)


def chain(span_id, name, kind="CHAIN", node="", **places):
    names = {"openinference.span.kind": kind, "output.value": name}
    if node:
        names["metadata"] = json.dumps({"langgraph_node": node})
    return span(span_id, name, names, **places)


@pytest.fixture
def items(tmp_path):
    def read(*spans):
        document = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
        path = tmp_path / "spans.json"
        path.write_text(json.dumps(document))
        return [item for episode in read_episodes(path) for _, item in episode.nodes]

    return read


@pytest.mark.parametrize("length", [40, 75, 90, 105])
@pytest.mark.parametrize("ending", ["", "...", "...[truncated, original 81234 chars]"])
def test_cut_messages_yield_whole_ones(items, length, ending):
    cut = json.dumps(MESSAGES)[:length] + ending
    (item,) = items(call({"gen_ai.output.messages": cut, "output.value": ANSWER}))
    assert read_state_text(item.output_state, None, "output") == ANSWER


@pytest.mark.parametrize("key", ["gen_ai.output.messages", "output.value", "gen_ai.completion"])
def test_cut_messages_are_no_answer(items, key):
    (item,) = items(call({key: json.dumps(MESSAGES)[:90]}))
    with pytest.raises(FieldError, match="not recorded in full"):
        read_state_text(item.output_state, None, "output")


def test_cut_json_of_tools_is_marked(items):
    attributes = {"output.mime_type": "application/json", "output.value": '{"rows": [{"at": "4:1'}
    (item,) = items(call(attributes))
    with pytest.raises(FieldError):
        read_state_text(item.output_state, None, "output")


@pytest.mark.parametrize("text", ["[1] The tide is high.", "{high tide}", '{"at": 4', "[sic"])
def test_texts_like_json_stay(items, text):
    (item,) = items(call({"output.value": text}))
    assert read_state_text(item.output_state, None, "output") == text


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "UElD"}},
        {"image": {"format": "png", "source": {"bytes": "UElD"}}},
        {"inline_data": {"mime_type": "image/png", "data": "UElD"}},
        {"inlineData": {"mimeType": "image/png", "data": "UElD"}},
        {"kind": "binary", "media_type": "image/png", "data": "UElD"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,UElD"}},
        {"type": "text", "text": "![A map](data:image/png;base64,UElD)"},
    ],
)
def test_pictures_are_named(part):
    state = {
        "messages": [{"role": "assistant", "content": [part, {"type": "text", "text": "So."}]}]
    }
    text = read_state_text(state, None, "output")
    assert "UElD" not in text
    assert "<image>" in text
    assert "So." in text


def test_bytes_without_type_are_named():
    assert PICTURE not in read_state_text({"page": PICTURE, "note": "So."}, None, "output")


def test_long_words_stay():
    state = {"sequence": "ACGT" * 200, "file": {"data": "tides.csv"}, "answer": "So."}
    text = read_state_text(state, None, "output")
    assert "ACGT" * 200 in text
    assert "tides.csv" in text


@pytest.mark.parametrize(
    ("name", "kind", "node"),
    [
        ("should_continue", "CHAIN", "pilot"),
        ("should_continue", "CHAIN", ""),
        ("route_by_tide", "CHAIN", "pilot"),
        ("Prompt", "CHAIN", "pilot"),
        ("ChatPromptTemplate", "PROMPT", ""),
        ("RunnableSequence", "CHAIN", ""),
        ("ChannelWrite<messages>", "CHAIN", ""),
    ],
)
def test_plumbing_is_no_step(items, name, kind, node):
    steps = items(
        chain(PILOT, "pilot", node="pilot", start=1, end=9),
        chain("1111111111111111", name, kind, node, parent=PILOT, start=2, end=3),
        call(OUTPUT, parent="1111111111111111", start=4, end=5),
    )
    assert [step.node for step in steps] == ["chat m", "pilot"]
    assert steps[0].path == ("pilot",)


def test_ids_in_base64(items):
    raws = [agent(start=1, end=9), call(OUTPUT, parent=PILOT, start=2, end=3)]
    for raw in raws:
        for key in ("traceId", "spanId", "parentSpanId"):
            raw[key] = base64.b64encode(bytes.fromhex(raw[key])).decode()
    step, outer = items(*raws)
    assert (step.path, step.ids["span_id"], step.ids["parent_id"]) == (("pilot",), CALL, PILOT)
    assert outer.ids["span_id"] == PILOT


def test_ids_in_capitals(items):
    step, _ = items(agent(PILOT.upper(), start=1, end=9), call(OUTPUT, parent=PILOT))
    assert (step.path, step.ids["parent_id"]) == (("pilot",), PILOT)


def test_end_before_start(items):
    step, outer = items(agent(start=5, end=4), call(OUTPUT, parent=PILOT, start=5, end=6))
    assert (step.path, step.seconds, outer.seconds) == (("pilot",), 1, 0)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, 0)])
def test_missing_times(items, start, end):
    (step,) = items(call(OUTPUT, start=start, end=end))
    assert step.seconds is None


def test_messages_as_texts(items):
    texts = [json.dumps(message) for message in MESSAGES]
    (step,) = items(call({"gen_ai.output.messages": json.dumps(texts)}))
    assert read_state_text(step.output_state, None, "output") == ANSWER


def test_message_after_its_parts(items):
    parts = [{"role": "assistant", "content": text} for text in ("At ", "4:10", ".", "At 4:10.")]
    (step,) = items(call({"gen_ai.output.messages": json.dumps(parts)}))
    assert read_state_text(step.output_state, None, "output") == "At 4:10."


@pytest.mark.parametrize(
    ("state", "key", "score"),
    [
        ({"outputs": {"sure": 0.62}}, "outputs.sure", 0.62),
        ({"outputs.sure": 0.7, "outputs": {"sure": 0.2}}, "outputs.sure", 0.7),
        ({"scores": [0.1, 0.9]}, "scores.-1", 0.9),
        ({"outputs": {}}, "outputs.sure", 0.4),
        ({"outputs": {"sure": None}}, "outputs.sure", 0.0),
        ("plain", "outputs.sure", 0.4),
    ],
)
def test_thresholds_of_paths(state, key, score):
    item = HistoryItem(0.0, None, None, state, {}, attributes={"outputs.sure": 0.4})
    result = ThresholdEvaluator("sure", key, 0.6).evaluate(History([[item]]))
    assert result.score == score


def test_old_kinds_of_calls(items):
    # Arize-ai/openinference#2931: OpenLLMetry had llm.request.type before the conventions.
    texts = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "When is high tide?",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    }
    (item,) = items(span(CALL, "openai.chat", texts))
    assert item.instruction.name == "GENERATE"
    assert item.input_state["text"] == "When is high tide?"
    assert item.output_state["text"] == ANSWER


@pytest.mark.parametrize(
    "first", ['{"schema_version":"ATIF-v1.8",', '{ "schema_version" : "ATIF-v1.8",']
)
def test_lines_of_trajectories(tmp_path, first):
    # meridianlabs-ai/inspect_scout#486: JSON may be broken into lines anywhere.
    rest = {
        "agent": {"name": "a", "version": "1"},
        "session_id": "s",
        "steps": [
            {"step_id": 1, "source": "user", "message": "When is high tide?"},
            {"step_id": 2, "source": "agent", "message": ANSWER},
        ],
    }
    path = tmp_path / "trajectory.json"
    path.write_text(first + "\n" + json.dumps(rest)[1:])
    (episode,) = read_episodes(path)
    assert [item.output_state["text"] for _, item in episode.nodes] == [ANSWER]


TIDE = '{"port": "Brest"}'


@pytest.mark.parametrize(
    "attributes",
    [
        # Pydantic AI 1 names no operation of a tool, and no state by the conventions.
        {
            "gen_ai.tool.name": "tide",
            "gen_ai.tool.call.id": "c1",
            "tool_arguments": TIDE,
            "tool_response": "noon",
        },
        {
            "ai.operationId": "ai.toolCall",
            "ai.toolCall.name": "tide",
            "ai.toolCall.args": TIDE,
            "ai.toolCall.result": "noon",
        },
    ],
    ids=["Pydantic AI 1", "Vercel"],
)
def test_tools_without_an_operation(items, attributes):
    (item,) = items(span(CALL, "running tool", attributes))
    assert (item.node, item.instruction.name) == ("tide", "TOOL_CALL")
    assert (item.input_state, item.output_state) == ({"port": "Brest"}, {"text": "noon"})


def test_models_and_agents_of_vercel(items):
    asked = json.dumps([{"role": "user", "content": [{"type": "text", "text": "When?"}]}])
    outer = {"ai.operationId": "ai.generateText", "ai.prompt": '{"prompt": "When?"}'}
    inner = {"ai.prompt.messages": asked, "ai.response.text": ANSWER}
    model, agent = items(
        span(PILOT, "ai.generateText", outer, end=9),
        span(CALL, "ai.generateText.doGenerate", inner, parent=PILOT, start=2, end=3),
    )
    assert (model.instruction.name, agent.instruction.name) == ("GENERATE", "DELEGATE")
    assert (model.input_state["text"], agent.input_state["text"]) == ("When?", "When?")
    assert (model.output_state["text"], agent.output_state["text"]) == (ANSWER, ANSWER)


def test_states_in_the_place_of_messages(items):
    state = {"answer": ANSWER, "sure": 0.9}
    (item,) = items(
        call(
            {
                "gen_ai.input.messages": json.dumps({"question": "When?"}),
                "gen_ai.output.messages": json.dumps(state),
            }
        )
    )
    assert (item.input_state, item.output_state) == ({"question": "When?"}, state)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "parts": [], "finish_reason": "error"},
        {"messages": []},
        {"role": "assistant", "content": None},
    ],
)
def test_empty_messages_are_no_state(items, message):
    (item,) = items(call({"gen_ai.output.messages": json.dumps(message)}))
    assert item.output_state is None


def test_text_parts_without_a_text(items):
    calls = [{"id": "c1", "type": "function", "function": {"name": "tide", "arguments": TIDE}}]
    parts = [{"type": "text", "content": None}]
    message = {"role": "assistant", "parts": parts, "tool_calls": calls}
    (item,) = items(call({"gen_ai.output.messages": json.dumps([message])}))
    assert item.output_state["text"] == f"tide({TIDE})"
    assert "other_parts" not in item.output_state["messages"][0]


def test_pictures_by_their_types(items):
    parts = [
        {"type": "blob", "mime_type": "image/png", "content": PICTURE},
        {"type": "uri", "mime_type": "image/png", "uri": "https://example.org/a.png"},
        {"type": "file", "mime_type": "application/pdf", "file_id": "f1"},
    ]
    message = {"role": "assistant", "parts": parts}
    (item,) = items(call({"gen_ai.output.messages": json.dumps([message])}))
    marks = ["<image>", "<image: https://example.org/a.png>", "<file: f1>"]
    assert item.output_state["text"].split("\n") == marks
