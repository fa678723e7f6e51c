"""Spans and the logs that belong to them: in any order, a trace at a time."""

import json

import pytest
from otlp_lines import chat, document, log, logs

from textevolve.node_eval.judging import Reading
from textevolve.node_eval.traces import read_episodes


@pytest.fixture
def write(tmp_path):
    def write(*documents, name="spans.jsonl"):
        path = tmp_path / name
        path.write_text(
            "".join(json.dumps(single_document) + "\n" for single_document in documents)
        )
        return path

    return write


def talk(id, trace="t", asked="Q", said="A", time=5):
    return [
        log("gen_ai.user.message", id, {"content": asked}, trace=trace, time=time),
        log("gen_ai.choice", id, {"message": {"content": said}}, trace=trace, time=time + 1),
    ]


def texts(episodes):
    return [
        (item.node, (item.input_state or {}).get("text"), (item.output_state or {}).get("text"))
        for episode in episodes
        for _, item in episode.nodes
    ]


SPANS = document(chat("a", 0, 1), chat("b", 1, 2))
LOGS = logs(*talk("a"), *talk("b", asked="R", said="B"))


@pytest.mark.parametrize("lines", [[SPANS, LOGS], [LOGS, SPANS], [{**SPANS, **LOGS}]])
def test_logs_are_joined_to_their_spans_wherever_they_stand(write, lines):
    reading = Reading()
    assert texts(read_episodes(write(*lines), reading)) == [("a", "Q", "A"), ("b", "R", "B")]
    assert reading.faults == []


def test_older_logs_name_their_event_in_an_attribute_and_may_have_json_as_body(write):
    old = logs(
        log("gen_ai.user.message", "a", json.dumps({"content": "Q"}), event_name=False),
        log("gen_ai.choice", "a", {"content": "A"}, event_name=False),
        log("gen_ai.tool.message", "a", "{cut"),
    )
    (answer,) = texts(read_episodes(write(document(chat("a")), old)))
    assert answer == ("a", "user: Q\n\ntool: {cut", "A")


def test_messages_are_in_the_order_of_their_times_and_come_once(write):
    later = log("gen_ai.tool.message", "a", {"content": "three"}, time=3)
    first = log("gen_ai.user.message", "a", {"content": "one"}, time=1)
    path = write(document(chat("a")), logs(later, first), logs(later, first))
    ((_, message, _),) = texts(read_episodes(path))
    assert message == "user: one\n\ntool: three"


def test_logs_that_belong_to_no_span_are_counted_and_those_of_an_application_are_not(write):
    reading = Reading()
    more = [
        *talk("c"),
        *talk("a", trace="other"),
        log("gen_ai.choice", "", {"content": "?"}),
        log("", "c", "GET / 200"),
        "no log",
    ]
    assert len(list(read_episodes(write(SPANS, logs(*more)), reading))) == 1
    assert reading.faults == [
        f"{write()}:2: log 7: must be a JSON object, but is of type str",
        f"{write()}: 5 logs of messages belong to none of its spans",
    ]
