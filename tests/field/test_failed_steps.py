"""Whoever reads why a row failed learns which step of its chain failed, whatever the fault was.

The right name is the one that the chain's own file gives the step. (withoneai/cli#89,
langchain-ai/langgraph#4227)
"""

import pytest
from asked import record

from textevolve.llm.testing import Answer, Fault

CHAIN = """\
name: review
inputs: {text: text}
steps:
  - {ask: plain, prompt: "PLAIN {text}"}
  - {ask: kind, prompt: "KIND {plain}", fields: {kind: text}}
  - {ask: answer, prompt: "ANSWER {kind.kind}"}
"""
FAULTS = {
    "empty": "",
    "cut": Answer(text="It is", finish_reason="length"),
    "no fields": "prose, and no fields",
    "rejected": Answer(status=400, body=b'{"error": {"message": "no"}}'),
    "too long": Fault.TOO_LONG_OPENAI,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_reasons_name_the_step(cli, home, server, model, fault):
    def answer(body):
        return FAULTS[fault] if "KIND" in str(body) else "well"

    bodies = record(server, answer)
    (home / "review.yaml").write_text(CHAIN, encoding="utf-8")
    outcome = cli("run", "chains", "run", "review.yaml", "-i", "text=Sea.", "-m", model)
    assert outcome.code == 3
    assert outcome.err.count("step 'kind': ") == 1
    assert "ANSWER" not in str(bodies)


def test_raised_errors_name_the_step(cli, home, server, model):
    (home / "steps.py").write_text("def fail(plain):\n    return {}[plain]\n", encoding="utf-8")
    step = "  - {call: kind, function: 'steps.py:fail'}\n"
    chain = CHAIN[: CHAIN.index("  - {ask: kind")] + step
    (home / "review.yaml").write_text(chain, encoding="utf-8")
    outcome = cli("run", "chains", "run", "review.yaml", "-i", "text=Sea.", "-m", model)
    assert outcome.code == 3
    assert "chain 'review', step 'kind', raised KeyError" in outcome.err
