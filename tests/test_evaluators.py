"""Judges by their specs."""

from types import SimpleNamespace

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.evaluators import Judges, open_evaluator
from textevolve.judge_specs import (
    NAMES,
    OPTIONS,
    EvaluatorSpec,
    describe_judge,
    judge_models,
    models_of,
    parse_evaluator,
    read_profile,
    reads_decisions,
    with_model,
)
from textevolve.judges import packages
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decision_wires import Deciding
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import ScriptedServer


def test_a_spec_is_read():
    assert parse_evaluator("pairwise+rules+seed=3@http://h:1/v1#m") == EvaluatorSpec(
        name="pairwise",
        rules=True,
        parameters={"seed": "3"},
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


def test_the_models_that_are_asked():
    assert models_of(parse_evaluator("probe"), "m") == ("m",)
    assert models_of(parse_evaluator("jury@other"), "m") == ("other",)


@pytest.mark.parametrize(
    ("name", "rules"),
    [(name, "") for name in NAMES if name != "embedding"]
    + [(n, "+rules") for n in NAMES if "rules" in OPTIONS[n]],
)
async def test_every_judge_judges(name, rules):
    case = Case("Name a prime.", ("Seven.", "Nine."), "1", {}, "Five.", "Five and seven are prime.")
    async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
        spec, model = parse_evaluator(name + rules), Deciding(client, None)
        judge = open_evaluator(spec, "scripted", lambda _: model)
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


# Judges from other packages


class Tone:
    """What a package may name: a maker of judges."""

    def open(self, argument, options, model):
        if set(options) - {"strict", "words"}:
            raise InputError(f"tone: no option '{min(options)}'")

        async def judge(case):
            asked = Message("user", (f"Is it {argument}? {case.candidates[0]}",))
            said = await model(Request(messages=(asked,)))
            return 1.0 if argument in said.text else 0.25

        return judge


async def brevity(case):
    return [max(0.0, 1 - len(text) / 100) for text in case.candidates]


class Point:
    dist = SimpleNamespace(name="tones", version="1.2")

    def __init__(self, name, made):
        self.name, self.made = name, made

    def load(self):
        return self.made


@pytest.fixture
def installed(monkeypatch):
    points = [Point("tone", Tone()), Point("brevity", brevity), Point("broken", 3)]

    def entry_points(group, name=None):
        assert group == "textevolve.judges"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(packages, "entry_points", entry_points)


async def test_a_package_may_bring_judges(installed):
    async with ScriptedServer(lambda *_: "kind") as server, OpenAIClient(server.url, "x") as client:
        judges = Judges("m", lambda name: client)
        case = Case("Write.", ("A text.",), "1")
        (found,) = (await judges.open("tone:kind+strict+words=3")(case)).result
        assert (found.score, server.calls) == (1.0, 1)
        (found,) = (await judges.open("tone:harsh@other")(case)).result
        assert found.score == 0.25
        (found,) = (await judges.open("brevity")(case)).result
        assert found.score == pytest.approx(0.93)
    assert parse_evaluator("tone:kind+strict+words=3@a/b") == EvaluatorSpec(
        "tone", "kind", parameters={"strict": "", "words": "3"}, model="a/b"
    )
    assert judge_models("tone@a/b", "m") == ("a/b",)
    assert judge_models("brevity", None) == ()
    assert with_model("tone", "a/b") == "tone@a/b"
    assert with_model("brevity", "a/b") == "brevity"
    assert describe_judge("tone:kind") == {"package": "tones 1.2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tones", "did you mean 'tone'"),
        ("tone+loud", "tone: no option 'loud'"),
        ("brevity:much", "takes no argument"),
        ("broken", "neither an evaluator"),
    ],
)
def test_what_a_package_does_not_bring_is_refused(installed, text, reason):
    with pytest.raises(InputError, match=reason):
        Judges("m", lambda name: None).open(text)


def test_a_judge_of_a_package_judges_on_the_command_line(installed, cli, server, model, home):
    (home / "t.txt").write_text("Say {n}.")
    (home / "v.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(30)))
    search = ("--depth", 1, "--successors", 1, "--minibatch", 2, "--selection-minibatch", 2)
    asked = ("calibrate", "t.txt", "-d", "v.jsonl", "-m", model, *search, "--json")
    ended = cli(*asked, "-j", "brevity")
    assert ended.code == 0, ended.err
    assert "no judge" in cli(*asked, "-j", "brevities").err


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("backward", "instruction-likelihood"),
        ("probe+backward@m", "probe+instruction-likelihood@m"),
        ("probe+few-shot", "probe+examples"),
        ("pairwise+reference-guided", "pairwise+reference"),
    ],
)
def test_other_names_of_judges_and_options_are_understood(former, name):
    assert parse_evaluator(former) == parse_evaluator(name)
