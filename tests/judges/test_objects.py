"""Judges as objects: parsed once, written as text and read again, taken by every verb, declared by
users."""

import asyncio
import sys
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import textevolve
from registered import own_judges
from textevolve.debate.profile import load_profile
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult
from textevolve.judges import judge as judge_module
from textevolve.judges.cascade import CascadeJudge
from textevolve.judges.context import PlainJudge
from textevolve.judges.debates import DebateJudge
from textevolve.judges.judge import (
    REGISTRY,
    find_judge,
    judge,
    judge_names,
    judge_option,
    options_of,
    parse_judge,
    read_judge,
)
from textevolve.judges.opening import Judges
from textevolve.judges.plain import HybridJudge
from textevolve.judges.probe import Checklist, Probe
from textevolve.runs.study import find_study
from textevolve.studies.evaluate_spec import EvaluateSpec

TEXT = st.text(st.sampled_from('ab @+"{}\\,:=é\n'), min_size=1)
ROWS = "".join(f'{{"input": "Prime {n}?", "candidates": ["Seven.", "Nine."]}}\n' for n in range(3))


def reread(made):
    return replace(parse_judge(made.text), source="")


@given(TEXT, TEXT, st.booleans(), st.integers(-9, 9))
def test_options_survive_their_text(rubric, decider, rules, seed):
    if decider.strip():
        checklist = Checklist(rules=rules, rubric=rubric, decider=decider, seed=seed, model="u#m@2")
        assert reread(checklist) == checklist
    probe = Probe(rubric=rubric, seed=seed)
    assert reread(CascadeJudge("0.9", probe, Probe())).first.rubric == rubric
    debate = DebateJudge(rubric, parameters={"decider": decider})
    assert reread(debate) == debate


@pytest.mark.parametrize(
    "text", ["debate:{x", "debate+weights={x", 'debate+weights="', "debate:{}"]
)
def test_odd_text_of_a_debate_is_refused(text):
    with pytest.raises(InputError):
        parse_judge(text).load()


def test_weights_survive_their_text():
    debate = parse_judge(textevolve.Debate(weights={"accuracy": 1, "relevance": 0.25}).text)
    assert debate.load().weights == {"accuracy": 1.0, "relevance": 0.25}
    assert parse_judge(f"cascade:0.9:probe,{debate}").second == debate


def test_a_profile_survives_its_text():
    debate = textevolve.Debate(profile=load_profile("general"), rounds=3, model="x/y@z")
    parsed = parse_judge(debate.text)
    assert parsed.load() == load_profile("general").model_copy(update={"rounds": 3})
    assert parsed.model == "x/y@z"


@pytest.mark.parametrize("rubric", ["It is a prime + more @ all.", "@all is greeted.", "tone"])
def test_a_debates_rubric_is_its_text(rubric):
    parsed = parse_judge(textevolve.Debate(rubric=rubric).text)
    assert rubric in parsed.find_rubric() or rubric == "tone"


def test_an_evaluation_parses_its_judge_once(cli, home, model, monkeypatch):
    texts = []
    parse_options = judge_module.parse_options

    def count(kind, text):
        texts.append(text)
        return parse_options(kind, text)

    monkeypatch.setattr(judge_module, "parse_options", count)
    parse_judge.cache_clear()
    (home / "rows.jsonl").write_text(ROWS)
    assert cli("evaluate", "rows.jsonl", "--judge", "probe", "--model", model).code == 0
    assert texts == ["probe"]


def test_a_specification_is_stored_with_the_text():
    spec = EvaluateSpec(judge="probe+few-shot")
    (judge,) = spec.judge
    assert judge.examples
    for written in (spec.model_dump(), spec.model_dump(mode="json", exclude_defaults=True)):
        assert written["judge"] == "probe+few-shot"
    assert EvaluateSpec(judge=Probe(rules=True)).model_dump()["judge"] == "probe+rules"
    assert find_study("optimize").spec(task="x").model_dump(exclude_defaults=True) == {"task": "x"}


@dataclass(frozen=True)
class Brevity(PlainJudge):
    words: int = judge_option(100, help="the number of words with the score 0.5")

    async def grade(self, case, text, threshold):
        score = self.words / (self.words + len(text.split()))
        return EvaluationResult(score, score >= threshold, "")


@pytest.fixture
def registered():
    with own_judges():
        judge("test-brevity", help="how short a text is")(Brevity)
        yield


def half(case):
    return [0.5 for _ in case.candidates]


@pytest.mark.usefixtures("home", "registered")
def test_an_object_judges_as_its_text(model):
    for chosen in (Brevity(words=3), "test-brevity+words=3"):
        result = textevolve.evaluate("Why?", ["One two three."], judge=chosen)
        assert result.scores == (0.5,)
    with pytest.raises(InputError, match="words must be a valid integer"):
        parse_judge("test-brevity+words=x")
    with pytest.raises(InputError, match="calls no model"):
        parse_judge("test-brevity@x/y")
    optimized = textevolve.optimize("Write.", judge=Brevity(words=3), model=model, max_iterations=1)
    assert 0 < optimized.score < 1


@pytest.mark.usefixtures("home")
def test_every_verb_takes_a_debate_as_it_is(server, model):
    rubric = "It greets @all + nobody, probe."
    weights = {"confidence": 0.0, "accuracy": 1.0}
    by_rubric = textevolve.Debate(rounds=1, rubric=rubric, model=model)
    by_weights = textevolve.Debate(profile=load_profile("general"), rounds=1, weights=weights)
    rows = [{"question": "Why?", "output": "So."}]
    textevolve.optimize("Write.", judge=by_rubric, model=model, max_iterations=1)
    textevolve.innovate("Write.", judge=by_weights, model=model, rounds=1, outputs=1, fresh=0)
    textevolve.compare(rows, outputs="output", judge=by_rubric, model=model)
    opened = textevolve.judge(by_weights, model=model)
    assert asyncio.run(opened(Case("Why?", ("So.",)))).result[0].score >= 0
    assert rubric in str(server.requests)


def test_an_unregistered_class_is_refused():
    with pytest.raises(InputError, match="not registered"):
        read_judge(Brevity())


def test_judges_of_other_packages_are_found(cli, monkeypatch):
    class Point:
        name = "test-brevity"

        def load(self):
            judge("test-brevity", help="how short a text is")(Brevity)

    def points(group, name=""):
        return [Point()] if group == judge_module.GROUP and name in ("", Point.name) else []

    monkeypatch.setattr(judge_module, "entry_points", points)
    with own_judges():
        assert parse_judge("test-brevity+words=3").words == 3
        last_line = cli("judges", "list").out.splitlines()[-1]
    assert last_line.split(maxsplit=1) == ["test-brevity", "how short a text is"]


@pytest.mark.usefixtures("registered")
def test_a_run_by_an_unknown_judge_is_shown(cli):
    run = textevolve.evaluate("Why?", ["One two three."], judge=Brevity(words=3)).run
    del REGISTRY["test-brevity"]
    parse_judge.cache_clear()
    outcome = cli("runs", "show", run)
    assert outcome.code == 0, outcome.err
    assert "0.5" in outcome.out


async def test_an_importable_judge_is_opened_by_its_path(monkeypatch):
    monkeypatch.setitem(sys.modules, "my_judges", sys.modules[__name__])
    for name in ("half", "Brevity"):
        opened = Judges("m", lambda _: None).open(parse_judge(f"python:my_judges.{name}"))
        (result,) = (await opened(Case("?", ("word " * 100,)))).result
        assert result.score == 0.5
    with pytest.raises(InputError, match="not available here"):
        Judges("m", lambda _: None).open(parse_judge("python:my_judges.nothing"))


def test_every_option_says_what_it_does():
    for name in judge_names():
        for option, declared in options_of(find_judge(name)).items():
            assert declared.metadata["help"], f"{name}+{option}"


def test_a_hybrid_is_written_with_its_judge():
    hybrid_judge = HybridJudge("rules.yaml", Probe(rules=True))
    assert hybrid_judge.text == "hybrid:rules.yaml:probe+rules"
    assert (
        parse_judge(hybrid_judge.text).with_model("x/y").text == "hybrid:rules.yaml:probe+rules@x/y"
    )
