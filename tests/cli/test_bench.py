"""`bench agreement`, `ablate` and `escalation` as they are used, on the scripted server."""

import html
import json
import re

import pytest

from textevolve.llm.testing import Answer

ITEMS = 12


def rows(labelled=True):
    """Pairs of which the good text is the shorter in all but three, and the first in five."""
    made = []
    for n in range(ITEMS):
        good = f"good {n}" + " and long" * 5 * (n < 3)
        texts = [good, f"poor {n}, at some length"]
        row = {"id": f"i{n}", "input": f"Question {n}?", "subset": ["odd", "even"][n % 2]}
        row["candidates"] = texts if n < 5 else texts[::-1]
        made.append(row | ({"winner": 1 if n < 5 else 2} if labelled else {}))
    return made


def write_lines(path, made):
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.fixture
def items(home):
    return write_lines(home / "items.jsonl", rows())


@pytest.fixture
def cases(home):
    return write_lines(home / "cases.jsonl", rows(labelled=False))


def knowing(body, _number=0):
    """A model that knows the good text when it is asked for one token."""
    said = body["messages"][-1]["content"]
    shown = re.findall(r"([^\n]+)\n\[\[/\w+ response\]\]|\nResponse:\n> ([^\n]+)", said)
    shown = ["".join(pair) for pair in shown]
    worth = [0.9 if "good" in text else 0.1 for text in shown]
    return Answer(yes=worth[0] if len(worth) == 1 else worth[0] / sum(worth)) if shown else None


@pytest.fixture
def knows(server):
    server.script = knowing
    return server


def command(items, model, *judges):
    return ("bench", "agreement", items, "-m", model, *(p for j in judges for p in ("--judge", j)))


def figures(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def words(text):
    return " ".join(text.split())


def page(path):
    """What can be read on a page."""
    body = re.sub(r"<style>.*?</style>", " ", path.read_text(), flags=re.DOTALL)
    return words(html.unescape(re.sub(r"<[^>]*>", " ", body)))


def test_judges_are_measured_drawn_and_written(home, cli, knows, model, items):
    asked = command(items, model, "probe", "pairwise+rules")
    ended = cli(*asked, "-o", "a.json", "-o", "a.jsonl", "-o", "a.html", "--name", "trust")
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert "Of all judges, probe chooses as people did in 100.0 % of the items (76 to 100 %)" in (
        words(ended.out)
    )
    shown = page(home / "a.html")
    for part in (
        "probe 100.0 % [75.8, 100.0] 1.00 0.0 % 100 %",
        "always the first 41.7 %",
        "always the shorter text 75.0 %",
        "always the longer text 25.0 %",
        "probe − pairwise+rules 100.0 % 0.0 %",
        "Calibration judge Brier ECE by chance probe 0.0",
        "over 2 bins of equal mass",
        "Items 12 items on 12 questions",
    ):
        assert part in shown, part
    assert "48 of 48 done" in ended.err
    data = json.loads((home / "a.json").read_text())
    assert data["summary"]["judges"][0]["accuracy"]["value"] == 1
    assert (data["kind"], data["samples"]) == ("agreement", {"probe": 1, "pairwise+rules": 1})
    verdicts = [json.loads(line) for line in (home / "a.jsonl").read_text().splitlines()]
    assert {(v["judge"], v["order"]) for v in verdicts} == {
        (judge, order) for judge in ("probe", "pairwise+rules") for order in ("given", "reversed")
    }
    assert len(verdicts) == 4 * ITEMS
    assert "Judges beside people" in shown
    calls = knows.calls
    again = figures(cli(*asked, "--json"))
    assert knows.calls == calls
    assert again["run"] == data["run"]
    assert again["summary"]["judges"][0]["accuracy"] == data["summary"]["judges"][0]["accuracy"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--judge", "probe", "--judge", "probe"), "named twice"),
        ((), "judge is missing"),
        (("--judge", "probe", "-o", "./items.jsonl"), "is read and would be overwritten"),
        (("items.jsonl", "--judge", "probe"), "the id 'i0' is in items.jsonl, too; give each item"),
        (("cases.jsonl", "--judge", "probe"), "needs one of 'winner', 'scores' and 'ranking'"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(cli, server, model, items, cases, more, reason):
    ended = cli("bench", "agreement", "items.jsonl", "-m", model, *more)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0
