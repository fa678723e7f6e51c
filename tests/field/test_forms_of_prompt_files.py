"""Teams keep prompts in YAML in the forms of their other tools."""

import json

import pytest

CHAT = """
- role: system
  content: You route e-mail.
- role: user
  content: "Which team? {message}"
"""
FORMS = {
    "list": (CHAT, ["You route e-mail.", "Which team? Late pay"]),
    "messages": (
        "description: Routes.\nmodel: gpt\nmessages:\n" + CHAT.replace("\n", "\n  "),
        ["You route e-mail.", "Which team? Late pay"],
    ),
    "prompt": ("prompt: |\n  Which team? {message}\n", ["Which team? Late pay\n"]),
    "template": ('name: routing\ntemplate: "Which team? {{message}}"', ["Which team? Late pay"]),
    "text": ("|\n  Which team?\n  {message}\n", ["Which team?\nLate pay\n"]),
}


@pytest.fixture
def rows(home):
    (home / "rows.csv").write_text("id,message,team\n1,Late pay,payroll\n")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_sent(form, rows, home, cli, server, caplog):
    text, sent = FORMS[form]
    (home / "p.yaml").write_text(text)
    command = ("compare", "-p", "p.yaml", "-d", "rows.csv", "-m", f"{server.url}#m")
    outcome = cli(*command, "--metric", "regex:.")
    assert outcome.code == 0, outcome.err
    assert [message["content"] for message in server.requests[-1]["messages"]] == sent
    assert ("takes no model" in caplog.text) == (form == "messages")


def test_two_templates_are_refused(rows, home, cli, model):
    (home / "p.yaml").write_text("prompt: A {message}\ntemplate: B {message}\n")
    outcome = cli("compare", "-p", "p.yaml", "-d", "rows.csv", "-m", model, "--metric", "regex:.")
    assert outcome.code == 2
    assert "one of the fields messages, prompt and template" in outcome.err


def test_builds_show_what_was_expected(rows, home, cli, model):
    (home / "rows.jsonl").write_text(
        json.dumps({"id": "1", "question": "Who?", "answer": "The bank.", "team": "payroll"})
    )
    command = ("compare", "-d", "rows.jsonl", "--outputs", "answer", "--label", "team")
    outcome = cli(*command, "--metric", "exact", "--min-pass-rate", "1", "--junit", "t.xml")
    assert outcome.code == 4
    text = (home / "t.xml").read_text()
    assert 'message="expected payroll, got The bank.; score 0.000, not passed' in text
    assert "scores.exact: 0.0\n" in text
    assert "{" not in text
