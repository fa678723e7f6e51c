"""A store that may not be written is still listed, shown and exported."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

AS_NOBODY = """
import contextlib, io, os, sys
from textevolve.cli import main

writable, *arguments, store = sys.argv[1:]
if os.geteuid() == 0:  # all modules are loaded first: this user may not read the library's folder
    sys.argv[1:] = [*arguments, writable]
    sys.stdout, shown = io.TextIOWrapper(io.BytesIO()), sys.stdout
    with contextlib.suppress(SystemExit):
        main()
    sys.stdout = shown
    os.seteuid(65534)
os.environ["XDG_CONFIG_HOME"] = os.path.dirname(store)
os.chdir(os.path.dirname(store))
sys.argv[1:] = [*arguments, store]
main()
"""


@pytest.fixture
def store(home, cli, model):
    """A store with a finished run that may not be written, in a folder that may not be either. It
    is not in the home, whose parents an unprivileged user may not enter."""
    done = cli("evaluate", "Why are there tides?", "The moon.", "The wind.", "--model", model)
    assert done.code == 0, done.err
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "store.db"
        shutil.copy(home / "store.db", path)
        path.chmod(0o444)
        path.parent.chmod(0o555)
        yield path
        path.parent.chmod(0o755)


@pytest.mark.slow
def test_its_runs_are_listed_shown_and_exported_and_nothing_is_written(spawn, home, store):
    def run(*arguments):
        process = spawn(home / "store.db", *arguments, "--store", store, script=AS_NOBODY)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    code, out, err = run("runs", "list", "--json")
    assert code == 0, err
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["finished"]
    code, out, err = run("runs", "show", "--json")
    assert code == 0, err
    assert "moon" in out
    code, out, err = run("runs", "export", "last", "-")
    assert code == 0, err
    assert "moon" in out
    code, _, err = run("runs", "delete", "last", "--yes")
    assert code == 1
    assert "it may not be written" in err
    assert [path.name for path in store.parent.iterdir()] == ["store.db"]
