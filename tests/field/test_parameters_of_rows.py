"""Situations of people whose rows set a profile, agents, weights or rounds of their own: they are
honoured as columns and under `parameters`, and a misspelt one is refused by its name.

The number of agents and rounds of each case was counted by hand.
"""

import json

import pytest

from field.asked import record, write_rows

ROW = {"input": "Why?", "output": "So."}


@pytest.fixture
def judged(cli, home, model, server):
    """Judge rows, and return the end of the command with the profile of each case."""

    def judge(rows, *more):
        record(server, lambda _body: None)
        write_rows(home / "rows.jsonl", [{**ROW, **row} for row in rows])
        outcome = cli("evaluate", "rows.jsonl", "-m", model, "--json", *more)
        cases = [json.loads(line) for line in outcome.out.splitlines() if '"profile"' in line]
        return outcome, [case["profile"] for case in cases]

    return judge


@pytest.mark.parametrize("nested", [False, True])
def test_rows_choose_their_profile(judged, nested):
    parameters = {"profile": "self-consistency", "rounds": 2}
    row = {"parameters": parameters} if nested else parameters
    outcome, profiles = judged([row, {}])
    assert outcome.code == 0
    assert [profile["name"] for profile in profiles] == ["self-consistency", "general"]
    assert [len(profile["agents"]) for profile in profiles] == [1, 3]
    assert profiles[0]["rounds"] == 2
    assert "unread" not in outcome.err


def test_profiles_of_rows_are_files(judged, home):
    agents = [{"name": "Ada", "persona": "You are exact."}]
    (home / "mine.yaml").write_text(json.dumps({"agents": agents, "rounds": 1}))
    outcome, profiles = judged([{"profile": "mine.yaml"}])
    assert (outcome.code, profiles[0]["name"], profiles[0]["agents"][0]["name"]) == (
        0,
        "mine",
        "Ada",
    )


def test_agents_and_weights_are_honoured(judged):
    agents = [{"name": "Ada", "persona": "You are exact."}]
    row = {"agents": agents, "weights": {"accuracy": 1}, "rounds": 1, "convergence": None}
    outcome, profiles = judged([row])
    assert outcome.code == 0
    assert profiles[0]["weights"] == {"accuracy": 1}
    assert [agent["name"] for agent in profiles[0]["agents"]] == ["Ada"]


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("round", 2, "rounds"),
        ("weigths", {"accuracy": 1}, "weights"),
        ("convergance", 0.1, "convergence"),
        ("profil", "general", "profile"),
        ("agent", [{"name": "Ada", "persona": "You are exact."}], "agents"),
        ("Sampling Temprature", 0.5, "sampling_temperature"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_misspelt_parameters_are_refused(judged, server, name, value, right, nested):
    row = {name: value}
    outcome, _ = judged([{}, {"parameters": row} if nested else row])
    assert (outcome.code, server.calls) == (2, 0)
    assert f"rows.jsonl:2: '{'parameters.' * nested}{name}' is no parameter" in outcome.err
    assert f"write '{right}'" in outcome.err


@pytest.mark.parametrize("row", [{"agent": "Bob"}, {"border": "red"}, {"selected": True}])
def test_other_columns_are_unread(judged, row):
    outcome, profiles = judged([row])
    assert (outcome.code, profiles[0]["name"]) == (0, "general")
    assert f"nothing reads {next(iter(row))}" in outcome.err


def test_unknown_nested_names_are_unread(judged):
    outcome, _ = judged([{"parameters": {"colour": "red", "rounds": 1}}])
    assert outcome.code == 0
    assert "nothing reads parameters.colour" in outcome.err


def test_missing_profiles_are_named(judged, server):
    outcome, _ = judged([{"profile": "prompt-tunning"}])
    assert (outcome.code, server.calls) == (2, 0)
    assert "did you mean 'prompt-tuning'" in outcome.err


def test_other_judges_leave_columns_alone(cli, home, model, server):
    record(server, "Yes")
    write_rows(home / "rows.jsonl", [{**ROW, "order": 118, "rounds": 3}])
    outcome = cli("evaluate", "rows.jsonl", "--judge", "look:length", "--json")
    assert outcome.code == 0, outcome.err
    assert "nothing reads order, rounds" in outcome.err
