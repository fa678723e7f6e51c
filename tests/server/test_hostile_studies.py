"""Studies of clients read, load and connect to nothing of the server's machine but what its
operator allows, whatever field of whichever kind names it."""

import http.server
import json
import sys
import threading
from collections import defaultdict
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from canaries import CANARY, CASE, CODE, SECRET, foreign_files, lay_canaries
from plain_http import wait_for_status

pytestmark = pytest.mark.guard

FROZEN = Path(__file__).parents[1] / "guards" / "frozen"

FILES = {"cases.jsonl": CASE, "link.jsonl": CASE}
EXAMPLES = {
    "data": "cases.jsonl",
    "cases": ["cases.jsonl"],
    "trace": "cases.jsonl",
    "items": ["cases.jsonl"],
    "files": ["cases.jsonl"],
    "template": "Say {input}.",
    "judged": "cases.jsonl",
    "labelled": "cases.jsonl",
    "collection": "notes",
    "judge": "probe",
    "models": ["openai/gpt-6-luna"],
    "task": "A task.",
}
"""Values of fields that a kind must have."""


def read_kinds():
    """The fields of each kind that take a text, with whether they must be there and their shapes,
    from the frozen schemas."""
    kinds = defaultdict(dict)
    for block in (FROZEN / "studies.txt").read_text("utf-8").split("\n\n"):
        kind, *lines = block.splitlines()
        for line in takewhile(lambda line: not line.startswith("  ["), lines):
            name, _, schema = line.strip().partition(": ")
            name, _, required = name.partition(" ")
            shapes = shapes_of(json.loads(schema))
            if shapes or required:
                kinds[kind][name] = (bool(required), shapes)
    return kinds


def shapes_of(schema):
    """Where a schema takes a free text: as it is, in a list, or in an object."""
    parts = [schema, *schema.get("anyOf", ())]
    types = set()
    for part in parts:
        if not part.keys() & {"enum", "const"}:
            kind = part.get("type", [])
            types.update([kind] if isinstance(kind, str) else kind)
    return types & {"string", "array", "object"}


KINDS = read_kinds()
STEP = 37


class Watch:
    """Notes which files are opened, which code is loaded and which addresses are connected to."""

    def __init__(self):
        self.events, self.ports = None, set()
        sys.addaudithook(self.note)

    def begin(self, *urls):
        """Note from now on; connections to these servers are expected."""
        self.events, self.ports = [], {urlsplit(url).port for url in urls}

    def note(self, event, arguments):
        if self.events is None:
            return
        if event in ("open", "os.listdir", "os.scandir", "glob.glob", "import", "exec"):
            text = " ".join(str(argument) for argument in arguments)
            if CANARY in text or CODE in text:
                self.events.append((event, text))
        elif event == "os.system":
            self.events.append((event, str(arguments)))
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            address = arguments[1]
            self.events.extend([(event, str(address))] if address[1] not in self.ports else [])


# A hook stays, and each import and opened file of its process pays for it: only one that runs these
# tests has it.
begin_watch = cache(Watch)


@pytest.fixture
def machine(home, monkeypatch):
    """The server's folder, with files and code that no client may get at."""
    yield from lay_canaries(home, monkeypatch)


@pytest.fixture
def watch():
    begun = begin_watch()
    yield begun
    begun.events = None


def hostile_texts(home):
    """Names of what is not the client's, in all the forms that fields take."""
    files = foreign_files(home)
    plain = [
        *files,
        *(f"@{file}" for file in files),
        *("-", "@-", "/dev/stdin", "\0", "a\0b", "x" * 5000, "\ud800", "hf:owner/name"),
        *("http://169.254.169.254/latest#m", "http://127.0.0.1:9/v1#m", "http://[::1]:9/v1#m"),
        *(f"local/{home}/{CANARY}.gguf", f"local/{CANARY}.gguf", "local/../x", "openai/gpt-5"),
        *("python:os.system", "os:system", f"{CODE}:f", f"{home}/{CODE}.py:f", f"{CODE}.py:f"),
        *("mem0", f"mem0:{home}/{CANARY}.yaml", "http:http://127.0.0.1:9", "other/agent"),
        *("last", "other-run", f"{files[1]}:f"),
    ]
    judges = [
        *(f"{form}{file}" for file in files[:2] for form in ("rules:", "json-schema:", "metric:")),
        *(f"hybrid:{files[1]}:probe", f"probe+rubric={files[2]}", f"debate:{files[1]}"),
        *(f"metric:json-schema:{files[0]}", f"metric:{CODE}:f", f"metric:{home}/{CODE}.py:f"),
        *(f"cascade:0.5:probe,rules:{files[1]}", f"{home}/{CANARY}.judge"),
        *("probe@http://127.0.0.1:9/v1#m", f"probe@local/{home}/{CANARY}.gguf"),
        *("debate+decider=x/y", "checklist+decider=http://127.0.0.1:9/v1#m"),
        *("embedding@http://127.0.0.1:9/v1#m", f"jury:{home}/{CANARY}.yaml+rounds=1"),
    ]
    return plain + judges


def in_shapes(text, shapes):
    """A text in each of the shapes that a field takes, and in one that none does."""
    yield text
    if "array" in shapes:
        yield from ([text], [text, "x"], [{"file": text}], [{"name": "n", "file": text}])
    if "object" in shapes:
        yield from ({"x": text}, {text: "x"})
    yield {"file": text}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "evaluate")) for k in KINDS]
)
def test_no_field_of_any_kind_leads_out(kind, machine, watch, serve, ask, server, cli):
    """Each field takes every so manyth name, another field others."""
    key = {"Authorization": f"Bearer {cli('config', 'keys', 'add', 'client').out.strip()}"}
    url = serve(keys=True)
    watch.begin(url, server.url)
    required = {name: EXAMPLES.get(name, "x") for name, (must, _) in KINDS[kind].items() if must}
    required.pop("kind", None)
    replies = []
    for number, (name, (_, shapes)) in enumerate(KINDS[kind].items()):
        for text in hostile_texts(machine)[number % STEP :: STEP] if shapes else ():
            for shaped in in_shapes(text, shapes):
                study = {"kind": kind, **required, name: shaped, "run": {"files": FILES}}
                status, reply = ask(f"{url}/v1/studies", study, **key)
                assert status in (200, 201, 202, 400, 404, 409, 422, 429), str(
                    (name, shaped, reply)
                )
                replies.append((status, json.dumps(reply)))
                link_away(machine)
                if status < 300:
                    ask(f"{url}/v1/studies/{reply['id']}/cancel", {}, **key)
                assert watch.events == [], (name, shaped)
    assert any(status == 400 for status, _ in replies)
    assert SECRET not in "".join(text for _, text in replies)
    serve.end()
    assert watch.events == []
    assert SECRET not in json.dumps(list(server.requests))


def link_away(machine):
    """Replace a file that was sent by a link to one of the machine."""
    for sent in machine.glob("store.db.files/**/link.jsonl"):
        if not sent.is_symlink():
            sent.unlink()
            sent.symlink_to(machine / f"{CANARY}.jsonl")


STEPS = {
    "code": f"{{call: a, function: '{CODE}:f'}}",
    "file of code": f"{{call: a, function: '{CODE}.py:f'}}",
    "standard library": "{call: a, function: 'os:system', inputs: [x]}",
    "file of a prompt": f"{{ask: a, file: {CANARY}.md}}",
    "file above": f"{{ask: a, file: ../{CANARY}.md}}",
    "another chain": f"{{call: a, function: {CANARY}.yaml}}",
}


def study_of_chain(kind, chain):
    fields = {"chain": {"chain": chain}, "compare": {"models": [chain], "data": "cases.jsonl"}}
    return {"kind": kind, **fields[kind]}


@pytest.mark.parametrize("kind", ["chain", "compare"])
def test_a_chain_of_a_client_names_nothing_of_the_machine(kind, machine, watch, serve, ask, server):
    url = serve()
    watch.begin(url, server.url)
    for label, step in STEPS.items():
        files = {**FILES, "mine.yaml": f"inputs: [x]\nsteps: [{step}]\n"}
        study = {**study_of_chain(kind, "mine.yaml"), "run": {"files": files}}
        status, reply = ask(f"{url}/v1/studies", study)
        assert status == 400, label
        message = reply["error"]["message"]
        assert "loads only code" in message or "not among the files" in message
    for name in (f"{CODE}:f", f"{CODE}.py:f", f"{CANARY}.yaml", "os:system"):
        study = {**study_of_chain(kind, name), "run": {"files": FILES}}
        status, reply = ask(f"{url}/v1/studies", study)
        assert status == 400, name
    assert watch.events == []
    assert server.calls == 0


def test_a_chain_asks_no_model_that_is_not_served(machine, serve, ask, cli):
    key = {"Authorization": f"Bearer {cli('config', 'keys', 'add', 'client').out.strip()}"}
    text = "model: openai/gpt-5\ninputs: [x]\nsteps: [{ask: a, prompt: '{x}'}]\n"
    run = {"files": {"mine.yaml": text, "rows.jsonl": '{"x": "y"}\n'}}
    study = {"kind": "chain", "chain": "mine.yaml", "data": "rows.jsonl", "run": run}
    status, reply = ask(f"{serve(keys=True)}/v1/studies", study, **key)
    assert status == 400
    assert "openai/gpt-5: clients may not use this model" in reply["error"]["message"]


class Listener(http.server.BaseHTTPRequestHandler):
    """Counts the requests to an address of the machine that no client may connect to."""

    paths: ClassVar[list[str]] = []

    def do_POST(self):
        self.paths.append(self.path)
        self.send_error(404)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def inside():
    Listener.paths.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_rows_name_no_models_either(serve, ask, inside):
    """A case's own debate is read when the case is judged."""
    rows = [
        {"input": "Q?", "candidates": ["a", "b"], "parameters": parameters}
        for parameters in (
            {"readout": "decide", "decider": f"{inside}#m"},
            {"agents": [{"name": "x", "persona": "y", "model": f"{inside}#m"}]},
        )
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    study = {"kind": "evaluate", "cases": ["c.jsonl"], "rounds": 1}
    url = serve()
    status, run = ask(f"{url}/v1/studies", {**study, "run": {"files": {"c.jsonl": text}}})
    assert status == 201, run
    wait_for_status(lambda: ask(f"{url}/v1/studies/{run['id']}"), "finished")
    assert Listener.paths == []
    records = ask(f"{url}/v1/studies/{run['id']}/records")[1]["data"]
    assert [record["status"] for record in records] == ["failed", "failed"]
    assert all("may not use this model" in record["reason"] for record in records)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "memory-eval", "data": "c.jsonl", "system": "http:ADDRESS"},
        {"kind": "evaluate", "cases": ["c.jsonl"], "model": "ADDRESS#m"},
        {"kind": "evaluate", "cases": ["c.jsonl"], "judge": "probe@ADDRESS#m"},
    ],
)
def test_no_address_is_connected_to_for_clients(serve, ask, inside, fields):
    study = json.loads(json.dumps(fields).replace("ADDRESS", inside))
    status, reply = ask(f"{serve()}/v1/studies", {**study, "run": {"files": {"c.jsonl": CASE}}})
    assert status == 400
    assert "--allow-" in reply["error"]["message"]
    assert Listener.paths == []
