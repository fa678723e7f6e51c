"""What cannot be used is refused in one line that says what to do, before anything is asked."""

import json
import re

import pytest

from textevolve.llm.testing import Answer, Fault, ScriptedServer

CASE = ("Why?", "Because.")
BAD = {
    "lone surrogate": (["Why?", "ab\udce9"], "half a surrogate pair at position 2"),
    "not UTF-8": (["Why?", "@latin.txt"], r"latin.txt:1: not UTF-8 text \(column 4, byte 3\)"),
    "no Parquet": (["fake.parquet"], "fake.parquet: not a Parquet file"),
    "two from standard input": (["-", "-"], "only one of the texts can come from standard input"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(home, cli, server, model, name):
    arguments, reason = BAD[name]
    (home / "fake.parquet").write_text("no parquet")
    (home / "latin.txt").write_bytes(b"caf\xe9")
    outcome = cli("evaluate", *arguments, "-m", model, stdin=b"caf\xe9")
    assert re.fullmatch(r"error: [^\n]+\n", outcome.err), outcome.err
    assert re.search(reason, outcome.err)
    assert outcome.code == 2
    assert outcome.out == ""
    assert server.calls == 0


@pytest.mark.parametrize(
    "command", [("evaluate", *CASE, "--model"), ("runs", "list", "--store")], ids=" ".join
)
def test_an_option_that_is_empty_is_refused_at_once(home, cli, command):
    """What is left out is chosen, by trying models for one; an empty name is a mistake."""
    outcome = cli(*command, "")
    assert re.fullmatch(r"error: --?[\w-]+: is empty; [^\n]+\n", outcome.err)
    assert outcome.code == 2
    assert not (home / "store.db").exists()


@pytest.mark.parametrize("batch", [False, True])
def test_an_endpoint_that_refuses_all_calls_stops_the_run_at_once(home, cli, server, model, batch):
    server.script = lambda _body, _number: Fault.UNAUTHORISED
    rows = [{"input": f"{n}?", "candidates": ["a", "b"]} for n in range(20)]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    case = ["cases.jsonl", "--concurrency", "8"] if batch else CASE
    outcome = cli("evaluate", *case, "-m", model)
    stopped, last = outcome.err.split("\nerror: ")
    assert "stopped; every answer so far is kept. Resume with: textevolve runs resume" in stopped
    assert re.search(r"refuses the key \(401\).*check the key", last)
    assert outcome.code == 1
    assert server.calls <= (8 if batch else 1)
    server.script = None
    assert cli("runs", "resume").code == 0


KEY = "sk-proj-DoNotShow/This+Key_0123456789"


@pytest.mark.parametrize("right", [True, False])
def test_a_key_is_seen_nowhere(home, cli, monkeypatch, right):
    """The server repeats it in all it says."""

    def script(body, _number):
        answer = f"Your key is {KEY}."
        if not right:
            error = {"message": answer, "code": KEY, "type": f"Bearer {KEY}"}
            return Answer(status=401, body=json.dumps({"error": error}).encode())
        return Answer(alter=lambda text: text.replace('"argument": "', f'"argument": "{answer} '))

    monkeypatch.setenv("TEXTEVOLVE_API_KEY", KEY)
    with ScriptedServer(script, key=KEY) as server:
        spec = f"{server.url}#m"
        outcome = [
            cli("evaluate", *CASE, "-m", spec),
            cli("evaluate", *CASE, "-m", spec, "--json"),
            cli("doctor", spec),
            cli("config", "--json"),
            cli("runs", "show"),
            cli("runs", "export", "last", "results.jsonl"),
        ]
    assert [e.code for e in outcome[:2]] == ([0, 0] if right else [1, 1])
    if right:
        assert "Your key is [key]." in outcome[0].out
    else:
        assert re.match(r"error: .* refuses the key \(401\)", outcome[0].err.splitlines()[-1])
    for end in outcome:
        assert KEY not in end.out + end.err
    paths = [path for path in home.rglob("*") if path.is_file()]
    assert {"store.db", "results.jsonl"} <= {path.name for path in paths}
    for path in paths:
        assert KEY.encode() not in path.read_bytes()
