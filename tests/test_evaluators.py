"""Judges by their specs."""

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.evaluators import (
    NAMES,
    OPTIONS,
    EvaluatorSpec,
    models_of,
    open_evaluator,
    parse_evaluator,
    read_profile,
)
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer


def test_a_spec_is_read():
    assert parse_evaluator("pairwise+rules+comparisons=sorted@http://h:1/v1#m") == EvaluatorSpec(
        name="pairwise",
        rules=True,
        parameters={"comparisons": "sorted"},
        model="http://h:1/v1#m",
    )
    assert parse_evaluator("reference").reference
    assert parse_evaluator("debate:prompt-tuning+rounds=1").parameters == {"rounds": "1"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pairwize", "did you mean 'pairwise'"),
        ("", "no judge ''"),
        ("probe:general", "takes no profile"),
        ("probe+rule", "did you mean 'rules'"),
        ("debate+reference", "no option 'reference'"),
        ("backward+rules", "no option 'rules': it has none"),
    ],
)
def test_a_spec_that_is_none(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_evaluator(text)


def test_debates_are_profiles_with_something_set():
    assert read_profile(parse_evaluator("debate")).name == "general"
    jury = read_profile(parse_evaluator("jury:prompt-tuning"))
    assert (jury.protocol, jury.rounds, len(jury.agents)) == ("independent", 1, 4)
    assert len(read_profile(parse_evaluator("single")).agents) == 1
    wanted = "escalation+escalate_below=0.8+readout=expected"
    escalation = read_profile(parse_evaluator(wanted))
    assert (escalation.protocol, escalation.escalate_below) == ("escalation", 0.8)
    assert escalation.readout == "expected"
    with pytest.raises(InputError, match="rounds"):
        read_profile(parse_evaluator("debate+rounds=0"))


def test_the_models_that_are_asked():
    assert models_of(parse_evaluator("probe"), "m") == ("m",)
    assert models_of(parse_evaluator("jury@other"), "m") == ("other",)


@pytest.mark.parametrize(
    ("name", "rules"),
    [(name, "") for name in NAMES] + [(n, "+rules") for n in NAMES if "rules" in OPTIONS[n]],
)
async def test_every_judge_judges(name, rules):
    case = Case("Name a prime.", ("Seven.", "Nine."), "1")
    async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
        judge = open_evaluator(parse_evaluator(name + rules), "scripted", lambda _: client)
        made = await judge(case)
    assert made.coverage == 1
    assert all(0 <= result.score <= 1 for result in made.result)
    assert made.usage.calls == len(server.requests)
    ruled = ["Length, politeness" in str(body["messages"]) for body in server.requests]
    assert any(ruled) == bool(rules)


@pytest.mark.parametrize("text", ["pairwise+comparisons=some", "probe+rounds=2", "probe+seed=x"])
def test_parameters_of_judges_are_checked_before_a_run_is_begun(text):
    with pytest.raises(InputError):
        parse_evaluator(text)
