"""What clients' studies name: nothing of this machine is read, loaded or asked but what its
operator allows, whatever field of whichever kind it stands in."""

import http.server
import json
import os
import sys
import threading
import typing
from pathlib import Path

import pytest

from textevolve.errors import TextEvolveError
from textevolve.reach import Reach, allowed_path, confine, is_file, is_folder, matching_files
from textevolve.server.access import Caller
from textevolve.server.options import ServerOptions
from textevolve.server.studies.confinement import reach_of
from textevolve.server.studies.uploads import keep_files
from textevolve.settings import Settings
from textevolve.store import open_store
from textevolve.store.served import ServedRun
from textevolve.studies import driver
from textevolve.studies.kinds import KINDS, find_study
from textevolve.studies.study_file import read_study

CANARY = "canary-of-this-machine"
CASE = '{"id": "a", "input": "Question?", "candidates": ["one", "two"]}\n'


class Seen:
    """What Python did while it was watched: files that were opened, code that was imported or
    begun, and addresses that were asked."""

    def __init__(self):
        self.found, self.on = [], False
        sys.addaudithook(self.note)

    def note(self, event, arguments):
        if not self.on:
            return
        if event in ("open", "os.listdir", "os.scandir", "glob.glob", "import", "exec"):
            told = " ".join(str(one) for one in arguments)
            if CANARY in told:
                self.found.append((event, told))
        elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
            self.found.append((event, str(arguments)))


SEEN = Seen()


@pytest.fixture
def machine(home, monkeypatch):
    """Things that nobody may get at, each by a name with the canary in it."""
    secret = home / f"{CANARY}.jsonl"
    secret.write_text(CASE)
    (home / f"{CANARY}.yaml").write_text("rules: []\n")
    (home / f"{CANARY}.gguf").write_bytes(b"GGUF")
    (home / f"{CANARY}.md").write_text("Is it secret?")
    folder = home / f"{CANARY}-folder"
    folder.mkdir()
    (folder / "question.jsonl").write_text(CASE)
    code = CANARY.replace("-", "_")
    (home / f"{code}.py").write_text("def f(*a, **k):\n    return 1.0\n")
    monkeypatch.syspath_prepend(str(home))
    yield home
    sys.modules.pop(code, None)


@pytest.fixture
def confined(machine):
    """What a client with a key may reach who sent two files."""
    settings = Settings(store=machine / "store.db", model="openai/gpt-6-luna")
    options = ServerOptions(model=("openai/gpt-6-luna",))
    with open_store(settings.store) as store:
        files = {"cases.jsonl": CASE, "link.jsonl": CASE}
        sent = keep_files(machine / "store.db.files", files)
        link = machine / "store.db.files" / sent / "link.jsonl"
        link.unlink()
        link.symlink_to(machine / f"{CANARY}.jsonl")
        launch = {"files": sent, "namespaces": ["mine"]}
        served = ServedRun("", "mine", "key", 0.0, "running", launch)
        own = settings.model_copy(update={"namespace": "mine"})
        yield own, reach_of(served, options, settings, store)


def hostile(home):
    """Names of what is not the client's, in all the forms that fields take."""
    files = [str(home / f"{CANARY}{end}") for end in (".jsonl", ".yaml", ".md", ".gguf")]
    files += [f"{CANARY}.jsonl", f"../{home.name}/{CANARY}.jsonl", f"./{CANARY}.yaml"]
    files += [f"{home}/{CANARY}*", f"{home}/{CANARY}-folder", f"{CANARY}-folder", "link.jsonl"]
    files += [f"~/{CANARY}.jsonl", f"/proc/self/root{home}/{CANARY}.jsonl", f"file://{files[0]}"]
    code = CANARY.replace("-", "_")
    plain = [
        *files,
        *(f"@{one}" for one in files),
        *("-", "@-", "/dev/stdin", "\0", "a\0b", "x" * 5000, "\ud800", "hf:owner/name"),
        *("http://169.254.169.254/latest#m", "http://127.0.0.1:9/v1#m", "http://[::1]:9/v1#m"),
        *(f"local/{home}/{CANARY}.gguf", f"local/{CANARY}.gguf", "local/../x", "openai/gpt-5"),
        *("python:os.system", "os:system", f"{code}:f", f"{home}/{code}.py:f", f"{code}.py:f"),
        *("mem0", f"mem0:{home}/{CANARY}.yaml", "http:http://127.0.0.1:9", "other/agent"),
        *("last", "other-run", f"{files[1]}:f"),
    ]
    judges = [
        *(f"{form}{file}" for file in files[:2] for form in ("rules:", "json-schema:", "metric:")),
        *(f"hybrid:{files[1]}:probe", f"probe+rubric={files[2]}", f"debate:{files[1]}"),
        *(f"metric:json-schema:{files[0]}", f"metric:{code}:f", f"metric:{home}/{code}.py:f"),
        *(f"cascade:0.5:probe,rules:{files[1]}", f"{home}/{CANARY}.judge"),
        *(
            "probe@http://127.0.0.1:9/v1#m",
            f"probe@local/{home}/{CANARY}.gguf",
            "debate+decider=x/y",
        ),
        *("checklist+decider=http://127.0.0.1:9/v1#m", "embedding@http://127.0.0.1:9/v1#m"),
        f"jury:{home}/{CANARY}.yaml+rounds=1",
    ]
    return plain + judges


def shapes(value, field):
    """A hostile text in each of the shapes that a field may have."""
    told = str(field.annotation)
    yield value
    if "tuple" in told or "Several" in told:
        yield [value]
        yield [value, "x"]
        yield [{"file": value}]
        yield [{"name": "n", "file": value}]
    if "Mapping" in told or "dict" in told:
        yield {"x": value}
        yield {value: "x"}
    yield {"file": value}


def fill(spec):
    """Fields that a kind must have."""
    usual = {"data": "cases.jsonl", "cases": "cases.jsonl", "trace": "cases.jsonl"}
    usual |= {"items": ["cases.jsonl"], "files": ["cases.jsonl"], "template": "Say {input}."}
    usual |= {"judged": "cases.jsonl", "labelled": "cases.jsonl", "collection": "notes"}
    usual |= {"judge": "probe", "models": ["openai/gpt-6-luna"], "task": "A task."}
    required = [name for name, field in spec.model_fields.items() if field.is_required()]
    return {name: usual.get(name, "x") for name in required}


async def try_out(given, settings, reach):
    """As far as a server goes before it asks a model."""
    with confine(reach):
        study, spec = read_study(given)
        for _ in driver.read_cases(study, spec, settings.store, settings):
            pass
        await driver.specify(study, spec, settings, {})


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_field_of_any_kind_leads_out(kind, step, confined, machine):
    """By every so manyth name, other ones for each field."""
    settings, reach = confined
    spec = find_study(kind).spec
    SEEN.found.clear()
    told = []
    for number, (name, field) in enumerate(spec.model_fields.items()):
        if typing.get_origin(field.annotation) is typing.Literal or field.annotation in (
            *(int, float, bool),
            *(int | None, float | None, bool | None),
        ):
            continue
        for value in hostile(machine)[number % step :: step]:
            for shaped in shapes(value, field):
                SEEN.on = True
                try:
                    await try_out({"kind": kind, **fill(spec), name: shaped}, settings, reach)
                except TextEvolveError as error:
                    told.append(str(error))
                finally:
                    SEEN.on = False
                assert SEEN.found == [], (name, shaped)
    assert told
    assert "Is it secret?" not in "".join(told)


def test_names_lead_nowhere_but_into_what_was_sent(confined, machine):
    _, reach = confined
    with confine(reach):
        assert allowed_path("cases.jsonl").startswith(str(reach.folder))
        assert is_file("./cases.jsonl")
        assert is_file("x/../cases.jsonl")
        for name in hostile(machine):
            assert not is_file(name)
            assert not is_folder(name)
            assert CANARY not in str(matching_files(name))
        assert matching_files("/**") == matching_files("../*") == []
        assert set(matching_files("*.jsonl")) <= {"cases.jsonl", "link.jsonl"}


@pytest.mark.parametrize("name", ["/etc/x.yaml", "../../x.yaml", "a b/ü.yaml", "%root/x", "%25"])
def test_files_of_any_name_are_kept_within_one_folder(home, name):
    sent = home / "sent"
    folder = sent / keep_files(sent, {name: "text", "other": "o"})
    kept = [path for path in sent.rglob("*") if path.is_file()]
    assert len(kept) == 2
    with confine(Reach(folder=folder)):
        assert is_file(name)
        assert Path(allowed_path(name)).read_text() == "text"
    assert keep_files(sent, {"other": "o", name: "text"}) == folder.name
    assert keep_files(sent, {name: "text"}) != folder.name


class Listening(http.server.BaseHTTPRequestHandler):
    """Says that somebody asked."""

    asked: typing.ClassVar[list[str]] = []

    def do_POST(self):
        self.asked.append(self.path)
        self.send_error(404)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def inside():
    """An address of this machine that no client may have asked."""
    Listening.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listening) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_rows_name_no_models_and_files_either(serve, ask, inside, machine):
    """What a case says of its own debate is found when it is judged."""
    rows = [
        {"input": "Q?", "candidates": ["a", "b"], "parameters": parameters}
        for parameters in (
            {"readout": "decide", "decider": f"{inside}#m"},
            {"agents": [{"name": "x", "persona": "y", "model": f"{inside}#m"}]},
        )
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    given = {"kind": "evaluate", "cases": ["c.jsonl"], "rounds": 1}
    given["run"] = {"files": {"c.jsonl": text}}
    url = serve()
    status, run = ask(f"{url}/v1/studies", given)
    assert status == 201, run
    for _ in range(600):
        found = ask(f"{url}/v1/studies/{run['id']}")[1]
        if found["status"] not in ("queued", "running"):
            break
        threading.Event().wait(0.1)
    assert Listening.asked == []
    page = ask(f"{url}/v1/studies/{run['id']}/records")[1]["data"]
    assert [one["status"] for one in page] == ["failed", "failed"]
    assert all("not served to clients" in one["reason"] for one in page)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "memory-eval", "data": "c.jsonl", "system": "http:ADDRESS"},
        {"kind": "evaluate", "cases": ["c.jsonl"], "model": "ADDRESS#m"},
        {"kind": "evaluate", "cases": ["c.jsonl"], "judge": "probe@ADDRESS#m"},
    ],
)
def test_no_address_is_asked_for_clients(serve, ask, inside, fields):
    given = {
        name: value.replace("ADDRESS", inside) if isinstance(value, str) else value
        for name, value in fields.items()
    }
    status, found = ask(f"{serve()}/v1/studies", {**given, "run": {"files": {"c.jsonl": CASE}}})
    assert status == 400
    assert "--allow-" in found["error"]["message"]
    assert Listening.asked == []


def test_the_operator_may_allow_models_code_and_addresses(confined, machine):
    settings, _ = confined
    code = CANARY.replace("-", "_")
    options = ServerOptions(
        allow_model=("openai/*",), allow_code=(f"{code}:f",), allow_address=("hf:me/*",)
    )
    with open_store(settings.store) as store:
        reach = reach_of(ServedRun("", "mine", "key", 0.0, "running", {}), options, settings, store)
    assert reach.models("openai/gpt-5")
    assert not reach.models("groq/x")
    assert not reach.models("http://openai/x#m")
    assert reach.code(f"{code}:f")
    assert not reach.code("os:system")
    assert reach.addresses("hf:me/data:train")
    assert not reach.addresses("hf:you/data")


def test_whoever_needs_no_key_may_ask_each_provider_but_no_address(confined, machine):
    settings, _ = confined
    with open_store(settings.store) as store:
        served = ServedRun("", "default", "", 0.0, "running", {"trusted": True})
        reach = reach_of(served, ServerOptions(), settings, store)
    assert reach.models("groq/x")
    assert reach.models("local/qwen2.5-coder-1.5b")
    for spec in (f"local/{machine}/x", "local/~x", f"local/{CANARY}.gguf", "http://h/v1#m", "no/x"):
        assert not reach.models(spec)


def test_the_reach_goes_along_into_threads_and_tasks(confined):
    _, reach = confined
    with confine(reach):
        found = []
        from textevolve.engine import sync

        async def look():
            found.append(is_file(os.path.join(os.sep, "etc", "passwd")))

        sync.run(look())
    assert found == [False]
    assert is_file("/etc/passwd")


def test_callers_without_all_namespaces_see_their_runs_alone(home):
    from textevolve.server.studies.reading import find_seen

    with open_store(home / "seen.db") as store:
        runs = [store.create_run({"kind": "evaluate"}, f"f{n}", "", "") for n in range(3)]
        for run, namespace in zip(runs, ("mine", "yours"), strict=False):
            store.serve_run(ServedRun(run.id, namespace, "", 0.0, "running", {}))
        some = Caller("k", "some", frozenset({"read"}), frozenset({"mine"}))
        everybody = Caller("", "all", frozenset({"read"}))
        assert find_seen(store, some, runs[0].id).run.id == runs[0].id
        for hidden in (runs[1].id, runs[2].id, runs[0].id[:-1], "last", "", "x" * 999):
            with pytest.raises(Exception, match="no run"):
                find_seen(store, some, hidden)
        for run in runs:
            assert find_seen(store, everybody, run.id).run.id == run.id
