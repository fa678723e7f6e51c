"""How a command's process ends from outside: nobody reads what it prints, or a signal stops it."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from textevolve.llm.testing import ScriptedServer

pytestmark = pytest.mark.guard

CASE = ("Is 7 prime?", "Yes, it is.", "No, it is 1 x 7.")
LIMIT = 240
"""Seconds after which a process that has not ended hangs."""


@pytest.fixture
def files(home):
    rows = [{"input": f"Which is {n}?", "candidates": [f"{n}", "no"]} for n in range(3)]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


@pytest.fixture
def unread(files):
    """Starts a command with standard output in a pipe that nobody reads, to its end."""

    def run(*arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return subprocess.run(
                [sys.executable, "-m", "textevolve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=LIMIT,
            )
        finally:
            os.close(writer)

    return run


@pytest.mark.slow
def test_a_command_whose_output_nobody_reads_ends_in_silence(unread, cli, model):
    command = ("evaluate", "cases.jsonl", "--json", "-m", model)
    outcome = unread(*command)
    assert outcome.returncode == 141
    assert not re.search("error|Traceback|stopped|Broken", outcome.stderr), outcome.stderr
    again = cli(*command)
    assert again.code in (0, 3), again.err
    assert again.out


@pytest.mark.slow
def test_a_reader_that_leaves_after_some_lines(files, spawn, server, model, cli):
    process = spawn("evaluate", *CASE, "-m", model, "--rounds", 6, "--convergence", "none")
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT) == 141
    assert process.stderr.read().count("\n") == 1  # which run it is
    assert server.calls < 18
    assert cli("runs", "list", "--json").rows[0]["status"] == "interrupted"
    assert cli("runs", "resume").code == 0
    assert server.calls <= 18 + 1


def wait_for(condition, process):
    until = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.slow
def test_to_be_terminated_is_to_be_interrupted(home, spawn, cli, stalling):
    with ScriptedServer(stalling(0)) as server:
        process = spawn("evaluate", *CASE, "-m", f"{server.url}#m")
        wait_for(lambda: server.calls, process)
        process.send_signal(signal.SIGTERM)
        out, answer = process.communicate(timeout=LIMIT)
        assert (process.returncode, out) == (143, "")
        assert "Traceback" not in answer
        assert "textevolve runs resume " in answer
        assert cli("runs", "list", "--json").rows[0]["status"] == "interrupted"
        server.script = None
        assert cli("evaluate", *CASE, "-m", f"{server.url}#m").code in (0, 3)


@pytest.mark.slow
def test_a_command_that_waits_for_its_input_says_that_it_was_stopped(home, spawn, model):
    sign = signal.SIGINT
    process = spawn("evaluate", "-", "-m", model)
    process.stdin.write('{"input": "a", "candidates": ["b"]}\n' * 10_000)
    process.stdin.flush()  # more than a pipe holds: when it is written, most of it has been read
    process.send_signal(sign)
    _, answer = process.communicate(timeout=LIMIT)
    assert (process.returncode, answer) == (128 + sign, "stopped\n")


@pytest.mark.slow
def test_an_encoding_that_cannot_show_a_text_ends_nothing(files, spawn, model, monkeypatch):
    """Lines of JSON stay such, with the text whole; what people read shows an escape."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    case = ("Ist 7 eine Primzahl? \N{GRINNING FACE}", "Ja, natürlich.", "Nein.")
    process = spawn("evaluate", *case, "-m", model, "--json")
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert case[1] in json.dumps(json.loads(out), ensure_ascii=False)
    output, answer = spawn("runs", "show", "last").communicate(timeout=LIMIT)
    assert "nat\\u00fcrlich" in output
    assert "Traceback" not in answer
