"""`textevolve judges fit` and `--judge FILE.judge` as they are used, on the scripted server."""

import json
import random
import re

import pytest
import yaml

from textevolve.llm.testing import Answer

ITEMS = 40


def rows(graded=False):
    """Good and poor texts of drawn lengths; people are wrong about a tenth of them."""
    made, draw = [], random.Random(1)
    for n in range(ITEMS):
        texts = [f"{word} {n}" + " more" * draw.randrange(20) for word in ("good", "poor")]
        right, first = draw.random() < 0.9, draw.random() < 0.5
        row = {"id": f"i{n}", "input": f"Question {n}?", "group": f"g{n // 2}"}
        row["candidates"] = texts if first else texts[::-1]
        if graded:
            grades = [draw.choice([4, 5]), draw.choice([1, 2, 3])]
            row["scores"] = grades if first else grades[::-1]
        else:
            row["winner"] = 1 if first == right else 2
        made.append(row)
    return made


def write_lines(path, made):
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def knowing(body, _number=0):
    """A model that mostly knows the good text when it is asked for one token."""
    said = body["messages"][-1]["content"]
    shown = re.findall(r"([^\n]+)\n\[\[/\w+ response\]\]|\nResponse:\n> ([^\n]+)", said)
    shown = ["".join(pair) for pair in shown]
    worth = [
        (0.75 if "good" in text else 0.25) + random.Random(text).uniform(-0.2, 0.2)
        for text in shown
    ]
    return Answer(yes=worth[0] if len(worth) == 1 else worth[0] / sum(worth)) if shown else None


@pytest.fixture
def labels(home):
    return write_lines(home / "labels.jsonl", rows())


@pytest.fixture
def knows(server):
    server.script = knowing
    return server


def test_a_judge_is_fitted_written_and_used(home, cli, knows, model, labels):
    path = home / "my.judge"
    asked = ("judges", "fit", labels, "--signals", "probe, length", "-m", model)
    asked += ("--precision", "0.6", "--confidence", "0.8")
    ended = cli(*asked, "-o", path, "-o", home / "fit.html", "-o", home / "fit.csv")
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    for part in (
        "Cross-validated, the fit chooses as people did in",
        "Signals",
        "look:length alone",
        "always the shorter text",
        "Calibration",
        "Brier",
        "40 items on 20 questions, labelled by pairs",
    ):
        assert part in said, part
    page = (home / "fit.html").read_text()
    assert "Reliability" in page
    assert (home / "fit.csv").read_text().count("probe") == 2 * ITEMS
    kept = yaml.safe_load(path.read_text())
    assert [one["judge"] for one in kept["signals"]] == ["probe", "look:length"]
    assert [one["model"] for one in kept["signals"]] == [model, None]
    assert kept["labels"]["items"] == ITEMS
    assert kept["threshold"]["holds"]
    calls = knows.calls
    # The file names its model, so none is named or looked for.
    ended = cli("evaluate", "Question?", "good words", "poor words", "--judge", path, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    first, second = found["candidates"]
    assert first["score"] > 0.5 > second["score"]
    assert first["score"] + second["score"] == pytest.approx(1)
    assert "look:length" in first["feedback"]
    assert knows.calls == calls + 6
    ended = cli("evaluate", "Question?", "good words", "--judge", path, "--dry-run", "--json")
    assert json.loads(ended.out)["expected"]["calls"]["median"] == 3


def test_nothing_is_fitted_to_nothing(home, cli, knows, model):
    """Where no signal answers there is no judge, and no file."""
    labels = write_lines(home / "labels.jsonl", rows())
    knows.script = lambda body, number: Answer(text="maybe", yes=None)
    ended = cli("judges", "fit", labels, "--signals", "probe", "-m", model, "-o", home / "my.judge")
    assert ended.code == 3
    assert "No judge was fitted: too few labelled items to fit: 0" in " ".join(ended.out.split())
    assert "my.judge: is not written" in ended.err
    assert not (home / "my.judge").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--signals", "probe,probe"), "name each signal once"),
        (("--signals", "old.judge"), "must be a judge that a file can name again"),
    ],
)
def test_what_cannot_be_fitted_is_said_before_anything_is_asked(
    cli, knows, model, labels, more, said
):
    ended = cli("judges", "fit", labels, "-m", model, *more)
    assert ended.code == 2
    assert said in ended.err
    assert knows.calls == 0
