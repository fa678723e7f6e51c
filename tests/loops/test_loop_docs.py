"""What docs/optimize.md and the rules in docs/metrics.md show is true."""

import re
from pathlib import Path

import pytest

from textevolve.loops.attempt import StopReason
from textevolve.loops.rules import Rule, RulesFile
from textevolve.studies.optimize import OptimizeSpec

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("optimize.md", "metrics.md")}
PAGES["metrics.md"] = PAGES["metrics.md"].partition("\n## Rules\n")[2].partition("\n## ")[0]


def blocks(page, language):
    return [code for found, code in BLOCK.findall(PAGES[page]) if found == language]


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_run(page, home, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    namespace = {"__name__": "docs"}
    assert blocks(page, "python")
    for number, code in enumerate(blocks(page, "python"), 1):
        exec(compile(code, f"{page}, block {number}", "exec"), namespace)


def test_every_kind_field_and_language_is_described():
    text = PAGES["metrics.md"]
    for model in Rule.__origin__.__args__:
        for field, info in model.model_fields.items():
            assert f"`{info.alias or field}`" in text, (model, field)
        for kind in model.model_fields["kind"].annotation.__args__:
            assert f"`{kind}`" in text
    for name in RulesFile.model_fields:
        assert f"`{name}`" in text


def test_every_status_and_option_is_described():
    text = PAGES["optimize.md"]
    for status in set(StopReason.__args__) - {"stopped"}:
        assert f"| `{status}` |" in text
    for name in set(OptimizeSpec.model_fields) - {
        "task",
        "temperature",
        "seed",
        "max_answer_tokens",
    }:
        assert re.search(rf"--{name.replace('_', '-')}\b", text), name
