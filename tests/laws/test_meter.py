"""Law 6, one meter: every paid call is counted, priced and limited at one place, whoever began it
and however it ended.

A cell is a door and an ending, such as "summarize / thoughts alone": a small run comes in by the
door (a kind of study, a judge, a command, a route of the server), and all answers of its endpoint
end in one way (`meter_world.ENDINGS`). The endpoint keeps an account of what it answered and of the
usage that it named; tokens have prices that are powers of two, another for each model. Asserted is
that the journal, the list of runs, the report or the namespace was charged what stands in that
account, to the token and the last digit of a dollar.

To read a failure: `owed` is the endpoint's account, the other side is what we charged. More owed
than charged is a call that was paid and that nobody counted; more charged than owed is a call that
was counted twice, or priced as another model's. Where the endpoint names no tokens, each call must
have some, estimated from its texts, and an unknown cost. An answer that the endpoint worked on and
that never came as a whole is owed its prompt at least.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from laws.judges import JUDGES, OPTIONS_OF_JUDGES, JudgeRecipe
from laws.matrix import check_known, check_members, parametrize
from laws.meter_doors import (
    ASKS_NOTHING,
    BATCHES,
    COMMANDS,
    FREE_ROUTES,
    HANGS_UP,
    NOTES,
    ROUTES,
    SECOND_MODELS,
    TEA,
    TOTALS,
    WITHOUT_TOTAL,
    Request,
    Tenant,
    find_values,
    read_results,
    read_usage,
)
from laws.meter_world import (
    ENDINGS,
    FAMILIES,
    AccountedBatches,
    AccountedServer,
    Bill,
    EndingScript,
    add_up,
    choose_endings,
    mark_journal,
    read_journal,
    read_list,
    read_namespace,
    write_settings,
)
from laws.registries import BATCH_FAULTS, choose, list_judges, list_kinds
from laws.studies import ADA, COLLECTIONS, RECIPES, WITHOUT_FILE, Recipe, answer
from server.conftest import ask, serve  # noqa: F401
from textevolve.llm.testing import BatchFault

pytestmark = pytest.mark.guard

LAW = "meter"


@pytest.fixture
def server():
    with AccountedServer() as started:
        yield started


@dataclass
class Account:
    """What a door owes and what it was charged, from the time when it was opened."""

    world: Any
    mark: int

    @property
    def owed(self) -> Bill:
        return self.world.server.owe()

    @property
    def broken(self) -> int:
        return self.world.server.count_broken()

    @property
    def charged(self) -> Bill:
        """The calls of the journal that have tokens: attempts that failed for nothing have none."""
        calls = read_journal(self.world.home, self.mark)
        return add_up(call for call in calls if call.tokens)

    @property
    def listed(self) -> Bill:
        return read_list(self.world.cli)


def open_account(world, ending: str) -> Account:
    """Begin an account: from now on all answers end in one way."""
    write_settings(world.home, world.server.url, ENDINGS[ending].settings)
    world.script = EndingScript(answer, ENDINGS[ending])
    world.server.script = world.script
    world.server.account.clear()
    return Account(world, mark_journal(world.home))


def check_account(account: Account, ending: str, listed: bool = True) -> None:
    """Assert that what was charged is what is owed. `listed`: whether there is a run, which the
    list of runs has with its charges."""
    owed = account.owed
    charged = account.charged
    if ending in FAMILIES["unsaid"]:
        assert charged.calls == len(account.world.server.account)
        assert charged.tokens > owed.tokens
        assert charged.cost is None
    elif ending in FAMILIES["broken"]:
        assert account.broken > 0
        assert charged.prompt >= owed.prompt + account.broken
    else:
        assert charged == owed
    if listed:
        bill = account.listed
        assert (bill.tokens, bill.cached) == (charged.tokens, charged.cached)
        assert bill.cost == charged.cost


# Kinds of study

EACH_KIND = {"paid": 1, "other": 1}
STUDY_CELLS = {
    f"{kind} / {ending}": (kind, ending)
    for kind in sorted(RECIPES.keys() - ASKS_NOTHING.keys())
    for ending in choose_endings(kind, EACH_KIND)
}


@parametrize(LAW, "cell", STUDY_CELLS, quick=2)
def test_a_study_is_charged(world, cell):
    kind, ending = cell
    recipe = prepare(world, kind)
    account = open_account(world, ending)
    world.run(kind, recipe, "--json")
    check_account(account, ending)


def test_each_kind_has_cells(cli):
    kinds = [kind for kind, _ in STUDY_CELLS.values()]
    check_members("study", list_kinds(cli), [*kinds, *ASKS_NOTHING, *WITHOUT_FILE])


def test_each_ending_is_tried():
    cells = [STUDY_CELLS, JUDGE_CELLS, COMMAND_CELLS, ROUTE_CELLS]
    tried = {ending for matrix in cells for _, ending in matrix.values()}
    check_members("ending", ENDINGS, tried)


def prepare(world, kind: str) -> Recipe:
    """Make what a study works on, at the prices of this law; return its recipe."""
    write_settings(world.home, world.server.url)
    recipe = RECIPES[kind]
    world.prepare(recipe)
    return recipe


# Reports

REPORT_CELLS = {f"the report of {kind} / cached tokens": kind for kind in TOTALS}


@parametrize(LAW, "kind", REPORT_CELLS, quick=1)
def test_a_report_states_the_charge(world, kind):
    recipe = prepare(world, kind)
    account = open_account(world, "cached tokens")
    outcome = world.run(kind, recipe, "--json")
    assert outcome.code == 0, outcome.err
    results = read_results(outcome.out)
    stated = add_up(
        read_usage(usage) for path in TOTALS[kind] for usage in find_values(results, path)
    )
    owed = account.owed
    assert (stated.calls, stated.tokens, stated.cost) == (owed.calls, owed.tokens, owed.cost)


def test_a_summary_states_its_calls(world):
    recipe = prepare(world, "summarize")
    account = open_account(world, "whole")
    outcome = world.run("summarize", recipe, "--json")
    assert json.loads(outcome.out)["calls"] == account.owed.calls > 0


def test_each_kind_has_a_total(cli):
    check_members("study", list_kinds(cli), [*TOTALS, *WITHOUT_TOTAL])


# Limits, and what is asked again

LIMITS = {
    "--max-calls": ("2", lambda bill: bill.calls),
    "--max-tokens": ("100", lambda bill: bill.tokens),
    "--max-cost": ("0.00006", lambda bill: bill.cost),
}
"""The options that stop a run, each with a value that a few calls exceed, and with what it
limits. A call does not begin if its estimate exceeds what is left."""
LIMIT_CELLS = {
    f"{kind} / stopped by {option}": (kind, option)
    for kind in sorted(RECIPES.keys() - ASKS_NOTHING.keys())
    for option in choose(kind, LIMITS, 1)
}


@parametrize(LAW, "cell", LIMIT_CELLS, quick=1)
def test_a_limit_stops_a_run(world, cell):
    kind, option = cell
    recipe = prepare(world, kind)
    account = open_account(world, "whole")
    world.run(kind, recipe, option, LIMITS[option][0])
    check_limit(account, option)
    check_account(account, "whole", listed=False)
    outcome = world.cli("runs", "resume", "last")
    assert outcome.code == 0, outcome.err
    assert account.owed.calls > 0
    check_account(account, "whole")


def check_limit(account: Account, option: str) -> None:
    """Assert that a limit was exceeded by less than one call."""
    value, measure = LIMITS[option]
    assert measure(account.owed) < float(value) + account.world.server.find_dearest(measure)


CHANGES_ITS_GROUND = ("integrate-memories", "read-corpus", "evolve-persona")
"""Kinds that work on what their last run made, so that the same study is another run."""
AGAIN_CELLS = {f"{kind} / a second time": kind for kind in RECIPES}


@parametrize(LAW, "kind", AGAIN_CELLS, quick=1)
def test_nothing_is_paid_twice(world, kind):
    recipe = prepare(world, kind)
    account = open_account(world, "whole")
    world.run(kind, recipe)
    owed = account.owed
    assert (owed.calls > 0) == (kind not in ASKS_NOTHING)
    resumed = kind in CHANGES_ITS_GROUND
    command = ("runs", "resume", "last") if resumed else ("run", "file", "study.yaml")
    outcome = world.cli(*command)
    assert outcome.code == 0, outcome.err
    assert account.owed == owed
    assert account.charged == owed
    bill = account.listed
    assert (bill.calls, bill.tokens, bill.cost) == (owed.calls, owed.tokens, owed.cost)


MODEL_CELLS = {f"{kind} / each model at its own price": kind for kind in SECOND_MODELS}


@parametrize(LAW, "kind", MODEL_CELLS, quick=1)
def test_each_model_has_its_price(world, kind):
    prepare(world, kind)
    account = open_account(world, "whole")
    outcome = world.run(kind, RECIPES[kind].changed(**SECOND_MODELS[kind]))
    assert outcome.code == 0, outcome.err
    assert "scripted-small" in {served.model for served in world.server.account}
    check_account(account, "whole")


# Judges

EACH_JUDGE = {"paid": 1, "other": 1}
EACH_OPTION = {"paid": 1}
ASKING: Mapping[str, JudgeRecipe] = {
    name: recipe for name, recipe in {**JUDGES, **OPTIONS_OF_JUDGES}.items() if recipe.asks
}
JUDGE_CELLS = {
    f"{name} / {ending}": (name, ending)
    for name in ASKING
    for ending in choose_endings(name, EACH_JUDGE if name in JUDGES else EACH_OPTION)
}
FREE_CELLS = {f"{name} / whole": recipe for name, recipe in JUDGES.items() if not recipe.asks}


@parametrize(LAW, "cell", JUDGE_CELLS, quick=1)
def test_a_judge_is_charged(world, cell):
    name, ending = cell
    recipe = ASKING[name]
    write_settings(world.home, world.server.url)
    if recipe.text.endswith(".judge"):
        world.fit_judge(recipe.text)
    account = open_account(world, ending)
    world.judge(recipe)
    assert world.server.account or ending in FAMILIES["attempts"]
    check_account(account, ending)


@parametrize(LAW, "recipe", FREE_CELLS, quick=1)
def test_a_judge_without_a_model_costs_nothing(world, recipe):
    account = open_account(world, "whole")
    outcome = world.judge(recipe)
    assert outcome.code == 0, outcome.err
    assert account.owed == Bill()
    check_account(account, "whole")


def test_each_judge_is_tried(cli):
    judges = [name for name, _ in JUDGE_CELLS.values()]
    free = [name for name, recipe in JUDGES.items() if not recipe.asks]
    check_members("judge", list_judges(cli), {*judges, *free} - OPTIONS_OF_JUDGES.keys())


# Commands that ask models outside of runs

EACH_COMMAND = {"other": 1}
COMMAND_CELLS = {
    f"{name} / {ending}": (name, ending)
    for name in COMMANDS
    for ending in ["whole", *choose_endings(name, EACH_COMMAND)]
}


@parametrize(LAW, "cell", COMMAND_CELLS, quick=1)
def test_a_command_is_charged(world, cell):
    name, ending = cell
    remember(world)
    account = open_account(world, ending)
    for command in COMMANDS[name]:
        world.cli(*(word.replace("MODEL", world.model) for word in command))
    assert world.server.account or ending in FAMILIES["attempts"]
    check_account(account, ending, listed=False)


def remember(world) -> None:
    """Make an agent with collections, of which one has a memory."""
    write_settings(world.home, world.server.url)
    (world.home / "notes.jsonl").write_text(NOTES, encoding="utf-8")
    world.prepare(Recipe({}, before=(*COLLECTIONS, ("memories", "add", "chats", "Ann is kind."))))


CHATS = {
    "the usage of a chat's answer / without memories": ("--no-memory",),
    "the usage of a chat's answer / with memories": (),
}


@parametrize(LAW, "options", CHATS, quick=1)
def test_an_answer_states_the_charge(world, options):
    remember(world)
    account = open_account(world, "whole")
    outcome = world.cli("chat", "ada", "--once", TEA, "-m", world.model, "--json", *options)
    stated = add_up(read_usage(row["usage"]) for row in outcome.rows)
    assert stated == account.owed


CHAT_LIMITS = {f"chat / stopped by {option}": option for option in LIMITS}


@parametrize(LAW, "option", CHAT_LIMITS, quick=0)
def test_a_limit_stops_a_chat(world, option):
    remember(world)
    account = open_account(world, "whole")
    lines = "".join(f"FACT: Ann likes tea {number}.\n" for number in range(4))
    world.cli("chat", "ada", "-m", world.model, option, LIMITS[option][0], stdin=lines.encode())
    check_limit(account, option)
    check_account(account, "whole", listed=False)


# Batches

BATCH_CELLS = {"a batch / whole": None} | {f"a batch / {fault}": fault for fault in BATCH_FAULTS}


@parametrize(LAW, "fault", BATCH_CELLS, quick=1)
def test_a_batch_is_charged(world, fault: BatchFault | None):
    account = run_batch(world, fault, model="metered/scripted")
    owed = account.owed
    assert account.charged == replace(owed, cost=owed.cost / 2)
    assert account.listed.cost == owed.cost / 2


DISCOUNTS = {"a batch / no discount is known": {}}


@parametrize(LAW, "fields", DISCOUNTS, quick=0)
def test_an_unknown_discount_is_an_unknown_cost(world, fields):
    account = run_batch(world, None, **fields)
    assert account.charged == replace(account.owed, cost=None)


def run_batch(world, fault: BatchFault | None, **fields: Any) -> Account:
    """Judge rows in batch jobs, of which the first shows a fault."""
    recipe = prepare(world, "evaluate").changed(**fields)
    account = open_account(world, "whole")
    write_settings(world.home, world.server.url, BATCHES.format(url=world.server.url))
    batches = AccountedBatches(0.0, lambda number: fault if number == 1 else None)
    batches.note = world.server.note
    world.server.batches = batches
    world.run("evaluate", recipe, "--batch")
    assert batches.submissions > 0

    # Results that stay away stop the run; once they are back, a resumed run collects them.
    unread_jobs = [job for job in batches.jobs.values() if job.fault is BatchFault.RESULTS_GONE]
    if unread_jobs:
        unread_jobs[0].fault = None
        assert world.cli("runs", "resume", "last", "--batch").code == 0

    return account


# Routes of the server

EACH_ROUTE = {"unbroken": 1}
PASSED_ON = ("chat of a model", "stream of a model", "response of a model")
"""Routes by which a model's own answer is passed on to the client."""
ROUTE_CELLS = {
    f"{name} / {ending}": (name, ending)
    for name in ROUTES
    for ending in ["whole", *choose_endings(name, EACH_ROUTE)]
} | {
    f"{name} / {ending}": (name, ending)
    for name in PASSED_ON
    for ending in ("no usage", "an error in a 200 at first", "a stream in small packets")
}


@pytest.fixture
def tenant(world, serve, monkeypatch):  # noqa: F811
    """Start a server with a namespace that may spend so many tokens a day, and with what a request
    works on. What was spent is written down at the server's end alone, so that no cell meets the
    server in between."""
    monkeypatch.setattr("textevolve.server.identity.FLUSH_SECONDS", 60.0)

    def start(tokens: int, request: Request) -> Tenant:
        namespace = ("agents", "namespaces", "create", "acme", "--tokens-per-day", tokens)
        embedder = ("--embedder", f"{world.model}-embeddings")
        agents = (
            ("memories", "collections", "create", "acme/chats", *embedder),
            ("agents", "create", "acme/plain", "--persona", ADA),
            ("agents", "create", "acme/ada", "--persona", ADA, "--memories", "chats"),
        )
        key = ("config", "keys", "add", "ann", "--namespace", "acme", "--scope", "admin")
        setup = (namespace, *agents, key) if request.remembers else (namespace, key)
        for command in setup:
            outcome = world.cli(*command)
            assert outcome.code == 0, outcome.err
        url = serve(model=world.model, judge="probe", keys=True, allow_model=["*"])
        return Tenant(url, outcome.out.strip(), world.model, serve.end)

    return start


@parametrize(LAW, "cell", ROUTE_CELLS, quick=1)
def test_a_request_is_charged(world, tenant, cell):
    name, ending = cell
    client = tenant(1_000_000, ROUTES[name])
    account = open_account(world, ending)
    _, body = client.send(ROUTES[name])
    if name == "a study":
        client.wait_for_study(body)
    client.end()  # which writes down what the namespace has spent
    charged = account.charged
    assert world.server.account or ending in FAMILIES["attempts"]
    if ending in FAMILIES["unsaid"]:
        assert charged.calls == len(world.server.account)
    else:
        assert charged.tokens == account.owed.tokens
    assert read_namespace(world.home) == charged.tokens


LIMITED = (*HANGS_UP, "a memory is added", "memories are imported", "a study")
SPENT_CELLS = {f"{name} / the namespace is spent": name for name in LIMITED}


@parametrize(LAW, "name", SPENT_CELLS, quick=1)
def test_who_has_spent_all_asks_nothing(world, tenant, name):
    client = tenant(1, ROUTES[name])
    world.server.script = answer
    assert client.send(ROUTES["chat of a model"])[0] == 200
    world.server.account.clear()
    _, body = client.send(ROUTES[name])
    if name == "a study":
        client.wait_for_study(body)
    client.end()
    assert world.server.account == []


HANG_UPS = {f"{name} / the client hangs up": name for name in HANGS_UP}


@parametrize(LAW, "name", HANG_UPS, quick=0)
def test_hanging_up_is_charged(world, tenant, name):
    client = tenant(1_000_000, ROUTES[name])
    world.server.script = EndingScript(answer, ENDINGS["never answered in time"])
    world.server.asked.clear()
    world.server.account.clear()
    with client.hang_up(ROUTES[name]):
        assert world.server.asked.wait(60)
    client.end()
    assert read_namespace(world.home) >= len(world.server.account) > 0


def test_each_route_is_tried(tenant):
    document = Request("/openapi.json", None)
    paths = json.loads(tenant(1, document).send(document)[1])["paths"]
    posts = [path for path, methods in paths.items() if "post" in methods]
    known_names = {
        request.path.replace("acme", "{namespace}").replace("chats", "{collection}")
        for request in ROUTES.values()
        if request.body is not None
    }
    check_members("route", posts, [*known_names, *FREE_ROUTES])


def test_known_failures_are_cells():
    check_known(
        LAW,
        STUDY_CELLS,
        REPORT_CELLS,
        LIMIT_CELLS,
        AGAIN_CELLS,
        MODEL_CELLS,
        JUDGE_CELLS,
        FREE_CELLS,
        COMMAND_CELLS,
        CHATS,
        CHAT_LIMITS,
        BATCH_CELLS,
        DISCOUNTS,
        ROUTE_CELLS,
        SPENT_CELLS,
        HANG_UPS,
    )
