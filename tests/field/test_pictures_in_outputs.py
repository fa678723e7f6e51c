"""Outputs are plots, and their column holds data URLs that a judge would read as texts."""

import json

from textevolve.llm.testing import ScriptedServer, seen_images

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def test_outputs_that_are_pictures_are_told(cli, home):
    rows = [{"input": "Draw May.", "output": PIXEL}, {"input": "Describe May.", "output": "Warm."}]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("evaluate", "rows.jsonl", "--judge", "probe")
    with ScriptedServer() as server:
        outcome = cli(*command, "-m", f"{server.url}#any")
    text = " ".join(outcome.err.split())
    assert outcome.code == 0, outcome.err
    assert "1 of the outputs are data URLs of images" in text
    assert "--map candidate_images=COLUMN" in text


def test_the_advice_shows_the_picture(cli, home):
    (home / "rows.jsonl").write_text(json.dumps({"input": "Draw May.", "output": PIXEL}) + "\n")
    command = ("evaluate", "rows.jsonl", "--judge", "probe", "--map", "candidate_images=output")
    with ScriptedServer() as server:
        outcome = cli(*command, "-m", f"{server.url}#any")
        assert outcome.code == 0, outcome.err
        assert [next(iter(seen_images(body)))[:3] for body in server.requests] == [b"GIF"] * 3
    assert "data URLs" not in outcome.err
