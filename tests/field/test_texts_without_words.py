"""An answer is an emoji or a mark, without a letter or a digit. It equals itself and nothing else,
as everybody sees."""

import pytest

from textevolve.metrics.label_metrics import grade, open_metric


@pytest.mark.parametrize(
    "metric", ["exact", "edit-distance", "rouge-l", "rouge-n", "bleu", "gleu", "chrf"]
)
def test_signs_equal_themselves_alone(metric):
    score = open_metric(metric)
    assert grade(score, "👍", "👍").score == 1
    assert grade(score, " 👍\n", "👍").score == 1
    for output, label in (("👍", "👎"), ("!", "?"), ("👍", "yes"), ("yes", "👍")):
        assert grade(score, output, label).score == 0
