"""Figures of every kind of run, from the command line to the last digit, as they were recorded.

A file in `tests/recorded` holds commands with the files they read, the figures that came of them,
and the journal keys of all that was asked. What the server says is in `recorded/scripted.py`, how
figures are picked out of an output in `recorded/picking.py`. Where figures change on purpose:

    RECORD_FIGURES=1 .venv/bin/pytest -n 0 tests/test_recorded_figures.py

writes them anew into the same files; the difference is then to be read and explained. The last
digit of an exponential or a matrix product depends on the processor: where those of this machine
are not those of the recording, figures are compared to nine digits.
"""

import json
import os

import pytest

from recorded.playing import FOLDER, find_differences, lay_out, name_arithmetic, play

pytestmark = pytest.mark.guard

RECORDING = bool(os.environ.get("RECORD_FIGURES"))


def test_a_difference_in_the_last_digit_is_found():
    recorded = {"a": [0.1, None], "b": {"c": 1}}
    assert list(find_differences(recorded, {"a": [0.1, None], "b": {"c": 1.0}})) == []
    fields = {"a": [0.1 + 2**-56, None], "b": {"d": 1}}
    assert list(find_differences(recorded, fields)) == [
        "a[0]: recorded 0.1, found 0.10000000000000002",
        "b.c: recorded 1, found '(nothing)'",
    ]
    assert list(find_differences([0.1], [0.1 + 2**-56], exactly=False)) == []
    assert list(find_differences([0.1], [0.1 + 1e-9], exactly=False)) != []


SLOW = ("chats", "memory", "memory_work", "payoff")
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NAMES]
)
def test_figures_are_those_that_were_recorded(cli, server, home, monkeypatch, name):
    path = FOLDER / f"{name}.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    payload = json.loads(json.dumps(play(recorded, cli, server, home, monkeypatch)))
    if recorded.get("keys", "") is None:  # its prompts may change
        payload["keys"] = None
    payload["arithmetic"] = name_arithmetic()
    if RECORDING:
        path.write_text(lay_out(payload) + "\n", encoding="utf-8")
        return
    exactly = recorded.pop("arithmetic") == payload.pop("arithmetic")
    assert list(find_differences(recorded, payload, exactly=exactly)) == []
