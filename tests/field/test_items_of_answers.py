"""A step of a chain shows an item of a list that an earlier step gave, as other tools write it.

The right prompt is the one that Python's format gives for the item.
"""

import pytest
from asked import record

CHAIN = """\
name: explain
inputs: {text: text}
outputs: [answer]
steps:
  - ask: found
    prompt: "List the facts of {text}"
    fields: {facts: list of any}
  - ask: answer
    prompt: "Explain: PLACE"
"""
FACTS = '{"facts": [{"title": "Gate"}, {"title": "Fee"}]}'


def run(cli, home, server, model, place):
    bodies = record(server, FACTS)
    (home / "explain.yaml").write_text(CHAIN.replace("PLACE", place))
    outcome = cli("run", "chains", "run", "explain.yaml", "-i", "text=The gate.", "-m", model)
    return outcome, [body["messages"][-1]["content"] for body in bodies]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{found.facts.0.title}", "Gate"),
        ("{{ found.facts.1.title }}", "Fee"),
        ("{found.facts.1}", '{"title": "Fee"}'),
    ],
)
def test_items_are_filled_in(cli, home, server, model, place, words):
    outcome, prompts = run(cli, home, server, model, place)
    assert outcome.code == 0, outcome.err
    assert prompts[-1] == f"Explain: {words}"


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        ("{found.facts[0].title}", "write {found.facts.0.title}"),
        ("{{ found['facts'][1] }}", "write {found.facts.1}"),
        ("{% for fact in found.facts %}- {% endfor %}", "its field or its item ({name.field}"),
        ("{found|upper}", "its field or its item ({name.field}, {name.0})"),
    ],
)
def test_brackets_are_refused(cli, home, server, model, place, advice):
    outcome, prompts = run(cli, home, server, model, place)
    assert outcome.code == 2
    assert advice in outcome.err
    assert not prompts


def test_missing_items_are_errors(cli, home, server, model):
    outcome, prompts = run(cli, home, server, model, "{found.facts.2}")
    assert outcome.code == 3
    assert "the list has 2 items, counted from 0" in outcome.err
    assert len(prompts) == 1


@pytest.mark.parametrize("place", ["{facts.0}", "{{ facts.0 }}", "{facts.0.title}", "{facts[0]}"])
def test_items_of_columns_are_refused(cli, home, server, model, place):
    (home / "rows.jsonl").write_text('{"facts": [{"title": "Gate"}]}\n')
    (home / "ask.txt").write_text(f"Explain {place} by {{facts}}")
    outcome = cli("compare", "-d", "rows.jsonl", "-p", "ask.txt", "-m", model, "--judge", "probe")
    assert outcome.code == 2
    assert f"{place} is not filled in" in outcome.err
    assert server.calls == 0
