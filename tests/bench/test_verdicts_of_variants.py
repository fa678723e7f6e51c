"""What is said of variants beside a baseline."""

from textevolve.bench.variants import describe_differences
from textevolve.statistics.comparisons import PairedDifference


def test_clear_differences_come_first_and_the_others_with_what_they_lack():
    differences = {
        "steps": PairedDifference(20, 0.52, 0.5, -0.1, 0.14, 0.8, 34),
        "careful": PairedDifference(20, 0.9, 0.5, 0.3, 0.5, 0.001, 8),
        "short": PairedDifference(20, 0.2, 0.5, -0.4, -0.2, 0.001, 9),
    }
    assert describe_differences(differences, "plain") == (
        "careful beats plain by 40.0 points (95 % 30.0 to 50.0, 20 rows);"
        " plain beats short by 30.0 points (95 % 20.0 to 40.0, 20 rows);"
        " no significant difference from plain: steps +2.0 points (95 % -10.0 to 14.0, 20 rows);"
        " about 14 more rows needed."
    )
    assert describe_differences({}, "plain") == "There is nothing to compare with plain."
