"""Coding agents and other MCP clients: the official client drives our tools in the process, over
standard input and output, and over HTTP with keys."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from functools import partial

import pytest
from canaries import CODE, SECRET, foreign_files, lay_canaries

pytest.importorskip("mcp")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from conftest import started
from textevolve import Settings
from textevolve.llm.testing import Answer
from textevolve.runs.study import schema_of
from textevolve.server.app import open_state
from textevolve.server.mcp import (
    MOST_TEXTS,
    TOOLS,
    _report_unexpected,
    make_mcp_server,
    open_mcp,
)
from textevolve.server.options import McpOptions

ROWS = [{"input": f"Question {n}?", "candidates": ["one", "two"]} for n in range(3)]
MODEL = "http://127.0.0.1:9/v1#any"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
MOST = MOST_TEXTS // 4
"""The most characters of a text of the only result."""


@asynccontextmanager
async def connect(location, model, **options):
    """The official client of a server in this process, and the state of that server."""
    settings = Settings(store=location, retries={"attempts": 1})
    async with (
        open_state(McpOptions(model=(model,), **options), settings, None) as state,
        Client(make_mcp_server(state)) as client,
    ):
        yield client, state


@pytest.fixture
def connected(location, model):
    """Opens a client; a test does so itself, since what it opens belongs to its task."""
    return partial(connect, location, model)


async def call(client, tool, **arguments):
    """The structured result of a tool, which its text says, too."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refuse(client, tool, **arguments):
    """The sentence with which a tool refuses its arguments."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


async def test_texts_are_judged_and_runs_are_found_again(connected, server):
    async with connected() as (client, _):
        judged = await call(client, "judge", input="Why tides?", text="The moon.", judge="probe")
        (result,) = judged["results"]
        assert (judged["status"], judged["spent"]["calls"]) == ("finished", server.calls)
        assert 0 < result["score"] < 1
        assert "yes" in result["feedback"]

        run = await call(client, "evaluate", rows=ROWS, judge="probe", name="first")
        assert [(row["id"], row["candidate"]) for row in run["results"]] == [
            *(("1", 1), ("1", 2), ("2", 1), ("2", 2), ("3", 1), ("3", 2))
        ]
        asked = server.calls
        again = await call(client, "evaluate", rows=ROWS, judge="probe")
        assert again["id"] == run["id"]
        assert server.calls == asked

        shown = await call(client, "show_run", run=run["id"], offset=1, limit=2, report=40)
        assert shown["results"] == run["results"][1:3]
        assert shown["next_offset"] == 3
        assert shown["report"].startswith(run["report"][:40] + " [... ")
        page = await call(client, "list_runs", limit=1)
        rest = await call(client, "list_runs", cursor=page["next"])
        assert [entry["id"] for entry in page["data"] + rest["data"]] == [run["id"], judged["id"]]
        assert [
            entry["id"] for entry in (await call(client, "list_runs", text="first"))["data"]
        ] == [run["id"]]


async def test_prompts_are_compared_and_a_score_of_zero_is_shown(connected, server):
    async with connected() as (client, _):
        server.script = lambda body, _call: "4" if "2+2" in json.dumps(body) else "no idea"
        run = await call(
            client,
            "compare",
            rows=[{"n": 1, "sum": "2"}, {"n": 2, "sum": "4"}],
            prompts={"a": "{n}+{n}?", "b": "Sum {n}."},
            label="sum",
            metric="exact",
        )
        scores = [
            (row["row"], row["variant"], row["score"], row["passed"]) for row in run["results"]
        ]
        assert scores == [
            *(("1", "a", 0.0, False), ("1", "b", 0.0, False)),
            *(("2", "a", 1.0, True), ("2", "b", 0.0, False)),
        ]
        assert "Comparison" in run["report"]


async def test_an_answer_that_failed_has_a_reason_and_no_score(connected, server):
    async with connected() as (client, _):
        server.script = lambda _body, _call: Answer(status=400)
        judged = await call(client, "judge", input="Why?", text="So.", judge="probe")
        assert judged["status"] in ("finished", "failed", "interrupted")
        for result in judged.get("results", []):
            assert "score" not in result
            assert result["reason"]
        assert judged.get("results") or judged["reason"]


async def test_what_is_wrong_with_arguments_is_said(connected):
    async with connected() as (client, _):
        for tool, arguments, answer in (
            ("evalute", {}, "no tool 'evalute'; did you mean 'evaluate'?"),
            ("evaluate", {}, "rows"),
            ("evaluate", {"rows": []}, "rows must have at least 1 item"),
            ("evaluate", {"rowss": ROWS}, "unknown argument 'rowss'; did you mean 'rows'?"),
            ("evaluate", {"rows": ROWS, "judge": "nobody"}, "nobody"),
            ("evaluate", {"rows": ROWS, "judge": "probe", "threshold": 2}, "threshold"),
            ("evaluate", {"rows": ROWS, "protocol": "blind-first"}, "unknown argument 'protocol'"),
            ("evaluate", {"rows": "[{", "judge": "probe"}, "rows"),
            ("evaluate", {"rows": ROWS, "namespace": "nowhere"}, "no namespace 'nowhere'"),
            ("compare", {"rows": ROWS}, "prompt"),
            ("show_run", {"run": "nothing"}, "no run 'nothing'"),
            ("show_run", {"run": "\ud800"}, "run must be a valid string"),
            ("list_runs", {"cursor": "x"}, "cursor"),
            ("cancel_run", {"run": "nothing"}, "no run 'nothing'"),
            ("search_memories", {"query": "tea"}, "collection"),
        ):
            sentence = await refuse(client, tool, **arguments)
            assert answer in sentence
            assert "\n" not in sentence
            assert "Traceback" not in sentence


async def test_a_run_of_a_command_is_shown_and_memories_are_found(connected, cli, model):
    async with connected() as (client, _):
        assert cli("agents", "namespaces", "create", "acme").code == 0
        create = ("memories", "collections", "create", "notes", "--embedder", model)
        assert cli(*create, "--namespace", "acme").code == 0
        added = cli("memories", "add", "notes", "Ann drinks green tea.", "--namespace", "acme")
        assert added.code == 0, added
        place = {"namespace": "acme", "collection": "notes"}
        found = await call(
            client, "search_memories", query="What does Ann drink?", limit=3, **place
        )
        assert [memory["text"] for memory in found["data"]] == ["Ann drinks green tea."]
        assert "notes" in await refuse(
            client, "search_memories", **place | {"collection": "note"}, query="a"
        )


async def test_a_long_run_goes_on_after_the_answer_and_can_be_stopped(
    location, model, server, stalling
):
    server.script = stalling(4)
    async with connect(location, model) as (client, state):
        begun = await call(client, "evaluate", rows=ROWS, judge="probe", wait=0)
        assert begun["status"] in ("queued", "running")
        assert (await call(client, "show_run", run=begun["id"], wait=0.1))["status"] == "running"
        assert (await call(client, "cancel_run", run=begun["id"]))["status"] == "cancelled"
        server.script = None
        again = await call(client, "evaluate", rows=ROWS, judge="probe")
        assert (again["id"], again["status"]) == (begun["id"], "finished")
        assert not state.runner.works_on(begun["id"])


async def test_runs_end_with_their_client(location, model, server, stalling):
    """Nobody continues them and spends money for a client that is gone."""
    server.script = stalling(4)
    async with connect(location, model) as (client, _):
        begun = await call(client, "evaluate", rows=ROWS, judge="probe", wait=0)
    server.script = None
    async with connect(location, model) as (client, _):
        left = await call(client, "show_run", run=begun["id"], wait=0)
        assert left["status"] == "cancelled"
        limited = await call(
            client, "judge", input="Why?", text="So.", judge="probe", limits={"calls": 1}
        )
        assert limited["status"] == "interrupted"
        assert "limit" in limited["reason"] or "call" in limited["reason"]
        assert all("score" not in result for result in limited.get("results", []))


async def test_a_cancelled_call_stops_its_run(location, model, server, stalling):
    server.script = stalling(4)
    heard = asyncio.Event()

    async def note(_seconds, _total, message):
        assert message.endswith("records")
        heard.set()

    async with connect(location, model) as (client, state):
        arguments = {"rows": ROWS, "judge": "probe"}
        waiting = asyncio.create_task(
            client.call_tool("evaluate", arguments, progress_callback=note)
        )
        await heard.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        (run,) = (await call(client, "list_runs"))["data"]
        await state.runner.is_busy(run["id"])
        (run,) = (await call(client, "list_runs"))["data"]
        assert run["status"] == "cancelled"


async def test_texts_of_json_and_null_count_as_what_they_stand_for(connected):
    async with connected() as (client, _):
        run = await call(client, "evaluate", rows=json.dumps(ROWS), judge="probe", threshold=None)
        same = await call(client, "evaluate", rows=ROWS, judge="probe", limits='{"calls": 50}')
        assert run["id"] == same["id"]
        text = json.dumps({"answer": [1]})
        judged = await call(client, "judge", input="As JSON?", text=text, judge="look:length")
        assert judged["results"][0]["text"] == text


async def test_long_texts_are_cut_so_that_clients_need_not(connected):
    text = "word " * 3000
    rows = [{"input": text, "candidates": [text]}] * 40
    async with connected() as (client, _):
        alone = await call(client, "judge", input="Why?", text=text, judge="look:length")
        shown = alone["results"][0]["text"]
        assert shown == f"{text[:MOST]} [... {len(text) - MOST:,} more characters]"
        run = await call(client, "evaluate", rows=rows, judge="look:length")
        assert len(run["results"]) == run["next_offset"] == 20
        # Some clients cut at 25,000 tokens.
        assert len(json.dumps(run)) < 60_000


async def test_the_schemas_are_those_of_our_specifications(connected):
    async with connected() as (client, _):
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == set(TOOLS)
        for tool in listed:
            schema = tool.input_schema
            text = json.dumps(schema)
            assert tool.description
            assert schema["type"] == "object"
            assert not {"anyOf", "oneOf", "allOf", "$defs"} & schema.keys()
            assert "$ref" not in text
            assert all(part.get("description") for part in schema["properties"].values()), tool.name
            own = TOOLS[tool.name]
            fields = schema_of(own.kind)["properties"] if own.kind else {}
            assert set(schema["properties"]) <= {*own.own.model_fields, *fields}
        # What a client's model reads before it does anything.
        assert len(json.dumps([tool.input_schema for tool in listed])) < 14_000


async def test_nothing_of_this_machine_is_read(connected, home, monkeypatch, server):
    texts = []
    server.script = lambda body, _call: texts.append(json.dumps(body))
    world = lay_canaries(home, monkeypatch)
    next(world)
    names = foreign_files(home)
    calls = [("evaluate", {"rubric": {"file": name}}) for name in names]
    calls += [
        ("evaluate", {"judge": f"{kind}:{names[0]}"}) for kind in ("rules", "prompt", "debate")
    ]
    calls += [("evaluate", {"judge": f"metric:{home}/{CODE}.py:f"})]
    calls += [("evaluate", {"judge": f"python:{CODE}.f"}), ("evaluate", {"profile": names[1]})]
    calls += [("evaluate", {"model": f"local/{names[3]}"}), ("evaluate", {"model": MODEL})]
    calls += [("compare", {"prompts": {"a": {"file": name}}, "metric": "exact"}) for name in names]
    calls += [("compare", {"prompts": {"a": "b"}, "metric": f"{home}/{CODE}.py:f"})]
    async with connected() as (client, _):
        for tool, arguments in calls:
            arguments = {"rows": ROWS[:1], "judge": "probe", **arguments}
            texts.append(await refuse(client, tool, **arguments))
        # It is a text here, and names no file.
        await call(client, "evaluate", rows=ROWS[:1], judge="probe", rubric=f"@{names[2]}")
    assert SECRET not in "".join(texts)
    assert CODE not in sys.modules
    next(world, None)


@pytest.mark.slow
async def test_a_client_starts_the_server_and_ends_it(home, model):
    environment = {**os.environ, "TEXTEVOLVE_MODEL": model}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "textevolve", "mcp"], env=environment
    )
    for mode in ("auto", "legacy"):
        async with Client(command, mode=mode) as client:
            assert client.server_info.name == "textevolve"
            run = await call(client, "judge", input="Why?", text="So.", judge="probe")
            assert run["status"] == "finished"


@pytest.mark.slow
def test_standard_output_has_the_protocol_alone_and_its_end_is_the_end(spawn, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    process = spawn("mcp")
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    out, _ = process.communicate("no JSON\n" + json.dumps(message) + "\n", timeout=240)
    assert process.returncode == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert "textevolve" in out


@pytest.mark.slow
def test_a_signal_ends_the_server_although_the_client_sends_nothing(spawn, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    process = spawn("mcp")
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    assert "textevolve" in process.stdout.readline()
    process.terminate()
    assert process.wait(120) == 143
    assert process.stderr.read() == "stopped\n"


@pytest.fixture
def spaces(cli):
    """Two namespaces, and the key of each."""
    keys = {}
    for name in ("mine", "yours"):
        assert cli("agents", "namespaces", "create", name).code == 0
        keys[name] = cli("config", "keys", "add", name, "--namespace", name).out.strip()
    scope = ("--scope", "read", "--namespace", "mine")
    keys["reader"] = cli("config", "keys", "add", "reader", *scope).out.strip()
    return keys


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_each_key_sees_its_own_runs_over_http(location, model, spaces, mode):
    settings = Settings(store=location)
    options = McpOptions(model=(model,), http=True, keys=True)

    @asynccontextmanager
    async def open_client(url, name):
        headers = {"Authorization": f"Bearer {spaces[name]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{url}/v1/mcp", http_client=http), mode=mode) as client,
        ):
            yield client

    with started(options, settings, open_mcp=open_mcp) as url:
        async with open_client(url, "mine") as client:
            run = await call(client, "judge", input="Why?", text="So.", judge="probe")
            assert "no namespace 'yours'" in await refuse(
                client, "judge", input="Why?", text="So.", judge="probe", namespace="yours"
            )
        async with open_client(url, "yours") as client:
            assert "no run" in await refuse(client, "show_run", run=run["id"])
            assert "no run" in await refuse(client, "cancel_run", run=run["id"])
            assert (await call(client, "list_runs"))["data"] == []
        async with open_client(url, "reader") as client:
            assert (await call(client, "show_run", run=run["id"]))["results"] == run["results"]
            refused = await refuse(client, "judge", input="Why?", text="So.", judge="probe")
            assert refused == "the key has no scope 'run'"


def test_requests_without_a_key_or_of_another_site_are_refused(location, model, ask, cli):
    assert cli("config", "keys", "add", "any").code == 0
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    settings = Settings(store=location)
    accept = {"Accept": "application/json, text/event-stream"}
    with started(
        McpOptions(model=(model,), http=True, keys=True), settings, open_mcp=open_mcp
    ) as url:
        assert ask(f"{url}/v1/mcp", message, **accept)[0] == 401
    with started(McpOptions(model=(model,), http=True), settings, open_mcp=open_mcp) as url:
        assert ask(f"{url}/v1/mcp", message, Origin="https://evil.example", **accept)[0] == 403
        assert ask(f"{url}/v1/mcp", message, Host="evil.example", **accept)[0] == 403
    with started(McpOptions(model=(model,)), settings) as url:
        assert ask(f"{url}/v1/mcp", message, **accept)[0] == 404


@pytest.mark.parametrize(
    ("error", "is_reported"),
    [
        (KeyboardInterrupt(), False),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt()]), False),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt(), ValueError("lost")]), True),
        (ValueError("lost"), True),
        (None, True),
    ],
)
async def test_only_interrupts_are_not_reported(error, is_reported, caplog):
    context = {"message": "unhandled", "exception": error}
    _report_unexpected(asyncio.get_running_loop(), context)
    assert ("unhandled" in caplog.text) == is_reported
