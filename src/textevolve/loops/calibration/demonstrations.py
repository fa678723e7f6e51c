"""Labelled rows in front of a template, as demonstrations (few-shot examples) of what is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from textevolve.loops.calibration.examples import Example
from textevolve.loops.calibration.rewriting import RewritingRules, template_fault
from textevolve.loops.placeholders import find_placeholders

HEADING, ENDING = "Examples of inputs and their right answers:", "Now the same for this:"
MOST_CHARACTERS = 6000
LONGEST_DEMO = 1500


def show_demo(example: Example) -> str:
    values = "\n".join(f"{name}: {value}" for name, value in example.values.items())
    return f"{values}\nanswer: {example.label}"


def can_show(example: Example, rules: RewritingRules) -> bool:
    """Whether the row has a label, and nothing of it would be read as a placeholder or a mark."""
    if example.label is None or not str(example.label).strip():
        return False
    text = show_demo(example)
    if len(text) > LONGEST_DEMO or find_placeholders(text, rules.names):
        return False
    return not template_fault(f"{text}\n{rules.seed_template}", "", rules)


def front(demos: Sequence[Example]) -> str:
    """What stands before a template with these demonstrations; nothing without any."""
    if not demos:
        return ""
    return "\n\n".join([HEADING, *map(show_demo, demos), ENDING, ""])
