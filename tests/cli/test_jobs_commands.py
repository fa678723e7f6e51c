"""`textevolve jobs`: studies that are kept and run by a clock."""

import pytest

pytest.importorskip("cronsim")

ROWS = '{"id": "a", "input": "2 + 2?", "candidates": ["4", "5"]}\n'


@pytest.fixture
def study(home, model):
    (home / "cases.jsonl").write_text(ROWS)
    path = home / "study.yaml"
    path.write_text(f'kind: evaluate\ncases: cases.jsonl\njudge: probe\nmodel: "{model}"\n')
    return path


@pytest.fixture
def nightly(cli, study):
    outcome = cli("jobs", "add", "nightly", study, "--cron", "0 3 * * *", "--zone", "Europe/Vienna")
    assert outcome.code == 0, outcome.err
    return outcome


def shown(cli, name="nightly"):
    (job,) = cli("jobs", "show", name, "--json").rows
    return job


def test_a_job_is_added_listed_and_shown(cli, nightly, home):
    assert "added the job default/nightly; it runs next: " in nightly.out
    assert "03:00 CE" in nightly.out
    listed = cli("jobs", "list")
    assert "nightly" in listed.out
    assert "cron 0 3 * * * (Europe/Vienna)" in listed.out
    (row,) = cli("jobs", "list", "--json").rows
    assert (row["name"], row["last"], row["paused"]) == ("nightly", None, False)
    # A scheduler may work in another folder.
    assert shown(cli)["spec"]["study"]["cases"] == [str(home / "cases.jsonl")]
    assert "kind: evaluate" in cli("jobs", "show", "nightly").out


def test_it_is_paused_resumed_changed_and_removed(cli, nightly, study):
    assert cli("jobs", "pause", "nightly").code == 0
    assert "paused" in cli("jobs", "list").out
    assert cli("jobs", "resume", "default/nightly").code == 0
    refused = cli("jobs", "add", "nightly", study, "--cron", "0 6 * * *")
    assert refused.code == 2
    assert "textevolve jobs add --replace default/nightly" in refused.err
    assert cli("jobs", "add", "--replace", "nightly", study, "--cron", "0 6 * * *").code == 0
    assert "cron 0 6 * * *" in cli("jobs", "show", "nightly").out
    assert cli("jobs", "remove", "nightly", stdin=b"n\n").code == 1
    assert cli("jobs", "remove", "nightly", "--yes").code == 0
    missing = cli("jobs", "show", "nightly")
    assert missing.code == 2
    assert "there is no job 'nightly'" in missing.err


@pytest.mark.parametrize(
    "gate",
    [
        ("--pass-threshold", 1, "--min-mean", 1),
        ("--measured-on", "labels.jsonl", "--min-agreement", 0.5),
    ],
)
def test_a_gate_that_fails_is_the_exit_code_and_in_the_history(cli, study, gate):
    cli("jobs", "add", "gated", study, "--cron", "0 0 1 1 *", *gate)
    assert cli("jobs", "run", "gated").code == 4
    assert shown(cli, "gated")["runs"][0]["status"] == "gated"


def test_what_fails_is_told_and_noted(cli, nightly, home):
    (home / "cases.jsonl").unlink()
    outcome = cli("jobs", "run", "nightly")
    assert (outcome.code, "cases.jsonl" in outcome.err) == (1, True)
    (run,) = shown(cli)["runs"]
    assert (run["status"], "cases.jsonl" in run["detail"]) == ("failed", True)
