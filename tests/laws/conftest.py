"""The world in which the laws run."""

import pytest

from laws.studies import World


@pytest.fixture
def world(home, server, cli):
    """A folder, a scripted server that answers well and can force tokens, and the command line."""
    server.tokenizes = True
    return World(home, server, cli)
