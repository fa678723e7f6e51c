"""Recordings: commands that are played, and what came of them beside what came of them before."""

import hashlib
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from recorded.picking import PICKERS
from recorded.scripted import answer

FOLDER = Path(__file__).parent
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


def play(recorded, cli, server, home, monkeypatch):
    """The recording with what comes of its commands now, in the folder and the store of `home`."""
    monkeypatch.setenv("TEXTEVOLVE_TODAY", TODAY)
    server.script = answer
    (home / "textevolve.toml").write_text(SETTINGS.format(url=server.url))
    for name, lines in recorded["files"].items():
        text = lines if isinstance(lines, str) else "".join(json.dumps(v) + "\n" for v in lines)
        (home / name).write_text(text)
    steps = []
    for step in recorded["steps"]:
        outcome = cli(*step["command"], stdin=step.get("stdin", "").encode())
        assert "Traceback" not in outcome.err
        figures = PICKERS[step["pick"]](outcome) if outcome.code in (0, 3) else outcome.err
        steps.append({**step, "code": outcome.code, "figures": figures})
    dates = re.findall(r"today is (\d{4}-\d\d-\d\d)", json.dumps(list(server.requests)))
    assert {*dates} <= {TODAY}, "prompts see another date: fix it where it is now taken from"
    return {**recorded, "steps": steps, "calls": server.calls, "keys": read_keys(home)}


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
        names = {json.dumps(name): value for name, value in data.items()}
        parts = [f"{name}: {lay_out(value, depth + 1)}" for name, value in names.items()]
        ends = "{}"
    return ends[0] + inner + f",{inner}".join(parts) + outer + ends[1]
