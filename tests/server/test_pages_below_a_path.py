"""A proxy publishes the server below a path of its host: all that pages lead to stays below it."""

import re
from contextlib import closing
from urllib.parse import urljoin, urlsplit

import pytest

pytest.importorskip("fastapi")

from agent_world import make_world
from run_store import add_comparison, add_run
from starlette.testclient import TestClient
from test_labelling_pages import PAIRS, make_items

from pages import Outline
from textevolve.jobs.job_spec import JobSpec, next_due
from textevolve.server.app import create_app
from textevolve.server.guard import is_page
from textevolve.server.options import OWN_PATHS, ServerOptions
from textevolve.settings import Settings
from textevolve.store import jobs as stored_jobs
from textevolve.store import kinds
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import open_store

pytestmark = pytest.mark.slow

ROOT = "/tools/te"
KEY = "te-a-key-of-the-operator"
FOLLOWED = ("href", "src", "hx-get")
LEADING = (*FOLLOWED, "action", "data-then")


@pytest.fixture
def starts(home, model):
    """The paths from which every page can be reached, in a store that has some of everything."""
    study = {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe"}
    job = JobSpec(name="nightly", study=study, cron="0 3 * * *", zone="Europe/Vienna")
    with closing(make_world(home / "store.db", model).resources) as resources:
        resources.ensure_namespace("default")
        agent = resources.read(kinds.get, kinds.AGENTS, "acme", "guide")
        resources.sessions("acme").create(agent.id, "ann", "Hello?")
        resources.write(stored_labels.create_task, "default", "mine", PAIRS, make_items(3))
        resources.write(stored_jobs.create_job, "default", job, next_due)
    with open_store(home / "store.db") as store:
        first = add_run(store, 0.2, 0.9, name="team/nightly")
        second = add_comparison(store, [(0.2, 0.8), (0.4, 0.6)])
    polled = [f"/runs/{first}/{part}" for part in ("row", "standing")]  # of a run that works
    return ["/", "/login", f"/compare?a={first}&b={second}", "/runs/team/nightly", *polled]


@pytest.fixture(params=["kept", "removed"])
def get(request, home, model):
    """Asks for a path of the host as a browser does, through a proxy that keeps the path below
    which it publishes the server, or removes it and says so."""
    settings = Settings(store=home / "store.db")
    is_kept = request.param == "kept"
    options = ServerOptions(model=model, keys=not is_kept, root_path=ROOT if is_kept else "")
    app = create_app(options, settings, None if is_kept else KEY)
    headers = {"Accept": "text/html"}
    if not is_kept:
        headers |= {"X-Forwarded-Prefix": f"{ROOT}/", "X-Forwarded-For": "192.0.2.1"}
        headers |= {"Authorization": f"Bearer {KEY}"}

    with TestClient(
        app, "http://localhost", client=("127.0.0.1", 1), follow_redirects=False
    ) as client:

        def ask(path, **more):
            assert path.startswith(f"{ROOT}/"), path
            sent = path if is_kept else path.removeprefix(ROOT)
            return client.get(sent, headers={**headers, **more})

        yield ask


def links_of(path, response):
    """What a page, a part of one or a redirect leads to, as paths of the host."""
    if "location" in response.headers:
        return [urljoin(path, response.headers["location"])]
    if not response.headers["content-type"].startswith("text/html"):
        return []
    attributes = Outline(response.text).attributes
    for name, value in attributes:
        if name == "data-call":
            assert value.split()[1].startswith(f"{ROOT}/v1/"), value
        assert not (name in LEADING and re.match(rf"/(?!{ROOT[1:]}/)", value)), (path, value)

    return [urljoin(path, value) for name, value in attributes if name in FOLLOWED]


def test_links_stay_below_path(get, starts, paths):
    waiting = [f"{ROOT}{path}" for path in starts]
    seen = set()
    while waiting:
        path = waiting.pop()
        plain = path.partition("#")[0]
        if plain in seen:
            continue
        seen.add(plain)
        response = get(plain)
        assert response.status_code < 400, (plain, response.text)
        waiting += links_of(plain, response)

    pages = {path for path, methods in paths.items() if is_page(path) and "GET" in methods}
    visited = {urlsplit(path).path.removeprefix(ROOT) for path in seen}
    missed = {page for page in pages if not any(re.fullmatch(pattern_of(page), v) for v in visited)}
    assert missed == set()


def test_clients_ask_below_path(serve, ask, cli, home):
    cases = home / "cases.jsonl"
    cases.write_text('{"input": "2 + 2?", "output": "4"}\n')
    url = f"{serve(root_path=ROOT, judge='probe')}{ROOT}"
    status, models = ask(f"{url}/v1/models")
    assert (status, bool(models["data"])) == (200, True)
    done = cli("evaluate", cases, "--judge", "probe", "--server", url, "--json")
    assert done.code == 0, done.err
    assert ask(f"{url}/v1/studies")[1]["data"][0]["status"] == "finished"


def pattern_of(route):
    return re.sub(r"\{[^}]*:path\}", ".+", re.sub(r"\{[^}:]*\}", "[^/]+", route))


def test_own_paths_are_refused(paths):
    assert {path.split("/")[1] for path in paths} - {""} | {"static"} == set(OWN_PATHS)
