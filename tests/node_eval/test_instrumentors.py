"""What real instrumentors record of the same calls comes out as the same nodes.

The traces are in `fixtures`; git keeps the script that recorded them, at f5eaac30:
tests/node_eval/fixtures/record.py.
"""

import json
from pathlib import Path

import pytest

from textevolve.node_eval.history import Instruction
from textevolve.node_eval.judging import Reading
from textevolve.node_eval.traces import read_episodes

FIXTURES = Path(__file__).with_name("fixtures")

CALL = 'tide_table({"port": "Brest"})'
PICTURE = "What is in the picture?\n<image: https://example.org/tide.png>"
TALK = "user: When is high water at Brest?\n\nassistant: " + CALL + "\n\ntool: 12:00"
ASKED = [
    ("system: Be brief.\n\nuser: Why are there tides?", "The moon pulls on the sea."),
    (PICTURE, "The moon pulls on the sea."),
    ("When is high water at Brest?", CALL),
    (TALK, "High water is at noon."),
]
NOT_RECORDED = ("openai-v2-details", "openai-v2-span")
"""They leave out a content of several parts."""


def read(name):
    reading = Reading()
    episodes = list(read_episodes(FIXTURES / f"{name}.jsonl", reading))
    assert reading.faults == []
    return [item for episode in episodes for _, item in episode.nodes]


def text(state):
    return None if state is None else state["text"]


@pytest.mark.parametrize(
    "name",
    ["traceloop", "traceloop-events", "openinference-openai", "openai-v2-messages", *NOT_RECORDED],
)
def test_calls_of_a_model(name):
    items = read(name)
    matches = [(text(item.input_state), text(item.output_state)) for item in items]
    expected = list(ASKED)
    if name in NOT_RECORDED:
        expected[1] = (None, ASKED[1][1])
    assert matches == expected
    assert {(item.tokens, item.instruction) for item in items} == {(27, Instruction.GENERATE)}
    assert {key for item in items for key in item.attributes} == set()


def test_a_graph_with_a_node_that_gives_nothing_a_retriever_and_a_tool():
    items = {item.node: item for item in read("openinference-langchain")}
    assert list(items) == [
        *("Library", "look_up", "ChatOpenAI", "ask", "tide_table", "tools", "answer", "LangGraph")
    ]
    assert items["look_up"].output_state == {"messages": []}
    assert json.loads(items["look_up"].attributes["metadata"])["langgraph_node"] == "look_up"
    assert items["look_up"].path == ("LangGraph",)
    assert items["Library"].input_state == {"text": "When is high water at Brest?"}
    assert len(items["Library"].output_state["documents"]) == 2
    first, last = (item for item in read("openinference-langchain") if item.node == "ChatOpenAI")
    assert (text(first.output_state), text(last.input_state)) == (CALL, TALK)
    assert items["tide_table"].instruction is Instruction.TOOL_CALL
    assert items["tide_table"].output_state == {"text": "12:00"}


def test_an_agent_with_a_tool():
    first, tool, last, agent = read("pydantic-ai")
    message = "system: Be brief.\n\nuser: When is high water at Brest?"
    assert (text(first.input_state), text(first.output_state)) == (message, CALL)
    assert (tool.input_state, tool.output_state) == ({"port": "Brest"}, {"text": "12:00"})
    assert text(last.output_state) == "High water is at noon."
    assert (text(agent.input_state), agent.output_state) == (
        message,
        {"text": "High water is at noon."},
    )
    assert (agent.node, agent.instruction, agent.tokens) == ("pilot", Instruction.DELEGATE, 54)
    assert [item.attributes for item in (first, tool, last)] == [{}] * 3
    assert agent.attributes["metadata"] == '{"tier":"gold"}'


def test_fixtures_say_nothing_of_the_machine_that_recorded_them():
    for path in FIXTURES.glob("*.jsonl"):
        written = path.read_text()
        assert not any(word in written for word in ("/home", "/root", "/tmp", "site-packages"))
        resources = [
            resource["resource"]
            for line in written.splitlines()
            for signal in json.loads(line).values()
            for resource in signal
        ]
        keys = {pair["key"] for resource in resources for pair in resource["attributes"]}
        assert keys == {"service.name"}
