"""The files that runs of each kind read, and for each of them another content that changes what the
run gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from laws.identity_world import (
    CHAIN_OF_TWO,
    ONE_CASE,
    ONE_USER,
    PROGRAM,
    ROW_OF_TWO,
    START,
    STEPS,
    without_none,
)
from laws.studies import (
    CHAIN,
    CHECKS,
    DIALOGUES,
    ECHO,
    FIT_PAIRS,
    HANDBOOK,
    MANY_SUMS,
    PAIRS,
    PROMPT,
    SEA,
    SUMS,
    TEXTS,
    TRACE,
    VERDICT_LABELS,
    VERDICTS,
    Recipe,
    Rows,
)

Text = str | Rows


@dataclass(frozen=True)
class Content:
    """Another content of one file of a run.

    Attributes:
        file: The file.
        text: Its content in the first run.
        other: Its content in the second run.
        base: Further fields of both runs; None takes one away.
        files: Further files of both runs.
    """

    file: str
    text: Text
    other: Text
    base: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Text] = field(default_factory=dict)

    def fit(self, kind: str) -> Recipe:
        """Return the first run."""
        recipe = without_none(START[kind].changed(**self.base))
        return replace(recipe, files={**recipe.files, **self.files, self.file: self.text})

    def change(self, kind: str) -> Recipe:
        """Return the second run."""
        return self.fit(kind).with_file(self.file, self.other)


def edit(rows: Rows, **columns: Any) -> Rows:
    """Return rows with other values in the first one."""
    return [{**rows[0], **columns}, *rows[1:]]


METRIC = "def worth(output, label=None):\n    return 0.25\n"
OTHER_METRIC = METRIC.replace("0.25", "0.875")
HELPED = (
    "import sys\n\nsys.modules.pop('helper_of_worth', None)\nfrom helper_of_worth import worth\n"
)
RULES = "rules: [{kind: keywords, all: ['2']}, {kind: must_not, pattern: about, gate: false}]\n"
OTHER_RULES = RULES.replace("'2'", "'4'")
CALLING = "rules: [{kind: call, function: 'm.py:worth'}]\n"
RUBRIC = "Is it polite?\n"
OTHER_RUBRIC = "Is it short?\n"
SCHEMA = '{"type": "number", "minimum": 3}'
OTHER_SCHEMA = '{"type": "number", "minimum": 5}'
PROFILE = """\
name: mine
agents:
  - {name: Critic, persona: You look for faults.}
  - {name: Friend, persona: You look for what is good.}
rounds: 1
readout: verbalized
"""
OTHER_PROFILE = PROFILE.replace("look for faults", "look for style")
BY_METRIC = {"judge": "metric:m.py:worth"}
BY_RULES = {"judge": "rules:rules.yaml"}
REFERRED = [{**ONE_CASE[0], "reference": "A good answer.", "context": "The answer is good."}]
CHECKED = [{**ONE_CASE[0], "checks": ["contains: good"]}]
EXISTING = {"prompts": None, "judge": None, "outputs": "n"}
WRITER = "def write(task, **rest):\n    return 'A good text.'\n"


def metric_cells(**base: Any) -> dict[str, Content]:
    """Return the cells of a kind that is judged by a function of the user, by what it holds."""
    return {
        "body of the function of a judge": Content("m.py", METRIC, OTHER_METRIC, base | BY_METRIC)
    }


def rules_cells(rules: str = RULES, other: str = OTHER_RULES, **base: Any) -> dict[str, Content]:
    """Return the cells of a kind that is judged by a file of rules."""
    return {"rules of a judge": Content("rules.yaml", rules, other, base | BY_RULES)}


CONTENTS: Mapping[str, Mapping[str, Content]] = {
    "evaluate": {
        "input": Content("cases.jsonl", TEXTS, edit(TEXTS, input="Which one?")),
        "candidate": Content("cases.jsonl", TEXTS, edit(TEXTS, candidates=["Good.", "Bad."])),
        "id": Content("cases.jsonl", TEXTS, edit(TEXTS, id="first")),
        "reference": Content(
            "cases.jsonl",
            REFERRED,
            edit(REFERRED, reference="A text."),
            {"judge": "metric:exact"},
        ),
        "context": Content(
            "cases.jsonl", REFERRED, edit(REFERRED, context="None."), {"judge": "faithfulness"}
        ),
        "body of the function of a judge": Content("m.py", METRIC, OTHER_METRIC, BY_METRIC),
        "file that the function of a judge imports": Content(
            "helper_of_worth.py", METRIC, OTHER_METRIC, BY_METRIC, {"m.py": HELPED}
        ),
        "rules of a judge": Content(
            "rules.yaml", RULES.replace("'2'", "good"), RULES.replace("'2'", "text"), BY_RULES
        ),
        "function that rules call": Content(
            "m.py", METRIC, OTHER_METRIC, BY_RULES, {"rules.yaml": CALLING}
        ),
        "rubric file of a judge": Content(
            "r.md", RUBRIC, OTHER_RUBRIC, {"judge": "probe+rubric=r.md"}
        ),
        "rubric file": Content("r.md", RUBRIC, OTHER_RUBRIC, {"rubric": {"file": "r.md"}}),
        "prompt of a judge": Content(
            "p.md", "Good? {output}", "Bad? {output}", {"judge": "prompt:p.md+numbers=1-3"}
        ),
        "function that a check calls": Content(
            "m.py", METRIC, OTHER_METRIC, {"check": ["function: m.py:worth"]}
        ),
        "checks of a row": Content(
            "cases.jsonl", CHECKED, edit(CHECKED, checks=["contains: bad"]), {"judge": "checks"}
        ),
        "profile of a judge": Content(
            "mine.yaml",
            PROFILE,
            OTHER_PROFILE,
            {"judge": "debate:mine.yaml"},
            {"cases.jsonl": ONE_CASE},
        ),
        "schema of a metric": Content(
            "s.json",
            '{"type": "number"}',
            '{"type": "string"}',
            {"judge": "metric:json-schema:s.json"},
            {"cases.jsonl": [{"id": "a", "input": "A number?", "candidates": ["1", '"b"']}]},
        ),
    },
    "compare": {
        "column of the prompt": Content("rows.jsonl", SUMS, edit(SUMS, n=7)),
        "label": Content("rows.jsonl", SUMS, edit(SUMS, sum="9")),
        "id": Content("rows.jsonl", SUMS, edit(SUMS, id="first")),
        "existing output": Content(
            "rows.jsonl", ROW_OF_TWO, edit(ROW_OF_TWO, n=2), {**EXISTING, "outputs": "n"}
        ),
        "prompt": Content("p.txt", PROMPT, "What is {n} and too {n}?", {"prompts": ["@p.txt"]}),
        "system message": Content("s.txt", "Be brief.", "Be kind.", {"system": {"file": "s.txt"}}),
        "body of a metric": Content(
            "m.py", METRIC, OTHER_METRIC, {"metric": "m.py:worth", "judge": None}
        ),
        "file that a metric imports": Content(
            "helper_of_worth.py",
            METRIC,
            OTHER_METRIC,
            {"metric": "m.py:worth", "judge": None},
            {"m.py": HELPED},
        ),
        "schema of a metric": Content(
            "s.json", SCHEMA, OTHER_SCHEMA, {"metric": "json-schema:s.json", "judge": None}
        ),
        "body of a metric of each turn": Content(
            "m.py",
            METRIC,
            OTHER_METRIC,
            {
                "prompts": {"p": "Help."},
                "label": None,
                "metric": "m.py:worth",
                "judge": None,
                "each_turn": "m.py:worth",
            },
            {"rows.jsonl": [{"id": "d", "turns": ["First.", "Second."]}]},
        ),
        **metric_cells(metric=None),
        **rules_cells(metric=None),
        "chain as a model": Content(
            "twice.yaml",
            CHAIN.replace("integer", "text"),
            CHAIN_OF_TWO.replace("integer", "text"),
            {"prompts": None, "models": ["twice.yaml"], "judge": None},
            {"rows.jsonl": ROW_OF_TWO},
        ),
    },
    "compare-quants": {
        "body of a metric": Content("m.py", METRIC, OTHER_METRIC, {"metric": "m.py:worth"}),
    },
    "calibrate": {
        "template": Content("template.txt", PROMPT, "What is {n} and too {n}?\n"),
        "label": Content("values.jsonl", MANY_SUMS, edit(MANY_SUMS, sum="77")),
        "body of a metric": Content("m.py", METRIC, OTHER_METRIC, {"metric": "m.py:worth"}),
        "schema of a metric": Content(
            "s.json", SCHEMA, OTHER_SCHEMA, {"metric": "json-schema:s.json"}
        ),
        **metric_cells(metric=None),
        **rules_cells(metric=None),
        "chain as a program": Content(
            "program.yaml",
            PROGRAM,
            PROGRAM.replace("more", "again"),
            {"template": None, "program": "program.yaml", "answer": "first", "step": "first"},
        ),
    },
    "chain": {
        "prompt of a step": Content("twice.yaml", CHAIN, CHAIN_OF_TWO),
        "value of an input": Content("rows.jsonl", SUMS, edit(SUMS, n=7)),
        "code of the chain": Content(
            "own.py",
            "def tell(n):\n    return f'It is {n}.'\n",
            "def tell(n):\n    return f'It was {n}.'\n",
            {"chain": "own.py:tell"},
        ),
    },
    "agreement": {
        "text of an item": Content(
            "items.jsonl", PAIRS, edit(PAIRS, candidates=["A good one.", "A bad one."])
        ),
        "label": Content("items.jsonl", PAIRS, edit(PAIRS, winner=2)),
        "group": Content("items.jsonl", PAIRS, edit(PAIRS, group="q9")),
        **metric_cells(),
        **rules_cells(),
    },
    "ablation": {
        "label": Content("items.jsonl", PAIRS, edit(PAIRS, winner=2)),
        "profile": Content("mine.yaml", PROFILE, OTHER_PROFILE, {"profile": "mine.yaml"}),
    },
    "escalation": {
        "rules of the first judge": Content(
            "rules.yaml", RULES, OTHER_RULES, {"first": "rules:rules.yaml", "then": "probe"}
        ),
        "body of the second judge": Content(
            "m.py", METRIC, OTHER_METRIC, {"first": "probe", "then": "metric:m.py:worth"}
        ),
    },
    "robustness": {
        "text of a case": Content("checks.yaml", CHECKS, CHECKS.replace("bad, order 0", "poor")),
        **metric_cells(),
        **rules_cells(),
    },
    "fit": {
        "label": Content("items.jsonl", FIT_PAIRS, edit(FIT_PAIRS, label=2)),
        "body of a signal": Content(
            "m.py",
            METRIC,
            METRIC.replace("0.25", "min(1, len(output) / 50)"),
            {"signals": "length,metric:m.py:worth"},
        ),
    },
    "rates": {
        "verdict": Content(
            "judged.jsonl", VERDICTS, [*VERDICTS[:-1], {"id": "t29", "judged": False}]
        ),
        "labelled verdict": Content(
            "labelled.jsonl", VERDICT_LABELS, edit(VERDICT_LABELS, judged=True)
        ),
        "label": Content("labelled.jsonl", VERDICT_LABELS, edit(VERDICT_LABELS, human=True)),
    },
    "nodes": {
        "output": Content("trace.jsonl", TRACE, edit(TRACE, output={"text": "A good one."})),
        "input": Content("trace.jsonl", TRACE, edit(TRACE, input={"text": "Explain wind."})),
        "seconds": Content("trace.jsonl", TRACE, edit(TRACE, seconds=3.0), {"latency": 1.0}),
        "number under a threshold": Content(
            "trace.jsonl",
            STEPS,
            edit(STEPS, output={"text": "The moon.", "note": "The sun.", "sure": 0.9}),
            {"threshold": ["outputs.sure=0.7"]},
        ),
        **metric_cells(),
        **rules_cells(),
    },
    "memory-eval": {
        "turn": Content("data.jsonl", ONE_USER, ONE_USER.replace("Is 961", "Is 962")),
        "point that is expected": Content(
            "data.jsonl", ONE_USER, ONE_USER.replace('"memory_content": "', '"memory_content": "O ')
        ),
        "code of the system": Content("echo.py", ECHO, ECHO.replace("return texts", "return []")),
    },
    "optimize": {
        "task": Content("t.txt", "Say what moves the sea.", "Say it.", {"task": {"file": "t.txt"}}),
        "code of the generator": Content(
            "w.py", WRITER, WRITER.replace("good", "bad"), {"generator": "w.py:write"}
        ),
        **metric_cells(),
        **rules_cells(RULES.replace("'2'", "Text"), RULES.replace("'2'", "good")),
        "body of the second judge": Content(
            "m.py", METRIC, OTHER_METRIC, {"second_judge": "metric:m.py:worth"}
        ),
    },
    "innovate": {
        **metric_cells(),
        **rules_cells(RULES.replace("'2'", "Text"), RULES.replace("'2'", "good")),
    },
    "guide": {
        "question": Content("q.txt", "Why?", "How?", {"question": {"file": "q.txt"}}),
        "profile": Content("mine.yaml", PROFILE, OTHER_PROFILE, {"profile": "mine.yaml"}),
    },
    "profile": {
        "subject": Content(
            "s.txt", "Replies of a shop.", "Replies of a clinic.", {"subject": {"file": "s.txt"}}
        ),
    },
    "summarize": {
        "text": Content("text.txt", SEA, SEA.replace("deep", "blue", 1)),
    },
    "create-memories": {
        "turn": Content(
            "dialogues.jsonl",
            DIALOGUES,
            edit(DIALOGUES, turns=[{"role": "user", "content": "FACT: Ann drinks milk."}]),
        ),
    },
    "read-corpus": {
        "document": Content("handbook.md", HANDBOOK, HANDBOOK.replace("nine", "ten")),
    },
}
"""For each kind what a file holds, changed alone."""

NO_FILES: Sequence[str] = ("integrate-memories", "evolve-persona")
"""Kinds that read no file, but memories and an agent (`AFTER`)."""
