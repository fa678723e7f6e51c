"""What makes a run another run, and what does not."""

import pytest

from textevolve import Case, InputError, load_profile
from textevolve.debate.context import prompts_version
from textevolve.debate.profile import override
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.studies.evaluate import EvaluateSpec, complete

GENERAL = load_profile("general")
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
        {"prompts": {**prompts_version(), "case": "x"}},
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
