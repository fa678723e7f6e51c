"""What `bench agreement` refuses, before it asks anything."""

import json

import pytest


def write_lines(path, **label):
    rows = [{"id": f"i{n}", "input": f"{n}?", "candidates": ["a", "b"], **label} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--judge", "probe", "--judge", "probe"), "named twice"),
        (("items.jsonl", "--judge", "probe"), "the id 'i0' is in items.jsonl, too; give each item"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(cli, server, model, home, more, reason):
    write_lines(home / "items.jsonl", winner=1)
    ended = cli("bench", "agreement", "items.jsonl", "-m", model, *more)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0
