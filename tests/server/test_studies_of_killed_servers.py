"""A server is killed while it works on a study, and another server on its store lists the studies.

The first request hung the second server for good: a filter read the store within a read.
"""

import json
import urllib.request

import pytest

from server.conftest import started
from textevolve import Settings
from textevolve.server.options import ViewOptions
from textevolve.store.repository import open_store
from textevolve.store.served import ServedRun


def get_json(url):
    with urllib.request.urlopen(url, timeout=20) as response:
        return json.load(response)


@pytest.fixture
def viewer(location):
    """A server that shows what a store has, and works on no study."""
    with started(ViewOptions(), Settings(store=location)) as url:
        yield url


@pytest.fixture
def abandoned_run(location):
    with open_store(location) as store:
        run = store.create_run({"kind": "evaluate"}, "f")
        store.serve_run(ServedRun(run.id, "default", "", 0.0, "running", {}))
        return run.id


@pytest.mark.parametrize(
    ("question", "is_listed"),
    [("", True), ("?status=interrupted", True), ("?status=running", False)],
)
def test_studies_of_killed_server(abandoned_run, viewer, question, is_listed):
    for _ in range(2):
        studies = get_json(f"{viewer}/v1/studies{question}")["data"]
        assert (abandoned_run in [study["id"] for study in studies]) == is_listed
    assert get_json(f"{viewer}/health")["status"] == "ok"
