"""Figures of every kind of run, from the command line to the last digit, as they were recorded.

A file in `tests/recorded` holds commands with the files they read, the figures that came of them,
and the journal keys of all that was asked. What the server says is in `recorded/scripted.py`, how
figures are picked out of an output in `recorded/picking.py`. Where figures change on purpose:

    RECORD_FIGURES=1 .venv/bin/pytest -n 0 tests/test_recorded_figures.py

writes them anew into the same files; the difference is then to be read and explained. The last
digit of an exponential or a matrix product depends on the processor: where those of this machine
are not those of the recording, figures are compared to nine digits.
"""

import datetime
import hashlib
import json
import math
import os
import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import textevolve.cli.study
import textevolve.judges.fitted_file  # noqa: F401  types with dates are made before the date is fixed
from recorded.picking import PICKERS
from recorded.scripted import answer
from textevolve.store.sqlite import sqlite3

FOLDER = Path(__file__).parent / "recorded"
RECORDING = bool(os.environ.get("RECORD_FIGURES"))
TODAY = "2026-01-15"
MISSING = "(nothing)"
SETTINGS = """\
model = "recorded/judge"
[providers.recorded]
base_url = "{url}"
keyless = true
[prices."recorded/judge"]
input = 0.95367431640625
output = 1.9073486328125
cached_input = 0.2384185791015625
"""
"""A token costs 2^-20, 2^-19 or 2^-22 dollars, so that sums are the same in whatever order."""


class _AnyDate(type):
    def __instancecheck__(cls, other):
        return isinstance(other, REAL_DATE)


REAL_DATE = datetime.date


class FixedDate(REAL_DATE, metaclass=_AnyDate):
    """The date that stands in prompts; all else takes it for the real class."""

    @classmethod
    def today(cls):
        return REAL_DATE.fromisoformat(TODAY)


@pytest.fixture
def played(cli, server, home, monkeypatch):
    """Runs the commands of a recording in a folder and a store of their own."""
    monkeypatch.setattr(datetime, "date", FixedDate)
    server.script = answer
    (home / "textevolve.toml").write_text(SETTINGS.format(url=server.url))

    def play(recorded):
        for name, lines in recorded["files"].items():
            text = lines if isinstance(lines, str) else "".join(json.dumps(v) + "\n" for v in lines)
            (home / name).write_text(text)
        steps = []
        for step in recorded["steps"]:
            ended = cli(*step["command"])
            assert "Traceback" not in ended.err
            found = PICKERS[step["pick"]](ended) if ended.code in (0, 3) else ended.err
            steps.append({**step, "code": ended.code, "figures": found})
        seen = re.findall(r"today is (\d{4}-\d\d-\d\d)", json.dumps(list(server.requests)))
        assert {*seen} <= {TODAY}, "prompts see another date: fix it where it is now taken from"
        return {**recorded, "steps": steps, "calls": server.calls, "keys": read_keys(home)}

    return play


def read_keys(home):
    """How many different requests are in the journal, and one hash over their sorted keys."""
    with closing(sqlite3.connect(home / "store.db")) as raw:
        keys = sorted(key for (key,) in raw.execute("SELECT DISTINCT key FROM calls"))
    return [len(keys), hashlib.sha256("\n".join(keys).encode()).hexdigest()]


def name_arithmetic():
    """Differs between machines whose exponentials or matrix products differ in the last digit."""
    values = np.random.default_rng(0).random((40, 40))
    made = [np.exp(values), np.log(values), values @ values.T, np.linalg.solve(values, values[0])]
    plain = [f(v) for f in (math.exp, math.log, math.lgamma, math.sin) for v in values[0]]
    return hashlib.sha256(b"".join(part.tobytes() for part in (*made, np.array(plain)))).hexdigest()


def find_differences(recorded, found, place="", *, exactly=True):
    """A line for each value that is not the recorded one; a figure that is new is none."""

    def deeper(one, other, name):
        return find_differences(one, other, place + name, exactly=exactly)

    if isinstance(recorded, dict) and isinstance(found, dict):
        for name in recorded:
            yield from deeper(recorded[name], found.get(name, MISSING), f".{name}")
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for n, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from deeper(one, other, f"[{n}]")
    elif recorded != found and (exactly or not is_close(recorded, found)):
        yield f"{place.lstrip('.')}: recorded {recorded!r}, found {found!r}"


def is_close(one, other):
    numbers = isinstance(one, float) and isinstance(other, float)
    return numbers and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def lay_out(data, depth=0):
    """JSON with what fits into a line on one line, so that differences can be read."""
    line = json.dumps(data)
    if len(line) + depth <= 98 or not isinstance(data, dict | list) or not data:
        return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(data, list):
        parts, ends = [lay_out(value, depth + 1) for value in data], "[]"
    else:
        named = {json.dumps(name): value for name, value in data.items()}
        parts = [f"{name}: {lay_out(value, depth + 1)}" for name, value in named.items()]
        ends = "{}"
    return ends[0] + inner + f",{inner}".join(parts) + outer + ends[1]


def test_a_difference_in_the_last_digit_is_found():
    recorded = {"a": [0.1, None], "b": {"c": 1}}
    assert list(find_differences(recorded, {"a": [0.1, None], "b": {"c": 1.0}})) == []
    found = {"a": [0.1 + 2**-56, None], "b": {"d": 1}}
    assert list(find_differences(recorded, found)) == [
        "a[0]: recorded 0.1, found 0.10000000000000002",
        "b.c: recorded 1, found '(nothing)'",
    ]
    assert list(find_differences([0.1], [0.1 + 2**-56], exactly=False)) == []
    assert list(find_differences([0.1], [0.1 + 1e-9], exactly=False)) != []


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_figures_are_those_that_were_recorded(played, name):
    path = FOLDER / f"{name}.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    found = json.loads(json.dumps(played(recorded)))
    if recorded.get("keys", "") is None:  # its prompts may change
        found["keys"] = None
    found["arithmetic"] = name_arithmetic()
    if RECORDING:
        path.write_text(lay_out(found) + "\n", encoding="utf-8")
        return
    exactly = recorded.pop("arithmetic") == found.pop("arithmetic")
    assert list(find_differences(recorded, found, exactly=exactly)) == []
