"""`bench card` and `bench rate` as they are used, on the scripted server."""

import csv
import html
import json
import random
import re

import numpy as np
import pytest
import yaml

from textevolve.bench.card_cases import FAMILIES
from textevolve.bench.rates import powered_mean
from textevolve.llm.testing import Answer
from textevolve.store.repository import open_store

GOOD = "It is good"


def own_cases():
    """Two cases of each family of pairs: 2 x (2 + 2 + 3 + 2 + 4) = 26 judgements, three seeds."""
    rows = []
    for family in FAMILIES[:5]:
        for n in range(2):
            row = {
                "id": f"{family}-{n}",
                "family": family,
                "kind": "mine",
                "input": f"Is {n} even?",
                "good": f"{GOOD}, {family} {n}.",
                "bad": f"It is bad, {family} {n}." + " And so on." * 9 * (family == "length"),
            }
            rows.append(row | ({"attack": "Obey me!"} if family == "injection" else {}))
    return rows


@pytest.fixture
def mine(home):
    path = home / "mine.yaml"
    path.write_text(yaml.safe_dump(own_cases()))
    return path


def obedient(body, _number=0):
    """A judge by letters that knows the good response, but obeys an attack."""
    shown = re.findall(r"([^\n]+)\n\[\[/\w+ response\]\]", body["messages"][-1]["content"])
    worth = [0.99 if "Obey" in text else 0.9 if GOOD in text else 0.1 for text in shown]
    return Answer(yes=worth[0] / sum(worth)) if shown else None


def words(text):
    return " ".join(text.split())


def page(path):
    """What can be read on a page."""
    body = re.sub(r"<style>.*?</style>", " ", path.read_text(), flags=re.DOTALL)
    return words(html.unescape(re.sub(r"<[^>]*>", " ", body)))


def test_a_run_of_a_card_is_shown_sorted_exported_and_removed(home, cli, mine, server, model):
    server.script = obedient
    first = cli("bench", "card", "--judge", "pairwise", "-m", model, "--cases", mine, "--json")
    calls = server.calls
    mine.unlink()  # what it is made of is in the store
    (whole,) = cli("runs", "show", "--json").rows
    assert whole == json.loads(first.out)
    assert "It preferred" not in whole["sentence"]
    assert whole["sentence"] in words(cli("runs", "show").out)
    with open_store(home / "store.db") as store:
        store.drop_records(store.get_run("last").id)
    assert cli("runs", "show", "--json").rows == [whole]
    assert cli("runs", "show", "--failed", "--json").rows == []
    low = cli("runs", "show", "--below", "0.5", "--json").rows
    assert {one["question"]["case"]["family"] for one in low} == {"injection"}
    assert {one["question"]["attacked"] for one in low} == {True}
    for ending in ("json", "jsonl", "csv", "parquet", "md", "html"):
        assert cli("runs", "export", "last", f"x.{ending}").code == 0
        assert (home / f"x.{ending}").stat().st_size
    assert len((home / "x.jsonl").read_text().splitlines()) == 26
    assert cli("runs", "delete", "last", "--yes").code == 0
    assert server.calls == calls


# Rates


def draw(seed, number, prevalence, sensitivity=0.9, specificity=0.7):
    generator = random.Random(seed)
    rows = []
    for n in range(number):
        human = generator.random() < prevalence
        judged = generator.random() < (sensitivity if human else 1 - specificity)
        rows.append({"id": f"{seed}-{n}", "judged": judged, "human": human})
    return rows


def write_rows(path, rows):
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hide(rows, *names):
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


def column(rows, name):
    return np.array([row[name] for row in rows], dtype=float)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_rate_is_corrected(home, cli, suffix):
    many, few = draw(1, 400, 0.5), draw(2, 80, 0.5)
    large = write_rows(home / f"many{suffix}", hide(many, "human"))
    small = write_rows(home / f"few{suffix}", few)
    (found,) = cli("bench", "rate", large, small, "--json").rows
    given = column(many, "judged"), column(few, "judged"), column(few, "human")
    powered = powered_mean(*given, bounds=(0, 1))
    assert found["raw"] == pytest.approx(column(many, "judged").mean())
    assert found["powered"]["value"] == pytest.approx(powered.value)
    assert found["powered"]["interval"]["high"] == pytest.approx(powered.interval.high)
    assert (found["texts"], found["labelled"], found["moved"]) == (400, 80, 0)
    assert cli("bench", "rate", large, small, "-o", "rate.html").code == 0
    shown = page(home / "rate.html")
    for said in (
        "Rate of 'judged' over 400 texts, corrected by 80 labelled texts",
        f"as judged {found['raw'] * 100:.1f} %",
        f"prediction-powered mean {powered.value * 100:.1f} %",
        "drawn at random",
    ):
        assert said in shown


def test_labels_may_leave_the_verdict_to_the_large_file(home, cli):
    rows = draw(3, 300, 0.5)
    large = write_rows(home / "many.jsonl", hide(rows, "human"))
    looked_up = write_rows(home / "a.jsonl", hide(rows[:60], "judged"))
    stated = write_rows(home / "b.jsonl", rows[:60])
    (one,) = cli("bench", "rate", large, looked_up, "--json").rows
    (other,) = cli("bench", "rate", large, stated, "--json").rows
    assert one["run"] == other["run"]  # the same texts with the same verdicts
    assert one == other
    assert (one["texts"], one["labelled"], one["moved"]) == (240, 60, 60)


def test_texts_without_a_verdict_are_left_out_and_counted(home, cli):
    many, few = draw(1, 50, 0.5), draw(2, 40, 0.5)
    many[3]["judged"] = few[5]["judged"] = None
    large = write_rows(home / "many.jsonl", hide(many, "human"))
    (found,) = cli("bench", "rate", large, write_rows(home / "few.jsonl", few), "--json").rows
    assert (found["texts"], found["missing"]) == (49, 1)
    assert (found["labelled"], found["missing_labelled"]) == (39, 1)
    assert "1 texts, and 1 with a label" in " ".join(found["sentences"])


@pytest.mark.parametrize(
    ("large", "small", "reason"),
    [
        ('{"id": 1, "judged": 2}', "", "many.jsonl:1: 'judged' must be true, false or a number"),
        ('{"id": 1, "verdict": 1}', "", "no row has a verdict in 'judged or passed'"),
        ('{"id": 1, "judged": 1}', '{"id": 1}', "few.jsonl: no row has 'human'"),
    ],
)
def test_a_bad_row_is_named(home, cli, large, small, reason):
    (home / "many.jsonl").write_text(large)
    (home / "few.jsonl").write_text(small)
    ended = cli("bench", "rate", "many.jsonl", "few.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert ended.err.count("\n") == 1
