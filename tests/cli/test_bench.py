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
        (("--judge", "probes"), "did you mean 'probe'"),
        (("--judge", "probe", "--judge", "probe"), "named twice"),
        ((), "judge is missing"),
        (("--judge", "probe", "-o", "a.txt"), "a.txt: must end in .json, .html"),
        (("--judge", "probe", "-o", "./items.jsonl"), "is read and would be overwritten"),
        (("--judge", "probe", "--half", "first"), "half must be tune or report, not 'first'"),
        (("--judge", "probe", "--orders", "one"), "orders must be both or given, not 'one'"),
        (("--judge", "probe", "--limit", "0"), "limit must be 1 or more"),
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


# Two judges


PAIRS = 60
SURE = 44
"""Of so many pairs the probe is sure; of the others it says yes and no alike to both texts."""


def doubting(body, _number=0):
    """Knows the good text of the first pairs, and nothing of the others."""
    said = body["messages"][-1]["content"]
    shown = re.findall(r"\nResponse:\n> (good|poor) (\d+)", said)
    if len(shown) != 1:
        return None
    kind, number = shown[0]
    known = int(number) < SURE
    return Answer(
        yes=(0.95 if kind == "good" else 0.05) if known else 0.5 + 0.01 * (kind == "good")
    )


@pytest.fixture
def pairs(home):
    return write_lines(
        home / "pairs.jsonl",
        [
            {
                "id": f"i{n}",
                "input": f"Question {n}?",
                "candidates": [f"good {n}", f"poor {n}"],
                # What the probe doubts it gets wrong half of the time.
                "winner": 1 if n < SURE or n % 2 else 2,
            }
            for n in range(PAIRS)
        ],
    )


def two(pairs, model, *more):
    judges = ("--first", "probe", "--then", "single")
    return ("bench", "escalation", pairs, "-m", model, *judges, "--agreement", 0.85, *more)


@pytest.mark.slow
def test_two_judges_are_weighed_and_the_cascade_that_is_named_keeps_to_it(
    home, cli, server, model, pairs
):
    server.script = doubting
    found = figures(cli(*two(pairs, model, "--json", "-o", "e.html", "-o", "e.csv")))
    # A probe asks the same about a text in either order; the single judge sees both texts.
    assert server.calls == PAIRS * (6 + 2)
    assert {(one["item"], one["order"]) for one in found["items"]} == {
        (f"i{n}", order) for n in range(PAIRS) for order in ("given", "reversed")
    }
    threshold = found["selection"]["threshold"]
    assert found["selection"]["items"] == PAIRS
    assert 0.51 < threshold < 0.99
    assert found["use"] == f"--judge cascade:{threshold:g}:probe,single"
    assert found["sentence"].endswith(f"To use it: {found['use']}")
    chosen = found["chosen"]
    assert chosen["share"]["value"] == SURE / PAIRS
    assert chosen["calls"] == pytest.approx((PAIRS * 6 + (PAIRS - SURE)) / PAIRS)
    assert (chosen["error"]["value"], chosen["cost"]) == (0, None)
    assert found["first"]["value"] == (SURE + (PAIRS - SURE) // 2) / PAIRS
    shown = page(home / "e.html")
    assert f"First judge probe, right in {100 * found['first']['value']:.1f} %" in shown
    table = (home / "e.csv").read_text().splitlines()
    assert len(table) == 2 * PAIRS + 1
    assert "certainty,first,second,first_calls" in table[0]

    calls = server.calls
    judged = cli("evaluate", pairs, "-m", model, *found["use"].split(), "-o", "c.jsonl", "--json")
    assert judged.code == 0
    assert server.calls == calls  # the journal has both judges' answers
    (home / "fresh.db").unlink(missing_ok=True)
    fresh = ("--store", home / "fresh.db")
    again = cli("evaluate", pairs, "-m", model, *found["use"].split(), *fresh, "-o", "d.jsonl")
    assert server.calls == calls + PAIRS * 6 + (PAIRS - SURE)
    share = 100 * SURE / PAIRS
    assert f"Decided by probe {share:.1f} %, single {100 - share:.1f} %" in words(again.out)
    lines = [json.loads(line) for line in (home / "d.jsonl").read_text().splitlines()]
    deciders = [line["candidates"][0]["decided_by"] for line in lines]
    assert deciders == ["probe"] * SURE + ["single"] * (PAIRS - SURE)
    assert [line["usage"]["calls"] for line in lines] == [6] * SURE + [7] * (PAIRS - SURE)
    assert (home / "c.jsonl").read_text() == (home / "d.jsonl").read_text()
