"""A cascade's first judge is exactly as certain as the user demands: by decimal numbers 0.9, in
binary ones a little less."""

import json
from collections import Counter

import pytest

from textevolve.debate.profile import load_profile, override
from textevolve.debate.result import is_certain
from textevolve.llm.testing import Answer


@pytest.mark.parametrize(("certainty", "asked"), [(0.9, 0), (0.9001, 0), (0.8999, 3)])
def test_certainty_at_the_edge(cli, home, server, certainty, asked):
    calls = Counter()

    def script(body, _number):
        calls[body["model"]] += 1
        return Answer(yes=certainty)

    server.script = script
    (home / "rows.jsonl").write_text(json.dumps({"input": "Hello?", "output": "Hello."}))
    judge = f"cascade:0.9:probe@{server.url}#cheap,probe@{server.url}#dear"
    outcome = cli("evaluate", "rows.jsonl", "--judge", judge)
    assert outcome.code == 0, outcome.err
    assert calls == Counter(cheap=3, dear=asked)


def test_debates_end_at_the_edge():
    profile = override(load_profile("general"), {"escalate_below": 0.9})
    assert is_certain(profile, 0.1 + 0.7 + 0.1)
    assert not is_certain(profile, 0.8999)
