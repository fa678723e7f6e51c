"""A configuration of promptfoo sets for all tests, in `defaultTest`, what each test may set itself.

By promptfoo's documentation a test without a threshold has that of `defaultTest`, from which on the
mean of its checks decides, those of `defaultTest` among them; and the options of both are merged,
so that lists stay whole where `disableVarExpansion` says so once.
"""

import json

import pytest
import yaml

ABSENT = {"type": "equals", "value": "x"}
PRESENT = {"type": "contains", "value": "Hello"}


@pytest.fixture
def convert(home, cli, model):
    """Convert the tests, and return the rows."""

    def run(tests, default):
        config = {
            "prompts": ["Answer {{q}}"],
            "providers": ["openai:chat:any"],
            "defaultTest": default,
            "tests": tests,
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        outcome = cli("run", "init", "--from", "config.yaml", "-o", "study.yaml")
        assert outcome.code == 0, outcome.err
        study = home / "study.yaml"
        study.write_text(study.read_text().replace("openai/any", model))
        return [json.loads(line) for line in (home / "study.jsonl").read_text().splitlines()]

    return run


def test_thresholds(convert, cli, home, server):
    server.script = lambda _body, _number: "Hello there."
    tests = [
        {"vars": {"q": "a"}, "assert": [ABSENT]},
        {"vars": {"q": "b"}, "assert": [ABSENT], "threshold": 0.9},
        {"vars": {"q": "c"}, "assert": [ABSENT, ABSENT]},
        {"vars": {"q": "d"}, "assert": [ABSENT], "threshold": 0},
        {"vars": {"q": "e"}},
    ]
    convert(tests, {"threshold": 0.5, "assert": [PRESENT]})
    outcome = cli("run", "study.yaml", "-o", "rows.jsonl")
    assert outcome.code == 0, outcome.err
    records = [json.loads(line) for line in (home / "rows.jsonl").read_text().splitlines()]
    found = [(record["score"], record["passed"]) for record in records]
    third = pytest.approx(1 / 3)
    assert found == [(0.5, True), (0.5, False), (third, False), (0.5, True), (1, True)]


@pytest.mark.parametrize(
    ("own", "rows"),
    [(None, 1), ({"provider": "x"}, 1), ({"disableVarExpansion": False}, 3)],
)
def test_whole_lists(convert, own, rows):
    test = {"vars": {"q": ["a", "b", "c"]}, "assert": [PRESENT]}
    test |= {} if own is None else {"options": own}
    assert len(convert([test], {"options": {"disableVarExpansion": True}})) == rows
