"""Judges by their specs."""

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.judges.judge import find_judge, judge_names, parse_judge
from textevolve.judges.opening import Judges
from textevolve.judges.pairwise import Pairwise
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.llm.verdicts import Deciding
from textevolve.trajectory import Trajectory


def test_a_spec_is_read():
    text = "pairwise+rules+seed=3@http://h:1/v1#m"
    pairwise = Pairwise(rules=True, seed=3, model="http://h:1/v1#m", source=text)
    assert parse_judge(text) == pairwise
    assert parse_judge("reference").reads_reference
    assert parse_judge("debate:prompt-tuning+rounds=1").parameters == {"rounds": "1"}


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
        parse_judge(text)


def test_the_decider_is_one_of_the_models_that_a_debate_asks():
    judge = "debate+readout=decide+decider=local/laya"
    debate = parse_judge(judge)
    plain = parse_judge("debate+readout=decide")
    assert debate.models("openai/gpt-5") == ("openai/gpt-5", "local/laya")
    assert parse_judge(f"{judge}@xai/grok").models(None) == ("xai/grok", "local/laya")
    assert plain.models("openai/gpt-5") == ("openai/gpt-5",)
    assert debate.describe()["profile"]["decider"] == "local/laya"
    assert debate.describe() != plain.describe()
    assert [profile.readout for profile in debate.profiles] == ["decide"]


def test_debates_are_profiles_with_something_set():
    assert parse_judge("debate").load().name == "general"
    jury = parse_judge("jury:prompt-tuning").load()
    assert (jury.protocol, jury.rounds, len(jury.agents)) == ("independent", 1, 4)
    assert len(parse_judge("single").load().agents) == 1
    expected = "escalation+escalate_below=0.8+readout=logprob-weighted"
    escalation = parse_judge(expected).load()
    assert (escalation.protocol, escalation.escalate_below) == ("escalation", 0.8)
    assert escalation.readout == "logprob-weighted"
    with pytest.raises(InputError, match="rounds"):
        parse_judge("debate+rounds=0").load()


OF_ITS_OWN = ("embedding", "instruction-likelihood", "checks", "prompt")
"""Judges that need another endpoint, other rows or a file."""


@pytest.mark.parametrize(
    ("name", "rules"),
    [(name, "") for name in judge_names() if not find_judge(name).usage and name not in OF_ITS_OWN]
    + [("debate", "+rules"), ("probe", "+rules"), ("pairwise", "+rules")],
)
async def test_every_judge_judges(name, rules):
    texts = ("Five.", "Five and seven are prime.")
    steps = Trajectory(tool_calls=())
    case = Case("Name a prime.", ("Seven.", "Nine."), "1", {}, *texts, trajectory=steps)
    async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
        model = Deciding(client, None)
        judge = Judges("scripted", lambda _: model).open(parse_judge(name + rules))
        evaluation = await judge(case)
    assert evaluation.coverage == 1
    assert all(0 <= result.score <= 1 for result in evaluation.result)
    assert evaluation.usage.calls == len(server.requests)
    ruled = ["Length, politeness" in str(body["messages"]) for body in server.requests]
    assert any(ruled) == bool(rules)


@pytest.mark.parametrize("text", ["pairwise+comparisons=some", "probe+rounds=2", "probe+seed=x"])
def test_parameters_of_judges_are_checked_before_a_run_is_begun(text):
    with pytest.raises(InputError):
        parse_judge(text)


def test_other_names_of_options_are_understood():
    assert parse_judge("probe+few-shot").examples
