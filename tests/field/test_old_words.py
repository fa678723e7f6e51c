"""A user of an earlier version, or of another tool, gives words that this version does not have."""

import re

import pytest

import textevolve
from textevolve.cli.commands import COMMANDS
from textevolve.errors import InputError
from textevolve.studies.evaluate_spec import EvaluateSpec
from textevolve.terms import OLD_COMMANDS, OLD_NAMES, OLD_OPTIONS, advise


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("evaluate c.jsonl --max-answer-tokens 5", "debate:general+max_answer_tokens=VALUE"),
        ("evaluate c.jsonl --sampling-temperature 1", "debate:general+sampling_temperature=VALUE"),
        ("evaluate c.jsonl --limit 3", "give a file with fewer rows"),
        ("evaluate c.jsonl --no-each-reply", "--each-reply is off by default: leave it out"),
        ("optimize x --best-of-n", "write --mode best-of-n"),
        ("optimize x --evaluator probe", "Did you mean --judge?"),
        ("fit rows.csv", "Write 'textevolve judges fit'"),
        ("runs replay last", "The run's own command"),
        ("collections create x", "Write 'textevolve memories collections'"),
        ("models templates detect x", "Write 'textevolve models templates check'"),
    ],
)
def test_old_words_are_answered(cli, command, hint):
    outcome = cli(*command.split())
    assert outcome.code == 2
    assert hint in outcome.err


@pytest.mark.parametrize("resume", [("--resume", "3f9a"), ("--resume=last",), ("--resume",)])
def test_resume_names_the_command(cli, resume):
    outcome = cli("evaluate", "my cases.jsonl", *resume, "--judge", "probe")
    assert outcome.err.endswith("its run: textevolve evaluate 'my cases.jsonl' --judge probe\n")


def test_a_switch_may_be_off(cli, home):
    outcome = cli("evaluate", "q", "a", "--judge", "look:length", "--no-rules")
    assert "rules is an option of debates" in outcome.err


def test_python_answers_too():
    with pytest.raises(AttributeError, match=r'write judge="probe\+rules"'):
        textevolve.Probe  # noqa: B018
    with pytest.raises(TypeError, match="write --time-limit"):
        textevolve.evaluate("a", "b", max_seconds=3)
    with pytest.raises(InputError, match="write --mode best-of-n"):
        EvaluateSpec(cases=("a", "b"), best_of_n=3)


def list_paths(below, beginning=""):
    for name, entry in below.items():
        yield f"{beginning}{name}"
        yield from list_paths(entry.below, f"{beginning}{name} ")


def test_each_new_word_exists(request):
    help_text = (request.config.rootpath / "tests/guards/frozen/commands.txt").read_text()
    paths = set(list_paths(COMMANDS))
    for old, new in OLD_COMMANDS.items():
        assert old not in paths
        assert new in paths or new.endswith("."), old
    options = set(re.findall(r"--[a-z][a-z-]+", help_text))
    for option in OLD_OPTIONS:
        name = set(re.findall(r"--[a-z][a-z-]+", advise(option)))
        assert name <= options, option
    assert not set(OLD_NAMES) & set(textevolve.__all__)
    assert len({**OLD_OPTIONS, **OLD_COMMANDS, **OLD_NAMES}) > 150
