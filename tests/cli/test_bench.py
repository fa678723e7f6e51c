"""What `bench agreement` refuses, before it asks anything."""

import json

import pytest


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--judge", "probe", "--judge", "probe"), "named twice"),
        (("items.jsonl", "--judge", "probe"), "the id 'i0' is also used in items.jsonl:1"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(cli, server, model, home, more, reason):
    item = {"id": "i0", "input": "0?", "candidates": ["a", "b"], "winner": 1}
    (home / "items.jsonl").write_text(json.dumps(item))
    ended = cli("bench", "agreement", "items.jsonl", "-m", model, *more)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0
