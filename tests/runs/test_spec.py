"""What makes a run another run, and what does not."""

import functools

import pytest

from textevolve import Case, InputError, MismatchError, load_profile
from textevolve.debate.profile import override
from textevolve.memory.recall import nothing
from textevolve.runs.spec import Fingerprint, RunSpec, name_recall, refuse_mismatch
from textevolve.runs.work import begin
from textevolve.store.repository import open_store

GENERAL = load_profile("general")
SPEC = RunSpec(profile=GENERAL, model="a/m", why="named", today="2026-01-01")
CASES = [Case("?", ("a", "b"), "1"), Case("??", ("c",), "2", {"rounds": 1})]


def fingerprint(spec=SPEC, cases=CASES):
    made = Fingerprint(spec.identity)
    for case in cases:
        made.add(case)
    return made.hexdigest()


def changed(**values):
    return SPEC.model_copy(update=values)


def test_the_day_and_why_a_model_was_taken_change_nothing():
    assert fingerprint(changed(today="2027-01-01", why="configured")) == fingerprint()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (changed(model="a/n"), 'model was "a/m" and is now "a/n"'),
        (changed(prompts={**SPEC.prompts, "case": "x"}), "prompts.case was"),
        (changed(recall="notes.recall"), 'recall was "" and is now "notes.recall"'),
        (changed(profile=override(GENERAL, {"seed": 1})), "profile.seed was 0 and is now 1"),
        (
            changed(profile=override(GENERAL, {"weights": {"accuracy": 0.5}})),
            "profile.weights.accuracy was null and is now 0.5",
        ),
    ],
)
def test_all_else_makes_another_run_and_is_named(spec, said):
    assert fingerprint(spec) != fingerprint()
    with pytest.raises(MismatchError, match="run r cannot be resumed: ") as caught:
        refuse_mismatch("r", SPEC, spec)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "cases",
    [
        CASES[:1],
        CASES[::-1],
        [CASES[0], Case("??", ("c",), "2", {"rounds": 2})],
        [CASES[0], Case("??", ("c",), "3", {"rounds": 1})],
        [CASES[0], Case("??", ("c", ""), "2", {"rounds": 1})],
        [Case("?", ("ab",), "1"), CASES[1]],
    ],
)
def test_other_cases_make_another_run(cases):
    assert fingerprint(cases=cases) != fingerprint()


def test_many_differences_are_cut_short():
    other = changed(model="b/m", recall="r", profile=load_profile("prompt-tuning"))
    with pytest.raises(MismatchError) as caught:
        refuse_mismatch("r", SPEC, other)
    assert len(str(caught.value)) < 400
    assert "; ...; start a new run instead" in str(caught.value)


def test_a_recall_is_known_by_its_name():
    class Notes:
        async def __call__(self, cue):
            return ()

    async def recall(cue):
        return ()

    assert name_recall(nothing) == ""
    assert name_recall(recall).endswith(
        "test_spec.test_a_recall_is_known_by_its_name.<locals>.recall"
    )
    assert name_recall(Notes()).endswith(".Notes")
    assert name_recall(functools.partial(recall)) == "functools.partial"


def test_the_same_run_is_found_again_and_a_broken_source_leaves_none(home):
    def broken():
        yield CASES[0]
        raise InputError("line 2: not valid JSON")

    with open_store(home / "store.db") as store:
        with pytest.raises(InputError, match="line 2"):
            begin(store, SPEC, broken())
        assert store.list_runs() == []
        run = begin(store, SPEC, CASES, name="first")
        again = begin(store, changed(today="2027-01-01"), iter(CASES), name="second")
        assert again == run
        assert begin(store, SPEC, CASES, resume=run.id) == run
        with pytest.raises(MismatchError, match="its cases differ"):
            begin(store, SPEC, CASES[:1], resume=run.id)
        assert [r.id for r in store.list_runs()] == [run.id]
        assert begin(store, SPEC, CASES[:1]).id != run.id
