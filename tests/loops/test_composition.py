"""A chain whose steps are judged one by one: a step that fails is revised."""

import pytest

from textevolve import Client, Limits, Settings
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.steps import ask
from textevolve.llm.testing import ScriptedServer
from textevolve.studies.optimize import OptimizeSpec

TASK = "Tell of Larkspur."
RULES = "rules:\n  - {kind: must, pattern: ferry}\n"


class Script:
    """The first draft lacks the word that its judge wants; a revision has it if it `learns`."""

    def __init__(self, learns):
        self.learns, self.prompts = learns, []

    def __call__(self, body, _number):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        if "Revise an earlier answer" in prompt:
            return "A ferry goes there." if self.learns else "A boat goes there."
        if prompt.startswith("Polish"):
            return f"Polished: {prompt.removeprefix('Polish: ')}"
        return "A boat goes there, somebody said."


@pytest.fixture
def run(home):
    (home / "rules.yaml").write_text(RULES)
    chain = Chain("tale", ask("draft", "Draft: {task}"), ask("text", "Polish: {draft}"))

    def work(script, **options):
        with (
            ScriptedServer(script) as server,
            Client(
                settings=Settings(store=home / "store.db", model=f"{server.url}#scripted"),
                limits=options.pop("limits", None) or Limits(),
            ) as client,
        ):
            fields = {"judge": "rules:rules.yaml", "max_iterations": 1, "mode": "revise"}
            spec = OptimizeSpec(task=TASK, model="python:chain", **{**fields, **options})
            return client.run(spec, objects={"python:chain": chain})[0]

    return work


STEPS = {"draft": "rules:rules.yaml"}


def test_a_step_that_fails_is_revised_before_the_next_begins(run):
    script = Script(learns=True)
    outcome = run(script, step_judge=STEPS, max_iterations=2)
    assert outcome.status == "accepted"
    assert outcome.output == "Polished: A ferry goes there."
    polished = [prompt for prompt in script.prompts if prompt.startswith("Polish")]
    assert polished == ["Polish: A ferry goes there."]
    assert outcome.usage.calls == 3


def test_a_budget_that_ends_within_a_step_ends_the_loop(run):
    outcome = run(Script(learns=False), step_judge=STEPS, max_iterations=3, limits=Limits(calls=2))
    assert outcome.status == "budget"
    assert outcome.output is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--step-judge", "draft=probe"), "needs a chain as --model"),
        (("-m", "tale.yaml", "--step-judge", "drift=probe"), "drift"),
    ],
)
def test_what_names_no_step_is_refused(cli, home, model, more, reason):
    (home / "tale.yaml").write_text(
        f"name: tale\nmodel: {model}\nsteps:\n  - {{ask: draft, prompt: 'Draft: {{task}}'}}\n"
    )
    outcome = cli("optimize", TASK, "-j", "probe", "--judge-model", model, *more)
    assert outcome.code == 2, outcome.out
    assert reason in outcome.err
