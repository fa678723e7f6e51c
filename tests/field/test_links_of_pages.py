"""A screen reader lists the links of a page (smithers 1531): two of one name that lead to different
places cannot be told apart.

The name of a link without a label is its text, by the W3C's computation of accessible names. A page
beyond the last one leads back (template-ui 168).
"""

import json
from collections import defaultdict
from html.parser import HTMLParser

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from textevolve.server.app import create_app
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings


class Links(HTMLParser):
    """The addresses of the links of a page by their names."""

    def __init__(self, page):
        super().__init__()
        self.targets = defaultdict(set)
        self._target = None
        self._words = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self._target = dict(attrs)["href"]
            self._words = []

    def handle_data(self, data):
        self._words.append(data)

    def handle_endtag(self, tag):
        if tag == "a":
            name = " ".join("".join(self._words).split())
            self.targets[name].add(self._target)


@pytest.fixture
def pages(cli, home, model):
    """A client of a server with three runs of one name, and two namespaces with the same names."""
    job = ["jobs", "add", "nightly", "study.yaml", "--cron", "0 3 * * *"]
    (home / "study.yaml").write_text(f"kind: evaluate\ncases: rows.jsonl\nmodel: {model}\n")
    for number in (1, 2, 3):
        rows = [json.dumps({"input": f"{n}?", "output": str(n)}) for n in range(number)]
        (home / "rows.jsonl").write_text("\n".join(rows))
        cli("evaluate", "rows.jsonl", "--judge", "look:length", "--name", "nightly")
    for space in ("east", "west"):
        cli("agents", "namespaces", "create", space)
        cli("agents", "create", f"{space}/guide", "--persona", "A guide.")
        collection = ("memories", "collections", "create", f"{space}/notes")
        cli(*collection, "--embedder", model, "--dimension", "32")
        cli(*job, "--namespace", space)

    app = create_app(ServerOptions(), Settings(store=home / "store.db"))
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        yield lambda path: client.get(path, headers={"Accept": "text/html"}).text


def test_links_have_names_of_their_own_and_lead_back(pages):
    for path, expected in (("/runs", 3), ("/agents", 2), ("/jobs", 2)):
        links = Links(pages(path)).targets
        same = {name: targets for name, targets in links.items() if len(targets) > 1}
        assert same == {}, path
        below = {target for targets in links.values() for target in targets if f"{path}/" in target}
        assert len(below) == expected, path

    # Pages beyond the last lead back.
    for path in ("/runs", "/agents", "/jobs"):
        beyond = pages(f"{path}?page=9")
        assert f'href="{path}"' in beyond.partition("<main")[2], path
        assert "yet" not in beyond.partition("<main")[2], path
