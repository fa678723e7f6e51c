"""Of a parametrised set, the first cases stay quick and the others run with the slow tests."""

import pytest


def slow_but_first(values, quick=1):
    """Values of one parameter, for `pytest.mark.parametrize`: all after the first are slow."""
    return [
        value if number < quick else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
