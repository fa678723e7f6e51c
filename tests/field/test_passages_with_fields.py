"""A retriever returns passages as objects with a score, a file or an id beside the text.

The right context has the texts in their order, and nothing of the objects' syntax.
"""

import json

import pytest
from asked import write_rows

from textevolve.rows.columns import join_passages

FIRST = "The gate opens at six."
SECOND = "It closes at nine."
FORMS = {
    "text": [{"filename": "a.pdf", "text": FIRST}, {"filename": "b.pdf", "text": SECOND}],
    "LangChain": [{"page_content": FIRST, "metadata": {"source": "a"}}, {"page_content": SECOND}],
    "LlamaIndex": [{"node": {"text": FIRST}, "score": 0.9}, {"node": {"text": SECOND}}],
    "Bedrock": [{"content": {"text": FIRST}, "score": 0.9}, {"content": {"text": SECOND}}],
    "mixed": [FIRST, {"chunk": SECOND}],
    "as Python prints it": str([{"text": FIRST}, {"text": SECOND}]),
    "with gaps": [None, FIRST, "", SECOND, None],
    "with gaps, printed": str([FIRST, None, SECOND]),
}


def passages_of(server, question="When"):
    """Return the passages of each request about a question."""
    shown = [str(body["messages"]) for body in server.requests]
    shown = [prompt for prompt in shown if f"{question}?" in prompt]
    return [[text for text in (FIRST, SECOND) if text in prompt] for prompt in shown]


def test_passages_are_their_texts(cli, home, server, model):
    rows = [
        {"input": f"When, {name}?", "output": "At six.", "contexts": form}
        for name, form in FORMS.items()
    ]
    write_rows(home / "rows.jsonl", rows)
    outcome = cli("evaluate", "rows.jsonl", "--judge", "context-precision", "-m", model)
    assert outcome.code == 0, outcome.err
    shown = {name: sorted(passages_of(server, f"When, {name}")) for name in FORMS}
    assert shown == dict.fromkeys(FORMS, sorted([[FIRST], [SECOND]]))
    joined = {name: join_passages(form) for name, form in FORMS.items()}
    assert joined == dict.fromkeys(FORMS, f"{FIRST}\n\n{SECOND}")
    assert not any("a.pdf" in str(body) for body in server.requests)


@pytest.mark.parametrize("entry", [3, {"score": 0.9}, ["So."]])
def test_passages_without_text_are_named(cli, home, model, entry):
    """The other passages were left out with it, and the case was said to have no context."""
    row = {"input": "When?", "output": "At six.", "contexts": [None, FIRST, entry]}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "context-precision", "-m", model)
    assert outcome.code == 2
    assert "rows.jsonl:1: 'contexts': a passage of contexts must be a text" in outcome.err
    assert outcome.err.rstrip().endswith(f"not {entry!r}")


def test_compare_reads_them_too(cli, home, server, model):
    row = {"question": "When?", "answer": "At six.", "passages": FORMS["text"]}
    (home / "rows.jsonl").write_text(json.dumps(row))
    command = ("compare", "-d", "rows.jsonl", "--outputs", "answer", "--context", "passages")
    outcome = cli(*command, "--judge", "context-precision", "-m", model)
    assert outcome.code == 0, outcome.err
    assert sorted(passages_of(server)) == sorted([[FIRST], [SECOND]])
