"""Rows with images from end to end: judged, compared, exported, gone on with."""

import csv
import json

import pytest

from made_images import png
from textevolve.images import image_facts, image_url
from textevolve.llm.testing import seen_images

RED, BLUE = png(640, 480), png(480, 640, (0, 0, 255))
ROWS = [
    {"question": "What colour?", "picture": "img/red.png", "a": "Red.", "b": "Green."},
    {"question": "And this?", "picture": "img/blue.png", "a": "Blue.", "b": "Pink."},
]


@pytest.fixture
def rows(home):
    (home / "data" / "img").mkdir(parents=True)
    for name, content in (("red", RED), ("blue", BLUE)):
        (home / "data" / "img" / f"{name}.png").write_bytes(content)
    path = home / "data" / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    return path


@pytest.fixture
def judge(cli, rows, model):
    """Judges the rows, whose two outputs stand in columns named a and b."""

    def run(*given, path=rows):
        names = ("--map", "output_1=a", "--map", "output_2=b")
        return cli("evaluate", path, "--map", "images=picture", *names, "--model", model, *given)

    return run


def test_pictures_beside_texts_are_judged_and_reported(judge, server, home):
    outputs = [home / f"out.{end}" for end in ("html", "md", "json", "jsonl", "csv")]
    done = judge("--judge", "probe", *(x for path in outputs[:1] for x in ("-o", path)))
    assert done.code == 0, done.err
    assert {image for body in server.requests for image in seen_images(body)} == {RED, BLUE}
    page = outputs[0].read_text()
    assert f"Input, image 1: png, {len(RED) / 1000:.0f} kB" in page
    assert "<img" not in page
    calls = server.calls
    for path in outputs[1:]:
        assert judge("--judge", "probe", "-o", path).code == 0
    assert server.calls == calls  # the journal knows the images again
    written = [path.read_text() for path in outputs[1:]]
    assert not any("base64" in text for text in written)
    (first, _) = [json.loads(line) for line in written[2].splitlines()]
    assert image_facts(*first["images"]) == image_facts(image_url(RED))
    with outputs[4].open(newline="") as file:
        row = next(csv.DictReader(file))
    assert json.loads(row["images"]) == first["images"]


def test_a_run_with_other_pictures_is_another_run(judge, rows, server):
    judge("--judge", "probe")
    first_calls = server.calls
    (rows.parent / "img" / "red.png").write_bytes(png(640, 480, (9, 9, 9)))
    done = judge("--judge", "probe")
    assert done.code == 0
    assert server.calls == first_calls * 3 // 2  # that row alone is asked anew
