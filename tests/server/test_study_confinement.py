"""The reach of a client's study: which files, models, code and addresses its names may mean."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from canaries import CANARY, CASE, CODE, foreign_files, lay_canaries

from textevolve.reach import Reach, allowed_path, confine, is_file, is_folder, matching_files
from textevolve.server.identity import Caller
from textevolve.server.options import ServerOptions
from textevolve.server.studies.runner import Uploads, reach_of
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.store.served import ServedRun


@pytest.fixture
def machine(home, monkeypatch):
    yield from lay_canaries(home, monkeypatch)


@pytest.fixture
def confined(machine):
    """What a client with a key may reach who sent two files."""
    settings = Settings(store=machine / "store.db", model="openai/gpt-6-luna")
    options = ServerOptions(model=("openai/gpt-6-luna",))
    with open_store(settings.store) as store:
        files = {"cases.jsonl": CASE, "link.jsonl": CASE}
        sent = Uploads(machine / "store.db.files", set).keep(files)
        link = machine / "store.db.files" / sent / "link.jsonl"
        link.unlink()
        link.symlink_to(machine / f"{CANARY}.jsonl")
        launch = {"files": sent, "namespaces": ["mine"]}
        served = ServedRun("", "mine", "key", 0.0, "running", launch)
        own_settings = settings.model_copy(update={"namespace": "mine"})
        yield own_settings, reach_of(served, options, settings, store)


def test_names_lead_nowhere_but_into_what_was_sent(confined, machine):
    _, reach = confined
    with confine(reach):
        assert allowed_path("cases.jsonl").startswith(str(reach.folder))
        assert is_file("./cases.jsonl")
        assert is_file("x/../cases.jsonl")
        for name in (*foreign_files(machine), "/dev/stdin", "\0", "a\0b", "x" * 5000, "\ud800"):
            assert not is_file(name)
            assert not is_folder(name)
            assert CANARY not in str(matching_files(name))
        assert matching_files("/**") == matching_files("../*") == []
        assert set(matching_files("*.jsonl")) <= {"cases.jsonl", "link.jsonl"}


@pytest.mark.parametrize("name", ["/etc/x.yaml", "../../x.yaml", "a b/ü.yaml", "%root/x", "%25"])
def test_files_of_any_name_are_kept_within_one_folder(home, name):
    sent = home / "sent"
    folder = sent / Uploads(sent, set).keep({name: "text", "other": "o"})
    paths = [path for path in sent.rglob("*") if path.is_file()]
    assert len(paths) == 2
    with confine(Reach(folder=folder)):
        assert is_file(name)
        assert Path(allowed_path(name)).read_text() == "text"
    assert Uploads(sent, set).keep({"other": "o", name: "text"}) == folder.name
    assert Uploads(sent, set).keep({name: "text"}) != folder.name


def test_the_operator_may_allow_models_code_and_addresses(confined, machine):
    settings, _ = confined
    options = ServerOptions(
        allow_model=("openai/*",), allow_code=(f"{CODE}:f",), allow_address=("hf:me/*",)
    )
    with open_store(settings.store) as store:
        reach = reach_of(ServedRun("", "mine", "key", 0.0, "running", {}), options, settings, store)
    assert reach.models("openai/gpt-5")
    assert not reach.models("groq/x")
    assert not reach.models("http://openai/x#m")
    assert reach.code(f"{CODE}:f")
    assert not reach.code("os:system")
    assert reach.addresses("hf:me/data:train")
    assert not reach.addresses("hf:you/data")


def test_whoever_needs_no_key_may_ask_each_provider_but_no_address(confined, machine):
    settings, _ = confined
    with open_store(settings.store) as store:
        served = ServedRun("", "default", "", 0.0, "running", {"trusted": True})
        reach = reach_of(served, ServerOptions(), settings, store)
    assert reach.models("groq/x")
    assert reach.models("local/qwen2.5-coder-1.5b")
    for spec in (f"local/{machine}/x", "local/~x", f"local/{CANARY}.gguf", "http://h/v1#m", "no/x"):
        assert not reach.models(spec)


def test_callers_without_all_namespaces_see_their_runs_alone(home):
    from textevolve.server.studies.reading import find_study_run

    with open_store(home / "seen.db") as store:
        runs = [store.create_run({"kind": "evaluate"}, f"f{n}", "", "") for n in range(3)]
        for run, namespace in zip(runs, ("mine", "yours"), strict=False):
            store.serve_run(ServedRun(run.id, namespace, "", 0.0, "running", {}))
        server: Any = SimpleNamespace(store=store, resources=store)
        store.ensure_namespace("default")
        some = Caller("k", "some", frozenset({"read"}), frozenset({"mine"}))
        everybody = Caller("", "all", frozenset({"read"}))
        assert find_study_run(server, some, runs[0].id).run.id == runs[0].id
        for hidden in (runs[1].id, runs[2].id, runs[0].id[:-1], "last", "", "x" * 999):
            with pytest.raises(Exception, match="no run"):
                find_study_run(server, some, hidden)
        for run in runs:
            assert find_study_run(server, everybody, run.id).run.id == run.id
