"""`examples/reflect.py` on the scripted server: feedback reaches the model, and ends the loop."""

import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "reflect.py"
LONG = "The sea goes up and down. " * 10
SHORT = "The moon pulls the sea up, and lets it go again."


def show(server, model, monkeypatch, capsys, script):
    server.script = script
    monkeypatch.setattr(sys, "argv", ["reflect.py", model])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


def test_feedback_makes_the_next_draft_better(home, server, model, monkeypatch, capsys):
    def script(body, number):
        return SHORT if len(body["messages"]) > 1 else LONG

    output = show(server, model, monkeypatch, capsys, script)
    assert "length  0.67 not passed: " in output
    assert f"2 attempts with {model}; all evaluators are content" in output
    _, second = server.requests
    *_, draft, reported_message = [message["content"] for message in second["messages"]]
    assert draft == LONG.strip()
    assert "at most 40 words (now 60)" in reported_message
    assert "Say what the moon does." in reported_message
