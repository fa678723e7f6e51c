"""What was asked to be written is written, also where nobody reads what is printed to the end."""

import json
import os
import subprocess
import sys

import pytest

from textevolve.memory_eval.dataset import user_to_line
from textevolve.memory_eval.synthesis import synthesise

NODE = {"episode": "a", "node": "write", "input": {"text": "Tides?"}, "output": {"text": "Moon."}}
RULES = "name: sea\nrules:\n  - {kind: keywords, all: [moon], name: moon}\n"
SMALL = ("--beam", "1", "--depth", "1", "--successors", "1", "--minibatch", "1")

COMMANDS = {
    "memory": (
        ("memory-eval", "users.jsonl", "-s", "none", "-o", "a.jsonl", "-o", "a.html"),
        ("a.jsonl", "a.html"),
    ),
    "memory as JSON": (
        ("memory-eval", "users.jsonl", "-s", "none", "-o", "a.json", "--json"),
        ("a.json",),
    ),
    "guide": (("guide", "What moves the sea?", "-j", "probe", "-o", "a.json"), ("a.json",)),
    "optimize": (("optimize", "Say it.", "-j", "probe", "-o", "a.jsonl"), ("a.jsonl",)),
    "optimize as JSON": (
        ("optimize", "Say it.", "-j", "probe", "-o", "a.jsonl", "--json"),
        ("a.jsonl",),
    ),
    "calibrate": (
        (
            *("calibrate", "template.txt", "--data", "values.jsonl", *SMALL, "--metric", "exact"),
            *("--label", "sum", "-o", "a.json", "-o", "a.html"),
        ),
        ("a.json", "a.html"),
    ),
    "nodes as JSON": (
        (
            *("nodes", "evaluate", "trace.jsonl", "--rules", "rules.yaml", "--json"),
            *("-o", "a.jsonl", "-o", "a.html"),
        ),
        ("a.jsonl", "a.html"),
    ),
}


@pytest.fixture
def given(home):
    users = "".join(user_to_line(user) + "\n" for user in synthesise(2, 2))
    rows = "".join(json.dumps({"n": n, "sum": 2 * n}) + "\n" for n in range(8))
    for name, text in {
        "users.jsonl": users,
        "template.txt": "What is {n} and {n} more?\n",
        "values.jsonl": rows,
        "rules.yaml": RULES,
        "trace.jsonl": json.dumps(NODE) + "\n",
    }.items():
        (home / name).write_text(text)
    return home


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_files_are_written_though_nobody_reads_what_is_printed(given, model, command):
    arguments, files = COMMANDS[command]
    named = () if command.startswith("nodes") else ("-m", model)
    reader, closed = os.pipe()
    os.close(reader)
    started = [sys.executable, "-m", "textevolve", *arguments, *named]
    try:
        ended = subprocess.run(started, stdout=closed, stderr=subprocess.PIPE, timeout=120)
    finally:
        os.close(closed)
    for name in files:
        assert (given / name).is_file(), ended.stderr
        assert (given / name).stat().st_size > 0
