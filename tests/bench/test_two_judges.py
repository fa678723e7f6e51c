"""Escalation on labelled items: what follows from debates, in figures and in words."""

import pytest

from textevolve.bench.ablation import CreditedVerdict, TwiceJudged, weigh_escalation
from textevolve.errors import InputError
from textevolve.evaluation import Failure, Usage
from textevolve.studies.labels.escalation import EscalationSpec, explain_selection

SPEC = EscalationSpec(first="probe", then="debate:general")


def debated(certainties, first, whole):
    """Debates whose first round takes half of the calls."""
    return [
        TwiceJudged(
            *(
                f"i{n}",
                sure,
                CreditedVerdict(one, Usage(3)),
                CreditedVerdict(both, Usage(6)),
                Usage(6),
            ),
            question=f"question {n}",
        )
        for n, (sure, one, both) in enumerate(zip(certainties, first, whole, strict=True))
    ]


def test_a_threshold_is_found_and_said_how_to_use():
    sure = [0.95] * 60 + [0.55] * 40
    escalated = weigh_escalation(debated(sure, [1] * 60 + [0] * 40, [1] * 100))
    assert escalated.selection.threshold == pytest.approx(0.56)
    assert escalated.chosen.share.value == 0.6
    assert escalated.chosen.calls == pytest.approx((60 * 3 + 40 * 6) / 600)
    assert (escalated.first.value, escalated.second.value, escalated.difference.value) == (
        0.6,
        1,
        -0.4,
    )
    answer = explain_selection(SPEC, escalated)
    assert "For 90% agreement with a confidence of 90% probe is good enough from" in answer
    assert answer.endswith("To use it: --judge cascade:0.56:probe,debate:general")
    assert "decides 60.0 % at once and takes 70.0 % of the calls" in answer
    assert "Of 60 judgements so sure 0 were wrong" in answer


def test_a_first_round_that_errs_has_no_threshold():
    escalated = weigh_escalation(debated([0.9] * 100, [1, 0] * 50, [1] * 100))
    assert escalated.chosen is None
    assert "too many errors" in explain_selection(SPEC, escalated)


def test_what_failed_or_was_skipped_has_no_curve():
    failed, skipped = Failure("failed", "no use"), Failure("skipped", "the limits")
    twice_judgeds = [
        TwiceJudged(
            "i0", first=CreditedVerdict(failure=failed), second=CreditedVerdict(failure=skipped)
        )
    ]
    assert twice_judgeds[0].failure == skipped
    assert weigh_escalation(twice_judgeds).curve == ()
    with pytest.raises(InputError, match="agreement must be less than 1"):
        EscalationSpec(agreement=1)
    with pytest.raises(InputError, match="confidence must be greater than 0"):
        EscalationSpec(confidence=0)
