"""A user measures a judge on grades in several files, of which one lacks the low grades, and on the
labels of a tool that writes its confidence, its times and its sources beside them.

The grades of one command are of one scale, and only people are people.
"""

import json

import pytest

from textevolve.bench.items import load_items, read_items
from textevolve.bench.labels import label_columns

LOW = [1, 2, 3, 4]
HIGH = [3, 4, 5, 5]


@pytest.fixture
def write(tmp_path):
    """Write grades as labelled items to a file. Return its path."""

    def write(name, grades):
        rows = [
            {"id": f"{name}{number}", "input": "Q?", "output": f"text {number}", "label": grade}
            for number, grade in enumerate(grades)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_files_share_one_scale(write):
    # Grades 1 to 5: from 3 on in both files, whichever comes first.
    high = write("high", HIGH)
    low = write("low", LOW)
    for paths in ([high, low], [low, high]):
        passes = {item.id: item.human[0] for item in read_items(paths)}
        assert [passes[f"high{n}"] for n in range(4)] == [1, 1, 1, 1]
        assert [passes[f"low{n}"] for n in range(4)] == [0, 0, 1, 1]


def test_one_file_has_its_scale(write):
    # Grades 3 to 5 alone: the upper half begins at 4.
    assert [item.human[0] for item in load_items(write("high", HIGH))] == [0, 1, 1, 1]


def test_repeated_ids_name_files(write):
    path = write("low", LOW)
    with pytest.raises(Exception, match=r"'low0' is also used in .*low\.jsonl"):
        read_items([path, path])


def test_doubtful_words_of_all_files(write):
    # 0 and 1 in one file would be shares; with grades up to 5 they are the lowest grades.
    shares = write("shares", [0, 1])
    passes = [item.human[0] for item in read_items([shares, write("high", HIGH)])]
    assert passes == [0, 0, 1, 1, 1, 1]


ABOUT = (
    *(
        "confidence",
        "anna_confidence",
        "time",
        "created_at",
        "annotated_at",
        "Source",
        "ben_source",
    ),
    *("model_version", "type", "comment", "ann_notes", "id", "agreement", "probability"),
)


@pytest.mark.parametrize("name", ABOUT)
def test_facts_are_no_person(name):
    columns = ["input", "output", "label_anna", "label_ben", f"label_{name}"]
    assert label_columns(columns) == ("label_anna", "label_ben")


def test_people_remain_people():
    columns = ("label_anna", "label_1", "label_Kent", "label_Simon", "label_Matt", "label_gpt4")
    assert label_columns(columns) == columns


def test_facts_alone_leave_human():
    assert label_columns(["human", "label_source"]) == ("human",)
    assert label_columns(["label", "label_time"]) == ("label",)


def test_confidence_shifts_no_rate(cli, home):
    judged = [
        {"id": f"t{n}", "candidate": 1, "passed": n % 4 == 0, "score": float(n % 4 == 0)}
        for n in range(40)
    ]
    people = [
        {"id": f"t{n}", "candidate": 1, "label_ann": label, "label_bo": label}
        for n in range(20)
        for label in ["pass" if n % 4 == 0 else "fail"]
    ]
    (home / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in judged))
    outputs = []
    for confidence in ({}, {"label_confidence": 0.9}):
        rows = [row | confidence for row in people]
        (home / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        completed = cli("bench", "rate", "judged.jsonl", "people.jsonl")
        assert completed.code == 0
        outputs.append([line for line in completed.out.splitlines() if "alone" in line])
    assert outputs[0] == outputs[1]
    assert "25.0 %" in outputs[0][0]
