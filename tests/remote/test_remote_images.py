"""Rows with images whose study runs at a server: the files go along, or it is said why not."""

import csv

import pytest

from made_images import png
from textevolve.llm.testing import seen_images

pytestmark = pytest.mark.guard

RED = png(64, 48)


@pytest.fixture
def rows(home):
    (home / "data").mkdir()
    (home / "data" / "red.png").write_bytes(RED)
    path = home / "data" / "rows.csv"
    path.write_text("question,picture,output\nWhat colour?,red.png,Red.\n")
    return path


@pytest.fixture
def there(cli, serve, home, monkeypatch):
    url = serve()
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(home / "here.db"))
    return lambda *given: cli(*given, "--server", url)


def test_pictures_go_along(there, rows, server, home):
    given = ("evaluate", rows, "--map", "images=picture", "--judge", "probe")
    done = there(*given, "-o", home / "out.csv")
    assert done.code == 0, done.err
    assert [one.size for one in seen_images(server.requests[-1])] == [len(RED)]
    with (home / "out.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert "data:image/png;bytes=" in row["images"]
    done = there(*given, "-o", home / "out.html")
    page = (home / "out.html").read_text()
    assert "Input, image 1: png, " in page
