"""What a cluster cannot do is said before a run is kept. No Ray is needed for that."""

import pytest

from textevolve.store.repository import open_store


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-m", "local/qwen2.5-coder-1.5b"), "runs inside one process, and --on ray uses many"),
        (("-m", "openai/gpt-4o", "--batch"), "batch jobs are collected by one machine"),
    ],
)
def test_no_run_is_kept_of_what_is_refused(cli, home, monkeypatch, options, said):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    path = home / "kept.db"
    outcome = cli("evaluate", "Why?", "Because.", "No.", "--on", "ray", "--store", path, *options)
    assert outcome.code == 1
    assert said in outcome.err
    with open_store(path) as store:
        assert not store.list_runs()
