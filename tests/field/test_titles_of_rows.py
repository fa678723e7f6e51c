"""Rows that people know by a ticket, in files without ids: results, messages and the ledger name
them by it, and it changes neither a judgement nor a run."""

import json

import pytest

ROWS = """ticket,question,answer,expected
T-1,What is the capital of Peru?,Lima,Lima
T-2,What is the capital of Kenya?,Mombasa,Nairobi
T-3,What is the capital of Chad?,,N'Djamena
"""
VERBS = {
    "evaluate": ("evaluate", "rows.csv", "--judge", "metric:exact"),
    "compare": (
        *("compare", "--outputs", "answer", "-d", "rows.csv", "--label", "expected"),
        *("--metric", "exact"),
    ),
}


@pytest.fixture(params=VERBS)
def command(request):
    return VERBS[request.param]


def write_rows(home, text=ROWS):
    (home / "rows.csv").write_text(text)


def test_tickets_name_rows(cli, home, command):
    write_rows(home)
    outcome = cli(*command)
    said = outcome.out + outcome.err
    assert "T-2" in outcome.out
    assert "T-3" in outcome.err.partition("lacks a score")[0].splitlines()[-1]
    assert "nothing reads ticket" not in said


def test_tickets_change_no_run(cli, home):
    for ticket in ("T-2", "T-7"):
        write_rows(home, ROWS.replace("T-2", ticket))
        assert cli(*VERBS["evaluate"]).code == 3
    assert len(cli("runs", "list", "--json").out.splitlines()) == 1


def test_replies_of_a_ticket_are_numbered(cli, home):
    turns = []
    for reply in ("Lima", "Cusco"):
        turns += [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": reply}]
    (home / "rows.jsonl").write_text(json.dumps({"ticket": "T-9", "messages": turns}) + "\n")
    out = cli("evaluate", "rows.jsonl", "--each-reply", "--judge", "look:length").out
    assert "T-9.1" in out
    assert "T-9.2" in out


def test_id_stays_the_name(cli, home, command):
    write_rows(home, ROWS.replace("ticket", "id"))
    assert "T-3" in cli(*command).err
