"""Loading labelled items: each format in the shape its authors publish, and what can be wrong."""

import csv
import json
import re
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from textevolve.bench.items import Item, load_items, split_items
from textevolve.errors import InputError

LLMBAR = {"input": "Sort 3, 1, 2.", "output_1": "1, 2, 3", "output_2": "3, 2, 1", "label": 1}
JUDGEBENCH = {
    "pair_id": "8d1c",
    "original_id": 6603,
    "source": "mmlu-pro-health",
    "question": "Which vitamin does sunlight make?",
    "response_model": "a-model",
    "response_A": "C. CCCCC",
    "response_B": "D. DDDDD",
    "label": "B>A",
}
REWARDBENCH = {
    "prompt": "Name a prime.",
    "chosen": "Seven.",
    "chosen_model": "x",
    "rejected": "Nine.",
    "rejected_model": "y",
    "subset": "alpacaeval-easy",
    "id": 30,
}
PLAIN = {"input": "Why tides?", "candidates": ["The moon.", "The wind.", "Whales."], "winner": 1}

NOUL = {
    "id": "refund-1",
    "family": "policy",
    "state": "Bought 40 days ago.",
    "question": {
        "type": "noul",
        "instructions": "May it be returned?",
        "criteria": {"true": "Within 30 days", "false": "Later"},
    },
    "labels": ["no", "yes"],
    "expected": "no",
    "split": "public",
    "group": None,
    "provenance": {"source": "invented"},
}
CHOICE = NOUL | {
    "id": "route-1",
    "state": {"message": "My card was stolen.", "language": "en"},
    "question": {
        "type": "choice",
        "instructions": "Which queue?",
        "criteria": {"billing": "Money", "fraud": "Theft", "other": None},
    },
    "labels": ["fraud", "other", "billing"],
    "expected": "fraud",
    "group": "queues",
}
SCORE = NOUL | {
    "id": "reply-1",
    "question": {"type": "score", "instructions": "How whole?", "criteria": ["Empty", "Whole"]},
    "labels": ["0", "1"],
    "expected": 1,
}


def write(folder, *rows, name="set.jsonl"):
    """A file of rows in the format of its ending."""
    path = folder / name
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            for row in rows:
                cells = {
                    k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()
                }
                writer.writerow(cells)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refusal(path):
    with pytest.raises(InputError) as caught:
        load_items(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path.parent}/")


def test_llmbar(tmp_path):
    rows = [LLMBAR, LLMBAR | {"input": "Sort b, a.", "label": 2}]
    one, two = load_items(write(tmp_path, *rows))
    assert one == Item("1", "Sort 3, 1, 2.", ("1, 2, 3", "3, 2, 1"), (1, 0), one.group)
    assert two.human == (0, 1)
    assert one.group != two.group


def test_judgebench(tmp_path):
    rows = [
        JUDGEBENCH,
        JUDGEBENCH | {"pair_id": "f", "label": "A>B"},
        JUDGEBENCH | {"pair_id": "g", "original_id": "9", "source": "livebench-math"},
    ]
    renamed = {"id": "pair_id", "group": "original_id", "subset": "source"}
    items = load_items(write(tmp_path, *rows), renamed)
    assert [i.id for i in items] == ["8d1c", "f", "g"]
    assert [i.human for i in items] == [(0, 1), (1, 0), (0, 1)]
    assert items[0].candidates == ("C. CCCCC", "D. DDDDD")
    assert [i.group for i in items] == ["6603", "6603", "9"]
    assert items[2].subset == "livebench-math"


def test_jevbench_rows(tmp_path):
    noul, choice, score = load_items(write(tmp_path, NOUL, CHOICE, SCORE))
    assert noul.input == "Bought 40 days ago.\n\nMay it be returned?"
    assert noul.candidates == ("Yes: Within 30 days", "No: Later")
    assert noul.human == (0, 1)
    assert (noul.id, noul.group, noul.subset) == ("refund-1", "refund-1", "policy")
    assert choice.candidates == ("fraud: Theft", "other", "billing: Money")
    assert choice.human == (1, 0, 0)
    assert choice.group == "queues"
    assert json.loads(choice.input.removesuffix("\n\nWhich queue?")) == CHOICE["state"]
    assert (score.candidates, score.human) == (("0: Empty", "1: Whole"), (0, 1))


def test_rewardbench_hides_the_chosen_text(tmp_path):
    items = load_items(write(tmp_path, *(REWARDBENCH | {"id": n} for n in range(200))))
    assert items[30].id == "alpacaeval-easy/30"
    assert {(c, h) for i in items for c, h in zip(i.candidates, i.human, strict=True)} == {
        ("Seven.", 1),
        ("Nine.", 0),
    }
    assert 70 < sum(i.human == (1, 0) for i in items) < 130
    assert len({i.group for i in items}) == 1
    half = load_items(write(tmp_path, *(REWARDBENCH | {"id": n} for n in range(100, 200))))
    assert half == items[100:]


@pytest.mark.parametrize(
    ("label", "human"),
    [
        ({"winner": "B"}, (0, 1, 0)),
        ({"winner": "Tie"}, (0.5, 0.5, 0.5)),
        ({"winner": None, "label": "c"}, (0, 0, 1)),
        ({"winner": None, "scores": [0.5, 7, -1]}, (0.5, 7, -1)),
    ],
)
def test_plain_labels(tmp_path, label, human):
    (item,) = load_items(write(tmp_path, PLAIN | label, name="set.csv"))
    assert item == Item("1", "Why tides?", tuple(PLAIN["candidates"]), human, item.group)


def test_group_is_the_question(tmp_path):
    rows = [PLAIN, PLAIN | {"input": " Why  tides?\n"}, PLAIN | {"input": "Why?"}]
    one, two, other = load_items(write(tmp_path, *rows))
    assert one.group == two.group != other.group
    assert Item("x", "Why tides?", ("a", "b"), (1, 0)).group == one.group


def bad(**changes):
    return {k: v for k, v in (PLAIN | changes).items() if v is not None}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            bad(winner=4),
            "'winner' must be a candidate's number from 1 to 3, its letter or 'tie', not 4",
        ),
        (bad(winner=None, scores=[0, 1]), "'scores' must be a list of 3 finite numbers"),
        (bad(candidates=None, candidate_1="x", candidate_3="y"), "'candidate_2' is missing"),
    ],
)
def test_bad_plain_rows(tmp_path, row, said):
    text = refusal(write(tmp_path, PLAIN, row))
    assert text.startswith("set.jsonl:2: ")
    assert said in text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (LLMBAR | {"label": 3}, "'label' must be a candidate's number from 1 to 2"),
        (NOUL | {"id": "bad", "expected": "maybe"}, "answer 'maybe' is none of: Yes, No"),
        (REWARDBENCH | {"id": 31, "chosen": [{"role": "user"}]}, "'chosen' must be text, not list"),
    ],
)
def test_bad_rows_of_known_sets(tmp_path, row, said):
    good = next(r for r in (LLMBAR, REWARDBENCH, NOUL) if r.keys() == row.keys())
    text = refusal(write(tmp_path, good, row))
    assert text.startswith("set.jsonl:2: ")
    assert said in text


texts = st.text("aA \u00e9\n", max_size=3)


@given(st.lists(st.tuples(texts, texts), max_size=20), st.integers(0, 5))
def test_halves_share_no_question(drawn, seed):
    items = [
        Item(str(n), input, ("a", "b"), (1, 0), group) for n, (input, group) in enumerate(drawn)
    ]
    tune, report = split_items(items, seed)
    assert sorted((*tune, *report), key=lambda i: int(i.id)) == items
    assert not {i.group for i in tune} & {i.group for i in report}
    again = split_items(items[::-2], seed)
    assert set(again[0]) <= set(tune)
    assert set(again[1]) <= set(report)


PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_examples_in_the_docs_load(tmp_path):
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "pairs.jsonl"
    path.write_text(example)
    first, prime, tie, scored, referenced = load_items(path)
    assert [first.human, prime.human, tie.human] == [(1, 0), (0, 1), (0.5, 0.5)]
    assert [scored.human, referenced.human] == [(5, 1, 3), (1, 0, 0)]
    assert (prime.id, prime.subset, referenced.reference) == ("prime", "sums", "a b c")
