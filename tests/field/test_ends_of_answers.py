"""An application under test streams its answer, reports an error beside it, sends it again at the
end, tells of its thoughts, or runs as a program that leaves others behind: what it answered is
scored once and whole, and what is no answer has no score.

The streams have the events that public chat servers send, with our own words in them.
"""

import json
import time
from pathlib import Path

import pytest

import textevolve
from textevolve.errors import AnswerError
from textevolve.llm.model import Response
from textevolve.llm.target_calls import split_events
from textevolve.llm.targets import EVENTS, Target
from textevolve.studies.rows import read_target_answer


def send(*events):
    """Return a stream of events, each with a name or without."""
    blocks = []
    for event in events:
        name, data = event if isinstance(event, tuple) else ("", event)
        head = f"event: {name}\r\n" if name else ""
        text = data if isinstance(data, str) else json.dumps(data)
        blocks.append(f"{head}data: {text}\r\n\r\n")
    return "".join(blocks)


def read(stream, answer=""):
    response = Response(json.dumps(split_events(stream)), EVENTS, textevolve.Usage())
    return read_target_answer(Target(target="http://app/ask", answer=answer), response)


def read_whole(value):
    response = Response(json.dumps(value), "stop", textevolve.Usage())
    return read_target_answer(Target(target="http://app/ask"), response)


OPENING = {"answer": "Boil the rice "}
ERRORS = {
    "a named error": (("error", {"error": {"message": "queue is full", "code": 529}}), ""),
    "a named error in text": (("error", "queue is full"), ""),
    "a type": ({"type": "error", "errorText": "queue is full"}, ""),
    "an event": ({"event": "error", "status": 500, "message": "queue is full"}, ""),
    "an error alone": ({"error": "queue is full"}, ""),
    "a run's error": ({"type": "RUN_ERROR", "message": "queue is full"}, ""),
    "a failed response": (
        {"type": "response.failed", "response": {"error": {"message": "queue is full"}}},
        "",
    ),
    "a status": ({"status": "failed", "reason": "queue is full"}, ""),
    "an event in data": (
        {"event": "error", "data": {"type": "error", "error": {"message": "queue is full"}}},
        "",
    ),
    "a path": ({"error": {"message": "queue is full"}}, "answer"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_error_events_end_answers(kind):
    event, path = ERRORS[kind]
    with pytest.raises(AnswerError, match=r"reports an error: .*queue is full"):
        read(send(OPENING, event), path)


STREAMS = {
    "a final event": (
        [{"type": "token", "answer": "Ri"}, {"type": "token", "answer": "ce"}],
        {"type": "final", "answer": "Rice"},
    ),
    "a corrected final event": (
        [("token", {"answer": "Rice with"}), ("token", {"answer": " beens"})],
        ("complete", {"answer": "Rice with beans"}),
    ),
    "an equal last event": ([{"answer": "Ri"}, {"answer": "ce"}], {"answer": "Rice"}),
    "an event with passages": ([{"answer": "Rice"}], {"answer": "Rice", "contexts": ["p"]}),
    "all text so far": ([{"answer": "R"}, {"answer": "Ri"}], {"answer": "Rice"}),
    "a replaced answer": (
        [{"event": "message", "answer": "Bad"}],
        {"event": "message_replace", "answer": "Sorry"},
    ),
    "a status": ([("status", "Searching"), ("token", "Ri")], ("token", "ce")),
    "an end": ([("token", "Ri"), ("token", "ce")], ("end", "bye")),
    "a thought": (
        [{"type": "reasoning-delta", "answer": "Bread? No. "}],
        {"type": "text-delta", "answer": "Rice"},
    ),
    "a tool's output": (
        [
            {"type": "tool-output-available", "output": {"grams": 80}},
            {"type": "text", "answer": "R"},
        ],
        {"type": "text", "answer": "ice"},
    ),
    "a tool's error": (
        [{"type": "tool_result", "error": "no scales"}, {"type": "text", "answer": "Ri"}],
        {"type": "text", "answer": "ce"},
    ),
    "a repeated word": ([{"answer": "ha"}], {"answer": "ha"}),
    "a last part": ([{"type": "token", "answer": "Ri"}], {"type": "final", "answer": "ce"}),
    "thoughts alone": (
        [{"type": "thinking", "answer": "Ri"}],
        {"type": "thinking", "answer": "ce"},
    ),
}
WHOLE = {
    "a corrected final event": "Rice with beans",
    "a replaced answer": "Sorry",
    "a repeated word": "haha",
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_are_read_once(kind):
    parts, last = STREAMS[kind]
    assert read(send(*parts, last)).text == WHOLE.get(kind, "Rice")


def test_unframed_error_ends_answers():
    stream = send(OPENING) + '{"code": 500, "message": "queue is full"}\n'
    with pytest.raises(AnswerError, match="reports an error: queue is full"):
        read(stream)


def test_unframed_streams_are_read():
    assert read('{"answer": "Ri"}\n{"answer": "ce"}\n').text == "Rice"


def test_partial_messages_are_read_once():
    parts = [("messages/partial", [{"content": text}]) for text in ("R", "Ri", "Rice")]
    stream = send(
        ("messages/metadata", {"run": 1}), *parts, ("messages/complete", [{"content": "Rice"}])
    )
    assert read(stream, "0.content").text == "Rice"


def test_path_skips_thoughts():
    stream = send(
        {"type": "reasoning-delta", "delta": "Bread? "},
        {"type": "text-delta", "delta": "Rice"},
        {"type": "finish"},
        "[DONE]",
    )
    assert read(stream, "delta").text == "Rice"


@pytest.mark.parametrize("error", ["down", {"message": "down"}, ["down"], True])
def test_error_beside_an_answer(error):
    with pytest.raises(AnswerError, match="reports an error"):
        read_whole({"answer": "Sorry.", "error": error})


@pytest.mark.parametrize("error", [None, "", False, {}, []])
def test_no_error_is_none(error):
    assert read_whole({"answer": "Rice", "error": error}).text == "Rice"


def test_null_is_no_answer():
    assert read_whole({"answer": None, "output": "Rice"}).text == "Rice"


def test_reported_errors_of_steps():
    answer = read_whole({"answer": "Rice", "errors": ["no scales"]})
    assert answer.trajectory.errors == ("no scales",)


PROGRAMS = {
    "a child holds the pipes": "printf x >> calls.txt\necho Rice\nsleep 61.7 &\nexit 0\n",
    "a child has its own session": "printf x >> calls.txt\necho Rice\nsetsid sleep 3 &\nexit 0\n",
    "it reads nothing": "printf x >> calls.txt\nexec <&-\necho Rice\n",
}


def compare(cli, home, target):
    (home / "rows.jsonl").write_text('{"id": "a", "question": "What?", "dish": "Rice"}\n')
    cli(
        *("compare", "--target", target, "-d", "rows.jsonl", "--label", "dish"),
        *("--metric", "exact", "-o", "cells.jsonl"),
    )
    return json.loads((home / "cells.jsonl").read_text())


def write_program(home, text):
    path = home / "app.sh"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def count_processes(words):
    """Return how many processes have a command line."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += file.read_bytes().split(b"\0")[:-1] == words
        except OSError:
            continue
    return count


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_end_by_themselves(cli, home, kind):
    write_program(home, PROGRAMS[kind])
    cell = compare(cli, home, "cmd:./app.sh")
    assert (cell["text"], (home / "calls.txt").read_text()) == ("Rice", "x")
    assert count_processes([b"sleep", b"61.7"]) == 0


def test_empty_output_shows_errors(cli, home):
    write_program(home, "echo first >&2\necho 'KeyError: MENU is not set' >&2\n")
    assert "KeyError: MENU is not set" in compare(cli, home, "cmd:./app.sh")["reason"]


@pytest.mark.slow
def test_late_program_shows_errors(cli, home):
    write_program(home, "echo 'waiting for the oven' >&2\nexec sleep 61.8\n")
    (home / "app.yaml").write_text("target: cmd:./app.sh\ntimeout: 0.3\n")
    (home / "textevolve.toml").write_text("[retries]\nattempts = 1\n")
    reason = compare(cli, home, "app.yaml")["reason"]
    assert "no answer in 0.3 s; the last line of its standard error: waiting for the oven" in reason


@pytest.mark.slow
def test_endless_output_is_cut(cli, home):
    write_program(home, "exec yes rice\n")
    began = time.monotonic()
    assert "larger than 16 MiB" in compare(cli, home, "cmd:./app.sh")["reason"]
    assert time.monotonic() - began < 60


def test_own_timeout_is_told_once(cli, home):
    (home / "slow.py").write_text(
        "def reply(question):\n    with open('calls.txt', 'a') as file:\n"
        "        file.write('x')\n    raise TimeoutError('the kitchen is busy')\n"
    )
    reason = compare(cli, home, "python:slow.reply")["reason"]
    assert "TimeoutError: the kitchen is busy" in reason
    assert (home / "calls.txt").read_text() == "x"


@pytest.mark.parametrize("begin", ["def", "async def"])
def test_generators_are_streams(cli, home, begin):
    (home / "parts.py").write_text(
        f"{begin} reply(question):\n    yield 'Ri'\n    yield {{'answer': 'ce'}}\n"
    )
    assert compare(cli, home, "python:parts.reply")["score"] == 1.0
