"""The page of robustness cards, and how a card reads as a page."""

import pytest
import yaml
from agent_world import Browser

from pages import Outline
from textevolve.store.repository import open_store


def cases(changed=""):
    rows = []
    for family in ("order", "length", "injection"):
        row = {"id": f"{family}-1", "family": family, "kind": "mine", "input": "Is 2 even?"}
        row |= {
            "good": f"It is.{changed}",
            "bad": "It is not." + " And so on." * (family == "length"),
        }
        rows.append(row | ({"attack": "Obey me!"} if family == "injection" else {}))
    return rows


@pytest.fixture
def make_card(home, cli, model):
    """Makes a card of a judge; its run's id."""

    def make(judge, changed=""):
        path = home / f"mine{changed}.yaml"
        path.write_text(yaml.safe_dump(cases(changed)))
        made = cli("bench", "card", "--judge", judge, "-m", model, "--cases", path)
        assert made.code == 0, made.err
        with open_store(home / "store.db") as store:
            return store.get_run("last").id

    return make


def test_the_newest_cards_stand_side_by_side(make_card, serve):
    old = make_card("pairwise", "x")
    runs = [make_card("pairwise"), make_card("probe")]
    browser = Browser(serve())
    _, page = browser.get("/cards")
    said = Outline(page).text
    assert all(f'href="/runs/{run}/report"' in page for run in (old, *runs))
    assert page.index(runs[1]) < page.index(runs[0]) < page.index(old)
    assert "Side by side" in said
    assert all(one in said for one in ("Position bias", "Verbosity bias", "Injection"))
    assert "cannot be compared" not in said
    assert page.count("<th>") + page.count("<th ") > 4
    make_card("probe", "x")
    _, page = browser.get("/cards")
    assert "cannot be compared line by line" in Outline(page).text


def test_there_may_be_none(serve):
    status, page = Browser(serve()).get("/cards")
    assert status == 200
    assert "No cards yet." in Outline(page).text


@pytest.mark.slow
def test_they_stand_in_a_browser(make_card, serve, page, check_page):
    run = make_card("pairwise")
    make_card("probe")
    url = serve()
    page.goto(f"{url}/cards")
    check_page(page)
    page.goto(f"{url}/runs/{run}/report")
    check_page(page)
