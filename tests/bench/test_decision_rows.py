"""JevBench's typed questions, as they are published, become items for judges of any kind."""

import json

import pytest

from textevolve.bench.items import load_items
from textevolve.errors import InputError

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
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refusal(path):
    with pytest.raises(InputError) as raised:
        load_items(path)
    return str(raised.value).replace(f"{path.parent}/", "")


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


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (NOUL | {"expected": "maybe"}, "the expected answer 'maybe' is none of: Yes, No"),
        (NOUL | {"question": "Why?"}, "'question' must be an object, not str"),
        (
            CHOICE | {"labels": ["fraud"]},
            "a question needs two options or more, not 1",
        ),
    ],
)
def test_bad_rows_say_what_is_wrong_and_where(tmp_path, row, said):
    found = refusal(write(tmp_path, NOUL, row | {"id": "bad"}))
    assert found.startswith("set.jsonl:2: ")
    assert said in found
