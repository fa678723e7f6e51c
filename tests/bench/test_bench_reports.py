"""Records of agreement and robustness come back as they were."""

from dataclasses import replace

import pytest

from textevolve.bench.card_cases import (
    FAMILIES,
    CardAnswer,
    CardCase,
    CardJudgement,
    CardQuestion,
    CardRefusal,
)
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict
from textevolve.evaluation import Failure, Usage
from textevolve.studies import agreement, robustness
from textevolve.studies.labelled_items import ItemVerdict, as_case, item_of
from textevolve.studies.robustness import as_case as as_card_case
from textevolve.studies.robustness import card_case_of

# Agreement


def divided(text="plain", number=3):
    """One item each right, wrong and turning with the order, a judge that fails, and so round."""
    items = [
        Item(f"{n} {text}", f"input {text}", (f"a {text}", f"b {text}"), (1.0, 0.0), "", text)
        for n in range(number)
    ]
    items[0] = replace(items[0], human=(0.5, 0.5), subset="other")
    found = []
    for n, item in enumerate(items):
        for order in ("given", "reversed"):
            turned = n % 3 == 2 and order == "reversed"
            scores = (0.2, 0.7) if n % 3 == 1 or turned else (0.7, 0.2)
            made = [Verdict(f"one {text}", item.id, order, scores, Usage(1, 10))]
            failure = Failure("failed", f"no use {text}") if n else None
            scores = (None, None) if n else (0.7, 0.2)
            made.append(Verdict(f"two {text}", item.id, order, scores, failure=failure))
            found += [ItemVerdict(2 * n, item, verdict) for verdict in made]
    return found


def test_records_and_cases_come_back_as_they_were():
    for record in divided("\u202e\x00 é"):
        assert agreement.STUDY.decode(agreement.STUDY.encode(record)) == record
        assert item_of(as_case(record.item)) == record.item
    bare = replace(divided()[0].item, human=(float("nan"),) * 2, reference="the answer")
    again = item_of(as_case(bare))
    assert (again.labelled, again.reference) == (False, "the answer")
    rows = [agreement.STUDY.row(record) for record in divided()]
    assert [row.score for row in rows[::2]] == [0.5, 0.5, 0, 0, 1, 0]
    assert len({row.key for row in rows}) == len(rows)


# Robustness


def card_cases():
    """A case of each family, and a control."""
    found = []
    for n, family in enumerate((*FAMILIES, "injection")):
        own = {"injection": {"attack": "attack!"}}
        kind = "control" if n == len(FAMILIES) else f"kind {n}"
        texts = {"input": f"input {n}", "good": f"good {n}", "bad": f"bad text {n}"}
        found.append(
            CardCase(id=f"case-{n}", family=family, kind=kind, **texts, **own.get(family, {}))
        )
    return found


@pytest.mark.parametrize(
    ("outcome", "score", "status"),
    [
        (CardAnswer(0.9, 0.1), 1, "scored"),
        (CardAnswer(0.5, 0.5, -2.0), 0, "scored"),
        (CardAnswer(0.5, 0.5), 0.5, "scored"),
        (CardRefusal("not taken"), None, "scored"),
        (Failure("failed", "no use"), None, "failed"),
        (Failure("skipped", "the limit"), None, "skipped"),
    ],
)
def test_judgements_come_back_as_they_were(outcome, score, status):
    for case in card_cases():
        assert card_case_of(as_card_case(case)) == case
        record = CardJudgement(
            CardQuestion(case, good_first=False, seed=2), outcome, Usage(1, 2), 7
        )
        assert robustness.STUDY.decode(robustness.STUDY.encode(record)) == record
        row = robustness.STUDY.row(record)
        assert (row.score, row.status, row.case) == (score, status, case.id)
