"""Judges by their specs."""

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.evaluators import (
    KINDS,
    EvaluatorSpec,
    Judges,
    describe_judge,
    judge_models,
    parse_evaluator,
    read_plain,
    read_profile,
    reads_decisions,
)
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decision_wires import Deciding
from textevolve.llm.testing import ScriptedServer
from textevolve.trajectory import Trajectory


def test_a_spec_is_read():
    assert parse_evaluator("pairwise+rules+seed=3@http://h:1/v1#m") == EvaluatorSpec(
        name="pairwise",
        options=frozenset({"rules"}),
        parameters={"seed": "3"},
        model="http://h:1/v1#m",
    )
    assert parse_evaluator("reference").reads_reference
    assert parse_evaluator("debate:prompt-tuning+rounds=1").parameters == {"rounds": "1"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pairwize", "did you mean 'pairwise'"),
        ("", "'' is not the name of a judge"),
        ("probe:general", "takes no profile"),
        ("probe+rule", "did you mean 'rules'"),
        ("debate+reference", "no option 'reference'"),
        ("instruction-likelihood+rules", "no option 'rules': it has none"),
    ],
)
def test_a_spec_that_is_none(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_evaluator(text)


def test_the_decider_is_one_of_the_models_that_a_debate_asks():
    judge = "debate+readout=decide+decider=local/laya"
    assert judge_models(judge, "openai/gpt-5") == ("openai/gpt-5", "local/laya")
    assert judge_models(f"{judge}@xai/grok", None) == ("xai/grok", "local/laya")
    assert judge_models("debate+readout=decide", "openai/gpt-5") == ("openai/gpt-5",)
    assert describe_judge(judge)["profile"]["decider"] == "local/laya"
    assert describe_judge(judge) != describe_judge("debate+readout=decide")
    assert reads_decisions(judge)
    assert not any(map(reads_decisions, ("debate", "probe", "rules:x.yaml")))


def test_debates_are_profiles_with_something_set():
    assert read_profile(parse_evaluator("debate")).name == "general"
    jury = read_profile(parse_evaluator("jury:prompt-tuning"))
    assert (jury.protocol, jury.rounds, len(jury.agents)) == ("independent", 1, 4)
    assert len(read_profile(parse_evaluator("single")).agents) == 1
    wanted = "escalation+escalate_below=0.8+readout=logprob-weighted"
    escalation = read_profile(parse_evaluator(wanted))
    assert (escalation.protocol, escalation.escalate_below) == ("escalation", 0.8)
    assert escalation.readout == "logprob-weighted"
    with pytest.raises(InputError, match="rounds"):
        read_profile(parse_evaluator("debate+rounds=0"))


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (name, "")
        for name, kind in KINDS.items()
        if kind.read is read_plain and name not in ("embedding", "instruction-likelihood")
    ]
    + [("debate", "+rules"), ("probe", "+rules"), ("pairwise", "+rules")],
)
async def test_every_judge_judges(name, rules):
    texts = ("Five.", "Five and seven are prime.")
    steps = Trajectory(tool_calls=())
    case = Case("Name a prime.", ("Seven.", "Nine."), "1", {}, *texts, trajectory=steps)
    async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
        model = Deciding(client, None)
        judge = Judges("scripted", lambda _: model).open(name + rules)
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


def test_other_names_of_options_are_understood():
    assert parse_evaluator("probe+few-shot") == parse_evaluator("probe+examples")
