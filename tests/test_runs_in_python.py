"""Stored runs in Python, listed, read, compared, exported and resumed as by the command line."""

import json

import pytest

from textevolve import Client, Limits
from textevolve.api.verbs import AsyncClient
from textevolve.errors import InputError, StoreError

ROWS = [{"id": f"r{n}", "n": n, "sum": str(2 * n)} for n in range(3)]
PROMPTS = {"p": "What is {n} and {n}?"}


@pytest.fixture
def client(home, model):
    with Client(model=model) as opened:
        yield opened


def compare(client, name, **options):
    options = {"models": [client.model], "label": "sum", "metric": "edit-distance", **options}
    return client.compare(ROWS, PROMPTS, name=name, **options)


def test_runs_are_listed_as_by_the_command(client, cli):
    compare(client, "first")
    client.evaluate("Name a prime.", ["Seven."], judge="look:length", name="second")
    listed = client.runs.list()
    printed = [json.loads(line) for line in cli("runs", "list", "--json").out.splitlines()]
    assert [json.loads(json.dumps(run.facts)) for run in listed] == printed
    assert [(run.name, run.kind, run.status) for run in listed] == [
        ("second", "evaluate", "finished"),
        ("first", "compare", "finished"),
    ]
    assert [run.id for run in client.runs.list(1)] == [listed[0].id]


def test_a_run_has_its_result(client, cli, home):
    result = compare(client, "first")
    run = client.runs.get("first")
    assert run.id == result.run == client.runs.get().id == client.runs.get(run.id[:-1]).id
    assert run.data == json.loads(cli("runs", "show", "first", "--json").out)
    assert run.to_frame().equals(result.to_frame())
    run.export(home / "a.csv", home / "a.md")
    cli("runs", "export", "first", "b.csv", "b.md")
    assert (home / "a.csv").read_bytes() == (home / "b.csv").read_bytes()
    assert run.report() == (home / "a.md").read_text() == (home / "b.md").read_text()
    assert "<" in run._repr_html_()


def test_runs_are_compared(client, cli):
    compare(client, "first")
    compare(client, "second", seed=1)
    compared = client.runs.compare("first", "second")
    printed = json.loads(cli("runs", "compare", "first", "second", "--json").out)
    assert json.loads(json.dumps(compared.data)) == printed
    assert compared.report().startswith("# second compared with first\n")
    frame = compared.to_frame()
    assert sorted(frame["case"]) == ["r0", "r1", "r2"]
    client.evaluate("Name a prime.", ["Seven."], judge="look:length", name="other")
    with pytest.raises(InputError):
        client.runs.compare("first", "other")


def test_a_limited_run_is_resumed(home, server, model):
    with Client(model=model, limits=Limits(calls=1)) as client:
        assert compare(client, "first").failed == 2
        # The limit is that of each run of the client, as with a verb.
        assert client.runs.resume("first").failed == 1
    assert server.calls == 2
    with Client(model=model) as client:
        result = client.runs.resume("first")
        assert (result.failed, result.rows) == (0, 3)
        assert server.calls == 3
        # A finished run is read, and nobody is asked.
        assert client.runs.resume().run == result.run
        figures = client.runs.get("first").data["aggregates"]
        name = "variants.p.mean"
        assert figures[name]["value"] == result.aggregates[name].value
    assert server.calls == 3


async def test_async_methods(home, model):
    client = AsyncClient(model=model)
    await client.evaluate("Name a prime.", ["Seven."], judge="look:length", name="first")
    (run,) = await client.runs.list()
    assert run == await client.runs.get("first")
    await client.runs.export("first", home / "a.jsonl")
    assert json.loads((home / "a.jsonl").read_text())["input"] == "Name a prime."
    assert (await client.runs.resume("first")).run == run.id
    assert run.report().startswith("# Name a prime.")


def test_unknown_runs_and_files_are_refused(client):
    with pytest.raises(StoreError, match="is not in this store"):
        client.runs.get("nosuch")
    compare(client, "first")
    with pytest.raises(InputError, match="must end in"):
        client.runs.export("first", "a.docx")
    with pytest.raises(InputError, match="name a file"):
        client.runs.export("first")
    with pytest.raises(StoreError, match="the name of the run is empty"):
        client.runs.resume("")
