"""A user types a command that a page, a help text or an error message of ours names."""

import ast
import html
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer.main

import textevolve
from textevolve.cli.app import app
from textevolve.desk.exchange import FORMAT
from textevolve.runs.study import KINDS, write_example

SOURCE = Path(textevolve.__file__).parent
NAMED = re.compile(r"textevolve ((?!textevolve|import )[^`<>;,()\n]*)")
PLACEHOLDER = "1"
"""What stands for a value that is filled in."""


def list_texts():
    """Yield the texts of the source with their files: strings, docstrings and templates."""
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if re.search(r"textevolve[ \"']", source) is None:
            continue
        inner = set()
        for node in ast.walk(ast.parse(source)):  # a text comes before its parts
            if isinstance(node, ast.JoinedStr):
                inner |= {id(value) for value in node.values}
                parts = [
                    value.value if isinstance(value, ast.Constant) else PLACEHOLDER
                    for value in node.values
                ]
                yield path, "".join(parts)
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in inner:
                yield path, node.value
    for path in sorted(SOURCE.rglob("*.html")):
        text = re.sub(r"\{\{.*?\}\}", PLACEHOLDER, path.read_text(encoding="utf-8"))
        yield path, html.unescape(text)


@cache
def list_commands():
    """Return each command in a text, by its file and its words."""
    commands = {}
    for path, text in list_texts():
        for match in NAMED.finditer(text):
            words = match[1].strip().rstrip(".:'\"").split()
            if words and words[0].islower() and text != FORMAT:
                line = " ".join(words)
                commands[f"{path.relative_to(SOURCE)}: {line}"] = match[1].strip()
    return commands


@cache
def program():
    return typer.main.get_command(app)


def find_command(words):
    """Return the command that words begin with, and the words after it."""
    command = program()
    rest = list(words)
    while hasattr(command, "commands"):
        is_named = rest and rest[0] in command.commands
        if not is_named and not command.default:
            raise AssertionError(f"no command {' '.join(words)}")
        command = command.commands[rest.pop(0) if is_named else command.default]
    return command, rest


def is_group(words):
    """Whether words name a group of commands and nothing more, as in a sentence on all of them."""
    group = program()
    for word in words:
        if not hasattr(group, "commands") or word not in group.commands:
            return False
        group = group.commands[word]
    return hasattr(group, "commands")


def type_command(line):
    """Parse a command as it would be typed. After its name a word in lower case ends it: it is a
    word of the sentence."""
    verbs = line.rstrip(".:'").split()
    if is_group(verbs):
        return
    command, rest = find_command(verbs)
    if not rest or (rest[0].islower() and not rest[0].startswith("-")) or rest == ["-o"]:
        return
    _, arguments = find_command(shlex.split(line.rstrip(".:")))
    command.make_context(command.name, arguments)


def test_what_is_no_command_is_refused():
    with pytest.raises(AssertionError):
        type_command("demo")
    with pytest.raises(Exception, match="No such option"):
        type_command("runs list --no-such-option")
    with pytest.raises(Exception, match="unexpected extra argument"):
        type_command('agents create X/NAME "Who it is."')


def test_each_command_is_one():
    assert len(list_commands()) > 60
    failures = {}
    for place, line in list_commands().items():
        verbs = [line]
        if "|" in line.partition(" -")[0]:  # several verbs of a group
            group, _, last = line.rpartition(" ")
            verbs = [f"{group} {verb}" for verb in last.rstrip(".'").split("|")]
        try:
            for verb in verbs:
                type_command(verb)
        except Exception as error:  # noqa: BLE001  each is named with its place
            failures[place] = error
    assert failures == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "assertions"])
def test_an_example_names_its_command(kind, cli, home):
    outcome = cli("run", "init", kind, "-o", "mine.yaml")
    assert outcome.code == 0
    command = re.search(r"# Run it with: textevolve (.*)", (home / "mine.yaml").read_text())
    assert command[1] == "run mine.yaml"
    # What has to be filled in is refused in a line, at its place in the file.
    tried = cli(*command[1].split(), "--dry-run")
    assert tried.code in (0, 1, 2)
    assert "Traceback" not in tried.err
    assert "run evaluate.yaml" in write_example("evaluate")
