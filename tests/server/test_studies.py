"""Studies over HTTP: begun, found again, read in pages and formats, cancelled, gone on with."""

import base64
import json
import os
import time
import urllib.error
import urllib.request

import pytest
from plain_http import wait_for_status

from textevolve.errors import StoreAwayError
from textevolve.llm.testing import ScriptedServer
from textevolve.server.studies import runner
from textevolve.server.studies.runner import Uploads
from textevolve.store.repository import Store

CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Question {n}?", "candidates": ["one", "two"]}) + "\n"
    for n in range(7)
)


CALLS = 42
"""Of the probe: three questions about each candidate."""


def study(run=None, **fields):
    """A study of a few cases by a probe."""
    arguments = {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe", **fields}
    return {**arguments, "run": {"files": {"cases.jsonl": CASES}, **(run or {})}}


@pytest.fixture
def wait(ask):
    """Waits until a run has one of these states; its detail."""

    def until(url, run_id, *states):
        return wait_for_status(lambda: ask(f"{url}/v1/studies/{run_id}"), *states or ("finished",))

    return until


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.headers, response.read()


def test_a_study_is_run_and_found_again(serve, ask, wait, server):
    url = serve()
    status, begun = ask(f"{url}/v1/studies", study(run={"name": "first"}))
    assert (status, begun["kind"], begun["name"], begun["cases"]) == (201, "evaluate", "first", 7)
    done = wait(url, begun["id"])
    assert done["records"] == {"scored": 7}
    assert done["spent"]["calls"] == server.calls == CALLS
    assert (done["namespace"], done["source"]) == ("default", "HTTP")
    status, again = ask(f"{url}/v1/studies", study())
    assert (status, again["id"]) == (200, begun["id"])
    status, other = ask(f"{url}/v1/studies", study(judge="probe+rules"))
    assert status == 201
    assert other["id"] != begun["id"]


def test_records_come_in_pages(serve, ask, wait):
    url = serve()
    run = wait(url, ask(f"{url}/v1/studies", study())[1]["id"])
    records = f"{url}/v1/studies/{run['id']}/records"

    def pages(query):
        matches, cursor = [], ""
        while cursor is not None:
            status, page = ask(f"{records}?limit=2{query}&cursor={cursor}")
            assert status == 200, page
            matches += page["data"]
            cursor = page["next"]
        return matches

    assert [single_page["position"] for single_page in pages("")] == list(range(7))
    assert pages("&status=failed") == []
    assert "Question 4?" in json.dumps(pages("")[4]["record"])
    assert ask(f"{records}?cursor=abc")[0] == 400


def test_reports_in_every_format(serve, ask, wait, home):
    url = serve()
    run = wait(url, ask(f"{url}/v1/studies", study())[1]["id"])
    for format in ("html", "json", "parquet"):
        headers, body = fetch(f"{url}/v1/studies/{run['id']}/report?format={format}")
        assert run["id"] in headers["content-disposition"]
        opened = format == "json"  # HTML has style of its own, which our pages may not have
        assert headers["content-disposition"].startswith("inline" if opened else "attachment")
        assert len(body) > 300
        assert str(home).encode() not in body  # where the store lies is nobody's business
    assert body[:4] == b"PAR1"


def test_files_may_be_binary_and_stand_for_texts(serve, ask, wait):
    url = serve()
    wrapped = base64.encodebytes(CASES.encode()).decode()  # as the program base64 writes it
    sent = {"base64": wrapped.rstrip("=\n")}
    files = {"/home/me/../cases.jsonl": sent, "rubric.md": "Is it short?"}
    given = study(cases=["/home/cases.jsonl"], rubric={"file": "rubric.md"}, run={"files": files})
    status, begun = ask(f"{url}/v1/studies", given)
    assert status == 201, begun
    assert wait(url, begun["id"])["spec"]["rubric"] == "Is it short?"


def test_what_is_wrong_with_a_study_is_said(serve, ask):
    url = serve()
    for changed, answer in (
        ({"wrong": 1}, "unknown field 'wrong'"),
        ({"model": "nobody/gpt"}, "nobody/gpt: the server has no such model"),
        ({"run": {"wrong": 1}}, "run: unknown field 'wrong'"),
        ({"run": {"files": {"a": {"base64": "?"}}}}, "Base64"),
        ({"run": {"files": {"a": "", "a/b": ""}}}, "uses the name of another file as its folder"),
        ({"run": {"files": {"": ""}}}, "cannot be the name of a file"),
    ):
        status, found = ask(f"{url}/v1/studies", {**study(), **changed})
        assert status == 400
        assert answer in found["error"]["message"]
        assert "anthropic" not in json.dumps(found)


def test_runs_are_listed_in_pages_and_filtered(serve, ask):
    url = serve()
    made = [
        ask(f"{url}/v1/studies", study(run={"name": f"run {n}"}, threshold=n / 10))[1]["id"]
        for n in range(3)
    ]
    status, page = ask(f"{url}/v1/studies?limit=2&kind=evaluate")
    assert (status, len(page["data"])) == (200, 2)
    _, rest = ask(f"{url}/v1/studies?limit=2&kind=evaluate&cursor={page['next']}")
    assert rest["next"] is None
    assert [one["id"] for one in [*page["data"], *rest["data"]]] == made[::-1]
    assert [one["id"] for one in ask(f"{url}/v1/studies?text=RUN%201")[1]["data"]] == [made[1]]
    assert ask(f"{url}/v1/studies?status=cancelled")[1]["data"] == []
    assert ask(f"{url}/v1/studies?status=nothing")[0] == 400


def test_a_run_is_cancelled_and_gone_on_with(serve, ask, wait, stalling):
    with ScriptedServer(stalling(3)) as upstream:
        url = serve(model=f"{upstream.url}#any")
        run = ask(f"{url}/v1/studies", study(run={"concurrency": 1}))[1]
        while upstream.calls < 4:
            time.sleep(0.02)
        assert ask(f"{url}/v1/studies", study())[0] == 202
        assert ask(f"{url}/v1/studies/{run['id']}", method="DELETE")[0] == 409
        status, outcome = ask(f"{url}/v1/studies/{run['id']}/cancel", {})
        assert (status, outcome["status"]) == (202, "cancelled")
        assert outcome["spent"]["calls"] == 3
        in_flight = upstream.calls - 3
        upstream.script = None
        status, again = ask(f"{url}/v1/studies/{run['id']}/resume", {})
        assert status == 202, again
        done = wait(url, run["id"])
        assert (done["spent"]["calls"], done["records"]) == (CALLS, {"scored": 7})
        assert upstream.calls == CALLS + in_flight  # which are asked again, and nothing else
        assert ask(f"{url}/v1/studies/{run['id']}/cancel", {})[0] == 409
        assert ask(f"{url}/v1/studies/{run['id']}/resume", {})[0] == 200


def test_the_files_of_a_run_are_private_and_removed_with_the_last_that_needs_them(
    serve, ask, wait, location
):
    url, path = serve(), runner.files_folder(location)
    files = {"cases.jsonl": CASES, "deep/er/b.md": "b"}
    runs = [ask(f"{url}/v1/studies", study({"files": files}, threshold=t))[1] for t in (0.4, 0.5)]
    assert {p.stat().st_mode & 0o777 for p in path.rglob("*") if p.is_file()} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in (path, *path.rglob("*")) if p.is_dir()} == {0o700}
    for run, left in zip(runs, (True, False), strict=True):
        wait(url, run["id"])
        assert ask(f"{url}/v1/studies/{run['id']}", method="DELETE")[0] == 204
        assert any(path.iterdir()) == left


def test_a_run_that_cannot_succeed_says_why(serve, ask, wait):
    with ScriptedServer(key="secret") as upstream:
        url = serve(model=f"{upstream.url}#any")
        run = ask(f"{url}/v1/studies", study())[1]
        failed = wait(url, run["id"], "failed")
    assert "key" in failed["reason"]


def test_a_store_that_is_away_is_a_503_without_its_address(serve, ask, monkeypatch):
    url = serve()
    monkeypatch.setattr(Store, "get_run", no_store)
    paths = ("", "/records", "/report", "/events")
    for path in (*(f"/v1/studies/x{path}" for path in paths), "/runs/x", "/compare?a=x&b=y"):
        status, answer = ask(f"{url}{path}")
        assert status == 503, path
        assert "try again later" in answer["error"]["message"], path
        assert "db.internal" not in json.dumps(answer), path


def no_store(*_given):
    raise StoreAwayError("store postgresql://somebody@db.internal/runs: there is no connection")


def test_files_that_no_run_needs_are_swept(home):
    sent = home / "sent"
    uploads = Uploads(sent, lambda: set(names[:1]))
    names = list[str]()
    names += [uploads.keep({"a": text}) for text in ("one", "two", "three")]
    for name in names[:2]:
        os.utime(sent / name, (0, 0))
    uploads.sweep()
    assert {path.name for path in sent.iterdir()} == {names[0], names[2]}
