"""The GitHub Action, the pre-commit hook and what `docs/ci.md` says of them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from test_docs import ROOT, blocks, parse_command
from textevolve.cli import GATED
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.runs.gates import Gates

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INPUTS = ACTION["inputs"]
STEPS = ACTION["runs"]["steps"]
(SCRIPT,) = [step for step in STEPS if step.get("id") == "run"]
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


@pytest.fixture
def run_action(home):
    """Runs the step of the action as a runner would; gives its exit code and what it said."""
    cases = "id,input,candidate_1\n1,Why?,good\n2,How?,good\n3,Who?,bad\n"
    (home / "cases.csv").write_text(cases)

    def run(**given):
        inputs = {name: one["default"] for name, one in INPUTS.items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        step = {n: INPUT.sub(lambda m: inputs[m[1]], v) for n, v in SCRIPT["env"].items()}
        names = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")
        step |= {name: str(home / name) for name in names}
        step["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", "-e", "-o", "pipefail", "-c", SCRIPT["run"]]
        return subprocess.run(
            command, cwd=home, env={**os.environ, **step}, capture_output=True, text=True
        )

    return run


@pytest.fixture
def judged():
    def fair(body, _number):
        return Answer(yes=0.9 if "good" in str(body) else 0.1)

    with ScriptedServer(fair) as server:
        yield server


def test_every_input_is_used_described_and_every_gate_is_one():
    used = set(INPUT.findall((ROOT / "action.yml").read_text()))
    assert used == set(INPUTS)
    text = (ROOT / "docs" / "ci.md").read_text()
    for name, one in INPUTS.items():
        assert f"`{name}`" in text, name
        assert one["description"]
    assert {name.replace("_", "-") for name in Gates.model_fields} <= used
    # What is given to an action is data: no script has it spliced in.
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


@pytest.mark.slow
def test_the_action_runs_a_study_and_reports(run_action, judged, home):
    (home / "study.yaml").write_text("kind: evaluate\ncases: cases.csv\njudge: probe\n")
    model = f"{judged.url}#m"
    outcome = run_action(study="study.yaml", model=model, min_mean="0.9", store="kept/s.db")
    assert outcome.returncode == GATED, outcome.stderr
    assert (home / "GITHUB_OUTPUT").read_text() == f"exit-code={GATED}\n"
    assert "| min mean | fails | mean 0.633" in (home / "GITHUB_STEP_SUMMARY").read_text()
    assert "lowest scores" in (home / "textevolve-report.html").read_text()
    assert ElementTree.parse(home / "textevolve-report.xml").getroot().get("failures") == "2"
    calls = judged.calls
    again = run_action(study="study.yaml", model=model, min_mean="0.6", store="kept/s.db")
    assert (again.returncode, judged.calls) == (0, calls)


def test_an_action_with_nothing_to_run_says_so(run_action):
    outcome = run_action(model="openai/x")
    assert outcome.returncode == 2
    assert "give the file of a study, or a command" in outcome.stdout


@pytest.mark.parametrize("name", ["arguments", "command"])
def test_open_quotes_are_refused(run_action, name):
    texts = {"command": "evaluate cases.csv", "arguments": "", name: "evaluate --name it's"}
    outcome = run_action(**texts)
    assert outcome.returncode == 2
    assert f"::error::{name}: a quote has no end" in outcome.stdout


@pytest.fixture
def pretend(home, monkeypatch):
    """Puts a script in the place of our command, which has a summary and says what it was given."""
    command = home / "bin" / "textevolve"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\necho "given $*"\ncp summary.md textevolve-report.md\n')
    command.chmod(0o755)
    (home / "summary.md").write_text("# Report\n")
    monkeypatch.setattr(sys, "executable", str(command))


@pytest.mark.parametrize("value", ["true", "True", "TRUE", "yes", "1", "on"])
def test_a_switch_is_on_in_all_words_for_yes(pretend, run_action, value):
    outcome = run_action(command="evaluate cases.csv", no_worse_than="main", fail_if_worse=value)
    assert (outcome.returncode, "--fail-if-worse" in outcome.stdout) == (0, True)


@pytest.mark.parametrize("value", ["", "false", "False", "no", "0", "off"])
def test_a_switch_is_off_in_all_words_for_no(pretend, run_action, value):
    outcome = run_action(command="evaluate cases.csv", no_worse_than="main", fail_if_worse=value)
    assert (outcome.returncode, "--fail-if-worse" in outcome.stdout) == (0, False)


def test_a_switch_with_another_word_is_refused(pretend, run_action):
    outcome = run_action(command="evaluate cases.csv", fail_if_worse="significantly")
    assert outcome.returncode == 2
    assert "::error::fail-if-worse: write true or false" in outcome.stdout


def test_a_long_summary_ends_with_a_whole_row(pretend, run_action, home):
    rows = [f"| {n} | {'潮の満ち引き' * 40} |" for n in range(3000)]
    (home / "summary.md").write_text("\n".join(["# Report", *rows, ""]), encoding="utf-8")
    run_action(command="evaluate cases.csv")
    summary = (home / "GITHUB_STEP_SUMMARY").read_bytes()
    assert 800_000 < len(summary) <= 2**20
    *shown, blank, note = summary.decode().splitlines()
    assert shown == ["# Report", *rows[: len(shown) - 1]]
    assert (blank, "cut here" in note) == ("", True)


def test_the_hook_is_a_command_of_ours():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (used,) = [
        own_hook
        for _, code in blocks("yaml", "docs/ci.md")
        for repo in (yaml.safe_load(code).get("repos") or [])
        for own_hook in repo["hooks"]
    ]
    assert used["id"] == hook["id"]
    entry = hook["entry"].split()
    assert entry[0] == "textevolve"
    command = parse_command([*entry[1:], *used["args"]])
    assert (command["file"], command["min_pass_rate"]) == ("study.yaml", "0.9")
    matched = [n for n in ("prompts/a.txt", "my/prompt/b.md", "c.prompt", "study.yaml", "x.py")
               if re.search(hook["files"], n)]  # fmt: skip
    assert matched == ["prompts/a.txt", "my/prompt/b.md", "c.prompt", "study.yaml"]
