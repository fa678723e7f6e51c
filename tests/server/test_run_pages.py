"""The pages of runs as they come over HTTP: what is found, in which order, and that texts of others
stay texts."""

import re
import time
import urllib.request

import pytest
from plain_http import fetch
from run_store import add_comparison, add_run, begin_run, judge, keep

from pages import HOSTILE, Outline
from textevolve.store.repository import open_store


@pytest.fixture
def store(home):
    with open_store(home / "store.db") as opened:
        yield opened


@pytest.fixture
def get(serve):
    """The page at a path: its status, its outline and its headers."""
    url = serve(judge="probe")

    def read(path):
        reply = fetch(url + path, Accept="text/html")
        while "location" in reply.headers:
            reply = fetch(url + reply.headers["location"], Accept="text/html")
        return reply.status, Outline(reply.text), reply.headers

    return read


def cases_on(outline):
    """The names of the rows of a run's page, in their order."""
    values = (value for name, value in outline.attributes if name == "id" and value)
    return [int(one.rsplit("/", 1)[1]) for one in values if "/cases/" in one]


def test_runs_are_found_by_kind_state_and_text(store, get):
    ids = [add_run(store, name=f"number {n}") for n in range(27)]
    add_comparison(store, [(0.2, 0.8)], name="two of them")
    store.create_run({"kind": "memory"}, "memory-1", "", "what `memories add` asked")
    status, page, _ = get("/runs")
    assert status == 200
    assert "1 to 25 of 28 runs" in page.text  # neither the server's own run nor that of memories
    assert "two of them" in page.text
    assert f"/runs/{ids[0]}" not in [value for _, value in page.attributes]
    assert "number 0" in get("/runs?page=2")[1].text
    assert "1 runs" in get("/runs?kind=memory")[1].text
    assert "number 13" in get("/runs?q=NUMBER+13&kind=evaluate")[1].text
    assert "No run is like that" in get("/runs?status=failed")[1].text
    assert get("/runs?page=99999999999999999999")[0] == 400


def test_runs_are_found_by_day_and_data(store, get):
    add_run(store, 0.5, name="alone")
    add_comparison(store, [(0.2, 0.8)], name="of rows")
    today = time.strftime("%Y-%m-%d")
    assert "2 runs" in get(f"/runs?since={today}&until={today}&data=&minutes=&cost=")[1].text
    assert "No run is like that" in get("/runs?until=2001-01-01")[1].text
    page = get("/runs?data=ROWS.js")[1]
    assert "1 runs" in page.text
    assert "of rows" in page.text
    assert "No run is like that" in get("/runs?cost=0.01")[1].text
    for wrong in ("since=yesterday", "minutes=-1", "cost=nan"):
        assert get(f"/runs?{wrong}")[0] == 400


def test_lists_load_what_runs_took(store, get):
    ids = [add_run(store, 0.5, name=name) for name in ("a", "b")]
    page = get("/runs")[1]
    address = next(v for n, v in page.attributes if n == "hx-get" and v and "/spending" in v)
    _, cells, _ = get(address)
    assert {v for n, v in cells.attributes if n == "id"} == {
        f"{name}-{run}" for name in ("took", "cost") for run in ids
    }
    assert get("/runs/spending?run=nothing")[0] == 404


def test_compared_cases_have_texts_and_links(store, get):
    first = add_comparison(store, [(0.2, 0.9), (0.7, 0.7)], name="old")
    second = add_comparison(store, [(0.6, 0.9), (0.7, 0.7)], name="new")
    _, page, _ = get(f"/compare?a={first}&b={second}")
    assert "row-0, one" in page.text
    assert "Asked row-0" in page.text
    assert "row-1" not in page.text.partition("What differs")[0].partition("Both runs")[0]
    assert {("href", f"/runs/{run}/cases/1") for run in (first, second)} <= set(page.attributes)


def test_rows_are_filtered_and_sorted(store, get):
    run = add_run(store, 0.9, None, 0.2, 0.6, name="a run")
    path = f"/runs/{run}"
    assert cases_on(get(path)[1]) == [1, 2, 3, 4]
    assert cases_on(get(f"{path}?show=not-passed")[1]) == [3]
    assert cases_on(get(f"{path}?below=0.7&sort=-score")[1]) == [4, 3]
    assert get(f"{path}?sort=sideways")[0] == 400
    assert "case-0" in get("/runs/a%20run?show=passed")[1].text  # by its name
    assert get("/runs/nothing")[0] == 404


def test_a_run_that_works_tells_of_new_records(store, get):
    run = begin_run(store, name="at work", cases=3, judge="probe")
    with store.lease(run):
        assert "parquet" not in get(f"/runs/{run}")[1].text  # there is nothing to export
        keep(store, run, "evaluate", judge(0, 0.9))
        page = get(f"/runs/{run}")[1]
        assert "1 of 3" in page.text
        assert "parquet" in page.text
        requests = next(v for n, v in page.attributes if n == "hx-get" and v and "/standing" in v)
        assert "hx-trigger" not in get(requests)[2]
        keep(store, run, "evaluate", judge(1, None))
        _, page, headers = get(requests)
        assert headers["hx-trigger"] == "te-records"
        assert "2 of 3" in page.text
        assert "1 failed" in page.text
        assert ("hx-trigger", "every 3s") in get(f"/runs/{run}/row")[1].attributes
    store.finish_run(run, "finished")
    page = get(f"/runs/{run}/standing")[1]
    assert "hx-get" not in dict(page.attributes)


def test_variants_of_a_comparison_are_never_pooled(store, get):
    runs = [add_comparison(store, [(0.65, 0.95)] * 6, name=name) for name in ("old", "new")]
    for path in (f"/runs/{runs[0]}", f"/compare?a={runs[0]}&b={runs[1]}"):
        text = get(path)[1].text
        assert "0.650" in text
        assert "0.950" in text
        assert "0.800" not in text
    assert "two 100.0 %" in get("/runs")[1].text


def test_a_run_begins_with_its_verdict(store, get):
    run = add_comparison(store, [(0.2, 0.9)] * 7 + [(0.6, 0.1)], name="verdict")
    _, page, _ = get(f"/runs/{run}")
    text = page.text
    verdict = text.index("two beats one by")
    figures = text.index("87.5 %"), text.index("Failures and lowest scores")
    assert verdict < min(figures) < max(figures) < text.index("About this run")
    assert "Case row-0, Asked row-0: one 0.20 fail → two 0.90 pass" in text
    assert ("href", f"/runs/{run}/cases/16") in page.attributes  # that with the lowest score
    ids = [value for name, value in page.attributes if name == "id"]
    assert {"variants", "variants-two"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_the_list_tells_what_changed_in_a_study(store, get):
    add_comparison(store, [(0.2, 0.4), (0.2, 0.9)], name="monday")
    newer = add_comparison(store, [(0.2, 0.9), (0.2, 0.9)], name="tuesday")
    store.respecify(newer, {"tags": ["nightly"]})
    text = get("/runs?q=nightly")[1].text
    assert "rows.jsonl" in text
    assert "two 100.0 % +50.0 points" in text
    _, page, _ = get(f"/runs/{newer}/history")
    circles = [name for name, _ in page.elements if name == "circle"]
    assert (len(circles), "two 50.0 %" in page.text) == (4, True)
    add_run(store, 0.5, name="alone")
    assert "No other run of this study yet" in get("/runs/alone/history")[1].text


def test_texts_of_others_stay_texts(store, get):
    text = " ".join(HOSTILE).replace("\x00", "")
    script = add_run(store, 0.9, None, name=text, text=text)
    other = add_run(store, 0.4, 0.6, name=f"{text} 2", text=text)
    both = add_comparison(store, [(0.2, 0.8)], name=f"{text} 3", text=text)
    paths = ["/runs", f"/runs/{script}", f"/runs/{script}/cases/1", f"/runs/{script}/cases/2"]
    paths += [f"/runs/{both}", f"/runs/{both}/cases/1", f"/compare?a={script}&b={other}"]
    paths += [f"/runs/{script}/report", f"/runs/{both}/report", f"/runs/{script}/standing"]
    paths += ["/runs?q=%3Cscript%3Ealert(1)", f"/runs/{script}?variant=%22%3E%3Cscript%3E"]
    paths += ["/runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/compare?a=%3Cimg%20src=x%3E&b=y"]
    for path in paths:
        status, page, _ = get(path)
        assert status in (200, 404), path
        names = {name for name, _ in page.elements}
        assert not names & {"img", "iframe"}, path
        for name, value in page.attributes:
            assert not name.startswith("on"), (path, name)
            assert name != "style", path
            if name in ("href", "src", "action"):
                assert re.match(r"(/|\?|#|$)", value or ""), (path, value)
        scripts = [attributes for name, attributes in page.elements if name == "script"]
        assert all("src" in script or "type" in script for script in scripts), path


@pytest.mark.slow
def test_the_pages_of_runs_are_whole(store, serve, page, check_page):
    text = " ".join(HOSTILE).replace("\x00", "")
    one = add_run(store, 0.9, None, 0.2, name=text, text=text)
    other = add_run(store, 0.4, 0.6, 0.1, name="another run", text=text)
    both = add_comparison(store, [(0.2, 0.8)], name="two prompts", text=text)
    url = serve(judge="probe")
    paths = ["/runs", f"/runs/{both}", f"/runs/{one}/cases/1", f"/compare?a={one}&b={other}"]
    paths += [f"/runs/{one}/report"]
    for path in paths:
        assert page.goto(url + path).status == 200
        page.wait_for_load_state("networkidle")
        check_page(page)
    assert page.get_by_role("button", name="Expand all").is_visible()  # the matrix' own script


@pytest.mark.slow
def test_two_ticked_runs_can_be_compared(store, serve, page):
    for name in ("a", "b", "c"):
        add_run(store, 0.5, name=name)
    page.goto(serve(judge="probe") + "/runs")
    page.wait_for_load_state("networkidle")
    compare = page.get_by_role("button", name="Compare the two runs")
    boxes = page.get_by_role("checkbox")
    shown = []
    for number in range(3):
        boxes.nth(number).check()
        shown.append(compare.is_visible())
    assert shown == [False, True, False]
    boxes.nth(0).uncheck()
    compare.click()
    page.wait_for_url("**/compare?a=*&b=*")


@pytest.mark.slow
def test_narrow_rows_label_only_values(store, serve, page):
    """A label stands before each value of a row, and nowhere else."""
    add_run(store, 0.5, name="a run")
    page.set_viewport_size({"width": 420, "height": 800})
    page.goto(serve(judge="probe") + "/runs")
    page.wait_for_load_state("networkidle")
    cells = page.locator("tbody td:visible").all()
    assert {cell.get_attribute("data-name") for cell in cells} >= {"Kind", "Result", "Begun"}
    for cell in cells:
        text = cell.inner_text().strip()
        assert text not in ("–", "") or cell.get_by_role("checkbox").count(), cell.inner_html()


@pytest.mark.slow
def test_view_shows_pages_until_ctrl_c(store, home, spawn):
    run = add_run(store, 0.9, name="to be seen")
    process = spawn("view", run, "--no-browser")
    url = process.stderr.readline().split()[0]
    assert url.endswith(f"/runs/{run}")
    with urllib.request.urlopen(url, timeout=60) as response:
        assert b"case-0" in response.read()
    process.send_signal(2)
    assert process.wait(60) in (0, 130)
    kinds = {single_run.spec["kind"] for single_run in store.list_runs()}
    assert kinds == {"evaluate"}  # it keeps nothing of its own
