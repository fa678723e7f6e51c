"""`make demo`: its command line is one that there is, its files exist, and it ends in a report."""

import re
import shlex
from pathlib import Path

from textevolve.debate.profile import load_profile
from textevolve.llm.catalogue import read_catalogue
from textevolve.llm.testing import Answer

ROOT = Path(__file__).parent.parent


def demo_commands():
    """The commands of the Makefile's target, with its variables filled in."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    variables = dict(re.findall(r"^(\w+) :?= *(.*)$", text, re.MULTILINE))
    (body,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    for name, value in variables.items():
        body = body.replace(f"$({name})", value)
    lines = [line.strip().lstrip("@") for line in body.splitlines()]
    return [shlex.split(line)[1:] for line in lines if "/textevolve " in line]


def test_the_demo_runs_and_writes_its_report(cli, home, model, server, monkeypatch):
    pull, evaluate = demo_commands()
    assert pull[:2] == ["models", "pull"]
    assert pull[2] in read_catalogue()
    assert evaluate[evaluate.index("--model") + 1] == f"local/{pull[2]}"
    texts = [word for word in evaluate if word.startswith("@")]
    assert len(texts) == 4
    profile = evaluate[evaluate.index("--profile") + 1]
    assert load_profile(ROOT / profile).argument_words is not None

    def script(body, _number):
        prompt = str(body["messages"])
        return Answer(yes=0.9 if "carrier" in prompt else 0.2) if body["max_tokens"] == 1 else None

    server.script = script
    arguments = {"--model": model, "--store": home / "demo.db", "-o": home / "demo.html"}
    arguments["--profile"] = ROOT / profile
    words = [f"@{ROOT / word[1:]}" if word in texts else word for word in evaluate]
    for option, value in arguments.items():
        words[words.index(option) + 1] = value
    outcome = cli(*words)
    assert outcome.code == 0, outcome.err
    assert "round 1" in outcome.out
    assert "<html" in (home / "demo.html").read_text()
