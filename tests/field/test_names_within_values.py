"""A variable of promptfoo may show another one in its value (`Name the capital of {{country}}.`),
and users write the same into rows of their own.

The right prompts are those that promptfoo renders: it fills in each variable, in their order,
before the prompt. In rows of our own a value is text, and a line says what to write.
"""

import json

import pytest
import yaml

from textevolve.studies.promptfoo import convert_config

CONFIG = {
    "prompts": ["Answer: {{question}}"],
    "providers": ["openai:chat:gpt-6-luna"],
    "defaultTest": {"vars": {"country": "Peru", "year": 1990}},
    "tests": [
        {"vars": {"question": "Name the capital of {{country}} in {{ year }}, {{you}}."}},
        {"vars": {"topic": "{{country}}", "question": "On {{topic}}: {a}?"}},
        {"vars": {"country": ["Chile", "Cuba"], "question": "On {{country}}?"}},
        {"vars": {"question": "On {{question}}?"}},
    ],
}


def test_variables_of_promptfoo(home):
    (home / "promptfooconfig.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    _, rows = convert_config("promptfooconfig.yaml")
    assert [row["question"] for row in rows] == [
        "Name the capital of Peru in 1990, {{you}}.",
        "On Peru: {a}?",
        "On Chile?",
        "On Cuba?",
        "On On {{question}}??",
    ]


@pytest.mark.parametrize("prompt", ["{question}", "{question} {country}"])
def test_values_of_rows(home, cli, server, model, prompt):
    (home / "p.txt").write_text(prompt)
    row = {"question": "Name the capital of {{country}}.", "country": "Peru", "label": "x"}
    (home / "rows.jsonl").write_text(json.dumps(row))
    command = (
        "compare",
        "-d",
        "rows.jsonl",
        "-p",
        "p.txt",
        "-m",
        model,
        "--metric",
        "contains",
        "--label",
        "label",
    )
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    sent = server.requests[-1]["messages"][-1]["content"]
    assert sent == prompt.format(**row)
    hint = "nothing reads country; {NAME} is filled in within a prompt, not within the value"
    assert (hint in outcome.err) == (prompt == "{question}")
