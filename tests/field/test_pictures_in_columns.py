"""A data set of pictures has a column for each picture, as multi-image benchmarks do."""

import json
from base64 import b64encode

from made_images import png
from textevolve.llm.testing import seen_images

COLOURS = ((255, 0, 0), (0, 255, 0))


def write_rows(home, **columns):
    row = {"input": "Which colours?", "output": "Red and green.", **columns}
    (home / "rows.jsonl").write_text(json.dumps(row))


def test_columns_of_pictures_are_told(cli, home, server, model):
    write_rows(home, image_1="red.png", image_2="green.png", note="x")
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    told = " ".join(outcome.err.split())
    assert "nothing reads image_1, image_2, note; pictures are a list in a column images" in told
    assert "--map images=image_1" in told
    assert not any(any(seen_images(body)) for body in server.requests)


def test_the_advice_works(cli, home, server, model):
    write_rows(
        home, images=[f"data:image/png;base64,{b64encode(png(colour=c)).decode()}" for c in COLOURS]
    )
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 0, outcome.err
    assert [list(seen_images(body)) for body in server.requests] == [
        [png(colour=c) for c in COLOURS]
    ] * 3

    (home / "red.png").write_bytes(png(colour=COLOURS[0]))
    write_rows(home, image_1="red.png")
    before = server.calls
    command = ("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert cli(*command, "--map", "images=image_1").code == 0
    requests = list(server.requests)[before:]
    assert [list(seen_images(body)) for body in requests] == [[png(colour=COLOURS[0])]] * 3
