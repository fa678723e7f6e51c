"""A user reads a comparison whose rows all begin with the same words of a prompt."""

import csv
import json
import re

import pytest

TEAMS = {"p01": "payroll", "p02": "access", "p03": "billing"}
COMMAND = ["compare", "-p", "team.txt", "-d", "tickets.csv", "--label", "team", "--metric", "exact"]


def write_tickets(home) -> None:
    lines = ["ticket,message,team"]
    lines += [f"{ticket},Words about {ticket}.,{team}" for ticket, team in TEAMS.items()]
    (home / "tickets.csv").write_text("\n".join(lines) + "\n")
    (home / "team.txt").write_text("Which team should get this e-mail, of all teams?\n\n{message}")


def test_rows_have_names_and_columns(cli, home, model):
    write_tickets(home)
    outcome = cli(*COMMAND, "-m", model, "-o", "rows.csv", "-o", "rows.html")
    assert outcome.code == 0, outcome.err
    listing = outcome.out.partition("Outputs\n")[2]
    for ticket, team in TEAMS.items():
        (line,) = [line for line in listing.splitlines() if line.startswith(ticket)]
        assert f"Words about {ticket}." in line
        assert team in line
    assert "Which team" not in listing

    with (home / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["ticket"] for row in rows] == list(TEAMS)
    assert rows[0]["message"] == "Words about p01."

    # The page has the rows before the figures.
    page = (home / "rows.html").read_text()
    assert page.index('"title":"p01"') < page.index("Failures and lowest scores")


def test_listed_records_show_what_was_judged(cli, home, model):
    write_tickets(home)
    assert cli(*COMMAND, "-m", model).code == 0
    text = cli("runs", "show", "last", "--below", "1").out
    assert "Words about p01." in text
    assert "payroll" in text


def test_people_stand_beside_judges(cli, home):
    items = [
        {"id": "a", "input": "Why?", "output": "Because it is so, for a reason.", "label": "pass"},
        {"id": "b", "input": "When?", "output": "No.", "label": "pass"},
        {"id": "c", "input": "Who?", "output": "No.", "label": "fail"},
    ]
    (home / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (home / "rules.yaml").write_text("rules:\n  - {kind: length, unit: words, min: 3, max: 40}\n")
    outcome = cli(
        "bench", "agreement", "items.jsonl", "--judge", "rules:rules.yaml", "-o", "rows.jsonl"
    )
    assert outcome.code == 0, outcome.err
    # By hand: people pass a and b, of which the rule fails b; both fail c.
    confusion = outcome.out.partition("Confusion matrix\n")[2].splitlines()
    counts = [line.split()[-4:] for line in confusion[2:4]]
    assert counts == [["pass", "1", "1", "0"], ["fail", "0", "1", "0"]]
    assert "fail, not pass" in outcome.out
    rows = [json.loads(line) for line in (home / "rows.jsonl").read_text().splitlines()]
    assert [(row["response"], row["people"]) for row in rows][1] == ("No.", "pass")


def test_bots_share_no_prompt(cli, home, model):
    """The prompt of one bot is no input of the other, and both were told the same goal."""
    goals = [{"id": f"lost-{n}", "goal": f"A password for account {n}."} for n in range(2)]
    (home / "chats.jsonl").write_text("".join(json.dumps(goal) + "\n" for goal in goals))
    (home / "curt.txt").write_text("You are a curt bot.")
    (home / "kind.txt").write_text("You are a kind bot.")
    command = ["compare", "-p", "curt.txt", "-p", "kind.txt", "-d", "chats.jsonl", "-m", model]
    command += ["--user-model", model, "--max-turns", "1", "--metric", "regex:."]
    outcome = cli(*command, "-o", "chats.html")
    assert outcome.code in (0, 3), outcome.err
    page = (home / "chats.html").read_text()
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    rows = json.loads(data)["rows"]
    assert [row["columns"] for row in rows] == [{"goal": goal["goal"]} for goal in goals]
    assert [row["input"] for row in rows] == ["", ""]


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "-d", "chats.jsonl", "--outputs", "messages", "--metric", "no-error"),
        ("evaluate", "chats.jsonl", "--judge", "metric:no-error"),
    ],
)
def test_tools_of_chats_are_read(command, cli, home):
    """A recorded chat may end with a call of a tool, which is all that it says."""
    call = {"id": "1", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    chat = [
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", **call}]},
        {"role": "tool", "tool_call_id": "1", "content": "4 degrees"},
    ]
    rows = [{"id": name, "input": "Q", "messages": chat} for name in "ab"]
    (home / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cli(*command, "-o", "chats.html", "-o", "scores.jsonl").code == 0
    for line in (home / "scores.jsonl").read_text().splitlines():
        assert '"score":1.0' in line.replace(" ", "")
    (data,) = re.findall(
        r'<script type="application/json">(.*?)</script>', (home / "chats.html").read_text(), re.S
    )
    (entry,) = json.loads(data)["rows"][0]["entries"]
    assert entry["facts"]["tool calls"] == 'get_weather({"city": "Oslo"})'


def test_tools_stand_beside_outputs(cli, home):
    calls = [
        {"name": "find_order", "arguments": {"number": 118}},
        {"name": "refund", "arguments": {"amount": "20 EUR"}, "error": "no right"},
    ]
    row = {"id": "a", "input": "Money back!", "output": "Done.", "tool_calls": calls}
    (home / "agent.jsonl").write_text(json.dumps(row))
    command = ["compare", "-d", "agent.jsonl", "--outputs", "output", "--metric", "no-error"]
    assert cli(*command, "-o", "agent.html").code == 0
    page = (home / "agent.html").read_text()
    calls = 'find_order({"number": 118}) → refund({"amount": "20 EUR"})'
    assert json.dumps(calls, ensure_ascii=False)[1:-1] in page
