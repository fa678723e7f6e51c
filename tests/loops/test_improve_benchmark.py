"""The benchmark of optimize and calibrate: its checks, its rows, its arms on a scripted server."""

import json
import re
import sys
from pathlib import Path

from textevolve.llm.testing import Answer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import improve
import improve_tasks as tasks
import improve_templates as templates

ROWS = {row.values["message"]: row.label for seed in range(2) for row in templates.make_rows(seed)}


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
