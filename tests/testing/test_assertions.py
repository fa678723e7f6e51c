"""Texts asserted in a session of pytest: what passes, fails, cannot be judged, and what is kept."""

import pytest

from textevolve.llm.testing import Answer, Fault, ScriptedServer

TIDES = """
    from textevolve.testing import assert_text

    def test_good():
        found = assert_text("Why are there tides?", "The moon pulls.", min_score=0.5)
        assert found.score > 0.5 and found.passed

    def test_bad():
        assert_text("Why are there tides?", "The wind\\nblows.", min_score=0.7)
"""


def grade(body, _number):
    """A judge that dislikes the wind; it lists statements when it is asked to."""
    if "response_format" in body:
        return None
    return Answer(yes=0.2 if "wind" in str(body) else 0.9)


@pytest.fixture
def server():
    with ScriptedServer(grade) as started:
        yield started


def test_a_failure_shows_output_score_reason_judge_and_run(session, kept):
    ran = session(TIDES)
    ran.assert_outcomes(passed=1, failed=1)
    ((run, found),) = kept()
    ran.stdout.fnmatch_lines(
        [
            ">*The wind*",
            "E*AssertionError: score 0.200 is below 0.7",
            "E*input:  Why are there tides?",
            "E*output: The wind blows.",
            "E*said:*20% yes",
            "E*judge:  probe+rules (http://*#scripted)",
            f"E*run:    {run.id} (textevolve runs show {run.id})",
            "2 assertions, 1 passed, 1 failed, mean score 0.550*",
            "6 calls asked, 0 from the journal;*",
            f"run {run.id} *",
        ]
    )
    assert "sync.py" not in ran.stdout.str()  # no frame of ours
    assert (run.spec["kind"], run.status, run.n_cases) == ("assertions", "finished", 2)
    assert [one.verdict for one in found] == ["passed", "failed"]


def test_what_cannot_be_judged_is_an_error_and_never_a_zero(session, server, kept):
    server.script = lambda body, number: Fault.UNAUTHORISED
    ran = session(TIDES, "--textevolve-judge=probe")
    ran.assert_outcomes(failed=2)
    ran.stdout.fnmatch_lines(["E *UnjudgedError: could not be judged: *401*"])
    ran.stdout.fnmatch_lines(["E*output: The moon pulls."])
    ran.stdout.fnmatch_lines(["2 assertions, 2 could not be judged"])
    ((_, found),) = kept()
    assert [(one.score, one.passed, one.verdict) for one in found] == [
        (None, None, "not judged"),
        (None, None, "not judged"),
    ]


OWN = """
    from textevolve import EvaluationResult
    from textevolve.testing import assert_text

    def brief(case):
        return EvaluationResult(0.25, False, "it is long")

    def test_function():
        assert_text("Q", "A", judge=brief)

    def test_lambdas():
        assert assert_text("Q", "A", judge=lambda case: 0.9).score == 0.9
        assert assert_text("Q", "A", judge=lambda case: 0.1, min_score=0).score == 0.1

    def test_error():
        assert_text("Q", "A", judge=lambda case: 1 / 0)

    def test_percent():
        assert_text("Q", "A", judge=lambda case: 85.0, min_score=0.8)
"""


def test_evaluators_of_your_own_judge_and_are_kept_without_the_program(session, kept, cli, home):
    ran = session(OWN)
    ran.assert_outcomes(passed=1, failed=3)
    ran.stdout.fnmatch_lines(["E*the score 85.0 is outside 0 to 1"])
    ran.stdout.fnmatch_lines(["E*score 0.250, which the judge does not let pass", "E*it is long"])
    ran.stdout.fnmatch_lines([">*1 / 0*", "E *ZeroDivisionError*"])
    assert "callables.py" not in ran.stdout.str()
    ((run, before),) = kept()
    from textevolve.store.repository import open_store

    with open_store(home / "store.db") as store:  # as where it was killed before its end
        store.drop_records(run.id)
        store.finish_run(run.id, "interrupted")
    assert cli("runs", "show", run.id).code == 0
    ((_, after),) = kept()
    assert [one.score for one in after] == [one.score for one in before] == [0.25, 0.9, 0.1, None]
    assert after[0].result.feedback == "it is long"


MANY = """
    import asyncio
    from textevolve.testing import assert_texts, aassert_text, aassert_texts

    def test_list():
        texts = [("Q", f"The wind {n}") for n in range(7)] + [{"input": "Q", "output": "Moon"}]
        assert_texts(texts, min_score=0.5)

    def test_own_demands():
        found = assert_texts([("Q", "Moon"), dict(input="Q", output="wind", min_score=0.1)])
        assert [round(one.score, 1) for one in found] == [0.9, 0.2]

    async def test_async():
        await asyncio.gather(*(aassert_text("Q", f"Moon {n}") for n in range(6)))

    async def test_async_list():
        await aassert_texts([("Q", "The wind")])

"""


@pytest.mark.slow
def test_many_texts_are_judged_at_once_and_all_before_the_test_fails(session, server, kept):
    server.latency = 0.05
    ran = session(MANY)
    ran.assert_outcomes(passed=2, failed=2)
    ran.stdout.fnmatch_lines(["E*7 of 8 texts are not good enough", "E*and 2 more"])
    assert server.most_in_flight >= 6
    ((_, found),) = kept()
    ids = [one.case.id for one in found]
    assert ids[:2] == ["test_answers.py::test_list", "test_answers.py::test_list #2"]
    assert len(ids) == len(set(ids)) == 8 + 2 + 6 + 1


def test_what_cannot_be_used_is_said_before_any_test(session):
    ran = session(TIDES, "--textevolve-min-score=2")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["ERROR: *min-score must be from 0 to 1, not '2'*"])


def test_a_mistake_in_a_test_is_said_in_a_line(session, server):
    text = "'Q', 'A', judge='probe', reference='R'"
    ran = session(f"from textevolve.testing import *\ndef test(): assert_text({text})")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E *InputError: *does not use the reference*"])
    assert server.calls == 0


CHECKED = """
    from textevolve.testing import assert_text, assert_texts

    def test_held():
        checks = ["contains: moon", {"max-words": 3, "weight": 2}, "rubric: It is true."]
        assert assert_text("Why?", "The moon pulls.", judge=checks).score == 1

    def test_broken():
        assert_texts([("Why?", "A moon."), ("Why?", "A wind.")], judge=["contains: moon"])

    def test_refused():
        assert_text("Why?", "A moon.", judge=["contain: moon"])
"""


def test_checks_are_a_judge(session, server, kept):
    yes = '{"reason": "So it is.", "label": "yes"}'
    server.script = lambda body, _: Answer(text=yes)
    ran = session(CHECKED)
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines(
        [
            "E*output: A wind.",
            "E*Required: contains: moon.*",
            "E*judge:  checks*",
            "E*InputError: *no check 'contain'; did you mean 'contains'?*",
            "*3 assertions, 2 passed, 1 failed*",
            "1 call asked,*",
        ]
    )
    ((_, found),) = kept()
    assert [one.demand.checks for one in found][1:] == [("contains: moon",)] * 2


def test_passages_may_be_a_list(session, server):
    text = """
    from textevolve.testing import assert_text

    def test(): assert_text("Why?", "x", judge="faithfulness", min_score=0, context=PASSAGES)
    """
    server.script = lambda body, _number: (
        '{"statements": ["The moon pulls."]}' if "statements" in str(body) else None
    )
    passages = ["The moon pulls the sea.", "The sun pulls less."]
    session(text.replace("PASSAGES", repr(passages))).assert_outcomes(passed=1)
    bodies = [str(body) for body in server.requests]
    assert any(all(passage in body for passage in passages) for body in bodies)
    session(text.replace("PASSAGES", repr([" "]))).assert_outcomes(failed=1)
