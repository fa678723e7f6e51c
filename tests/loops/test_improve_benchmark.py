"""The benchmark of optimize and calibrate: its checks, its rows, its arms on a scripted server."""

import datetime
import json
import re
import sys
from pathlib import Path

import pytest

from textevolve.evaluation import Case
from textevolve.llm.testing import Answer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import improve
import improve_tasks as tasks
import improve_templates as templates

ROWS = {row.values["message"]: row.label for seed in range(2) for row in templates.make_rows(seed)}


@pytest.mark.parametrize(
    ("check", "holds", "breaks"),
    [
        (tasks.words(2, 3), "one two", "one two three four"),
        (tasks.sentences(1), "It costs 3.5 euros.", "It rains. It pours."),
        (tasks.bullets(2), "- one\n- two", "Here:\n- one\n- two"),
        (tasks.items(3), "apple, pear, red plum", "apple, pear"),
        (tasks.items(1), "apple", "I like to eat apples"),
        (tasks.starts("The"), "The sea", "the sea"),
        (tasks.json_object({"a": str, "n": int}), '{"a": "x", "n": 3}', '{"a": "x", "n": "3"}'),
        (tasks.json_object({"n": int}), '{"n": 3}', '```json\n{"n": 3}\n```'),
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
