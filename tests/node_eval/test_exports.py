"""Exports of Phoenix, MLflow and LangSmith give the nodes that the same run's OTLP gives.

The files are in `fixtures/exports`; `fixtures/export.py` made them with the tools themselves.
"""

from pathlib import Path

import pytest

from textevolve.node_eval.episodes import Reading
from textevolve.node_eval.traces import read_episodes

FIXTURES = Path(__file__).with_name("fixtures")
EXPORTS = FIXTURES / "exports"


def read(path):
    reading = Reading()
    episodes = list(read_episodes(path, reading))
    assert reading.faults == []
    return episodes


def outline(path):
    """What the nodes of a trace say, but for their times, which exports round."""
    return [
        (
            episode.id,
            step,
            *(item.node, item.path, item.instruction, item.tokens, item.error, item.thread_id),
            *(item.input_state, item.output_state, item.ids),
        )
        for episode in read(path)
        for step, item in episode.nodes
    ]


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("phoenix-*")), ids=lambda path: path.name)
def test_phoenix(path):
    assert outline(path) == outline(FIXTURES / "openinference-langchain.jsonl")
