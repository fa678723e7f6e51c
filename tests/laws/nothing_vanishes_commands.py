"""Options of the command line: each that takes one value twice, and each repeatable one.

The commands and their options are read from the frozen text of every command's help, which another
guard holds equal to what is printed: to print all helps would take seconds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laws.nothing_vanishes_world import (
    Place,
    Situation,
    run_command,
    word,
)
from laws.studies import SUMS, TRACE

HELP = Path(__file__).parents[1] / "guards" / "frozen" / "commands.txt"
OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?(?: (\S+))?(.*)$")
REPEATED_WORDS = re.compile(r"twice|once|repeat|again|more than one|only one|one value|several")
"""How a refusal says that an option is there a second time."""
VALUES = {"INTEGER": ("3", "4"), "NUMBER": ("0.25", "0.5")}
"""Two values of an option by what it takes; others take a text."""
TOO_MANY = ("@nosuch.jsonl",) * 6
ONE_WORD = ("@nosuch.jsonl",)
NO_NUMBER = ("@nosuch.jsonl", "--concurrency", "none")
"""Arguments with which a command ends before it does anything: more than it takes; where it takes
any number of them, a file that is not there, or an option that is no number. An option that stands
before them is refused before them."""


@dataclass(frozen=True)
class Option:
    """An option in two different forms, each as it stands in a command."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command, the arguments with which it ends at once, and its options that take one value."""

    words: tuple[str, ...]
    arguments: tuple[str, ...]
    options: tuple[Option, ...]


def list_commands() -> dict[str, Command]:
    """Return each command that has options for one value, by its words."""
    commands = {}
    for block in re.split(r"^\$ textevolve", HELP.read_text(encoding="utf-8"), flags=re.MULTILINE):
        name = block.partition(" --help")[0].strip()
        usage = block.partition("Usage:")[2].partition("\n")[0]
        options = list_options(block)
        if name and options and "COMMAND" not in usage:
            arguments = TOO_MANY
            if "..." in usage:
                arguments = NO_NUMBER if "--concurrency" in block else ONE_WORD
            commands[name] = Command(tuple(name.split()), arguments, options)
    return commands


def list_options(help_text: str) -> tuple[Option, ...]:
    """Return the options that take one value, and those that are switched on or off."""
    options = []
    for paragraph in re.split(r"\n(?=  (?:-\w, )?--)", help_text)[1:]:
        match = OPTION.match(paragraph.partition("\n")[0])
        text = " ".join(paragraph.partition("\n\n")[0].split())
        if match is None or "Repeatable" in text:
            continue
        name, off, value, _ = match.groups()
        if off:
            options.append(Option(name, (name,), (off,)))
        elif value and not paragraph.partition(name)[2].startswith("  "):
            first_text, second_text = list_values(value)
            options.append(Option(name, (name, first_text), (name, second_text)))
    return tuple(options)


def list_values(form: str) -> Sequence[str]:
    """Return two values of an option from what its help says that it takes."""
    choices = form.split("|")
    if len(choices) > 1 and form.islower():
        return choices[:2]
    return VALUES.get(choices[0], ("a.b", "c.d"))


def is_refused(cli: Callable[..., Any], command: Command, option: Option) -> bool:
    """Whether an option that is given twice is refused by its name."""
    outcome = cli(*command.words, *option.first, *option.second, *command.arguments)
    sentence = outcome.err.replace(option.name, "")
    return outcome.code == 2 and sentence != outcome.err and bool(REPEATED_WORDS.search(sentence))


CASE = {"id": "c1", "q": word("input"), "a": word("output")}
RUN = ("--metric", "exact", "--label", "sum", "-d", "rows.jsonl")
BOTH: Mapping[str, tuple[Mapping[str, Any], Sequence[str], Mapping[str, Place]]] = {
    "evaluate --map": (
        {"c.jsonl": [CASE]},
        (
            *("evaluate", "c.jsonl", "--map", "input=q", "--map", "output=a", "--judge", "probe"),
            *("-m", "MODEL"),
        ),
        {"first": Place(word("input")), "second": Place(word("output"))},
    ),
    "compare --prompt": (
        {"a.txt": f"{word('one')} {{n}}", "b.txt": f"{word('two')} {{n}}", "rows.jsonl": SUMS[:1]},
        ("compare", "-p", "a.txt", "-p", "b.txt", *RUN, "-m", "MODEL"),
        {"first": Place(word("one")), "second": Place(word("two"))},
    ),
    "compare --model": (
        {"a.txt": "What is {n}?", "rows.jsonl": SUMS[:1]},
        ("compare", "-p", "a.txt", *RUN, "-m", "MODEL", "-m", "MODEL-small"),
        {"first": Place('"scripted"'), "second": Place('"scripted-small"')},
    ),
    "compare --judge": (
        {"a.txt": "What is {n}?", "rows.jsonl": SUMS[:1]},
        (
            *("compare", "-p", "a.txt", "-d", "rows.jsonl", "--judge", "probe"),
            *("--judge", "look:length", "-m", "MODEL", "--json"),
        ),
        {
            "first": Place('"probe": {', exported=True),
            "second": Place('"look:length": {', exported=True),
        },
    ),
    "compare --outputs": (
        {"rows.jsonl": [{"id": "r1", "x": word("one"), "y": word("two"), "sum": "1"}]},
        ("compare", "--outputs", "x", "--outputs", "y", *RUN, "-o", "-"),
        {
            "first": Place('"variant": "x"', exported=True),
            "second": Place('"variant": "y"', exported=True),
        },
    ),
    "evaluate --judge": (
        {"c.jsonl": [CASE]},
        (
            *("evaluate", "c.jsonl", "--map", "input=q", "--map", "output=a", "--judge", "probe"),
            *("--judge", "look:length", "-m", "MODEL", "--json"),
        ),
        {
            "first": Place('"judge": "probe"', exported=True),
            "second": Place('"judge": "look:length"', exported=True),
        },
    ),
    "bench agreement --judge": (
        {"c.jsonl": [{"input": "?", "candidates": ["a", "b"], "winner": 1}]},
        (
            *("bench", "agreement", "c.jsonl", "--judge", "look:length", "--judge"),
            *("metric:regex:a", "--json"),
        ),
        {
            "first": Place('"name": "look:length"', exported=True),
            "second": Place('"name": "metric:regex:a"', exported=True),
        },
    ),
    "nodes evaluate --threshold": (
        {"t.jsonl": TRACE},
        (
            *("nodes", "evaluate", "t.jsonl", "--threshold", "confidence=0.1", "--threshold"),
            *("seconds=0.1", "--json"),
        ),
        {
            "first": Place('"confidence": {', exported=True),
            "second": Place('"seconds": {', exported=True),
        },
    ),
    "nodes evaluate --judge": (
        {"t.jsonl": TRACE},
        (
            *("nodes", "evaluate", "t.jsonl", "--judge", "look:length", "--judge"),
            *("metric:regex:a", "--json"),
        ),
        {
            "first": Place('"look:length": {', exported=True),
            "second": Place('"metric:regex:a": {', exported=True),
        },
    ),
    "run chains run --input": (
        {
            "c.yaml": {
                "name": "c",
                "inputs": ["x", "y"],
                "steps": [{"ask": "z", "prompt": "{x} {y}"}],
            }
        },
        (
            *("run", "chains", "run", "c.yaml", "--input", f"x={word('one')}", "--input"),
            *(f"y={word('two')}", "-m", "MODEL"),
        ),
        {"first": Place(word("one")), "second": Place(word("two"))},
    ),
}
"""Repeatable options with two values, both of which are used."""


def list_repeatable() -> dict[str, Situation]:
    """Return each repeatable option that is tried with two values."""
    return {
        name: Situation(run_command(files, *command), places)
        for name, (files, command, places) in BOTH.items()
    }
