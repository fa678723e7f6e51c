"""Rows with images whose study runs at a server: the files go along, or it is said why not."""

import csv

import pytest

from flat_verbs import evaluate
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


@pytest.mark.parametrize("name", ["data/rows.csv", None])
def test_pictures_go_along(there, rows, server, home, name):
    given = ("evaluate", name or rows, "--images", "picture", "--judge", "probe")
    done = there(*given, "-o", home / "out.csv")
    assert done.code == 0, done.err
    assert [one.size for one in seen_images(server.requests[-1])] == [len(RED)]
    with (home / "out.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert "size=64x48" in row["images"]
    done = there(*given, "-o", home / "out.html")
    page = (home / "out.html").read_text()
    assert "Input, image 1: png, 64 x 48" in page


def test_one_picture_goes_along(there, rows, server):
    done = there("evaluate", "What is it?", "A box.", "--images", "data/red.png", "-j", "probe")
    assert done.code == 0, done.err
    assert [one.size for one in seen_images(server.requests[-1])] == [len(RED)]


def test_a_comparison_sends_them_too(there, rows, server, home, model):
    (home / "p.txt").write_text("Describe it.")
    given = ("compare", "-d", rows, "--images", "picture", "-p", "p.txt", "-m", model, "-j")
    done = there(*given, "probe")
    assert done.code == 0, done.err
    assert all(len(list(seen_images(body))) == 1 for body in server.requests)


def test_too_many_files_are_refused_in_one_line(there, home, server):
    rows = home / "many.csv"
    names = [f"{n}.png" for n in range(1001)]
    for name in names:
        (home / name).write_bytes(RED)
    lines = [f"What colour?,{name},Red." for name in names]
    rows.write_text("\n".join(["question,picture,output", *lines]))
    done = there("evaluate", rows, "--images", "picture", "--judge", "probe")
    assert done.code == 2
    assert "the study reads 1,002 files, and a server takes 1,000: put images into" in done.err
    assert server.calls == 0


def test_python_sends_data_urls(serve, server, home, monkeypatch):
    url = serve()
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(home / "here.db"))
    judged = evaluate("q", ["a"], judge="probe", images=[RED], server=url)
    assert len(judged.result) == 1
    assert [one.size for one in seen_images(server.requests[-1])] == [len(RED)]
