"""A program appends the items of a turn as a list within the list of messages; the refusal said
that the column must be a text, which a chat need not be.

The place of the inner list was counted by hand.
"""

import json

import pytest

ITEMS = [
    {"role": "user", "content": "When?"},
    [{"type": "function_call", "call_id": "c1", "name": "tide", "arguments": "{}"}],
    {"role": "assistant", "content": "At noon."},
]


@pytest.mark.parametrize("row", [{"messages": ITEMS}, {"input": "When?", "output": ITEMS}])
def test_the_item_that_is_no_message_is_named(cli, home, row):
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "look:length")
    assert outcome.code == 2
    assert outcome.err.strip().endswith("not list; item 2 is no message of a chat")
