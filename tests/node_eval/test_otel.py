"""OpenTelemetry spans as the nodes of an agent: which, of what type, where, with what in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_lines import chat, document, span

from textevolve.errors import InputError
from textevolve.node_eval.history import Instruction
from textevolve.node_eval.judging import Reading
from textevolve.node_eval.traces import read_episodes


@pytest.fixture
def read(tmp_path):
    def read(*spans, reading=None, instructions=None):
        path = tmp_path / "spans.json"
        path.write_text(json.dumps(document(*spans)))
        return list(read_episodes(path, reading, instructions))

    return read


def shape(episode):
    return [[item.node for item in step] for step in episode.history.entries]


def only(episodes):
    ((item,),) = episodes[0].history.entries
    return item


def test_a_span_is_a_node_with_its_times_tokens_and_attributes(read):
    used = {"gen_ai__usage__input_tokens": 24, "gen_ai__usage__output_tokens": 7}
    item = only(read(chat("a", 1, 3, name="chat gpt", **used, confidence=0.75)))
    assert item.instruction is Instruction.GENERATE
    assert item.attributes == {"confidence": 0.75}
    assert (item.tokens, item.timestamp, item.seconds, item.node) == (31, 1.0, 2.0, "chat gpt")


OLD = {
    "content events": {
        "events": [
            ("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user", "content": "Q"}]'}),
            ("gen_ai.content.completion", {"gen_ai.completion": "A"}),
        ]
    },
    "numbered": {
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": "Q",
        "gen_ai__completion__0__content": "A",
    },
}


@pytest.mark.parametrize("form", OLD)
def test_messages_of_other_conventions(read, form):
    item = only(read(chat("a", **OLD[form])))
    assert item.input_state == {"text": "Q", "messages": [{"role": "user", "content": "Q"}]}
    assert item.output_state == {"text": "A", "messages": [{"role": "assistant", "content": "A"}]}


@pytest.mark.parametrize("as_text", [False, True])
def test_secrets_in_a_tools_arguments_stand_in_no_text(read, as_text):
    arguments = {"user": "sea", "password": "hunter2"}
    call = {"name": "login", "arguments": json.dumps(arguments) if as_text else arguments}
    messages = [{"role": "assistant", "parts": [{"type": "tool_call", **call}]}]
    item = only(read(chat("a", gen_ai__output__messages=json.dumps(messages))))
    answer = 'login({"user": "sea", "password": "***"})'
    assert item.output_state["text"] == answer
    assert item.output_state["messages"][0]["content"] == answer
    assert "hunter2" not in str(item.output_state)


def test_tools_retrieval_and_agents(read):
    (episode,) = read(
        span("root", 0, 9, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="Planner"),
        span(
            "tool",
            1,
            2,
            parent="root",
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="weather",
            gen_ai__tool__call__arguments='{"city": "London"}',
            gen_ai__tool__call__result="18 degrees",
        ),
        span(
            "find",
            3,
            4,
            parent="root",
            openinference__span__kind="RETRIEVER",
            input__value="tides",
            output__value='["one", "two"]',
        ),
    )
    tool, find, agent = (item for _, item in episode.nodes)
    assert (tool.node, tool.instruction, tool.path) == (
        "weather",
        Instruction.TOOL_CALL,
        ("Planner",),
    )
    assert (tool.input_state, tool.output_state) == ({"city": "London"}, {"text": "18 degrees"})
    assert (find.instruction, find.input_state) == (Instruction.LOAD, {"text": "tides"})
    assert find.output_state == {"text": "one\ntwo", "value": ["one", "two"]}
    assert (agent.node, agent.instruction, agent.path) == ("Planner", Instruction.DELEGATE, ())


def test_errors_say_what_happened(read):
    failed = {"code": 2, "message": "no answer"}
    (episode,) = read(
        chat("a", 0, 1, status=failed),
        chat("b", 1, 2, status={"code": "STATUS_CODE_ERROR"}, error__type="timeout"),
        chat(
            "c",
            2,
            3,
            status={"code": 2},
            events=[("exception", {"exception.type": "ValueError", "exception.message": "bad"})],
        ),
        chat("d", 3, 4, status={"code": 1}),
    )
    errors = [item.error for _, item in episode.nodes]
    assert errors == ["no answer", "timeout", "ValueError: bad", None]


def test_spans_that_overlap_under_one_parent_are_one_superstep(read):
    (episode,) = read(
        chat("root", 0, 100),
        chat("first", 1, 10, parent="root"),
        chat("left", 10, 30, parent="root"),
        chat("right", 12, 20, parent="root"),
        chat("within", 13, 14, parent="right"),
        chat("last", 31, 40, parent="root"),
    )
    assert shape(episode) == [["first"], ["within"], ["right", "left"], ["last"], ["root"]]
    paths = {item.node: item.path for _, item in episode.nodes}
    assert paths["within"] == ("root", "right")


def test_spans_that_are_no_steps_are_counted_and_do_not_hide_what_ran_in_them(read):
    reading = Reading()
    (episode,) = read(
        chat("root", 0, 9),
        span("POST /", 1, 8, parent="root"),
        chat("in", 2, 3, parent="POST /"),
        reading=reading,
    )
    assert shape(episode) == [["in"], ["root"]]
    assert next(item.path for _, item in episode.nodes) == ("root",)
    assert (reading.nodes, reading.others, reading.faults) == (2, 1, [])


def test_types_can_be_said_by_name_operation_and_kind(read):
    types = {
        "mine": Instruction.REFLECT,
        "chat": Instruction.RESPOND,
        "RETRIEVER": Instruction.FILTER,
        "planner": Instruction.DECOMPOSE,
    }
    (episode,) = read(
        span("mine", 0, 1),
        chat("x", 1, 2),
        chat("planner", 2, 3),
        span("y", 3, 4, openinference__span__kind="RETRIEVER"),
        span("z", 4, 5, openinference__span__kind="CHAIN"),
        instructions=types,
    )
    instructions = [item.instruction for _, item in episode.nodes]
    assert instructions == [
        Instruction.REFLECT,
        Instruction.RESPOND,
        Instruction.DECOMPOSE,
        Instruction.FILTER,
        None,
    ]


def test_traces_are_episodes_whatever_lines_their_spans_are_on(tmp_path):
    path = tmp_path / "collector.jsonl"
    lines = [
        document(chat("b", 5, 6, trace="second")),
        document(chat("kid", 1, 2, trace="first", parent="a")),
        {"resourceMetrics": []},
        document(chat("a", 0, 3, trace="first"), chat("b", 5, 6, trace="second")),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{cut")
    reading = Reading()
    first_episode, second_episode = read_episodes(path, reading)
    assert (first_episode.id, shape(first_episode)) == ("first", [["kid"], ["a"]])
    assert (second_episode.id, shape(second_episode)) == ("second", [["b"]])
    assert len(reading.faults) == 2
    assert "not an OTLP trace" in reading.faults[0]
    assert "collector.jsonl:5: not valid JSON" in reading.faults[1]


def test_spans_that_are_broken_are_named_and_the_rest_is_read(read):
    reading = Reading()
    broken = [
        {**chat("x"), "traceId": None},
        {**chat("y"), "startTimeUnixNano": "now"},
        {**chat("y"), "endTimeUnixNano": "9" * 400},
        {**chat("y"), "startTimeUnixNano": "-1"},
        "no span",
        chat("good", name="other"),
    ]
    (episode,) = read(chat("good"), *broken, reading=reading)
    assert shape(episode) == [["good"]]
    assert reading.n_faults == len(broken)
    for answer, fault in zip(
        (
            *("traceId", "startTimeUnixNano", "endTimeUnixNano"),
            *("startTimeUnixNano", "JSON object", "the id good"),
        ),
        reading.faults,
        strict=True,
    ):
        assert answer in fault


def test_names_in_the_form_of_the_protocols_files_and_indented_documents(tmp_path):
    raw = {
        "trace_id": "t",
        "span_id": "s",
        "name": "n",
        "start_time_unix_nano": 5,
        "end_time_unix_nano": 6,
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"string_value": "chat"}},
            {"key": "n", "value": {"int_value": 3}},
        ],
    }
    path = tmp_path / "spans.json"
    full_fields = {"resource_spans": [{"scope_spans": [{"spans": [raw]}]}]}
    path.write_text(json.dumps(full_fields, indent=2))
    assert only(list(read_episodes(path))).attributes == {"n": 3}
    path.write_text(json.dumps([full_fields]))
    assert only(list(read_episodes(path))).node == "n"
    path.write_text(json.dumps(full_fields, indent=2)[:-3])
    with pytest.raises(InputError, match="not valid JSON"):
        list(read_episodes(path))


def test_a_trace_without_steps_says_how_to_name_them(read):
    with pytest.raises(InputError, match=r"none of its 2 spans is a step.*--instruction NAME=TYPE"):
        read(span("GET /"), span("POST /"))
    with pytest.raises(InputError, match="no node can be used"):
        read()


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 10), st.integers(0, 12)),
        min_size=1,
        max_size=12,
    )
)
def test_every_span_is_one_node_after_all_that_ran_in_it(tmp_path_factory, given):
    spans = [
        chat(str(n), start, start + length, parent=str(above) if above < n else "")
        for n, (start, length, above) in enumerate(given)
    ]
    path = tmp_path_factory.mktemp("otel") / "spans.json"
    path.write_text(json.dumps(document(*spans)))
    (episode,) = read_episodes(path)
    order = [item.node for _, item in episode.nodes]
    assert sorted(order) == sorted(str(n) for n in range(len(spans)))
    for _, item in episode.nodes:
        assert all(order.index(item.node) < order.index(above) for above in item.path)
    for step in episode.history.entries:
        ends = [item.timestamp + item.seconds for item in step]
        assert len(step) == 1 or max(item.timestamp for item in step) <= min(ends)
