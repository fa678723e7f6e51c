"""What cannot be used is refused in one line that says what to do, before anything is asked."""

import json
import re

import pytest

from textevolve.llm.testing import Answer, Fault, ScriptedServer, misbehave

AGENTS = "agents:\n  - {name: A, persona: You judge.}\n"
FILES = {
    "rounds.yaml": AGENTS + "rounds: 0\n",
    "field.yaml": AGENTS + "colour: red\n",
    "line.jsonl": '{"input": "a", "candidates": ["b"]}\n\n{"input": "a", "candidates": \n',
    "deep.jsonl": "[" * 100_000 + "\n",
    "keyless.jsonl": '{"candidates": ["b"]}\n',
    "broken.json": '[{"input": "a"},]',
    "wide.csv": "input,candidate_1\na,b,c\n",
    "none.csv": "frage,antwort\na,b\n",
    "fake.parquet": "no parquet",
    "nul.txt": "a\0b",
    "latin.txt": b"caf\xe9",
}
CASE = ("Why?", "Because.")
BAD = {
    "no candidates": (["Why?"], "no candidates: give"),
    "a candidate's file without @": (["Why?", "rounds.yaml"], "write '@rounds.yaml' for the text"),
    "blank candidate": (["Why?", "Because.", " "], "candidate 2 is blank"),
    "NUL": (["Why?", "@nul.txt"], "candidate 1 has a NUL character at position 1"),
    "lone surrogate": (["Why?", "ab\udce9"], "half a surrogate pair at position 2"),
    "not UTF-8": (["Why?", "@latin.txt"], r"latin.txt: not UTF-8 text \(byte 3\)"),
    "two from standard input": (["-", "-"], "only one of the texts can come from standard input"),
    "no such file": (["Why?", "@nothing.txt"], r"nothing.txt: cannot be read \(No such file"),
    "weight twice": (
        [*CASE, "--weights", "accuracy=1,relevance=1, accuracy=0.1"],
        "weights: 'accuracy' is there twice",
    ),
    "unknown component": (
        [*CASE, "--weights", "acuracy=1"],
        "unknown component 'acuracy'; did you mean 'accuracy'",
    ),
    "rounds 0": ([*CASE, "--rounds", "0"], "rounds: .*greater than or equal to 1"),
    "unknown readout": ([*CASE, "--readout", "tea"], "readout must be auto, pointwise"),
    "temperature inf": ([*CASE, "--temperature", "inf"], "temperature: must be a valid number"),
    "limit nan": ([*CASE, "--max-cost", "nan"], "limit of cost must be a finite number"),
    "unknown profile": ([*CASE, "-p", "genral"], "profile 'genral'; did you mean 'general'"),
    "profile with a field": ([*CASE, "-p", "field.yaml"], "field.yaml:3: colour: unknown field"),
    "broken line": (["line.jsonl"], "line.jsonl:3: not valid JSON: "),
    "deeply nested": (["deep.jsonl"], "deep.jsonl:1: not a case: nested too deeply"),
    "case without input": (
        ["keyless.jsonl"],
        "keyless.jsonl:1: no column for the input, which is called input, .*; saw candidates",
    ),
    "broken JSON": (["broken.json"], "broken.json: not valid JSON: "),
    "too many cells": (["wide.csv"], "wide.csv:2: more cells than the header has columns"),
    "table without input": (
        ["none.csv"],
        "none.csv:2: no column for the input, .*; saw frage, antwort; say --map input=COLUMN",
    ),
    "column renamed that is not there": (
        ["none.csv", "--map", "input=frage", "--map", "output=antwurt"],
        "--map output=antwurt: no row has a column 'antwurt'; saw frage, antwort",
    ),
    "no Parquet": (["fake.parquet"], "fake.parquet: not a Parquet file"),
    "output of no kind": (
        [*CASE, "-o", "x.txt"],
        "x.txt: must end in .json, .html, .md, .jsonl, .csv",
    ),
    "output in no folder": ([*CASE, "-o", "gone/x.csv"], "gone/x.csv: cannot be written"),
    "no such provider": ([*CASE, "-m", "opnai/x"], "no provider 'opnai'; did you mean 'openai'"),
    "no address": ([*CASE, "-m", "ftp://x#m"], "not of the form http"),
    "no key": ([*CASE, "-m", "openai/gpt-6-luna"], "needs a key: set OPENAI_API_KEY"),
}


@pytest.fixture
def files(home):
    for name, content in FILES.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (home / name).write_bytes(raw)
    (home / "folder.csv").mkdir()
    return home


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(files, cli, server, model, name):
    arguments, reason = BAD[name]
    chosen = [] if "-m" in arguments else ["-m", model]
    ended = cli("evaluate", *arguments, *chosen, stdin=b"caf\xe9")
    assert re.fullmatch(r"error: [^\n]+\n", ended.err), ended.err
    assert re.search(reason, ended.err)
    assert ended.code == 2
    assert ended.out == ""
    assert server.calls == 0
    if "-o" not in arguments:
        assert cli("runs", "list", "--json").out == ""


@pytest.mark.parametrize(
    "command", [("evaluate", *CASE, "--model"), ("runs", "list", "--store")], ids=" ".join
)
def test_an_option_that_is_empty_is_refused_at_once(home, cli, command):
    """What is left out is chosen, by trying models for one; an empty name is a mistake."""
    ended = cli(*command, "")
    assert re.fullmatch(r"error: --?[\w-]+: is empty; [^\n]+\n", ended.err)
    assert ended.code == 2
    assert not (home / "store.db").exists()


@pytest.mark.parametrize(
    "name",
    [
        "TEXTEVOLVE_MODEL",
    ],
)
def test_a_variable_that_is_empty_is_not_set(home, cli, model, monkeypatch, name):
    (home / "textevolve.toml").write_text(f'model = "{model}"\nstore = "other.db"\n')
    monkeypatch.delenv("TEXTEVOLVE_STORE")
    monkeypatch.setenv(name, "")
    assert cli("evaluate", *CASE).code == 0
    assert (home / "other.db").exists()


SETTINGS = {
    "broken": ("model = \n", "textevolve.toml: not valid TOML"),
    "unknown": ('modle = "x"\n', "textevolve.toml: modle: "),
    "wrong": ("concurrency = 0\n", "textevolve.toml: concurrency: .*greater than or equal to 1"),
}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", *CASE],
        ["config"],
    ],
)
def test_settings_that_are_wrong_name_their_file(home, cli, kind, command):
    text, reason = SETTINGS[kind]
    (home / "textevolve.toml").write_bytes(text.encode("latin-1"))
    ended = cli(*command)
    assert re.fullmatch(r"error: [^\n]+\n", ended.err)
    assert re.search(reason, ended.err)
    assert ended.code == 2


STORES = {
    "a folder": (".", "is a folder; name a file in it"),
    "another file": ("latin.txt", "it is not a database; choose another file"),
    "below a file": ("latin.txt/x.db", "its folder cannot be made"),
}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_cannot_be_used_is_named(files, cli, server, model, kind):
    path, reason = STORES[kind]
    ended = cli("evaluate", *CASE, "-m", model, "--store", path)
    assert re.fullmatch(r"error: store [^\n]+\n", ended.err)
    assert re.search(reason, ended.err)
    assert (ended.code, server.calls) == (1, 0)


REFUSALS = {
    Fault.UNAUTHORISED: r"refuses the key \(401\).*check the key",
    Fault.NO_CREDIT: "the account has no credit left",
}


@pytest.mark.parametrize("fault", REFUSALS)
@pytest.mark.parametrize("batch", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_endpoint_that_refuses_all_calls_stops_the_run_at_once(
    home, cli, server, model, fault, batch
):
    server.script = lambda _body, _number: fault
    rows = [{"input": f"{n}?", "candidates": ["a", "b"]} for n in range(100)]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    case = ["cases.jsonl", "--concurrency", "8"] if batch else CASE
    ended = cli("evaluate", *case, "-m", model)
    stopped, last = ended.err.split("\nerror: ")
    assert "stopped; every answer so far is kept. Go on with: textevolve runs resume" in stopped
    assert re.search(REFUSALS[fault], last)
    assert ended.code == 1
    assert server.calls <= (8 if batch else 1)
    server.script = None
    assert cli("runs", "resume").code == 0


@pytest.mark.parametrize(
    "readout",
    [
        "after-argument",
    ],
)
def test_a_readout_that_the_endpoint_cannot_give_stops_the_run(cli, server, model, readout):
    server.script = lambda body, _n: misbehave(Fault.NO_LOGPROBS) if body.get("logprobs") else None
    ended = cli("evaluate", *CASE, "-m", model, "--readout", readout)
    assert ended.code == 1
    assert re.match("error: .* no log-probabilities .*`verbalized`", ended.err.splitlines()[-1])
    assert server.calls <= 1 + 5  # a turn and its probes, which are asked side by side


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault.TOO_LONG_OPENAI,
    ],
)
def test_a_candidate_of_ten_megabytes_names_the_limit(home, cli, server, model, fault):
    (home / "long.txt").write_text("word " * 2_000_000)
    server.script = lambda _body, _number: fault
    ended = cli("evaluate", "Why?", "@long.txt", "-m", model, "--json")
    assert ended.code == 3
    said = "does not fit into the model's context of 8192 tokens"
    assert said in ended.err
    (row,) = ended.rows
    assert row["metrics"]["coverage"] == 0
    assert all(said in failure["reason"] for failure in row["metrics"]["failures"])
    assert server.calls == 3


@pytest.mark.parametrize("text", ["[[abcdef0 ", " " * 50 + "[["])
def test_a_megabyte_of_forged_marks_is_judged_like_any_text(home, cli, model, text):
    """Looking for them must not take longer for each the more there are."""
    (home / "long.txt").write_text(text * (1_000_000 // len(text)))
    ended = cli("evaluate", "Why?", "@long.txt", "-m", model, "--json", "--rounds", "1")
    assert ended.code == 0


KEY = "sk-proj-DoNotShow/This+Key_0123456789"


@pytest.mark.parametrize("right", [True, False])
def test_a_key_is_seen_nowhere(home, cli, monkeypatch, right):
    """The server repeats it in all it says."""

    def script(body, _number):
        said = f"Your key is {KEY}."
        if not right:
            error = {"message": said, "code": KEY, "type": f"Bearer {KEY}"}
            return Answer(status=401, body=json.dumps({"error": error}).encode())
        return Answer(alter=lambda text: text.replace('"argument": "', f'"argument": "{said} '))

    monkeypatch.setenv("TEXTEVOLVE_API_KEY", KEY)
    with ScriptedServer(script, key=KEY) as server:
        spec = f"{server.url}#m"
        ended = [
            cli("evaluate", *CASE, "-m", spec),
            cli("evaluate", *CASE, "-m", spec, "--json"),
            cli("doctor", spec),
            cli("config", "--json"),
            cli("runs", "show"),
            cli("runs", "export", "last", "results.jsonl"),
        ]
    assert [e.code for e in ended[:2]] == ([0, 0] if right else [1, 1])
    if right:
        assert "Your key is [key]." in ended[0].out
    else:
        assert re.match(r"error: .* refuses the key \(401\)", ended[0].err.splitlines()[-1])
    for end in ended:
        assert KEY not in end.out + end.err
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert {"store.db", "results.jsonl"} <= {path.name for path in kept}
    for path in kept:
        assert KEY.encode() not in path.read_bytes()
