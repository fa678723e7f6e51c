"""Which models are of one family, and a comparison that says where one grades its own."""

import pytest

from textevolve.judges.judge import parse_judge
from textevolve.report.wording import model_family
from textevolve.studies.compare import report, summarise
from textevolve.studies.compare_spec import CompareSpec


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (["gpt-4o-mini", "azure/gpt-4.1#judge", "openai/o3-mini", "chatgpt-4o-latest"], "gpt"),
        (["claude-sonnet-4-5", "bedrock/us.anthropic.claude-3-5-haiku-v1:0"], "claude"),
        (["local/qwen2.5-coder-1.5b", "Qwen/QwQ-32B", "qwen3:4b"], "qwen"),
        (["meta-llama/Llama-3.1-8B-Instruct", "llama3.2:1b"], "llama"),
        (["google/gemma-3-4b", "gemini-2.5-flash"], "gemini"),
        (["mistral/codestral-latest", "mixtral-8x7b"], "mistral"),
        (["dolphin-2.9"], "dolphin"),  # no phi
        (["acme/turbo-1o3x"], "turbo"),  # no o3
    ],
)
def test_family_by_name(names, family):
    assert {model_family(name) for name in names} == {family}


def facts_of(models, judge, judge_model=None):
    spec = CompareSpec(
        data="rows.jsonl",
        prompts=["Answer: {q}"],
        models=models,
        judge=[parse_judge(judge)],
        model=judge_model,
    )
    return report(spec, summarise(spec, [])).facts.get("Judged by its own family", "")


def test_own_family_is_named():
    said = facts_of(["gpt-4o-mini", "claude-haiku-4-5"], "probe", "gpt-4.1")
    assert said.splitlines()[0] == "probe: gpt-4o-mini"


def test_first_model_judges_itself():
    """Without a model for judges, the first one of the comparison judges all."""
    said = facts_of(["gpt-4o-mini", "claude-haiku-4-5"], "probe")
    assert said.startswith("probe: gpt-4o-mini\n")


def test_judge_names_its_model():
    assert facts_of(["gpt-4o-mini"], "probe@claude-haiku-4-5") == ""
    assert "gpt-4o-mini" in facts_of(["gpt-4o-mini"], "probe@gpt-5")


def test_rules_have_no_family():
    assert facts_of(["gpt-4o-mini"], "look:length") == ""
