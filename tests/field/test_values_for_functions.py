"""Situations of people who measure with a function of their own: it gets the label and the row as
they were, in `compare`, `calibrate` and `evaluate`: lists, numbers, dates, decimals, false.

The values are those of the rows.
"""

import datetime as dt
import json
from decimal import Decimal

import pytest

from field.asked import record, write_rows
from textevolve import Client
from textevolve.json_texts import pack_value, unpack_value

ROW = {
    "word": "Oslo",
    "label": ["Oslo", "Kristiania"],
    "said": "Oslo",
    "count": 3,
    "right": False,
    "when": dt.date(2026, 3, 1),
    "at": dt.datetime(2026, 3, 1, 4, 5, tzinfo=dt.UTC),
    "price": Decimal("3.10"),
    "tags": {"a", "b"},
    "pair": (1, 2.5),
    "by": {1: "one"},
    "rank": ["d1", "d2"],
    "nothing": None,
}
SEEN_FILE = """\
import json


def seen(output, label, row):
    with open("seen.jsonl", "a") as file:
        file.write(json.dumps([label, row]) + "\\n")
    return True


def of_label(output, label):
    with open("seen.jsonl", "a") as file:
        file.write(json.dumps(label) + "\\n")
    return True
"""
PLAIN = {name: ROW[name] for name in ("word", "label", "said", "count", "right", "rank")}


@pytest.fixture
def seen():
    return []


@pytest.fixture
def metric(seen):
    def keep(output, label, row):
        seen.append((label, row))
        return True

    return keep


def test_compare_gives_values(home, seen, metric):
    with Client(store=home / "store.db") as client:
        client.compare([ROW], outputs="said", label="label", metric=metric)
    assert seen == [(ROW["label"], ROW)]


def test_compare_of_prompts_gives_values(home, model, server, seen, metric):
    record(server, "Oslo")
    with Client(store=home / "store.db") as client:
        client.compare([ROW], {"p": "{word}"}, models=[model], label="label", metric=metric)
    assert seen == [(ROW["label"], ROW)]


@pytest.mark.parametrize("label", [False, 3, 2.5, ["a", "b"], Decimal("1.5"), dt.date(2026, 1, 2)])
def test_labels_keep_their_type(home, seen, label):
    def metric(output, right):
        seen.append(right)
        return True

    with Client(store=home / "store.db") as client:
        client.compare([{**ROW, "label": label}], outputs="said", label="label", metric=metric)
    assert seen == [label]
    assert type(seen[0]) is type(label)


def test_calibrate_gives_values(home, model, server, seen, metric):
    record(server, "Oslo")
    rows = [{**ROW, "word": f"W{n:02}"} for n in range(12)]
    with Client(store=home / "store.db") as client:
        client.calibrate(
            "Code for {word}.", rows, label="label", metric=metric, model=model, budget=60
        )
    assert seen
    for label, row in seen:
        assert label == ROW["label"]
        assert {**row, "word": ROW["word"]} == ROW


def test_functions_in_files_get_values(cli, home):
    (home / "m.py").write_text(SEEN_FILE)
    write_rows(home / "rows.jsonl", [PLAIN])
    for function in ("seen", "of_label"):
        outcome = cli(
            *("compare", "-d", "rows.jsonl", "--outputs", "said", "--label", "label"),
            *("--metric", f"m.py:{function}"),
        )
        assert outcome.code == 0, outcome.err
    lines = (home / "seen.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [[PLAIN["label"], PLAIN], PLAIN["label"]]


@pytest.mark.parametrize("reference", [["Oslo", "Kristiania"], 3, False, {"any": ["Oslo"]}])
def test_judges_get_values(cli, home, reference):
    (home / "m.py").write_text(SEEN_FILE)
    row = {"input": "Where?", "output": "Oslo", "reference": reference, "count": 3}
    write_rows(home / "rows.jsonl", [row])
    outcome = cli("evaluate", "rows.jsonl", "--judge", "metric:m.py:seen", "--json")
    assert outcome.code == 0, outcome.err
    (line,) = (home / "seen.jsonl").read_text().splitlines()
    label, values = json.loads(line)
    assert label == reference
    assert {name: values[name] for name in row} == row


def test_shipped_metrics_read_texts(cli, home):
    write_rows(home / "rows.jsonl", [{"input": "1?", "said": "3", "label": 3}])
    outcome = cli(
        *("compare", "-d", "rows.jsonl", "--outputs", "said", "--label", "label"),
        *("--metric", "exact", "--json"),
    )
    assert json.loads(outcome.out)["variants"][0]["mean"]["value"] == 1


def test_values_come_back_as_they_were():
    values = {**ROW, "$type": "date", "inf": float("inf"), "raw": b"\x00a", "time": dt.time(4, 5)}
    assert unpack_value(json.loads(json.dumps(pack_value(values)))) == values
    assert pack_value(PLAIN) == PLAIN
    assert pack_value(float("nan")) is None
