"""Recorded runs as JSON lines: what is written comes back, what is broken is named and no more."""

import json
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.judging import Episode, Reading
from textevolve.node_eval.snapshots import SnapshotLimits, find_loss, take_snapshot
from textevolve.node_eval.traces import describe_node, encode_line, read_episodes, write_history

texts = st.text(max_size=20)
keys = st.text(alphabet='xyz é"\n\ufffd', max_size=4)  # none is the name of a secret
states = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
outcomes = st.builds(
    EvaluationResult,
    st.floats(0, 1),
    st.booleans(),
    texts,
    st.dictionaries(keys, states, max_size=2),
) | st.builds(Failure, st.sampled_from(["failed", "skipped"]), texts)
items = st.builds(
    HistoryItem,
    timestamp=st.floats(0, 2e9),
    instruction=st.none() | st.sampled_from(Instruction),
    input_state=states,
    output_state=states,
    evaluation_results=st.dictionaries(texts, outcomes, max_size=2),
    node=texts,
    path=st.lists(texts, max_size=2).map(tuple),
    seconds=st.none() | st.floats(0, 1e6),
    tokens=st.none() | st.integers(0, 10**9),
    error=st.none() | texts,
)
histories = st.lists(st.lists(items, min_size=1, max_size=3), min_size=1, max_size=3).map(History)


@given(st.lists(histories, min_size=1, max_size=3))
def test_what_is_written_comes_back(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    episodes = [Episode(f"run {n}", history) for n, history in enumerate(written)]
    with path.open("wb") as file:
        for episode in episodes:
            for step, item in episode.nodes:
                file.write(encode_line(describe_node(episode.id, step, item)))
    reading = Reading()
    assert list(read_episodes(path, reading)) == episodes
    assert (reading.nodes > 0, reading.faults, reading.others) == (True, [], 0)


def line(**fields):
    return json.dumps({"node": "n", **fields})


@pytest.fixture
def trace(tmp_path):
    def write(*lines, name="trace.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join(single_line.encode() + b"\n" for single_line in lines))
        return path

    return write


def test_lines_that_cannot_be_used_are_named_and_the_rest_is_read(trace):
    reading = Reading()
    path = trace(
        line(output="a"),
        "{oh",
        "[1]",
        '{"output": 3}',
        line(instruction="GENERAT"),
        line(results={"r": {"score": 1.5, "passed": True}}),
        line(results={"r": {"score": True, "passed": True}}),
        line(results={"r": {"score": math.nan, "passed": True}}),
        line(seconds=-1),
        '{"node": ' + "[" * 100_000,
        line(output="b"),
    )
    (episode,) = read_episodes(path, reading)
    assert [item.output_state for _, item in episode.nodes] == ["a", "b"]
    assert [fault.split(":")[1] for fault in reading.faults] == [str(n) for n in range(2, 11)]
    assert "instruction: Input should be 'GENERATE'" in reading.faults[3]
    assert (reading.nodes, reading.n_faults) == (2, 9)


def test_a_file_in_which_nothing_can_be_used_is_refused(trace, tmp_path):
    with pytest.raises(InputError, match="empty"):
        list(read_episodes(trace()))
    with pytest.raises(InputError, match=r"trace.jsonl:1: not valid JSON"):
        list(read_episodes(trace("plain text")))
    with pytest.raises(InputError, match="header and nothing else"):
        list(read_episodes(trace('{"format": "textevolve-nodes", "version": 1}')))
    with pytest.raises(InputError, match="another format"):
        list(read_episodes(trace('{"format": "textevolve-nodes", "version": 2}')))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_episodes(tmp_path / "none.jsonl"))


def test_nodes_of_one_step_stand_side_by_side_and_others_in_their_order(trace):
    path = trace(
        line(node="a"),
        line(node="b"),
        line(node="d", step=2),
        line(node="c", step=1),
        line(node="e", step=2),
        line(node="f"),
    )
    (episode,) = read_episodes(path)
    assert [[i.node for i in step] for step in episode.history.entries] == [
        ["a"],
        ["b"],
        ["c"],
        ["d", "e"],
        ["f"],
    ]


def test_states_that_are_no_json_are_put_into_words():
    loop = []
    loop.append(loop)
    state = {1: threading.Lock(), "nan": math.nan, "loop": loop, "half": "\ud800", "huge": 10**5000}
    line = describe_node("1", 0, HistoryItem(timestamp=0, input_state=state))
    written = json.loads(encode_line(line))["input"]
    assert (written["1"], written["nan"], written["half"]) == ("<lock: not kept>", "nan", "\ud800")
    assert "nested deeper" in json.dumps(written["loop"])
    assert written["huge"] == "(an integer of 16,610 bits)"


def test_a_history_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("what was there")
    with pytest.raises(AttributeError):
        write_history(History([[HistoryItem(timestamp=0), None]]), path)  # type: ignore[list-item]
    assert path.read_text() == "what was there"
    write_history(History([[HistoryItem(timestamp=0, node="a")]]), path)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.jsonl"]
    with pytest.raises(InputError, match="cannot be written"):
        write_history(History(), tmp_path / "no" / "folder.jsonl")


def test_what_was_cut_and_what_waits_is_still_known_after_reading(tmp_path):
    limits = SnapshotLimits(characters=3)
    state = take_snapshot({"text": "abcdef", "lock": [threading.Lock()], 5: "abcd"}, limits)
    item = HistoryItem(timestamp=0, output_state=state, node="a", interrupted=True, error="waits")
    write_history(History([[item]]), tmp_path / "trace.jsonl")
    (episode,) = read_episodes(tmp_path / "trace.jsonl")
    (read,) = episode.history.items
    assert find_loss(read.output_state["text"]) == "<3 more characters: not kept>"
    assert find_loss(read.output_state["lock"]) == find_loss(state["lock"])
    assert find_loss(read.output_state["5"]) == "<1 more characters: not kept>"
    assert read.interrupted


def test_values_under_the_names_of_secrets_are_masked(trace):
    judged = {"a": {"score": 1.0, "passed": True, "metadata": {"token": "t-1", "n": 2}}}
    text = line(input={"api_key": "k-123", "q": 1}, results=judged)
    (episode,) = read_episodes(trace(text))
    item = next(episode.history.items)
    assert item.input_state == {"api_key": "***", "q": 1}
    assert item.evaluation_results["a"].metadata == {"token": "***", "n": 2}
