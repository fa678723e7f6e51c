"""People who run a server for several clients: a path without /v1, a run's name that another tenant
has too, a full disk, a key that is a reference, the same study posted twice, an address without a
model's name."""

import errno
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from textevolve.agents.resources import NamespaceSpec
from textevolve.errors import InputError, SettingsError, StoreError
from textevolve.llm.providers import find_key, resolve
from textevolve.server.errors import ApiError, as_api_error
from textevolve.server.guard import check_origin
from textevolve.server.identity import Caller
from textevolve.server.studies import runner
from textevolve.server.studies.reading import find_seen
from textevolve.settings import Settings
from textevolve.store import kinds
from textevolve.store.repository import open_store
from textevolve.store.served import ServedRun, read_marks


def test_missing_version_is_named():
    scope = {"path": "/chat/completions", "method": "POST", "scheme": "http"}
    headers = {"content-type": b"application/json", "host": b"localhost"}
    with pytest.raises(ApiError, match="/v1/chat/completions") as refused:
        check_origin(scope, headers)
    assert refused.value.status == 404
    with pytest.raises(ApiError, match="Origin"):
        check_origin({**scope, "path": "/runs"}, {"content-type": b"x/form", "host": b"localhost"})


def test_full_disk_is_no_fault(tmp_path, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(StoreError, match="No space left") as refused:
        runner._write(tmp_path / "files" / "a", {Path("rows.jsonl"): b"{}"})
    assert as_api_error(refused.value).status == 503
    assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.parametrize("key", ["file:/run/secrets/key", "cmd:pass show key"])
def test_references_are_no_keys(monkeypatch, key):
    monkeypatch.setenv("OUR_KEY", key)
    with pytest.raises(SettingsError, match="OUR_KEY: a key cannot be a reference") as refused:
        find_key("host", "OUR_KEY")
    assert key not in str(refused.value)


@pytest.mark.parametrize("spec", ["http://127.0.0.1:9/v1", "vllm"])
def test_nameless_models_are_refused(spec):
    with pytest.raises(InputError, match="no model is named"):
        resolve(spec, Settings())


def test_namesakes_of_others_hide_nothing(tmp_path):
    described = {"version": 2, "kind": "evaluate", "spec": {"cases": ["a.jsonl"], "judge": "probe"}}
    with open_store(tmp_path / "store.db") as store:
        runs = {}
        for space in ("acme", "beta"):
            fields = NamespaceSpec(name=space)
            store.write(kinds.create, kinds.NAMESPACES, "", fields)
            run = store.create_run(described, f"print of {space}", "nightly", "HTTP")
            mark = store.read(read_marks)[space]
            row = ServedRun(run.id, space, "k", 1.0, "running", {}, namespace_id=mark.id)
            store.serve_run(row)
            runs[space] = run.id
        server = type("Server", (), {"store": store, "resources": store})
        for space, id in runs.items():
            caller = Caller("k", space, frozenset({"read"}), frozenset({space}))
            assert find_seen(server, caller, "nightly").run.id == id
