"""Jobs over HTTP: made, run by the server's own scheduler, and confined as clients' studies are."""

import json
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

pytest.importorskip("apscheduler")

from postgres_server import address_of
from textevolve.jobs.job_report import describe_job
from textevolve.jobs.job_spec import JobSpec, SentBy
from textevolve.store import Store, open_store
from textevolve.store import jobs as stored_jobs
from textevolve.store import keys as stored_keys
from textevolve.store.jobs import StoredJob
from textevolve.store.keys import KeySpec

ROWS = '{"id": "a", "input": "2 + 2?", "candidates": ["4", "5"]}\n'
STUDY = {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe"}
NIGHTLY = {
    "name": "nightly",
    "study": STUDY,
    "cron": "0 3 * * *",
    "zone": "Europe/Vienna",
    "files": {"cases.jsonl": ROWS},
}


@pytest.fixture
def jobs(serve, location):
    """The address of the jobs of the namespace `default`."""

    def start(**given):
        with closing(Store(address_of(location))) as resources:
            resources.ensure_namespace("default")
        return f"{serve(**given)}/v1/namespaces/default/jobs"

    return start


def wait_for(ask, url, done):
    until = time.monotonic() + 120
    while not done(found := ask(url)[1]):
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_a_job_is_made_run_and_found_in_its_history(jobs, ask, server, location):
    url = jobs()
    status, made = ask(url, NIGHTLY)
    assert status == 201, made
    assert made["schedule"] == "cron 0 3 * * * (Europe/Vienna)"
    assert (made["state"], made["last"]) == ("waiting", None)
    assert made["study"] == {**STUDY}
    assert "sent" not in made
    assert server.calls == 0
    assert ask(f"{url}/nightly/run", {})[0] == 202
    found = wait_for(ask, f"{url}/nightly", lambda job: (job["last"] or {}).get("ended"))
    assert found["last"]["status"] == "finished"
    assert found["due"] == made["due"]
    (run,) = ask(f"{url}/nightly/history")[1]["data"]
    with open_store(location) as store:
        kept = store.get_run(run["run_id"])
        assert (kept.status, kept.name) == ("finished", "nightly")
        assert store.get_served(kept.id).namespace == "default"
    asked = server.calls
    assert asked > 0
    assert ask(f"{url}/nightly/run", {})[0] == 202
    wait_for(ask, f"{url}/nightly/history", lambda page: len(page["data"]) == 2)
    found = wait_for(ask, f"{url}/nightly", lambda job: job["last"]["ended"])
    assert found["last"]["detail"] == "nothing new: the same run as before"
    assert found["last"]["run_id"] == run["run_id"]
    assert server.calls == asked
    assert len(ask(f"{url}/nightly/history?limit=1")[1]["data"]) == 1


def test_a_job_is_paused_resumed_and_removed(jobs, ask):
    url = jobs(jobs=False)
    ask(url, NIGHTLY)
    assert ask(url, NIGHTLY)[0] == 409
    assert ask(f"{url}/nightly/pause", {})[1]["state"] == "paused"
    assert ask(f"{url}/nightly/run", {})[0] == 409
    assert ask(f"{url}/nightly/resume", {})[1]["state"] == "waiting"
    assert [one["name"] for one in ask(url)[1]["data"]] == ["nightly"]
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("DELETE", f"{urlsplit(url).path}/nightly")
        assert connection.getresponse().status == 204
    assert ask(url)[1]["data"] == []


def test_what_cannot_be_used_is_refused_at_once(jobs, ask):
    url = jobs(jobs=False)
    for changes, said in (
        ({"cron": "0 3 * *"}, "has 4 fields"),
        ({"zone": "Mars/Base"}, "no time zone"),
        ({"study": "evaluate"}, "study"),
        ({"study": {"kind": "nothing"}}, "no kind of study"),
        ({"study": {**STUDY, "judge": "nobody"}}, "nobody"),
        ({"study": {**STUDY, "cases": ["/etc/all.jsonl"]}}, "no file that was sent"),
        ({"study": {**STUDY, "model": "http://169.254.169.254/v1#m"}}, "not served to clients"),
        ({"study": {**STUDY, "judge": "rules:/etc/hosts"}}, "no file that was sent"),
        ({"files": {}}, "no file that was sent"),
        ({"files": {"../x": 3}}, "files"),
        ({"name": "../x"}, "name"),
        ({"unknown": 1}, "unknown"),
        ({"concurrency": 0}, "concurrency"),
    ):
        status, answer = ask(url, {**NIGHTLY, **changes})
        assert status == 400, answer
        assert said in json.dumps(answer), changes
    assert ask(url)[1]["data"] == []


def test_a_client_cannot_say_whose_job_it_is(jobs, ask, location):
    url = jobs(jobs=False)
    own = {"key": "", "namespaces": None, "files": ""}
    assert ask(url, {**NIGHTLY, "sent": own})[0] == 201
    with closing(Store(address_of(location))) as resources:
        assert resources.read(stored_jobs.get_job, "default", "nightly").spec["sent"]["files"]


def test_keys_read_and_change_the_jobs_of_their_namespaces_alone(jobs, ask, location):
    url = jobs(jobs=False)
    ask(url, NIGHTLY)

    def made(**rights):
        with closing(Store(address_of(location))) as resources:
            resources.ensure_namespace("other")
            _, key = resources.write(stored_keys.add_key, str(rights), KeySpec(**rights), None)
            return {"Authorization": f"Bearer {key}"}

    reader, stranger = made(scopes=("read",)), made(scopes=("admin",), namespaces=("other",))
    assert ask(f"{url}/nightly", **reader)[0] == 200
    assert ask(f"{url}/nightly/history", **reader)[0] == 200
    changes = (
        (url, {**NIGHTLY, "name": "more"}, "POST"),
        (f"{url}/nightly", None, "DELETE"),
        *((f"{url}/nightly/{what}", {}, "POST") for what in ("run", "pause", "resume")),
    )
    for path, body, method in changes:
        assert ask(path, body, method, **reader)[0] == 403
        assert ask(path, body, method, **stranger)[0] == 404
    for path in (url, f"{url}/nightly", f"{url}/nightly/history"):
        assert ask(path, **stranger)[0] == 404
    admin = made(scopes=("admin",), namespaces=("default",))
    gated = {**NIGHTLY, "name": "gated", "gates": {"no_worse_than": "last"}}
    assert ask(url, gated, **admin)[0] == 400
    assert ask(url, {**NIGHTLY, "name": "own"}, **admin)[0] == 201
    with closing(Store(address_of(location))) as resources:
        assert resources.read(stored_jobs.get_job, "default", "own").spec["sent"]["namespaces"] == [
            "default"
        ]
        assert len(resources.read(stored_jobs.files_of_jobs)) == 1


def test_who_made_a_job_is_not_told():
    sent = SentBy(key="te-secret", namespaces=("acme",), files="abc")
    spec = JobSpec(name="nightly", study=STUDY, cron="0 * * * *", sent=sent)
    job = StoredJob("jo_1", "acme", "nightly", 0, 0, False, None, False, spec.model_dump())
    assert "te-secret" not in json.dumps(describe_job(job, None))
