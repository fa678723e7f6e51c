"""The pages of runs in a browser: they look right, work by keyboard, fill in while a run works, and
execute nothing that others wrote."""

import urllib.request

import pytest
from run_store import add_comparison, add_run

from pages import HOSTILE
from textevolve.store import open_store

pytestmark = pytest.mark.slow

HOSTILE_TEXT = " ".join(HOSTILE).replace("\x00", "")


@pytest.fixture
def store(home):
    with open_store(home / "store.db") as opened:
        yield opened


def test_the_pages_of_runs_are_whole(store, serve, page, check_page):
    one = add_run(store, 0.9, None, 0.2, name=HOSTILE_TEXT, text=HOSTILE_TEXT)
    other = add_run(store, 0.4, 0.6, 0.1, name="another run", text=HOSTILE_TEXT)
    both = add_comparison(store, [(0.2, 0.8)], name="two prompts", text=HOSTILE_TEXT)
    url = serve(judge="probe")
    paths = ["/runs", f"/runs/{both}", f"/runs/{one}/cases/1", f"/compare?a={one}&b={other}"]
    paths += [f"/runs/{one}/report"]
    for path in paths:
        assert page.goto(url + path).status == 200
        page.wait_for_load_state("networkidle")
        check_page(page)
    assert page.get_by_role("button", name="Expand all").is_visible()  # the matrix' own script


def test_view_shows_pages_until_ctrl_c(store, home, spawn):
    run = add_run(store, 0.9, name="to be seen")
    process = spawn("view", run, "--no-browser")
    url = process.stderr.readline().split()[0]
    assert url.endswith(f"/runs/{run}")
    with urllib.request.urlopen(url, timeout=60) as response:
        assert b"case-0" in response.read()
    process.send_signal(2)
    assert process.wait(60) in (0, 130)
    kinds = {one.spec["kind"] for one in store.list_runs()}
    assert kinds == {"evaluate"}  # it keeps nothing of its own
