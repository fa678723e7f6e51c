"""What makes a run another run, and what does not."""

from importlib import resources

import pytest

from textevolve import Case, InputError, load_profile
from textevolve.debate.context import debate_prompts, memory_prompts
from textevolve.debate.profile import override
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.judges.context import LOOKING_PROMPTS, VERDICT_PROMPTS, judge_prompts
from textevolve.llm.model import text_hash
from textevolve.llm.prompts import prompt_versions
from textevolve.memory_eval.judging import evaluation_prompts
from textevolve.runs.study import record_reason, record_status
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.studies.evaluate import EvaluateSpec, complete

GENERAL = load_profile("general")
DECIDING = override(GENERAL, {"readout": "decide"})
CASES = [Case("?", ("a", "b"), "1"), Case("??", ("c",), "2", {"rounds": 1})]


@pytest.fixture
def store(home):
    with open_store(home / "store.db") as opened:
        yield opened


def test_the_day_and_why_a_model_was_taken_change_nothing(store, registered):
    run = registered(store, CASES)
    assert registered(store, CASES, today="2027-01-01", why="configured").id == run.id


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "a/n"},
        {"prompts": {**debate_prompts(), "case": "x"}},
        {"profile": override(GENERAL, {"weights": {"accuracy": 0.5}})},
    ],
)
def test_all_else_makes_another_run(store, registered, changed):
    assert registered(store, CASES).id != registered(store, CASES, **changed).id


@pytest.mark.parametrize(
    "cases",
    [
        CASES[:1],
        CASES[::-1],
        [CASES[0], Case("??", ("c",), "2", {"rounds": 2})],
        [Case("?", ("ab",), "1"), CASES[1]],
    ],
)
def test_other_cases_make_another_run(store, registered, cases):
    assert registered(store, CASES).id != registered(store, cases).id


def test_the_same_run_is_found_again_and_a_broken_source_leaves_none(store, registered):
    def broken():
        yield CASES[0]
        raise InputError("line 2: not valid JSON")

    with pytest.raises(InputError, match="line 2"):
        registered(store, broken())
    assert store.list_runs() == []
    run = registered(store, CASES)
    assert registered(store, iter(CASES), today="2027-01-01") == run
    assert [r.id for r in store.list_runs()] == [run.id]
    assert registered(store, CASES[:1]).id != run.id


def test_what_is_given_is_laid_over_the_profile_and_kept_whole():
    spec = complete(EvaluateSpec(profile="general", rounds="1", convergence="none"), Settings())
    assert (spec.rounds, spec.profile.rounds, spec.profile.convergence) == (None, 1, None)
    assert complete(spec, Settings()) == spec
    judged = complete(EvaluateSpec(judge="debate:general+rounds=1+convergence=none"), Settings())
    assert judged.profile == spec.profile


def prompt_files(room):
    folder = resources.files(f"textevolve.{room}") / "prompts"
    return {file.name.removesuffix(".md"): file for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("room", "versions"),
    [
        ("loops", prompt_versions("loops")),
        (
            "judges",
            judge_prompts() | prompt_versions("judges", *VERDICT_PROMPTS, *LOOKING_PROMPTS),
        ),
        ("memory_eval", evaluation_prompts()),
        ("debate", debate_prompts([DECIDING]) | memory_prompts()),
    ],
)
def test_each_prompt_has_a_version(room, versions):
    prefix = "" if room == "debate" else f"{room}."
    files = prompt_files(room)
    assert set(versions) == {f"{prefix}{name.partition('.')[0]}" for name in files}
    for name, file in files.items():
        if file.name.endswith(".md"):
            assert versions[f"{prefix}{name}"] == text_hash(file.read_text("utf-8"))[:12]


def test_prompts_chosen_by_name():
    whole = prompt_versions("llm")
    assert prompt_versions("llm", "repair") == {"llm.repair": whole["llm.repair"]}
    assert {"decide", "argue"} <= set(debate_prompts([DECIDING]))
    assert not {"decide", "memory", "argue"} & set(debate_prompts())
    blind = override(GENERAL, {"readout": "pointwise", "argue": False})
    assert "argue" not in debate_prompts([blind])
    assert "argue" in debate_prompts([GENERAL])  # on a local model
    assert set(memory_prompts()) == {"memory", "memory_alone", "memory_rules"}


def test_status_and_reason_of_outcomes():
    skipped = Failure("skipped", "the budget is used up")
    assert (record_status(skipped), record_reason(skipped)) == ("skipped", skipped.reason)
    for outcome in (None, EvaluationResult(0.5, True)):
        assert (record_status(outcome), record_reason(outcome)) == ("scored", None)
