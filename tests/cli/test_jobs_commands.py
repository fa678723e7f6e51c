"""`textevolve jobs`: studies that are kept and run by a clock."""

import json
import signal
import threading

import pytest

from textevolve.store import jobs as stored_jobs

pytest.importorskip("apscheduler")

ROWS = '{"id": "a", "input": "2 + 2?", "candidates": ["4", "5"]}\n'


@pytest.fixture
def study(home, model):
    (home / "cases.jsonl").write_text(ROWS)
    path = home / "study.yaml"
    path.write_text(f'kind: evaluate\ncases: cases.jsonl\njudge: probe\nmodel: "{model}"\n')
    return path


@pytest.fixture
def nightly(cli, study):
    found = cli("jobs", "add", "nightly", study, "--cron", "0 3 * * *", "--zone", "Europe/Vienna")
    assert found.code == 0, found.err
    return found


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


def test_without_any_the_list_says_how_to_add_one(cli):
    assert "textevolve jobs add NAME FILE.yaml" in cli("jobs", "list").out


def test_it_runs_by_hand(cli, nightly, server):
    due = shown(cli)["due"]
    found = cli("jobs", "run", "nightly")
    assert found.code == 0, found.err
    assert "job default/nightly: finished" in found.err
    assert "textevolve runs show 20" in found.err
    asked = server.calls
    assert asked > 0
    job = shown(cli)
    (run,) = job["runs"]
    assert (run["status"], run["cause"]) == ("finished", "hand")
    assert job["due"] == due
    assert cli("runs", "show", run["run_id"]).code == 0
    # The same rows are the same run; nothing is asked.
    assert cli("jobs", "run", "nightly").code == 0
    assert server.calls == asked
    again = shown(cli)["runs"]
    assert [one["run_id"] for one in again] == [run["run_id"]] * 2
    assert "finished" in cli("jobs", "show", "nightly").out


def test_a_gate_that_fails_is_the_exit_code_and_in_the_history(cli, study):
    cli("jobs", "add", "gated", study, "--every", "6h", "--pass-threshold", 1, "--min-mean", 1)
    found = cli("jobs", "run", "gated")
    assert found.code == 4
    assert "gated" in found.err
    assert shown(cli, "gated")["runs"][0]["status"] == "gated"


def test_what_fails_is_told_and_noted(cli, study, home):
    cli("jobs", "add", "gone", study, "--every", "6h")
    (home / "cases.jsonl").unlink()
    found = cli("jobs", "run", "gone")
    assert found.code == 1
    assert "cases.jsonl" in found.err
    (run,) = shown(cli, "gone")["runs"]
    assert run["status"] == "failed"
    assert "cases.jsonl" in run["detail"]


def test_it_is_paused_resumed_changed_and_removed(cli, nightly, study):
    assert cli("jobs", "pause", "nightly").code == 0
    assert "paused" in cli("jobs", "list").out
    assert cli("jobs", "resume", "default/nightly").code == 0
    refused = cli("jobs", "add", "nightly", study, "--every", "6h")
    assert refused.code == 2
    assert "textevolve jobs add --replace default/nightly" in refused.err
    assert cli("jobs", "add", "--replace", "nightly", study, "--every", "1d12h").code == 0
    assert "every 36 h 00 min" in cli("jobs", "show", "nightly").out
    assert cli("jobs", "remove", "nightly", stdin=b"n\n").code == 1
    assert cli("jobs", "remove", "nightly", "--yes").code == 0
    missing = cli("jobs", "show", "nightly")
    assert missing.code == 2
    assert "there is no job 'nightly'" in missing.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "say when the job runs"),
        (["--cron", "0 3 * *"], "has 4 fields"),
        (["--cron", "0 0 31 2 *"], "would never run"),
        (["--every", "often"], "not 'often'"),
        (["--every", "6h", "--zone", "Mars/Base"], "no time zone"),
        (["--every", "6h", "--end", "2020-01-01"], "would never run"),
        (["--every", "6h", "--retries", "-1"], "retries"),
    ],
)
def test_bad_schedules_are_refused_in_a_line(cli, study, given, said):
    found = cli("jobs", "add", "bad", study, *given)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err
    assert "no jobs" in cli("jobs", "list").out


def test_a_job_does_not_read_standard_input(cli, home, model):
    (home / "s.yaml").write_text('kind: evaluate\ncases: ["-"]\njudge: probe\n')
    found = cli("jobs", "add", "bad", home / "s.yaml", "--every", "1h")
    assert found.code == 2
    assert "cannot read standard input" in found.err


def test_a_job_that_is_in_work_is_not_run_beside(cli, nightly, home):
    from textevolve.store import Store

    resources = Store(str(home / "store.db"))
    claim = resources.write(stored_jobs.claim_job, "default", "nightly", 60)
    found = cli("jobs", "run", "nightly")
    assert found.code == 1
    assert "in work by process" in found.err
    resources.write(stored_jobs.release_claim, claim)
    resources.close()
    assert cli("jobs", "run", "nightly").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_jobs_are_run_when_they_are_due_until_a_signal_comes(cli, spawn, study, sign):
    cli("jobs", "add", "often", study, "--every", "1s", "--fresh")
    process, said = spawn("jobs", "work"), []

    def read():
        said.extend(process.stderr)

    reader = threading.Thread(target=read)
    reader.start()
    while len([run for run in shown(cli, "often")["runs"] if run["ended"]]) < 2:
        pass
    process.send_signal(sign)
    assert process.wait(60) == 0
    reader.join()
    text = "".join(said)
    assert "job default/often: finished" in text
    assert "Traceback" not in text
    runs = [one for one in shown(cli, "often")["runs"] if one["ended"]]
    assert len({one["run_id"] for one in runs}) == len(runs) >= 2
    assert json.dumps(runs)
