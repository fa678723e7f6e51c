"""Jobs over HTTP: listed, run by the server's own scheduler, paused and removed."""

from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

pytest.importorskip("cronsim")

from plain_http import wait_for

from postgres_server import address_of
from textevolve.jobs.job_spec import JobSpec, next_due
from textevolve.store import jobs as stored_jobs
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeySpec
from textevolve.store.repository import Store, open_store

ROWS = '{"id": "a", "input": "2 + 2?", "candidates": ["4", "5"]}\n'


@pytest.fixture
def jobs(serve, location, home, model):
    """The address of the jobs of the namespace `default`, which has one."""
    (home / "cases.jsonl").write_text(ROWS)
    study = {"kind": "evaluate", "cases": [str(home / "cases.jsonl")], "judge": "probe"}
    spec = JobSpec(name="nightly", study=study, cron="0 3 * * *", zone="Europe/Vienna")

    def start(**options):
        with closing(Store(address_of(location))) as resources:
            resources.ensure_namespace("default")
            resources.write(stored_jobs.create_job, "default", spec, next_due)
        return f"{serve(**options)}/v1/namespaces/default/jobs"

    return start


@pytest.mark.slow
def test_a_job_is_run_and_found_in_its_history(jobs, ask, server, location):
    url = jobs()
    (listed,) = ask(url)[1]["data"]
    assert listed["schedule"] == "cron 0 3 * * * (Europe/Vienna)"
    assert (listed["state"], listed["last"]) == ("waiting", None)
    assert ask(f"{url}/nightly/run", {})[0] == 202
    job = wait_for(
        lambda: ask(f"{url}/nightly")[1],
        lambda job: job["state"] == "waiting" and (job["last"] or {}).get("ended"),
    )
    assert (job["last"]["status"], job["due"]) == ("finished", listed["due"])
    (run,) = job["history"]
    with open_store(location) as store:
        stored = store.get_run(run["run_id"])
        assert (stored.status, stored.name) == ("finished", "nightly")
        assert store.get_served(stored.id).namespace == "default"
    calls = server.calls
    assert calls > 0
    assert ask(f"{url}/nightly/run", {})[0] == 202
    job = wait_for(
        lambda: ask(f"{url}/nightly")[1],
        lambda job: len(job["history"]) == 2 and job["last"]["ended"],
    )
    assert job["last"]["detail"] == "nothing new: the same run as before"
    assert job["last"]["run_id"] == run["run_id"]
    assert server.calls == calls


def test_a_job_is_paused_resumed_and_removed(jobs, ask):
    url = jobs(jobs=False)
    assert ask(f"{url}/nightly/pause", {})[1]["state"] == "paused"
    assert ask(f"{url}/nightly/run", {})[0] == 409
    assert ask(f"{url}/nightly/resume", {})[1]["state"] == "waiting"
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("DELETE", f"{urlsplit(url).path}/nightly")
        assert connection.getresponse().status == 204
    assert ask(url)[1]["data"] == []


def test_keys_read_and_change_the_jobs_of_their_namespaces_alone(jobs, ask, location):
    url = jobs(jobs=False)

    def add_key(**rights):
        with closing(Store(address_of(location))) as resources:
            resources.ensure_namespace("other")
            _, key = resources.write(stored_keys.add_key, str(rights), KeySpec(**rights), None)
            return {"Authorization": f"Bearer {key}"}

    reader = add_key(scopes=("read",))
    stranger = add_key(scopes=("admin",), namespaces=("other",))
    changes = (
        (f"{url}/nightly", None, "DELETE"),
        *((f"{url}/nightly/{action}", {}, "POST") for action in ("run", "pause", "resume")),
    )
    for path, body, method in changes:
        assert ask(path, body, method, **reader)[0] == 403
        assert ask(path, body, method, **stranger)[0] == 404
    for path in (url, f"{url}/nightly"):
        assert ask(path, **reader)[0] == 200
        assert ask(path, **stranger)[0] == 404
