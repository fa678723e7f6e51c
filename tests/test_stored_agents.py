"""Stored agents debate: over the command line, Python and HTTP, with their memories, as they were
when a run began."""

import json
from contextlib import closing
from functools import partial

import pytest

from recorded.memory_answers import answers
from textevolve import Client, InputError, Settings
from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec
from textevolve.debate.profile import Profile
from textevolve.evaluation import Case
from textevolve.llm.testing.server import DIMENSION
from textevolve.memory_snapshots import RowPins
from textevolve.reach import Reach, confine
from textevolve.store import kinds
from textevolve.store.repository import Store

OLD = "You are Ada, a guide in the harbour. You like long answers."
CHANGE = {
    "because": [1],
    "reason": "she learned so",
    "action": "add",
    "sentence": 0,
    "text": "You know the ferry to Larkspur.",
}
NEW = f"{OLD} {CHANGE['text']}"
FACT = "The ferry to Larkspur leaves at noon."
CASE = ("When does the ferry leave?", "At noon.", "At one.")
AGENTS = "acme/ada,acme/critic"


@pytest.fixture
def agents(cli, server, home, monkeypatch):
    """Ada, who remembers what is said, and a critic who does not."""
    embedder = f"{server.url}#embeds"
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", embedder)
    with closing(Store(str(home / "store.db"))) as store:
        create = partial(store.write, kinds.create)
        create(kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
        diary = CollectionSpec(name="diary", embedder=embedder, dimension=DIMENSION)
        create(kinds.COLLECTIONS, "acme", diary)
        create(kinds.AGENTS, "acme", AgentSpec(name="ada", persona=OLD, memories="diary"))
        create(kinds.AGENTS, "acme", AgentSpec(name="critic", persona="You look for faults."))
    (home / "notes.jsonl").write_text(json.dumps({"text": FACT}) + "\n")
    added = cli("memories", "import", "acme/diary", "notes.jsonl")
    assert added.code == 0, added.err
    server.requests.clear()


def evolve(cli, server, model):
    """Give Ada another persona out of what she remembers."""
    before, server.script = server.script, answers(changes=[CHANGE])
    outcome = cli("agents", "evolve", "acme/ada", "-m", model, "--min-trust", "0")
    assert outcome.code == 0, outcome.err
    assert "version 2" in outcome.out
    server.script = before
    server.requests.clear()


def prompts_of(server, name):
    every = [body["messages"][-1]["content"] for body in server.requests if "messages" in body]
    return [text for text in every if f"You are {name}" in text]


def evaluate(cli, model, *more):
    return cli("evaluate", *CASE, "--agents", AGENTS, "-m", model, "--rounds", "1", *more)


def test_they_debate_with_their_personas_and_memories(cli, server, model, agents):
    outcome = evaluate(cli, model, "--json")
    assert outcome.code == 0, outcome.err
    profile = json.loads(outcome.out)["profile"]
    assert [each["name"] for each in profile["agents"]] == ["ada", "critic"]
    assert [each["stored"] for each in profile["agents"]] == ["acme/ada", "acme/critic"]
    prompts = prompts_of(server, "ada")
    assert prompts
    assert all(OLD in text and FACT in text and "From acme/diary" in text for text in prompts)
    assert not any(FACT in text for text in prompts_of(server, "critic"))


def test_a_run_keeps_the_persona_that_it_was_begun_with(cli, server, model, agents):
    stopped = evaluate(cli, model, "--max-calls", "1", "--json")
    assert stopped.code == 3
    run = cli("runs", "list", "--json").rows[0]["id"]
    server.requests.clear()
    evolve(cli, server, model)
    resumed = cli("runs", "resume", run, "--max-calls", "100")
    assert resumed.code == 0, resumed.err
    assert not any(NEW in str(body) for body in server.requests)
    assert OLD in json.dumps(json.loads(cli("runs", "show", run, "--json").out))
    server.requests.clear()
    assert evaluate(cli, model).code == 0
    assert all(NEW in text for text in prompts_of(server, "ada"))


def test_profiles_and_judges_name_them_too(cli, server, model, agents, home):
    (home / "team.yaml").write_text(
        "agents:\n  - acme/ada\n  - {name: Lay reader, persona: You know nothing.}\nrounds: 1\n"
    )
    with Client(settings=Settings(store=home / "store.db", model=model)) as client:
        judged = client.evaluate(*CASE[:1], CASE[1:], profile="team.yaml")
        assert [each.name for each in judged.debate.profile.agents] == ["ada", "Lay reader"]
        assert all(FACT in text for text in prompts_of(server, "ada"))
        by_list = client.evaluate(*CASE[:1], CASE[1:], agents=["acme/ada"], rounds=1)
        assert by_list.debate.profile.agents[0].persona == OLD
        server.requests.clear()
        result = client.evaluate(*CASE[:1], CASE[1:], judge="jury:team.yaml")
        assert result.debate.profile.agents[0].persona == OLD
        server.requests.clear()
        client.guide("When does the ferry leave?", debate={"agents": AGENTS, "rounds": 1})
    assert all(FACT in text for text in prompts_of(server, "ada"))
    outcome = cli("judges", "profiles", "show", "team.yaml")
    assert "stored: acme/ada" in outcome.out


@pytest.mark.slow
def test_a_judge_of_another_study_keeps_them_too(cli, server, model, agents, home):
    (home / "rows.csv").write_text("question,one\nWhen?,At noon.\nWhere?,At pier 2.\n")
    judge = f"jury+agents={AGENTS}"
    common = ("compare", "-d", "rows.csv", "--outputs", "one", "--judge", judge)
    common += ("--judge-model", model)
    assert cli(*common, "--max-calls", "1").code == 3
    run = cli("runs", "list", "--json").rows[0]["id"]
    evolve(cli, server, model)
    resumed = cli("runs", "resume", run)
    assert resumed.code == 0, resumed.err
    assert prompts_of(server, "ada")
    assert not any(NEW in text for text in prompts_of(server, "ada"))


@pytest.mark.parametrize(
    ("name", "reason"), [("acme/nobody", "nobody"), ("a/b/c", "is not a name"), ("ada", "ada")]
)
def test_one_that_is_not_there_is_named(model, agents, home, name, reason):
    settings = Settings(store=home / "store.db", model=model)
    with Client(settings=settings) as client, pytest.raises(InputError, match=reason):
        client.evaluate(*CASE[:1], CASE[1:], agents=[name])


def write_case(home, **parameters):
    row = {"input": CASE[0], "candidates": CASE[1:], "rounds": 1, **parameters}
    (home / "cases.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("names", [["acme/ada", "acme/critic"], AGENTS])
def test_rows_name_stored_agents(cli, server, model, agents, home, names, nested):
    """They do so in a list, or in a text as the option --agents has it."""
    parameters = {"agents": names}
    write_case(home, **({"parameters": parameters} if nested else parameters))
    outcome = cli("evaluate", "cases.jsonl", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    prompts = prompts_of(server, "ada")
    assert prompts
    assert all(OLD in text and FACT in text for text in prompts)
    assert prompts_of(server, "critic")


@pytest.mark.slow
def test_resumed_rows_keep_agents(cli, server, model, agents, home):
    write_case(home, agents=["acme/ada", "acme/critic"])
    command = ("evaluate", "cases.jsonl", "-m", model)
    assert cli(*command, "--max-calls", "1").code == 3
    run = cli("runs", "list", "--json").rows[0]["id"]
    evolve(cli, server, model)

    resumed = cli("runs", "resume", run, "--max-calls", "100")
    assert resumed.code == 0, resumed.err
    assert not any(NEW in str(body) for body in server.requests)

    # Ada has changed, so the same command is another run.
    server.requests.clear()
    assert cli(*command).code == 0
    assert all(NEW in text for text in prompts_of(server, "ada"))
    runs = cli("runs", "list", "--json").rows
    assert [each["kind"] for each in runs].count("evaluate") == 2


def test_agents_of_rows_recall(cli, server, model, agents, home):
    agent = {"name": "Eve", "persona": "You are exact.", "collections": ["acme/diary"]}
    write_case(home, agents=[agent])
    outcome = cli("evaluate", "cases.jsonl", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    assert all(FACT in text for text in prompts_of(server, "Eve"))


@pytest.mark.parametrize(
    "agent",
    ["acme/nobody", {"name": "Eve", "persona": "You are exact.", "collections": ["acme/none"]}],
)
def test_missing_agents_name_their_row(cli, server, model, agents, home, agent):
    write_case(home, id="c7", agents=[agent])
    outcome = cli("evaluate", "cases.jsonl", "-m", model)
    assert outcome.code == 2
    assert "case c7" in outcome.err
    assert not server.requests
    assert not cli("runs", "list", "--json").rows


@pytest.mark.parametrize(
    "agent", ["acme/ada", {"name": "Eve", "persona": "E.", "collections": ["acme/diary"]}]
)
def test_rows_reach_no_other_namespace(agents, home, agent):
    """A client of a server names in its rows what belongs to another tenant."""
    pins = RowPins()
    pins.add(Case("Why?", ("So.",), "c1", {"agents": [agent]}))
    reach = Reach(namespaces=lambda name: name == "mine")
    with confine(reach), pytest.raises(InputError, match=r"case c1.*acme"):
        pins.pin(Settings(store=home / "store.db"))


def test_an_agent_of_a_profile_needs_a_persona():
    with pytest.raises(ValueError, match="persona: missing"):
        Profile.model_validate({"agents": [{"name": "A"}]})
