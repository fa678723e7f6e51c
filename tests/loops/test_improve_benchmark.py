"""The benchmark of optimize and calibrate: its checks, its rows, its arms on a scripted server."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import improve
import improve_templates as templates

ROWS = {row.values["message"]: row.label for seed in range(2) for row in templates.make_rows(seed)}


def answer_rows(body, _number):
    """Right only under a template that names the form, which the search finds."""
    said = str([message["content"] for message in body["messages"]])
    if "Write at most" in said:
        return '{"instructions": ["Name the form YYYY-MM-DD."]}'
    if "You rewrite a prompt template" in said:
        reworded = templates.PARAPHRASE in said
        text = f"{'In digits:' if reworded else 'As YYYY-MM-DD alone:'} {{message}}"
        return json.dumps({"template": text})
    message = next(message for message in ROWS if message in said)
    return ROWS[message] if "YYYY-MM-DD" in said else f"It is {ROWS[message]}."


async def test_calibrate_beside_paraphrases_on_rows_held_out(home, server, model, capsys):
    server.script = answer_rows
    asked = ["--part", "calibrate", "--seeds", "2", "--model", model]
    asked += ["--store", str(home / "improve.db")]
    _, made = await improve.main(asked)
    calls = server.calls
    for one in made["calibrate"]["seeds"]:
        assert one["original"] == one["paraphrase"] == (0.0,) * 40
        assert one["calibrate"] == (1.0,) * 40
        assert one["accepted"]
        assert one["calls"][0] >= one["calls"][1]
    assert "calibrate less original    +100.0" in capsys.readouterr().out
    assert (await improve.main([*asked, "--no-ask"]))[1] == made
    assert server.calls == calls
