"""The benchmark of optimize and calibrate: its checks, its rows, its arms on a scripted server."""

import datetime
import json
import re
import sys
from pathlib import Path

import pytest

from textevolve.evaluation import Case, EvaluationResult
from textevolve.llm.testing import Answer
from textevolve.loops.attempt import Attempt

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import improve
import improve_tasks as tasks
import improve_templates as templates

ROWS = {row.values["message"]: row.label for seed in range(2) for row in templates.make_rows(seed)}


@pytest.mark.parametrize(
    ("check", "holds", "breaks"),
    [
        (tasks.words(2, 3), "one two", "one two three four"),
        (tasks.words(2, 2), "don't go", "go"),
        (tasks.sentences(1), "It costs 3.5 euros.", "It rains. It pours."),
        (tasks.sentences(2), "It rains. It pours!", "It rains."),
        (tasks.lines(2), "one\n\ntwo", "one"),
        (tasks.bullets(2), "- one\n- two", "Here:\n- one\n- two"),
        (tasks.bullets(2), "- one\n- two", "- one\n- two\n- three"),
        (tasks.numbered(2), "1. one\n2. two", "1) one\n2) two"),
        (tasks.items(3), "apple, pear, red plum", "apple, pear"),
        (tasks.items(2), "apple, pear", "apple, pear\nplum"),
        (tasks.items(1), "apple", "I like to eat apples"),
        (tasks.uses("roof", "rain"), "Rain on the roof", "Rain on roofs"),
        (tasks.avoids("red", "blue"), "A redder bluet", "Red"),
        (tasks.starts("The"), "The sea", "the sea"),
        (tasks.ends("home."), "I go home.", "I go home"),
        (tasks.question(), "Is it?", "It is."),
        (tasks.lower(), "all small, 3", "Not all"),
        (tasks.upper(), "ALL LARGE, 3", "ALL LARGe"),
        (tasks.lacks("x", "letter x"), "no such", "eXact"),
        (tasks.has_digits(), "only 3", "three"),
        (tasks.no_digits(), "three", "3"),
        (tasks.german(), "Es ist kalt.", "It is cold."),
        (tasks.german(), "Wir kaufen ein Brot.", "The Brot ist ein bread."),
        (tasks.json_object({"a": str, "n": int}), '{"a": "x", "n": 3}', '{"a": "x", "n": "3"}'),
        (tasks.json_object({"n": int}), '{"n": 3}', '```json\n{"n": 3}\n```'),
        (tasks.json_object({"b": bool}), '{"b": true}', '{"b": true, "c": 1}'),
        (tasks.json_object({"n": int}), '{"n": 0}', '{"n": true}'),
        (tasks.json_object({"n": int}), '{"n": 0}', "[1]"),
    ],
)
def test_a_check_tells_a_text_that_holds_from_one_that_breaks_it(check, holds, breaks):
    task = tasks.Task("t", check.said, (check,))
    assert task.passes(f" {holds}\n")
    assert not task.passes(breaks)
    assert task.faults(breaks)[0].startswith(check.said)


def test_tasks_are_many_differ_and_state_their_checks():
    assert len(tasks.TASKS) >= 40
    assert len({task.id for task in tasks.TASKS}) == len({t.text for t in tasks.TASKS})
    for task in tasks.TASKS:
        assert task.checks
        assert all(check.said in task.text for check in task.checks)
        assert not task.passes("")
        assert not task.passes(None)


async def test_the_check_as_an_evaluator_scores_the_share_that_holds():
    checks = (tasks.sentences(1), tasks.uses("sea"))
    made = await tasks.Task("t", "x", checks).judge(Case("x", ("The sea.", "The. Sun.", "Sun.")))
    assert [result.score for result in made.result] == [1, 0, 0.5]
    assert made.result[2].feedback == 'Use the word "sea". Now: sea missing.'


def test_rows_differ_and_are_true():
    for seed in range(5):
        rows = templates.make_rows(seed)
        assert len({row.values["message"] for row in rows}) == 64
        assert rows == templates.make_rows(seed) != templates.make_rows(seed + 1)
        for row in rows:
            date = datetime.date.fromisoformat(row.label)
            assert str(date.year) in row.values["message"]
            assert re.search(rf"\b{date.day}(st|nd|rd|th)?\b", row.values["message"])
            assert date.strftime("%b") in row.values["message"]


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("2024-03-05", True),
        (' "2024-03-05".\n', True),
        ("`2024-03-05`", True),
        ("The date is 2024-03-05", False),
        ("2024-3-5", False),
        ("", False),
    ],
)
def test_an_answer_is_right_if_it_is_the_date_alone(output, right):
    assert templates.is_date(output, "2024-03-05") is right


@pytest.mark.parametrize(
    ("scores", "left"), [((0.9, 0.1, 0.1), 1), ((0.5, 0.8, 0.1), 2), ((0.5, None, 0.7), 3)]
)
def test_the_loop_that_may_stop_makes_the_first_of_the_attempts(scores, left):
    failed = improve.Failure("failed", "no score")
    attempts = [
        Attempt(n, "x", failed if s is None else EvaluationResult(s, True))
        for n, s in enumerate(scores, 1)
    ]
    assert len(improve.stop_early(attempts)) == left


def write(body, _number):
    """Fruit at first with a capital, at the third try right; a revision is right, too."""
    said = str(body["messages"][-1]["content"])
    if body.get("max_tokens") == 1:
        return Answer(yes=0.7 if "apple, pear, plum, fig, kiwi" in said else 0.4)
    if "Revise an earlier answer" in said:
        return "apple, pear, plum, fig, kiwi"
    if "Do the task" in said:
        texts = ("Apple", "Apples and pears", "apple, pear, plum, fig, kiwi")
        return texts[body.get("seed", 0)]
    return None


async def test_the_arms_of_a_task(home, server, model, capsys, monkeypatch):
    monkeypatch.setattr(improve, "TASKS", [t for t in tasks.TASKS if t.id == "fruit"])
    server.script = write
    asked = ["--part", "tasks", "--judges", "probe", "--model", model]
    asked += ["--store", str(home / "improve.db")]
    _, made = await improve.main(asked)
    calls, shown = server.calls, capsys.readouterr().out
    assert made["tasks by probe"]["passed"] == {
        improve.ONE: [0.0],
        improve.BEST: [1.0],
        improve.LOOP: [1.0],
        improve.SHIPPED: [1.0],
        improve.AUTO: [1.0],
        improve.ORACLE: [1.0],
        improve.RULED: [1.0],
    }
    assert "2 of 2" in shown  # pairs of which the judge sees the better one
    costs = dict(re.findall(r"^(.+?)  +\d of 1, .*?\) +([\d.]+) ", shown, re.MULTILINE))
    assert costs[improve.ONE] == "1.0"
    assert costs[improve.BEST] == "12.0"  # three texts, and three questions on each
    assert costs[improve.RULED] == "2.0"
    assert (await improve.main([*asked, "--no-ask"]))[1] == made
    assert server.calls == calls


async def test_what_has_not_been_asked_is_left_out(home, server, model, capsys):
    asked = ["--limit", "3", "--seeds", "2", "--model", model, "--no-ask"]
    _, made = await improve.main([*asked, "--store", str(home / "improve.db")])
    shown = capsys.readouterr().out
    assert made["tasks by single"] == {"judge": "single", "tasks": 0}
    assert "0 of 3 tasks done" in shown
    assert "seed 1: not done yet" in shown
    assert "no seed is done" in shown
    assert server.calls == 0


async def test_an_attempt_that_is_cut_counts_as_failed(home, server, model, monkeypatch):
    monkeypatch.setattr(improve, "TASKS", [t for t in tasks.TASKS if t.id == "fruit"])

    def cut(body, number):
        if "Do the task" in str(body["messages"][-1]["content"]):
            return Answer(text="apple, pear, plum, fig, kiwi", finish_reason="length")
        return write(body, number)

    server.script = cut
    asked = ["--part", "tasks", "--judges", "probe", "--model", model]
    _, made = await improve.main([*asked, "--store", str(home / "improve.db")])
    assert set(map(tuple, made["tasks by probe"]["passed"].values())) == {(0.0,)}


def answer_rows(body, _number):
    """Right only under a template that names the form, which the search finds."""
    said = str([message["content"] for message in body["messages"]])
    if "Write at most" in said:
        return '{"instructions": ["Name the form YYYY-MM-DD."]}'
    if "You rewrite a prompt template" in said:
        reworded = templates.PARAPHRASE in said
        text = f"{'In digits:' if reworded else 'As YYYY-MM-DD alone:'} {{message}}"
        return json.dumps({"template": text})
    message = next(message for message in ROWS if message in said)
    return ROWS[message] if "YYYY-MM-DD" in said else f"It is {ROWS[message]}."


@pytest.mark.parametrize(
    ("status", "done"), [(None, True), pytest.param(503, False, marks=pytest.mark.slow)]
)
async def test_an_empty_answer_is_wrong_and_one_that_did_not_come_is_not_done(
    home, server, model, status, done
):
    """Of one held-out row, whatever the template."""
    last = templates.make_rows(0)[-1].values["message"]

    def script(body, number):
        said = str([message["content"] for message in body["messages"]])
        if last in said:
            return Answer(text=" ") if done else Answer(status=status, body=b"{}")
        return answer_rows(body, number)

    server.script = script
    asked = ["--part", "calibrate", "--seeds", "1", "--model", model]
    _, made = await improve.main([*asked, "--store", str(home / "improve.db")])
    found = made["calibrate"]["seeds"]
    assert [one["calibrate"][-1] for one in found] == ([0.0] if done else [])


async def test_calibrate_beside_paraphrases_on_rows_held_out(home, server, model, capsys):
    server.script = answer_rows
    asked = ["--part", "calibrate", "--seeds", "2", "--model", model]
    asked += ["--store", str(home / "improve.db")]
    _, made = await improve.main(asked)
    calls = server.calls
    for one in made["calibrate"]["seeds"]:
        assert one["original"] == one["paraphrase"] == (0.0,) * 40
        assert one["calibrate"] == (1.0,) * 40
        assert one["accepted"]
        assert one["calls"][0] >= one["calls"][1]
    assert "calibrate less original    +100.0" in capsys.readouterr().out
    assert (await improve.main([*asked, "--no-ask"]))[1] == made
    assert server.calls == calls
