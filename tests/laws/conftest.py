"""The world in which the laws run."""

import pytest

from laws.studies import World


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """A run without slow tests makes no test of the thousands of slow cells, but for one of a
    matrix that has no other: each process of pytest would make all of them to leave them out."""
    if "not slow" in metafunc.config.option.markexpr:
        for matrix in metafunc.definition.iter_markers("parametrize"):
            cells = matrix.args[1]
            if isinstance(cells, list):
                cells[:] = [cell for cell in cells if not _is_slow(cell)] or cells[:1]


def _is_slow(cell):
    return any(mark.name == "slow" for mark in getattr(cell, "marks", ()))


@pytest.fixture
def world(home, server, cli):
    """A folder, a scripted server that answers well and can force tokens, and the command line."""
    server.tokenizes = True
    return World(home, server, cli)
