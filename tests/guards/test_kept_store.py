"""A store that earlier code made is whole for the code of today.

`kept.db.xz` was made by `make_store` below, once; it is never made anew while stores of its time
are promised to open. Each finished run in it is shown, exported and played again without a request,
and the interrupted one is resumed.

    MAKE_STORE=1 .venv/bin/pytest -n 0 tests/guards/test_kept_store.py
"""

import csv
import io
import json
import lzma
import os
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from recorded.playing import FOLDER, SETTINGS, find_differences, lay_out, name_arithmetic, play
from recorded.scripted import answer

pytestmark = pytest.mark.guard

KEPT = Path(__file__).parent / "kept.db.xz"
MAKING = bool(os.environ.get("MAKE_STORE"))
CHANGED = frozenset({"chats", "memory_work"})
"""Recordings that change what is there, so that they cannot be played twice in a store."""
NEW_PROMPTS = frozenset({"readouts"})
"""Recordings whose arguments were asked for in one JSON object then, and are in plain text now: the
same figures come of new requests."""
SOLVED_THEN = frozenset({"judges"})
"""Recordings with strengths of Bradley and Terry that the store keeps as the search of then found
them. The search of today ends elsewhere within its tolerance, so nine digits are compared."""
CUT = ["evaluate", "cut.jsonl", "--judge", "probe", "--name", "cut", "--json"]
CUT_CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Why {n}?", "candidates": ["A good one.", "Another."]})
    + "\n"
    for n in range(6)
)


def read_recording(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def named_steps(recorded):
    """Those that speak of no `last` run, which is another one in a store of many."""
    return [step for step in recorded["steps"] if "last" not in step["command"]]


def names():
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def unpack():
    return lzma.decompress(KEPT.read_bytes())


@pytest.fixture
def kept(home, server):
    """The store of then in the place of the home's."""
    if not MAKING:
        (home / "store.db").write_bytes(unpack())
    (home / "textevolve.toml").write_text(SETTINGS.format(url=server.url))
    (home / "cut.jsonl").write_text(CUT_CASES)
    server.script = answer
    return home


@pytest.mark.skipif(not MAKING, reason="the store was made once; see above")
def test_make_store(cli, server, kept, monkeypatch):
    for name in names():
        play(read_recording(name), cli, server, kept, monkeypatch)
    assert cli(*CUT, "--max-calls", "13").code == 3
    with closing(sqlite3.connect(kept / "store.db")) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.execute("VACUUM")
    KEPT.write_bytes(lzma.compress((kept / "store.db").read_bytes(), preset=9))


@pytest.mark.slow
def test_every_kept_run_is_shown_and_exported_without_a_request(cli, server, kept, frozen):
    """The columns of tables and the shape of JSON are frozen, each kind of run's as a text."""
    runs = cli("runs", "list", "--limit", "100", "--json").rows
    shapes = defaultdict(list)
    for run in runs:
        outcome = cli("runs", "show", run["id"], "--json")
        if run["kind"] in ("chat", "memory"):  # calls without results of their own
            assert (outcome.code, "no results of its own" in outcome.err) == (2, True)
            continue
        assert outcome.code == 0, (run, outcome.err)
        files = [kept / f"export.{kind}" for kind in ("json", "jsonl", "csv", "md", "html")]
        exported = cli("runs", "export", run["id"], *files)
        assert exported.code == 0, (run, exported.err)
        assert all(file.stat().st_size for file in (files[0], *files[3:])), run
        whole, _, table, *_ = (file.read_text(encoding="utf-8") for file in files)
        rows = [json.loads(line) for line in files[1].read_text(encoding="utf-8").splitlines()]
        kind = run["kind"]
        shapes[kind, "runs show --json"].append(shape_of(read_json(outcome.out)))
        shapes[kind, ".json"].append(shape_of(json.loads(whole)))
        shapes[kind, ".jsonl"].append(shape_of(rows))
        shapes[kind, ".csv"].append([" ".join(next(csv.reader(io.StringIO(table)), []))])
    assert len({kind for kind, _ in shapes}) > 15
    assert server.calls == 0
    texts = {place: lay_out(merge(group)) for place, group in shapes.items()}
    for kind in {kind for kind, _ in shapes}:
        if texts[kind, ".json"] == texts[kind, "runs show --json"]:
            texts[kind, ".json"] = "as runs show --json"
    frozen("outputs.txt", "".join(f"{k} {n} {text}\n" for (k, n), text in sorted(texts.items())))


def read_json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def shape_of(data):
    """Names and types; of a list those of all its members together."""
    if isinstance(data, dict):
        if not data or not all(re.fullmatch(r"[a-z][a-z0-9_]*|[AB]", name) for name in data):
            return {"(names)": merge([shape_of(value) for value in data.values()])}
        return {name: shape_of(value) for name, value in sorted(data.items())}
    if isinstance(data, list):
        return [merge([shape_of(value) for value in data])]
    return "null" if data is None else type(data).__name__


def merge(shapes):
    """One shape for all: of objects every name that any of them has."""
    objects = [shape for shape in shapes if isinstance(shape, dict)]
    lists = [shape for shape in shapes if isinstance(shape, list)]
    plain = sorted({shape for shape in shapes if isinstance(shape, str)})
    merged = []
    if objects:
        names = sorted({name for shape in objects for name in shape})
        values = {n: [shape[n] for shape in objects if n in shape] for n in names}
        merged.append({name: merge(group) for name, group in values.items()})
    if lists:
        merged.append([merge([value for shape in lists for value in shape])])
    if plain:
        merged.append(" | ".join(plain))
    return merged[0] if len(merged) == 1 else merged


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(names()) - CHANGED))
def test_a_kept_run_is_played_again_without_a_request(cli, server, kept, monkeypatch, name):
    recorded = read_recording(name)
    played = json.loads(json.dumps(play(recorded, cli, server, kept, monkeypatch)))
    exactly = recorded.pop("arithmetic") == name_arithmetic() and name not in SOLVED_THEN
    before, now = map(named_steps, (recorded, played))
    assert list(find_differences(before, now, exactly=exactly)) == []
    assert bool(server.calls) == (name in NEW_PROMPTS)


def test_an_interrupted_run_of_then_is_resumed(cli, server, kept):
    resumed = cli("runs", "resume", "cut", "--json")
    assert resumed.code == 0, resumed.err
    assert [row["status"] for row in resumed.rows] == ["scored"] * 6
    assert 0 < server.calls < 36
