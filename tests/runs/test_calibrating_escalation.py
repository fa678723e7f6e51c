"""Escalation on labelled items: what follows from debates, in figures and in words."""

import pytest

from textevolve.bench.item_fields import draw_side
from textevolve.bench.items import Item, question_of
from textevolve.bench.verdicts import Verdict
from textevolve.cli.escalation_tables import explain_calibration
from textevolve.errors import InputError
from textevolve.evaluation import Failure, Usage
from textevolve.runs.agreement import Plan, count_samples, read_items
from textevolve.runs.calibration import Debated, check_wanted, escalate


def items_of(number):
    return [Item(f"i{n}", f"question {n}", ("a", "b"), (1.0, 0.0)) for n in range(number)]


def debated(certainties, first, whole):
    return [
        Debated(f"i{n}", sure, one, both, 3, 6)
        for n, (sure, one, both) in enumerate(zip(certainties, first, whole, strict=True))
    ]


def test_a_threshold_is_found_and_said_how_to_use():
    sure = [0.95] * 60 + [0.55] * 40
    found = escalate(items_of(100), debated(sure, [1] * 60 + [0] * 40, [1] * 100))
    assert found.calibration.threshold == pytest.approx(0.56)
    assert found.chosen.share.value == 0.6
    assert found.chosen.calls.value == pytest.approx((60 * 3 + 40 * 6) / 600)
    assert (found.first.value, found.debate.value, found.difference.value) == (0.6, 1, -0.4)
    said = explain_calibration(found)
    assert "For 90% agreement with a confidence of 90%: --protocol escalation" in said
    assert "--escalate-below 0.56" in said
    assert "decides 60.0 % at once and takes 70.0 % of the calls" in said
    assert "Of 60 first rounds so sure 0 were wrong" in said


def test_a_first_round_that_errs_has_no_threshold():
    found = escalate(items_of(100), debated([0.9] * 100, [1, 0] * 50, [1] * 100))
    assert found.chosen is None
    assert "the first round errs too often" in explain_calibration(found)


def test_what_failed_or_was_skipped_is_counted():
    failed, skipped = Failure("failed", "no use"), Failure("skipped", "the limits")
    made = [Debated("i0", failure=failed), Debated("i1", failure=skipped)]
    found = escalate(items_of(2), made)
    assert (found.missing, found.skipped, found.curve) == (2, 1, ())
    for wanted in ((1, 0.9), (0.9, 0)):
        with pytest.raises(InputError, match="between 0 and 1"):
            check_wanted(*wanted)


def verdict(judge, tokens, failed=False):
    failure = Failure("failed", "no use") if failed else None
    return Verdict(judge, "i", "given", (1.0, 0.0), Usage(1, tokens), failure=failure)


def test_samples_follow_from_tokens_rounded_down():
    made = [verdict("dear", 1000), verdict("half", 499), verdict("most", 501)]
    made += [verdict("dear", 9, failed=True), verdict("free", 0)]
    found = count_samples(made, ["dear", "half", "most", "free", "silent"])
    assert found == {"dear": 1, "half": 2, "most": 1, "free": 1, "silent": 1}


def test_plans_and_halves_are_checked(tmp_path):
    for wrong in ({"samples": 2, "equal_tokens": True}, {"samples": 0}, {"orders": "one"}):
        with pytest.raises(InputError):
            Plan(**wrong)
    path = tmp_path / "one.jsonl"
    path.write_text('{"input": "1?", "a": "x", "b": "y", "winner": "a"}\n')
    (side,) = {draw_side(f"half 0: {question_of(item)}") for item in read_items([str(path)])}
    there, empty = ("tune", "report") if side else ("report", "tune")
    assert len(read_items([str(path)], half=there)) == 1
    with pytest.raises(InputError, match=f"no items are left in the half '{empty}'"):
        read_items([str(path)], half=empty)
