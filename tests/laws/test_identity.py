"""Law 1. Identity is content: what influences a result is in its identity by what it holds, never
by a name.

A cell changes one thing alone and looks at what the same command does in the same store:

- *field*: another value of one field of a specification, in each kind of study. It is another run,
  and the first run keeps its records.
- *content*: another content of one file that a run reads (a row's column, a metric's body, a
  rubric). It is another run, with the figures that it has in a store of its own; calls that depend
  on the content are asked again, and the first run keeps its records.
- *not read*: another layout of the study file, another name, folder or format of the files, a
  column that nothing reads. It is the same run, and no model is asked.
- *function*: another function of the same name from Python, which differs in its body, a default, a
  captured value, an object's state.
- *target*: an application that is asked with another header, key or folder.
- *between*: what lies in the store (memories, a persona) is changed between two equal commands.
- *ruler*: a baseline that was scored in another way, at a gate and in `runs compare`. Figures of
  two rulers are never compared.
- *tenants*: a server's tenants are told apart, also from one of the same name that is gone.
- *names*: a second name of a run does not take the first; a halted baseline vouches for nothing.
- *code*: an edit that has the length and the time of what was there before is run.
- *ids*: rows whose ids are alike after they were numbered. All of them are there.

A failure reads as a sentence: "compare / content / body of a metric" says that `compare` does not
see that the body of a metric has changed. `identity_world.py` has the fields,
`identity_contents.py` the files, `identity_layouts.py` what is not read, `identity_functions.py`
the functions, `identity_rulers.py` the baselines; a new field or kind goes into these tables.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from laws.identity_contents import BY_METRIC, CONTENTS, METRIC, NO_FILES
from laws.identity_functions import LESS, MORE, PLACES, WAYS
from laws.identity_layouts import RUN_OPTIONS, UNREAD, reads
from laws.identity_rulers import HELD, RULERS, UNGATED, Ruler
from laws.identity_world import (
    AGENTS,
    ASKED,
    CASE,
    FIELDS,
    HALT,
    HALTED,
    NO_INFLUENCE,
    NOT_ASKED,
    START,
    TARGET,
    Desk,
    without_none,
)
from laws.matrix import check_known, check_members, parametrize
from laws.registries import list_kinds
from laws.studies import PAIRS, WITHOUT_FILE, Recipe, answer, write_rows
from textevolve import Client
from textevolve.llm.testing import Answer, ScriptedServer

pytestmark = pytest.mark.guard
LAW = "identity"


@pytest.fixture(scope="module")
def standing():
    """A server for all cells, so that a model has one address in all of them."""
    with ScriptedServer(answer, tokenizes=True, keep=5000) as started:
        yield started


@pytest.fixture
def desk(home, standing, cli, monkeypatch):
    """A desk whose folder is one that Python imports from, with the server's model as default."""
    monkeypatch.syspath_prepend(str(home))
    desk = Desk(home, standing, cli)
    monkeypatch.setenv("TEXTEVOLVE_MODEL", desk.model)
    return desk


def options_of(kind: str) -> tuple[str, ...]:
    """Return the options of a run of a kind that can go on with itself."""
    return HALT if kind in HALTED else ()


def give_cells(group: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the cells of a table by kind and name."""
    return {
        f"{kind} / {group} / {name}": (kind, name)
        for kind, names in table.items()
        for name in names
    }


FIELD_CELLS = give_cells("field", FIELDS)


@parametrize(LAW, "cell", FIELD_CELLS, quick=7)
def test_another_value_is_another_run(desk, cell):
    kind, name = cell
    change = FIELDS[kind][name]
    recipe = change.fit(START[kind])
    first_outcome = desk.begin(kind, recipe, *options_of(kind))
    assert first_outcome.code in (0, 3), first_outcome.error
    (run,) = first_outcome.ids
    records = desk.read_records(run)

    second_outcome = desk.make(kind, recipe.changed(**{name: change.value}), *options_of(kind))

    assert second_outcome.code in (0, 3), second_outcome.error
    assert len(second_outcome.ids) == 1, "the same run, though a field has another value"
    assert desk.read_records(run) == records, "the records of the first run have changed"
    if name in ASKED and f"{kind} / {name}" not in NOT_ASKED:
        assert second_outcome.requests > 0, "no call was made with the other value"


CONTENT_CELLS = give_cells("content", CONTENTS)


DEAR = ("ablation", "agreement", "calibrate", "escalation", "fit", "robustness")
"""Kinds whose runs are dear: their figures are not compared with those of a store of its own."""


@parametrize(LAW, "cell", CONTENT_CELLS, quick=3)
def test_another_content_is_another_run(desk, cell):
    kind, name = cell
    content = CONTENTS[kind][name]
    options = options_of(kind)
    alone = None if kind in DEAR else desk.begin(kind, content.change(kind), *options)
    first_outcome = desk.begin(kind, content.fit(kind), *options)
    assert first_outcome.code in (0, 3), first_outcome.error
    (run,) = first_outcome.ids
    records = desk.read_records(run)

    other = content.other if isinstance(content.other, str) else write_rows(content.other)
    (desk.home / content.file).write_bytes(other.encode())
    second_outcome = desk.make(kind, content.change(kind), *options)

    assert second_outcome.code in (0, 3), second_outcome.error
    assert len(second_outcome.ids) == 1, "the same run, though a file holds something else"
    assert desk.read_records(run) == records, "the records of the first run have changed"
    if alone is not None:
        assert second_outcome.figures == alone.figures, "not the figures of a store of its own"
        assert alone.bodies - first_outcome.bodies <= second_outcome.bodies, (
            "answers of other calls were taken"
        )


UNREAD_CELLS = {
    f"{kind} / not read / {form}": (kind, form)
    for kind in START
    for form in UNREAD
    if reads(kind, form)
}


@parametrize(LAW, "cell", UNREAD_CELLS, quick=5)
def test_what_is_not_read_counts_not(desk, cell):
    kind, form = cell
    options = options_of(kind)
    first_outcome = desk.begin(kind, START[kind], *options)
    runs = desk.list_ids()
    calls = desk.server.calls

    UNREAD[form](desk, kind)
    more = RUN_OPTIONS if form == "options of the run" else ()
    outcome = desk.cli("run", "file", "study.yaml", "--json", *more, *options)

    assert outcome.code == first_outcome.code, outcome.err
    assert desk.list_ids() == runs, "another run, though nothing that is read has changed"
    if not options:
        assert desk.server.calls == calls, "calls were made again"


ALL_WAYS = ("compare(metric=)", "compare(targets=)", "evaluate(judge=)")
FUNCTION_CELLS = {
    f"{place} / function / {way}": (place, way)
    for place in PLACES
    for way in WAYS
    if place in ALL_WAYS or way in ("captured value", "state of its object")
    if place != "optimize(generator=)" or way == "captured value"  # it wraps the others
}


@parametrize(LAW, "cell", FUNCTION_CELLS, quick=3)
def test_another_function_is_another_run(desk, cell):
    place = PLACES[cell[0]]
    kind = str if place.words else float
    with Client(desk.model, store=desk.home / "store.db") as client:
        before = place.score(client, WAYS[cell[1]](MORE[kind], False))
        runs = len(desk.list_ids())
        after = place.score(client, WAYS[cell[1]](LESS[kind], True))

    assert before == 1.0
    assert after == place.less, "the score of the first function"
    assert runs == 1
    assert len(desk.list_ids()) == 2, "the second function took the run of the first"


def tell_headers(server: ScriptedServer) -> Callable[[Any, int], Answer]:
    """Return a script that answers with the headers of the request."""

    def tell(body, number):
        headers = server.headers[-1]
        return Answer(text=f"{headers.get('x-tenant')} {headers.get('authorization')}")

    return tell


PRINT_NAME = "cat name.txt\n"
NAMED = {"rows.jsonl": [{"id": "a", "n": 1, "sum": "acme"}]}


@dataclass(frozen=True)
class Application:
    """A change of an application under test that no field of the study shows.

    Attributes:
        target: The target.
        before, after: Environment variables, or contents of files where a name has a dot.
    """

    target: Mapping[str, Any]
    before: Mapping[str, str]
    after: Mapping[str, str]


COMMAND = {"target": "cmd:sh tell.sh"}
APPLICATIONS: Mapping[str, Application] = {
    "value of a header": Application(
        {**TARGET, "headers": {"X-Tenant": "env:TENANT"}}, {"TENANT": "acme"}, {"TENANT": "globex"}
    ),
    "bearer key": Application(
        {**TARGET, "key_env": "APP_KEY"}, {"APP_KEY": "first"}, {"APP_KEY": "second"}
    ),
    "working folder": Application(
        COMMAND,
        {"one/name.txt": "acme", "one/tell.sh": PRINT_NAME},
        {"two/name.txt": "globex", "two/tell.sh": PRINT_NAME},
    ),
    "module of a function": Application(
        {"target": "python:application.tell"},
        {"application.py": "def tell(n):\n    return 'acme'\n"},
        {"application.py": "def tell(n):\n    return 'globex'\n"},
    ),
}
TARGET_CELLS = {f"target / {name}": application for name, application in APPLICATIONS.items()}


@parametrize(LAW, "application", TARGET_CELLS, quick=1)
def test_another_application_answers_anew(desk, monkeypatch, application):
    recipe = START["compare"].changed(prompts=None, judge=None, targets=[dict(application.target)])
    recipe = replace(without_none(recipe), files=NAMED)
    desk.lay(recipe)
    desk.script = tell_headers(desk.server)

    texts: list[str] = []
    for state in (application.before, application.after):
        for name, value in state.items():
            if "." in name:
                path = desk.home / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(value, encoding="utf-8")
            else:
                monkeypatch.setenv(name, value)
        folder = desk.home / next(iter(state)).rpartition("/")[0]
        os.chdir(folder)
        (folder / "rows.jsonl").write_text(write_rows(NAMED["rows.jsonl"]), encoding="utf-8")
        monkeypatch.delitem(sys.modules, "application", raising=False)
        texts.append(ask_application(desk, recipe, folder))

    assert texts[0] != texts[1], "the second application was not asked"


def ask_application(desk: Desk, recipe: Recipe, folder: Any) -> str:
    """Run a comparison in a folder and return the text of its only output."""
    placed = desk.place(recipe)
    study = {"kind": "compare", "model": desk.model, **placed.spec}
    (folder / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    desk.server.script = desk.script
    outcome = desk.cli("run", "file", "study.yaml", "-o", "out.jsonl")
    assert outcome.code == 0, outcome.err
    row = json.loads((folder / "out.jsonl").read_text(encoding="utf-8"))
    return row["text"]


PROVIDER = """\
[providers.house]
base_url = "{url}"
keyless = true
"""
ENDPOINT_CELLS = {
    f"{kind} / endpoint / another address of a provider": kind
    for kind in ("compare", "evaluate", "optimize", "summarize", "agreement", "chain")
}


@parametrize(LAW, "kind", ENDPOINT_CELLS, quick=1)
def test_another_address_is_asked(desk, kind):
    recipe = START[kind]
    desk.lay(recipe)
    study = {"kind": kind, **desk.place(recipe).spec, "model": "house/scripted"}
    (desk.home / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    desk.server.script = desk.script
    before = desk.server.calls  # of other cells

    with ScriptedServer(desk.script) as second_scripted_server:
        for server in (desk.server, second_scripted_server):
            settings = PROVIDER.format(url=server.url)
            (desk.home / "textevolve.toml").write_text(settings, encoding="utf-8")
            outcome = desk.cli("run", "file", "study.yaml", "-o", "out.json")
            assert outcome.code == 0, outcome.err

        assert second_scripted_server.calls == desk.server.calls - before > 0, (
            "the first address's answers stand for the second's"
        )


ADD = ("memories", "add", "chats", "Ann sails on Sundays.")
CITED = {"name": "Cy", "persona": "You recall what Ann said.", "collections": ["chats"]}


def debate_of_row(agents: list[Any], start: Recipe) -> Recipe:
    """Return an evaluation whose only row names the agents of its own debate. `start`: the files
    and commands that make them."""
    row = {**CASE, "agents": agents, "rounds": 1}
    recipe = without_none(START["evaluate"].changed(judge=None, readout="verbalized"))
    return replace(recipe, files={**start.files, "cases.jsonl": [row]}, before=start.before)


BETWEEN: Mapping[str, tuple[str, Recipe, tuple[str, ...]]] = {
    "evolve-persona / between / persona": (
        "evolve-persona",
        START["evolve-persona"],
        ("agents", "update", "ada", "--persona", "You are Ada, a cook. You like long answers."),
    ),
    "evolve-persona / between / memory that is added": (
        "evolve-persona",
        START["evolve-persona"],
        ADD,
    ),
    "guide / between / persona of an agent": (
        "guide",
        replace(START["guide"].changed(agents="ada,eve", debate={"rounds": 1}), before=AGENTS),
        ("agents", "update", "ada", "--persona", "You are Ada, a cook."),
    ),
    "evaluate / between / persona of an agent": (
        "evaluate",
        FIELDS["evaluate"]["agents"].fit(START["evaluate"]),
        ("agents", "update", "ada", "--persona", "You are Ada, a cook."),
    ),
    "evaluate / between / persona of an agent that a row names": (
        "evaluate",
        debate_of_row(["ada", "eve"], Recipe({}, before=AGENTS)),
        ("agents", "update", "ada", "--persona", "You are Ada, a cook."),
    ),
    "evaluate / between / memory that an agent of a row recalls": (
        "evaluate",
        debate_of_row([CITED], START["integrate-memories"]),
        ("memories", "add", "chats", "Question: Ann sails on Sundays."),
    ),
    "integrate-memories / between / memory that is added": (
        "integrate-memories",
        START["integrate-memories"],
        ADD,
    ),
}


@parametrize(LAW, "cell", BETWEEN, quick=0)
def test_another_store_is_another_run(desk, cell):
    kind, recipe, command = cell
    first_outcome = desk.begin(kind, recipe, *options_of(kind))
    assert first_outcome.code in (0, 3), first_outcome.error
    repeated = desk.make(kind, recipe, *options_of(kind))
    assert repeated.ids == frozenset()

    changed = desk.cli(*command)
    assert changed.code == 0, changed.err
    second = desk.make(kind, recipe, *options_of(kind))

    assert len(second.ids) == 1, "the same run, though the store holds something else"
    assert second.requests > 0
    assert second.bodies - first_outcome.bodies, "no call has what was changed"


def change_ruler(desk: Desk, ruler: Ruler) -> Recipe:
    """Write the files that are edited and return the second run."""
    for name, content in ruler.edited.items():
        (desk.home / name).write_text(content, encoding="utf-8")
    return ruler.recipe.changed(**ruler.other)


GATE_CELLS = {
    f"{name.replace(' / ', ' / ruler at a gate / ', 1)}": ruler for name, ruler in RULERS.items()
}


@parametrize(LAW, "ruler", GATE_CELLS, quick=2)
def test_rulers_differ_at_gates(desk, ruler):
    first_outcome = desk.begin(ruler.kind, ruler.recipe, "--name", "main")
    assert first_outcome.code in (0, 3), first_outcome.error
    (main,) = first_outcome.ids
    records = desk.read_records(main)

    second_outcome = desk.make(ruler.kind, change_ruler(desk, ruler), *ruler.options)

    assert "gate holds" not in second_outcome.error, "scores of two rulers were compared"
    assert second_outcome.code in (2, 4), second_outcome.error
    assert desk.read_records(main) == records, "the records of the baseline have changed"


COMPARED = ("metric", "judge", "second judge", "rubric")
COMPARED_CELLS = {
    f"{name.replace(' / ', ' / ruler in runs compare / ', 1)}": RULERS[name]
    for name in RULERS
    if name.rpartition(" / ")[2] in COMPARED
}


@parametrize(LAW, "ruler", COMPARED_CELLS, quick=1)
def test_rulers_differ_in_comparisons(desk, ruler):
    first_outcome = desk.begin(ruler.kind, ruler.recipe, "--name", "main")
    assert first_outcome.code in (0, 3), first_outcome.error
    second_outcome = desk.make(ruler.kind, change_ruler(desk, ruler), "--name", "other")
    assert second_outcome.code in (0, 3), second_outcome.error
    assert len(second_outcome.ids) == 1, "the second ruler took the run of the first"

    compared = desk.cli("runs", "compare", "main", "other", "--json")

    assert compared.code == 2, "scores of two rulers were compared"


@parametrize(LAW, "ruler", HELD, quick=0)
def test_one_ruler_is_compared(desk, ruler):
    first_outcome = desk.begin(ruler.kind, ruler.recipe, "--name", "main")
    assert first_outcome.code == 0, first_outcome.error
    equal = desk.make(ruler.kind, ruler.recipe, *ruler.options)
    assert equal.code == 0, equal.error

    worse = desk.make(ruler.kind, change_ruler(desk, ruler), *ruler.options)

    rows = len(next(iter(ruler.files.values())))
    assert worse.code == 4, worse.error
    assert f"{rows} of {rows} cases that passed in main fail now" in worse.error


SECOND_NAME = ("compare", "evaluate", "nodes", "optimize", "agreement", "rates", "summarize")
NAME_CELLS = {f"{kind} / names / second name of a run": kind for kind in SECOND_NAME}


@parametrize(LAW, "kind", NAME_CELLS, quick=1)
def test_first_name_of_run_stays(desk, kind):
    first_study = desk.begin(kind, START[kind], "--name", "main")
    (run,) = first_study.ids
    second = desk.make(kind, START[kind], "--name", "request")
    assert second.ids == frozenset()

    for name in ("request", "main"):
        outcome = desk.cli("runs", "show", name, "--json")
        assert outcome.code == 0, f"{name} names no run: {outcome.err}"
        assert desk.read_store("SELECT id FROM runs") == [(run,)]


ALIKE = ("1", "1 (2)", "1")
NUMBERED: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "evaluate": (
        "cases.jsonl",
        [{"input": f"Is {n} even?", "candidates": [f"Good {n}."]} for n in range(3)],
    ),
    "compare": ("rows.jsonl", [{"n": n, "sum": str(2 * n)} for n in range(3)]),
    "compare-quants": ("rows.jsonl", [{"n": n, "sum": str(2 * n)} for n in range(3)]),
    "chain": ("rows.jsonl", [{"n": n} for n in range(3)]),
    "agreement": ("items.jsonl", [dict(row) for row in PAIRS[:3]]),
    "escalation": ("items.jsonl", [dict(row) for row in PAIRS[:3]]),
    "ablation": ("items.jsonl", [dict(row) for row in PAIRS[:3]]),
    "create-memories": (
        "dialogues.jsonl",
        [{"turns": [{"role": "user", "content": f"FACT: Ann has {n} cats."}]} for n in range(3)],
    ),
}
ORDERS = {"number in the middle": ALIKE, "number last": ("1", "1", "1 (2)")}
ID_CELLS = {
    f"{kind} / ids / {order}": (kind, order)
    for kind in NUMBERED
    for order in ORDERS
    if order == "number in the middle" or kind in ("evaluate", "compare")
}


@parametrize(LAW, "cell", ID_CELLS, quick=1)
def test_rows_with_like_ids_stay(desk, cell):
    kind, order = cell
    file, rows = NUMBERED[kind]
    alike = [{**row, "id": name} for row, name in zip(rows, ORDERS[order], strict=True)]
    apart = [{**row, "id": name} for row, name in zip(rows, "abc", strict=True)]
    recipe = without_none(START[kind].changed(limit=None)) if kind == "ablation" else START[kind]

    plain = desk.begin(kind, recipe.with_file(file, apart))
    (run,) = plain.ids
    records = len(desk.read_records(run))
    numbered = desk.begin(kind, recipe.with_file(file, alike))

    if numbered.code == 2:  # refused, which is right where the ids are labels of people
        assert "the id '1' is" in numbered.error
        return
    (run,) = numbered.ids
    assert len(desk.read_records(run)) == records, "rows with like ids are missing"
    cases = desk.read_store("SELECT id FROM cases WHERE run_id = ?", run)
    assert len(set(cases)) == 3, "two rows have one id"
    assert numbered.bodies == plain.bodies


HALTED_MAIN = ("compare", "evaluate", "nodes", "compare-quants")
HALTED_CELLS = {f"{kind} / names / baseline that was halted": kind for kind in HALTED_MAIN}


@parametrize(LAW, "kind", HALTED_CELLS, quick=0)
def test_halted_baseline_vouches_not(desk, kind):
    halted = desk.begin(kind, START[kind], "--name", "main", "--max-calls", "1")
    assert halted.code == 3, halted.error
    recipe = START[kind].changed(seed=3) if kind != "nodes" else START[kind].changed(latency=9.0)

    second_outcome = desk.make(kind, recipe, "--no-worse-than", "main", "--max-regressions", "0")

    assert "gate holds" not in second_outcome.error, "a baseline without scores holds"
    assert second_outcome.code in (2, 3, 4), second_outcome.error


STALE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "evaluate / code / edit of the same length and time": ("evaluate", BY_METRIC),
    "nodes / code / edit of the same length and time": ("nodes", BY_METRIC),
    "innovate / code / edit of the same length and time": ("innovate", BY_METRIC),
}


@parametrize(LAW, "cell", STALE, quick=1)
def test_edited_code_is_what_runs(desk, cell):
    kind, base = cell
    recipe = START[kind].changed(**base)
    low = recipe.with_file("m.py", METRIC)
    high = recipe.with_file("m.py", METRIC.replace("0.25", "0.75"))
    alone = desk.begin(kind, recipe.with_file("m.py", METRIC.replace("0.25", "0.750")))

    desk.lay(low)
    os.utime(desk.home / "m.py", (1_000_000_000, 1_000_000_000))
    desk.make(kind, low)
    (desk.home / "m.py").write_text(high.files["m.py"], encoding="utf-8")
    os.utime(desk.home / "m.py", (1_000_000_000, 1_000_000_000))
    second = desk.make(kind, high)

    assert len(second.ids) == 1
    assert second.figures == alone.figures, "the code before the edit has scored"


TENANTS: dict[str, Any] = {}
"""What a server showed of the studies of two tenants, of which one is deleted and made anew."""


def observe_tenants(desk: Desk, spawn: Callable[..., Any]) -> Mapping[str, Any]:
    """Post one study for two tenants, make one of them anew, and return what the server shows."""
    if TENANTS:
        return TENANTS
    case = {"input": "Say it.", "output": "yes", "reference": "yes"}
    study = {"kind": "evaluate", "cases": ["c.jsonl"], "judge": "metric:exact"}
    files = {"c.jsonl": write_rows([case])}

    served = spawn("serve", "--model", desk.model, "--port", "0")
    address = served.stderr.readline().split()[2].rstrip(",")
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=60)) as line:

        def send(method: str, path: str, body: Any = None) -> Any:
            headers = {"Content-Type": "application/json"}
            line.request(method, f"/v1/{path}", body and json.dumps(body), headers)
            text = line.getresponse().read()
            return json.loads(text) if text else None

        def post(tenant: str) -> str:
            run = {"namespace": tenant, "files": files}
            identity = send("POST", "studies", {**study, "run": run})["id"]
            while send("GET", f"studies/{identity}")["status"] in ("waiting", "running", "queued"):
                pass
            return identity

        for tenant in ("acme", "beta"):
            send("POST", "namespaces", {"name": tenant})
        TENANTS["acme"] = post("acme")
        TENANTS["again"] = post("acme")
        TENANTS["beta"] = post("beta")

        send("DELETE", "namespaces/acme")
        send("POST", "namespaces", {"name": "acme"})
        listed = send("GET", "studies")["data"]
        TENANTS["left"] = [study["id"] for study in listed if study["namespace"] == "acme"]
        TENANTS["anew"] = post("acme")
    return TENANTS


TENANT_CELLS = {
    "http / tenants / one study of one tenant is one run": lambda seen: (
        seen["acme"] == seen["again"]
    ),
    "http / tenants / one study of two tenants is two runs": lambda seen: (
        seen["acme"] != seen["beta"]
    ),
    "http / tenants / a tenant that is made anew has no study": lambda seen: seen["left"] == [],
    "http / tenants / a study of a tenant that is made anew is another run": lambda seen: (
        seen["acme"] != seen["anew"]
    ),
}


@parametrize(LAW, "holds", TENANT_CELLS, quick=0)
def test_tenant_is_not_its_name(desk, spawn, holds):
    assert holds(observe_tenants(desk, spawn))


def test_each_field_and_file_is_tried(cli):
    tried = {(kind, name) for kind, names in FIELDS.items() for name in names}
    schemas = {
        (kind, name): json.dumps(schema, sort_keys=True)
        for kind, study in list_kinds(cli).items()
        for name, schema in study["properties"].items()
        if name != "kind" and kind not in WITHOUT_FILE
    }
    shared = {(name, schemas[kind, name]) for kind, name in tried if (kind, name) in schemas}
    remainder = {
        f"{kind} / {name}"
        for (kind, name), schema in schemas.items()
        if (kind, name) in tried or name == "model" or (name, schema) not in shared
    }
    check_members("field", remainder, [*(f"{k} / {n}" for k, n in tried), *NO_INFLUENCE])

    kinds = [kind for kind in list_kinds(cli) if kind not in WITHOUT_FILE]
    check_members("study with a file", kinds, [*CONTENTS, *NO_FILES])
    check_members("ruler of", kinds, [*{ruler.kind for ruler in RULERS.values()}, *UNGATED])


def test_known_failures_are_whole():
    check_known(
        LAW,
        FIELD_CELLS,
        CONTENT_CELLS,
        UNREAD_CELLS,
        FUNCTION_CELLS,
        TARGET_CELLS,
        ENDPOINT_CELLS,
        BETWEEN,
        GATE_CELLS,
        COMPARED_CELLS,
        HELD,
        NAME_CELLS,
        ID_CELLS,
        HALTED_CELLS,
        STALE,
        TENANT_CELLS,
    )
