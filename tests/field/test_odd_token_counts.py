"""Endpoints that write counts as 100.0 or "100", that show the tokens of thoughts in the total
alone, and that count the cached tokens of a prompt beside the others.

The right counts are those whose sum is the reported total."""

import pytest

from textevolve.llm.prices import usage_of
from textevolve.protocol.contents import ReportedUsage
from textevolve.settings import Price

PRICE = Price(input=1.0, output=10.0)


def count(**reported):
    usage = usage_of(ReportedUsage.model_validate(reported), PRICE, estimate=(7, 7))
    return usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens, usage.estimated


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        ({"prompt_tokens": 100.0, "completion_tokens": 16.0}, (100, 16, 0, 0)),
        ({"prompt_tokens": "100", "completion_tokens": "16"}, (100, 16, 0, 0)),
        ({"prompt_tokens": 100, "completion_tokens": 16.5}, (100, 7, 0, 1)),
        ({"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": 116}, (100, 16, 0, 0)),
        # 34 tokens are nowhere but in the total: the thoughts, which are billed as output.
        ({"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": 150}, (100, 50, 34, 0)),
        ({"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": 150.0}, (100, 50, 34, 0)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 16,
                "total_tokens": 150,
                "completion_tokens_details": {"reasoning_tokens": 34},
            },
            (100, 50, 34, 0),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "completion_tokens_details": {"reasoning_tokens": 34},
            },
            (100, 50, 34, 0),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": "many"}, (100, 16, 0, 0)),
        # The 1,000 tokens are no thoughts: they were read from the cache.
        (
            {
                "prompt_tokens": 200,
                "completion_tokens": 50,
                "total_tokens": 1250,
                "prompt_tokens_details": {"cached_tokens": 1000},
            },
            (1200, 50, 0, 0),
        ),
    ],
)
def test_tokens_of_odd_usage(reported, counted):
    assert count(**reported) == counted


def test_cost_of_hidden_thoughts():
    reported = {"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": 150}
    usage = usage_of(ReportedUsage.model_validate(reported), PRICE)
    assert usage.cost == pytest.approx((100 * 1 + 50 * 10) / 1e6)
