"""`textevolve optimize` as it is used, on the scripted server."""

import pytest

TASK = "Say in a sentence what moves the sea."


def asked(model, *more):
    return ("optimize", TASK, "-m", model, "-j", "probe", *more)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("twice.jsonl",), "two tasks have the id 'a'"),
        (("bare.jsonl",), "bare.jsonl:1: the column 'task' is missing"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(home, cli, server, model, more, reason):
    (home / "twice.jsonl").write_text('{"id": "a", "task": "x"}\n' * 2)
    (home / "bare.jsonl").write_text('{"id": "a"}\n')
    ended = cli("optimize", *more, "-m", model)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0


def test_a_text_that_there_is_not_is_not_written_over_an_older_one(home, cli, model):
    (home / "best.txt").write_text("An older text.")
    ended = cli(*asked(model, "--max-calls", 0, "-o", "best.txt", "-o", "all.jsonl"))
    assert ended.code == 3
    assert "best.txt: was not written" in ended.err
    assert (home / "best.txt").read_text() == "An older text."
    assert (home / "all.jsonl").exists()
