"""The fifth law: each sees only what is his.

Labels, references and gold passages never reach what is tested. Keys and passwords stand in no
text. One user's, one tenant's or one row's words reach no other. Erased words are gone.

TABLE says who may see what, and these tests hold the product to it. A cell plants a *canary*, a
word that stands nowhere else, in the place of one secret, runs one command or study, and collects
the canaries that passed each door: the body of each request by the model that reads it, headers,
addresses, what is printed, the log, the store's files, reports, exports, spans, pages, answers over
HTTP. The word may pass only the doors that its line of the table opens. Each run must also show a
word that does have to pass, so that a run that sends nothing proves nothing.

A failure reads as a sentence: `compare / label` fails with the doors that the label passed and that
are closed to it, such as `body for tested`: the request to the model under test held the label.
Look for what put it there. A secret that may pass one more door gets that door in TABLE, for
everybody, with the reason in the documentation.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle

import pytest

from laws import canaries_people as people
from laws.canaries_commands import (
    ASKED_PROGRAM,
    ECHOED_COMMANDS,
    ECHOES,
    KEPT,
    RECORDED,
    ROWS,
    UNDER_TEST,
    Situation,
    fill,
    prompt_cells,
)
from laws.canaries_studies import COLUMNS, EXPOSED, QUESTION, serve_memories
from laws.canaries_world import (
    ROW,
    VARIABLES,
    Evidence,
    Host,
    canary,
    open_world,
    think,
)
from laws.judges import JUDGES, METRICS, OPTIONS_OF_JUDGES
from laws.matrix import check_known, check_members, parametrize
from laws.registries import list_judges, list_kinds, list_metrics
from laws.studies import RECIPES, WITHOUT_FILE, World, answer, write_rows
from server.conftest import paths, serve  # noqa: F401
from textevolve import Client, TextEvolveError
from textevolve.llm.testing import Answer

pytestmark = pytest.mark.guard
LAW = "canaries"


@dataclass(frozen=True)
class Rule:
    """Who may see a secret.

    Attributes:
        readers: The models and systems whose requests may hold it.
        doors: Further doors that it may pass, such as a header at its own host.
        kept: Whether the store, reports, exports and what is printed may hold it.
    """

    readers: tuple[str, ...] = ()
    doors: tuple[str, ...] = ()
    kept: bool = False

    def allows(self, door: str) -> bool:
        """Return whether the secret may pass a door."""
        if door in self.doors or door.removeprefix("body for ") in self.readers:
            return True
        return self.kept and (door in ("printed", "store") or door.startswith("file "))


NOBODY = Rule()
KEPT_ONLY = Rule(kept=True)
TABLE: Mapping[str, Rule] = {
    # What is right, or says how good something is. A referee is a judge that reads references; the
    # editor is the model that rewrites prompts in `calibrate`, from rows of the search.
    "label": Rule(("referee", "editor"), kept=True),
    "reference": Rule(("referee",), kept=True),
    "passage": Rule(("passage judge",), kept=True),
    "gold memory": Rule(("memory-judge",), kept=True),
    "gold answer": Rule(("memory-judge",), kept=True),
    "gold evidence": Rule(("memory-judge",), kept=True),
    "rubric of the second judge": Rule(("judge",), kept=True),
    "label of a person": KEPT_ONLY,
    "expected tool": KEPT_ONLY,
    "kind of a check": KEPT_ONLY,
    # Checks of a row are for the judge that applies them, of which only rubrics ask a model.
    "check of a row": KEPT_ONLY,
    "rubric of a row": Rule(("judge", "referee"), kept=True),
    # What names a row or a variant, or is read by nobody.
    "id": KEPT_ONLY,
    "group": KEPT_ONLY,
    "unread column": KEPT_ONLY,
    "name of a variant": KEPT_ONLY,
    # What one side of a conversation knows; judges read it as the input of the dialogue.
    "goal": Rule(("user", "judge"), kept=True),
    "persona of a user": Rule(("user", "judge"), kept=True),
    "stop of a user": Rule(("user", "judge"), kept=True),
    "thought": KEPT_ONLY,
    # Memories that do not belong to the agent, or that it must not believe.
    "memory of another collection": Rule(doors=("store",)),
    "memory of another namespace": Rule(doors=("store",)),
    "distrusted memory": Rule(doors=("store",)),
    "system message": KEPT_ONLY,
    # Keys and passwords. Each goes to its own host, in a header, and stands nowhere else.
    "own key": Rule(doors=("header authorization at own",)),
    "own header": Rule(doors=("header x-own at own",)),
    "key of a memory system": Rule(doors=("header authorization at other",)),
    "key of an application": Rule(doors=("header authorization at own",)),
    "header of an application": Rule(doors=("header x-tenant at own",)),
    "key for applications": Rule(doors=("header authorization at own",)),
    "password of a proxy": Rule(doors=("header proxy-authorization at own",)),
    "password in an address": NOBODY,
    "key in an address": NOBODY,
    "key in a command": NOBODY,
    "key in settings": NOBODY,
    "key as a name": NOBODY,
    "key of another provider": NOBODY,
    "key for addresses": NOBODY,
    "key of a server": NOBODY,
    "any variable": NOBODY,
    # Rows themselves, where the folder's own settings choose who gets them.
    "question": KEPT_ONLY,
}
WORDS = {
    "own key": "kanariownkeyzz",
    "own header": "kanariownheaderzz",
    "key of another provider": "kanariopenaizz",
    "key for addresses": "kanariaddresskeyzz",
    "key of a memory system": "kanarimemorykeyzz",
    "key of a server": "kanariserverkeyzz",
    "any variable": "kanarivariablezz",
}
"""The secrets whose words stand in the environment of every run; others have their names."""
FOREIGN = tuple(set(VARIABLES) - {"OWN_KEY", "OWN_HEADER", "TEXTEVOLVE_MEMORY_KEY"})


def word_of(secret: str) -> str:
    """Return the canary of a secret."""
    return WORDS.get(secret) or canary(secret)


def closed_doors(secret: str, evidence: Evidence) -> list[str]:
    """Return the doors that a secret passed and that the table does not open to it."""
    passed = evidence.doors_of(word_of(secret))
    return sorted(door for door in passed if not TABLE[secret].allows(door))


# Studies: one run of each kind, from which all cells of the kind are read.

OWN_KEYS = "its keys"
FOREIGN_KEYS = "keys and variables of others"
ANOTHER_ROW = "another row"
THOUGHTLESS = (
    *("evaluate", "agreement", "fit", "robustness", "rates", "nodes"),
    *("profile", "compare-quants"),
)
"""Kinds whose small run asks for single tokens only, or for answers that a thought would spoil."""
STUDY_CELLS = {
    f"{kind} / {secret}": (kind, secret)
    for kind, exposure in EXPOSED.items()
    for secret in (
        *(OWN_KEYS, FOREIGN_KEYS),
        *exposure.secrets,
        *(() if kind in THOUGHTLESS else ("thought",)),
        *((ANOTHER_ROW,) if exposure.rows_apart else ()),
    )
}

TRAINING_ROWS = 7
"""Of 20 rows two thirds are held out of a search; the documentation has the table."""
EVIDENCE: dict[str, Evidence] = {}
"""The evidence of runs that several cells share."""


@pytest.fixture
def study_evidence(home, cli, monkeypatch, caplog):
    """Return the evidence of a run of a kind of study, which is run once."""

    def run(kind: str) -> Evidence:
        if kind not in EVIDENCE:
            EVIDENCE[kind] = run_kind(kind)
        return EVIDENCE[kind]

    def run_kind(kind: str) -> Evidence:
        caplog.set_level(logging.DEBUG)
        recipe = EXPOSED[kind].recipe
        with open_world(home, cli, monkeypatch) as world:
            if kind == "memory-eval":
                serve_memories(world.other)
                recipe = recipe.changed(system=world.other.root)
            world.prepare(recipe)
            world.server.heard.clear()
            world.script = think
            outcome = world.run(kind, recipe, "-o", "report.json", "-o", "report.html")
            exported = ("report.md", "table.csv", "table.jsonl")
            evidence = world.watch(
                ("runs", "export", "last", *exported), ("runs", "show", "last", "--json")
            )
            evidence.add("printed", outcome.out + outcome.err)
            evidence.add("log", caplog.text)
            evidence.code = outcome.code
            return evidence

    return run


@parametrize(LAW, "cell", STUDY_CELLS, quick=1)
def test_a_study_keeps_its_secrets(study_evidence, cell):
    kind, secret = cell
    exposure = EXPOSED[kind]
    evidence = study_evidence(kind)
    assert evidence.code in (0, 3), evidence.printed

    # The run must have asked, with the question, the models that it was to ask.
    if exposure.reader is None:
        assert evidence.requests == []
    else:
        assert exposure.reader in evidence.bodies_of(QUESTION)

    if secret == OWN_KEYS:
        if exposure.reader is not None:
            assert "header authorization at own" in evidence.doors_of(WORDS["own key"])
            assert "header x-own at own" in evidence.doors_of(WORDS["own header"])
        assert closed_doors("own key", evidence) == []
        assert closed_doors("own header", evidence) == []
        assert closed_doors("key of a memory system", evidence) == []
    elif secret == FOREIGN_KEYS:
        assert doors_of_foreign_keys(evidence) == {}
    elif secret == ANOTHER_ROW:
        assert requests_with_two_rows(evidence) == []
    else:
        if secret == "thought":
            assert "store" in evidence.doors_of(word_of(secret))
        assert closed_doors(secret, evidence) == []


def doors_of_foreign_keys(evidence: Evidence) -> dict[str, set[str]]:
    """Return the doors that variables passed which belong to no host of the run."""
    doors = {name: evidence.doors_of(_word_in(VARIABLES[name])) for name in FOREIGN}
    return {name: passed for name, passed in doors.items() if passed}


def _word_in(value: str) -> str:
    return next(part for part in value.split("-") if part.startswith("kanari"))


def requests_with_two_rows(evidence: Evidence) -> list[str]:
    """Return who read words of two rows in one request."""
    return [
        reader
        for reader, words in evidence.requests
        if len([word for word in words if ROW.fullmatch(word)]) > 1
    ]


@pytest.mark.slow
def test_held_out_rows_stay_unseen(study_evidence):
    """The editor of `calibrate` sees no more rows than the search has."""
    evidence = study_evidence("calibrate")
    rows = {word for word in evidence.passed["body for editor"] if ROW.fullmatch(word)}
    assert 0 < len(rows) <= TRAINING_ROWS


# Judges: which columns of a row each of them reads.

READS: Mapping[str, tuple[str, ...]] = {
    "reference": ("reference",),
    "embedding@MODEL": ("reference",),
    "faithfulness": ("passage",),
    "context-recall": ("reference", "passage"),
    "context-precision": ("reference", "passage"),
    "investigator": ("passage",),
}
"""What judges read beside the input and the candidates; a judge that is not named reads nothing
more."""
WITHOUT_INPUT = (
    "trajectory",
    "investigator",
    "context-recall",
    "faithfulness",
    "embedding@MODEL",
)
"""Judges that do not read the input."""
UNREAD = "what no judge reads"
ASKING = {name: recipe for name, recipe in {**JUDGES, **OPTIONS_OF_JUDGES}.items() if recipe.asks}
SILENT = {name: recipe for name, recipe in {**JUDGES, **METRICS}.items() if not recipe.asks}
JUDGE_CELLS = {
    **{
        f"{name} / {secret}": (name, secret)
        for name in ASKING
        for secret in ("reference", "passage", UNREAD)
    },
    **{f"{name} / nothing is sent": (name, "") for name in SILENT},
}


@pytest.fixture
def judge_evidence(home, cli):
    """Return the evidence of a judgement, which is made once."""

    def judge(name: str) -> Evidence:
        key = f"judge {name}"
        if key not in EVIDENCE:
            EVIDENCE[key] = judge_row(name)
        return EVIDENCE[key]

    def judge_row(name: str) -> Evidence:
        recipe = {**ASKING, **SILENT}[name]
        with Host(answer) as host:
            host.tokenizes = True
            world = World(home, host, cli)
            outcome = world.judge(replace(recipe, row=plant_row(recipe.row)))
            assert world.read_scores(), outcome.err
            evidence = Evidence(outcome.code, outcome.out + outcome.err)
            evidence.add_requests(host)
            return evidence

    return judge


def plant_row(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row with canaries in what only some judges read, and in what none reads."""
    planted = {**row, **{name: COLUMNS[name] for name in ("label", "label_ann", "group", "note")}}
    planted["id"] = canary("id")
    planted["expected_tools"] = [canary("expected tool")]
    planted["reference"] = f"{row.get('reference', 'Oslo')} {canary('reference')}"
    planted["context"] = f"{row.get('context', 'Oslo.')} {canary('passage')}"
    if "input" in row:
        planted["input"] = f"{row['input']} {QUESTION}"
    return planted


@parametrize(LAW, "cell", JUDGE_CELLS, quick=3)
def test_a_judge_reads_its_columns(judge_evidence, cell):
    name, secret = cell
    evidence = judge_evidence(name)
    if not secret:
        assert evidence.requests == []
        return

    assert evidence.requests
    if secret == UNREAD:
        assert name in WITHOUT_INPUT or evidence.bodies_of(QUESTION)
        unread = ("label", "label of a person", "group", "unread column", "id", "expected tool")
        assert [other for other in unread if evidence.bodies_of(word_of(other))] == []
    else:
        reads = secret in READS.get(name, ())
        assert bool(evidence.bodies_of(word_of(secret))) == reads


# Prompts that name the label.

PROMPT_CELLS = prompt_cells()
SUM_ROWS = [{"id": f"r{n}", "n": n, "sum": f"{canary('label')} {2 * n}"} for n in range(2)]
LITTLE_SEARCH = [{"n": n, "sum": f"{canary('label')} {2 * n}"} for n in range(12)]
PLAIN_PROMPT = "What is {n} and {n} more?"


@parametrize(LAW, "cell", PROMPT_CELLS, quick=2)
def test_a_prompt_does_not_show_the_label(home, cli, monkeypatch, cell):
    place, form = cell
    with open_world(home, cli, monkeypatch) as world:
        if place == "text from Python":
            code, printed = compare_in_python(world, form)
        else:
            kind, recipe = name_label(place, form)
            world.prepare(recipe)
            outcome = world.run(kind, recipe)
            code, printed = outcome.code, outcome.err
        evidence = Evidence(code, printed)
        evidence.add_requests(world.server)

    # Either it is refused before a call, or the braces are a text like any other.
    assert bool(evidence.requests) == (code != 2), printed
    assert evidence.bodies_of(canary("label")) <= {"editor"}


def name_label(place: str, form: str):
    """Return a kind of study and its recipe, in which a prompt names the label in a form."""
    prompt = f"{PLAIN_PROMPT} {form}"
    compare = RECIPES["compare"].changed(models=["own/tested"]).with_file("rows.jsonl", SUM_ROWS)
    if place == "text":
        return "compare", compare.changed(prompts={"plain": prompt})
    if place == "chat":
        chat = [{"role": "system", "content": form}, {"role": "user", "content": PLAIN_PROMPT}]
        return "compare", compare.changed(prompts={"plain": chat})
    if place == "earlier answer of a chat":
        chat = [
            {"role": "user", "content": "Show me one."},
            {"role": "assistant", "content": form},
            {"role": "user", "content": PLAIN_PROMPT},
        ]
        return "compare", compare.changed(prompts={"plain": chat})
    if place == "system message":
        return "compare", compare.changed(system=form)
    if place == "conversation":
        rows = [{**row, "turns": [f"What is {row['n']} and 1 more?"]} for row in SUM_ROWS]
        talks = compare.with_file("rows.jsonl", rows)
        return "compare", talks.changed(prompts={"plain": form}, metric="contains", judge=[])
    if place == "text for quants":
        quants = RECIPES["compare-quants"].with_file("rows.jsonl", SUM_ROWS)
        return "compare-quants", quants.changed(prompts={"plain": prompt})
    search = RECIPES["calibrate"].changed(editor="own/editor")
    search = search.with_file("values.jsonl", LITTLE_SEARCH)
    return "calibrate", search.with_file("template.txt", prompt)


def compare_in_python(world, form: str) -> tuple[int, str]:
    """Compare a prompt through the function `compare`; return 2 and the reason if it is refused."""
    world.server.script = answer
    prompts = {"plain": f"{PLAIN_PROMPT} {form}"}
    with Client(store=world.home / "store.db") as client:
        try:
            client.compare(
                SUM_ROWS, prompts, label="sum", metric="exact", models=[f"{world.server.url}#m"]
            )
        except TextEvolveError as error:
            return 2, str(error)
    return 0, ""


# What is tested, keys, passwords: one command each.


@parametrize(LAW, "situation", UNDER_TEST, quick=2)
def test_what_is_tested_gets_its_row(home, cli, monkeypatch, situation):
    check_situation(home, cli, monkeypatch, situation)


@parametrize(LAW, "situation", KEPT, quick=3)
def test_keys_stand_in_no_text(home, cli, monkeypatch, caplog, situation):
    caplog.set_level(logging.DEBUG)
    check_situation(home, cli, monkeypatch, situation, caplog)


def check_situation(home, cli, monkeypatch, situation: Situation, log=None) -> None:
    """Run the command of a situation and hold its secret to the table."""
    monkeypatch.syspath_prepend(str(home))
    with open_world(home, cli, monkeypatch) as world:
        lay_out(world, monkeypatch, situation)
        evidence = world.watch([fill(word, world) for word in situation.command])
        evidence.add("log", log.text if log else "")
        evidence.add_file("body for program", home / "seen.txt")
    sys.modules.pop("canary_app", None)

    if situation.reader:
        assert situation.reader in evidence.bodies_of(QUESTION), evidence.printed
    if situation.door:
        assert situation.door in evidence.doors_of(word_of(situation.secret)), evidence.printed
    assert closed_doors(situation.secret, evidence) == []


def lay_out(world, monkeypatch, situation: Situation) -> None:
    """Write the files and set the variables of a situation."""
    files = {"p.txt": "Solve: {question}", "rows.jsonl": ROWS, "canary_app.py": RECORDED}
    files |= {"asked.py": ASKED_PROGRAM, **situation.files}
    if situation.settings is not None:
        files["textevolve.toml"] = fill(situation.settings, world)
        monkeypatch.delenv("TEXTEVOLVE_CONFIG")
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for name, text in files.items():
        (world.home / name).write_text(fill(text, world), encoding="utf-8")
    for name, value in situation.environment.items():
        monkeypatch.setenv(name, fill(value, world))
    world.server.script = None
    if situation.reply is not None:
        for host in (world.server, world.other):
            host.replies[situation.at] = lambda _body: situation.reply
    moved = Answer(status=307, body=b"", headers={"Location": f"{world.other.root}/app"})
    world.server.replies["/moved"] = lambda _body: moved


# Answers that repeat a key.

ASKS_NOTHING = ("rates",)
ECHOED = [*(kind for kind in EXPOSED if kind not in ASKS_NOTHING), *ECHOED_COMMANDS]
ECHO_CELLS = {
    **{f"evaluate / {echo}": ("evaluate", echo) for echo in ECHOES},
    **{f"{name} / {echo}": (name, echo) for name, echo in zip(ECHOED, cycle(ECHOES), strict=False)},
}
"""One kind of study with all answers, and each kind and command with one of them, in turn."""


@parametrize(LAW, "cell", ECHO_CELLS, quick=1)
def test_a_repeated_key_is_not_passed_on(home, cli, monkeypatch, cell):
    name, echo = cell
    with open_world(home, cli, monkeypatch) as world:
        evidence = (
            echo_study(world, name, echo) if name in EXPOSED else echo_command(world, name, echo)
        )

    assert "header authorization at own" in evidence.doors_of(WORDS["own key"])
    assert closed_doors("own key", evidence) == []
    assert closed_doors("own header", evidence) == []


def echo_study(world, kind: str, echo: str) -> Evidence:
    """Run a study whose calls are all answered so; return its evidence."""
    recipe = RECIPES[kind]
    world.prepare(recipe)
    world.server.heard.clear()
    world.server.replies["/"] = lambda _body: ECHOES[echo]
    outcome = world.run(kind, recipe, "-o", "report.json", "-o", "report.html", "-o", "table.csv")
    evidence = world.watch(("runs", "show", "last"), ("runs", "list"))
    evidence.add("printed", outcome.out + outcome.err)
    return evidence


def echo_command(world, name: str, echo: str) -> Evidence:
    """Run a command whose calls are all answered so; return its evidence."""
    (world.home / "memories.jsonl").write_text('{"text": "Ben drinks tea."}\n', encoding="utf-8")
    for command in (*people.AGENT, ("memories", "add", "notes", "Ann drinks water.")):
        assert world.cli(*command).code == 0
    world.server.heard.clear()
    world.server.replies["/"] = lambda _body: ECHOES[echo]
    return world.watch(ECHOED_COMMANDS[name])


# Users of one agent.


@parametrize(
    LAW,
    "listener",
    {f"what a user said / {name}": name for name in people.LISTENERS},
    quick=0,
)
def test_a_user_is_heard_alone(home, cli, monkeypatch, listener):
    with open_world(home, cli, monkeypatch) as world:
        world.server.script = people.remember
        ids: dict[str, str] = {}
        people.run_with_ids(world, (*people.AGENT, people.ANN_TELLS), ids)
        assert canary(people.USER_SECRET) in cli("memories", "list", "notes").out.lower()
        world.server.heard.clear()
        printed = people.run_with_ids(world, people.LISTENERS[listener], ids)
        evidence = people.evidence_of(world, printed)

    bodies = evidence.bodies_of(canary(people.USER_SECRET))
    assert bool(bodies - {"e"}) == (listener == "the same user"), printed


# What was deleted.


@parametrize(LAW, "deletion", people.DELETIONS, quick=1)
def test_what_is_deleted_is_gone(home, cli, monkeypatch, deletion):
    word = canary("deleted")
    with open_world(home, cli, monkeypatch) as world:
        for name, text in people.DELETED_FILES.items():
            (home / name).write_text(text, encoding="utf-8")
        world.server.script = people.remember
        ids: dict[str, str] = {}
        people.run_with_ids(world, deletion.before, ids)
        output = people.run_with_ids(world, deletion.shows, ids)
        before = people.evidence_of(world, output)
        assert ("printed" if deletion.shows else "store") in before.doors_of(word), output
        people.run_with_ids(world, deletion.deletes, ids)
        world.server.heard.clear()
        printed = people.run_with_ids(world, deletion.after, ids)
        evidence = people.evidence_of(world, printed)

    doors = evidence.doors_of(word)
    assert doors - {"store"} == set()
    assert not (deletion.erased and "store" in doors)


# A server with two tenants, which is asked once for all cells.

TENANT_CELLS = {
    **{f"key of another tenant / {route}": ("beta", route) for route in people.ROUTES},
    **{
        f"the tenant's own key / {route}": ("acme", route)
        for route, request in people.ROUTES.items()
        if request.thing
    },
}
MODEL_KEY = VARIABLES["TEXTEVOLVE_API_KEY"]
ECHOED_PATHS = {
    "chat": ("/v1/chat/completions", people.chat_body("MODEL")),
    "streamed chat": ("/v1/chat/completions", {**people.chat_body("MODEL"), "stream": True}),
    "response": ("/v1/responses", {"model": "MODEL", "input": "Hello."}),
    "embedding": ("/v1/embeddings", {"model": "MODEL", "input": "Hello."}),
    "decision": (
        "/v1/systemone",
        {
            "model": "MODEL",
            "state": {"input": "Q?", "output": "A."},
            "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
        },
    ),
    "agent": ("/v1/chat/completions", people.chat_body("acme/bot", "Whom has Ben met?")),
    "search of memories": (
        "/v1/namespaces/acme/collections/notes/memories/search",
        {"query": "Whom has Ben met?"},
    ),
}
"""Requests that a server answers by asking its model, whose key a refusal repeats."""


@dataclass
class Served:
    """What came out of a server with two tenants.

    Attributes:
        replies: What callers got, by caller and route.
        keys: The key of each tenant, and of those that came later.
        sent: All that the model's host heard.
        stored: The bytes of the store's files, as text.
        heard_of_bob: What the model heard for a user who is not the first one.
    """

    replies: dict[str, people.Reply]
    keys: dict[str, str]
    sent: str = ""
    stored: str = ""
    heard_of_bob: str = ""

    def answers(self) -> str:
        """Return all that callers got."""
        return "\n".join(reply.text for reply in self.replies.values())


SERVED: list[Served] = []


@pytest.fixture
def server_host(home, monkeypatch):
    """The host that the server asks, with a key of its own."""
    monkeypatch.setenv("TEXTEVOLVE_API_KEY", MODEL_KEY)
    with Host(people.remember) as host:
        yield host


@pytest.fixture
def model(server_host):
    """The model of the server."""
    return f"{server_host.url}#m"


@pytest.fixture
def served(request):
    """What came out of a server with two tenants."""
    if not SERVED:
        names = ("cli", "home", "server_host", "serve")
        SERVED.append(ask_server(*(request.getfixturevalue(name) for name in names)))
    return SERVED[0]


def ask_server(cli, home, host: Host, serve) -> Served:  # noqa: F811
    """Furnish two namespaces, ask for all that is acme's with both keys, let the model's host
    repeat its key, and last delete acme and make it anew."""
    ids = furnish_tenants(cli, home, host)
    keys = {space: people.make_key(cli, space, "--namespace", space) for space in people.SPACES}
    keys["root"] = people.make_key(cli, "root")
    url = serve(keys=True)
    served = Served({}, keys)
    ids["RUN"] = begin_study(url, keys["acme"], people.word_of("study"))
    begin_study(url, keys["acme"], people.SLASHED, seed=2)
    tell_agent(url, keys["acme"], host, served)

    for caller in ("beta", "acme"):
        for name, route in people.ROUTES.items():
            if caller == "acme" and not route.thing:
                continue
            path = people.put_ids(route.path, ids)
            reply = people.request(url + path, keys[caller], route.body, name.split()[0])
            served.replies[f"{caller} {name}"] = reply
    described = people.request(f"{url}/openapi.json", keys["acme"])
    served.replies["acme GET /openapi.json"] = described

    repeat_keys(url, host, served)
    renew_acme(url, cli, ids, served)
    served.sent = "\n".join(f"{heard.headers} {heard.body}" for heard in host.heard)
    files = [path.read_bytes() for path in home.glob("store.db*") if path.is_file()]
    served.stored = b"\n".join(files).decode("latin-1")
    return served


def furnish_tenants(cli, home, host: Host) -> dict[str, str]:
    """Make the things of both tenants; return the ids of some of acme's."""
    memories = {space: people.furnish(cli, host, space) for space in people.SPACES}
    job = f"kind: guide\nquestion: {people.word_of('job')}\n"
    (home / "job.yaml").write_text(job, encoding="utf-8")
    cli("jobs", "add", "acme/nightly", "job.yaml", "--cron", "0 3 1 1 *")
    labelled = {"id": "x", "input": people.word_of("task"), "output": "A."}
    labelled |= {"label_ann": canary("label of a person"), "reference": canary("reference")}
    (home / "task.jsonl").write_text(write_rows([labelled]), encoding="utf-8")
    cli("labels", "create", "acme/check", "task.jsonl")
    listed = cli("labels", "list", "--namespace", "acme", "--json").out
    return {"MEMORY": memories["acme"], "TASK": people.id_of_task(listed)}


def begin_study(url: str, key: str, name: str, **fields: object) -> str:
    """Begin a study of acme's and wait for its end; return its id."""
    row = {"input": people.word_of("case"), "output": "a", "reference": "a"}
    study = {"kind": "evaluate", "cases": ["c.jsonl"], "judge": "metric:exact", **fields}
    files = {"c.jsonl": write_rows([row])}
    run = {"name": name, "namespace": "acme", "files": files}
    begun = json.loads(people.request(f"{url}/v1/studies", key, {**study, "run": run}).text)
    address = f"{url}/v1/studies/{begun['id']}"

    # The stream of events ends when the study does.
    people.request(f"{address}/events", key)
    assert json.loads(people.request(address, key).text)["status"] == "finished"
    return begun["id"]


def tell_agent(url: str, key: str, host: Host, served: Served) -> None:
    """Let a user tell acme's agent something, and another user ask for it."""
    chat = f"{url}/v1/chat/completions"
    message = people.chat_body("acme/bot", f"I have met {people.name_of('acme chat')}.")
    people.request(chat, key, {**message, "user": "eve", "metadata": {"session": "new"}})

    # The agent learns after it has answered; only then can another user hear of it.
    stored = ""
    while people.word_of("chat") not in stored:
        stored = people.request(f"{url}{people.MEMORIES}", key).text.lower()
    people.request(chat, key, {**people.chat_body("acme/bot"), "user": "bob"})
    bodies = [heard.body for heard in list(host.heard)]
    served.heard_of_bob = "\n".join(body for body in bodies if "talking with bob" in body)
    assert served.heard_of_bob


def repeat_keys(url: str, host: Host, served: Served) -> None:
    """Ask the server for all that asks a model, while its host repeats its key."""
    refusal = json.dumps({"error": {"message": f"bad: Bearer {MODEL_KEY}"}}).encode()
    host.replies["/"] = lambda _body: Answer(status=400, body=refusal)
    for name, (path, body) in ECHOED_PATHS.items():
        filled = json.loads(json.dumps(body).replace("MODEL", f"{host.url}#m"))
        served.replies[f"echo {name}"] = people.request(url + path, served.keys["acme"], filled)
    host.replies.clear()


def renew_acme(url: str, cli, ids: dict[str, str], served: Served) -> None:
    """Delete acme, make it anew with a new agent and a new key, and ask with both keys."""
    root = served.keys["root"]
    people.request(f"{url}/v1/namespaces/acme", root, method="DELETE")
    people.request(f"{url}/v1/namespaces", root, {"name": "acme"})
    agent = {"name": "bot", "persona": f"You are {canary('new tenant')}."}
    people.request(f"{url}/v1/namespaces/acme/agents", root, agent)
    served.keys["new"] = people.make_key(cli, "new", "--namespace", "acme")
    for caller in ("acme", "new"):
        for path in ("/v1/namespaces/acme/agents", "/v1/studies", "/v1/studies/RUN/records"):
            reply = people.request(url + people.put_ids(path, ids), served.keys[caller])
            served.replies[f"{caller} later {path}"] = reply


@parametrize(LAW, "cell", TENANT_CELLS, quick=0)
def test_a_tenant_sees_his_own(served, cell):
    caller, route = cell
    reply = served.replies[f"{caller} {route}"]
    thing = people.ROUTES[route].thing
    if caller == "acme":
        assert reply.status == 200, reply.text
        assert people.word_of(thing) in reply.canaries
    else:
        assert [word for word in reply.canaries if word.startswith("kanariacme")] == []
        if not route.startswith("GET "):
            assert reply.status in (403, 404), reply.text


def keys_in(text: str, served: Served) -> list[str]:
    """Return whose keys a text holds."""
    return [name for name, key in served.keys.items() if key in text]


SERVER_CELLS = {
    "server / clients' keys for its model": lambda it: keys_in(it.sent, it),
    "server / clients' keys in its store": lambda it: keys_in(it.stored, it),
    "server / clients' keys in its answers": lambda it: keys_in(it.answers(), it),
    "server / key of its model in its store": lambda it: MODEL_KEY in it.stored,
    "server / key of its model in its answers": lambda it: MODEL_KEY in it.answers(),
    **{
        f"server / repeated key / {name}": (
            lambda it, name=name: MODEL_KEY in it.replies[f"echo {name}"].text
        )
        for name in ECHOED_PATHS
    },
    "page of labelling / label of another person": (
        lambda it: canary("label of a person") in it.replies["acme GET /labelling/{id}"].canaries
    ),
    "user over HTTP / what another user said": (
        lambda it: people.word_of("chat") in it.heard_of_bob.lower()
    ),
    "namespace made anew / studies of the old one": (
        lambda it: people.word_of("study") in it.replies["new later /v1/studies"].canaries
    ),
    "namespace made anew / records of the old one": (
        lambda it: (
            people.word_of("case") in it.replies["new later /v1/studies/RUN/records"].canaries
        )
    ),
    "namespace made anew / agents for the old key": (
        lambda it: (
            canary("new tenant") in it.replies["acme later /v1/namespaces/acme/agents"].canaries
        )
    ),
}
"""What must not have come out of the server, each as a question whose answer is nothing."""


@parametrize(LAW, "leak", SERVER_CELLS, quick=0)
def test_a_server_keeps_its_secrets(served, leak):
    # The model's host heard the server with its key, and its refusals came back.
    assert MODEL_KEY in served.sent
    assert {served.replies[f"echo {name}"].status >= 400 for name in ECHOED_PATHS} == {True}
    assert people.word_of("task") in served.replies["acme GET /labelling/{id}"].canaries
    assert canary("new tenant") in served.replies["new later /v1/namespaces/acme/agents"].canaries
    assert not leak(served)


@pytest.mark.slow
def test_each_route_has_a_cell(served, paths):  # noqa: F811
    """Pages are listed by their paths, routes of the description by path and method."""
    listed = [*people.ROUTES, *people.COMMON_ROUTES]
    check_members("path", paths, {route.partition(" ")[2] for route in listed})
    document = json.loads(served.replies["acme GET /openapi.json"].text)
    described = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    plain = {route.replace(":path", "") for route in listed}
    assert sorted(described - plain) == []


# The matrix itself.


def test_each_member_has_a_cell(cli):
    check_members("study", list_kinds(cli), [*EXPOSED, *WITHOUT_FILE])
    check_members("judge", list_judges(cli), JUDGES)
    check_members("metric", list_metrics(cli), METRICS)


def test_known_failures_are_cells():
    check_known(
        LAW,
        *(STUDY_CELLS, JUDGE_CELLS, PROMPT_CELLS, UNDER_TEST, KEPT, ECHO_CELLS),
        *(
            TENANT_CELLS,
            SERVER_CELLS,
            people.DELETIONS,
            [f"what a user said / {name}" for name in people.LISTENERS],
        ),
    )
