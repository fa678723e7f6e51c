"""A configuration of promptfoo has variables of the environment in the names of its models, and a
check with a schema in a file. By promptfoo's documentation the variable stands for its value, and
the schema decides; a user who runs the file itself has to learn the command that converts it. The
variable `context` is what its checks of retrieval read: the right text is that of the file."""

import json

import pytest
import yaml

CONFIG = """\
prompts: ["Translate: {{input}}"]
providers:
  - openai:chat:gpt-{{ env.SIZE }}
  - "openai:{{env.ABSENT}}"
defaultTest:
  assert: [{type: is-json, value: file://schema.json}]
tests:
  - vars: {input: Hello}
    assert:
      - {type: is-json, value: file://schema.json}
      - {type: equals, value: file://right.txt}
      - {type: python, value: file://check.py}
"""
SCHEMA = {"type": "object", "required": ["answer"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "right.txt").write_text("Bonjour")
    monkeypatch.setenv("SIZE", "small")
    monkeypatch.delenv("ABSENT", raising=False)
    return tmp_path


def test_models_and_schemas_are_carried_over(folder, cli, caplog):
    study = folder / "study.yaml"
    cli("run", "init", "--from", str(folder / "config.yaml"), "-o", str(study))
    fields = yaml.safe_load(study.read_text())
    assert fields["models"] == ["openai/gpt-small"]
    assert fields["check"] == [{"type": "is-json", "value": SCHEMA}]
    row = json.loads((folder / "study.jsonl").read_text())
    assert [check["value"] for check in row["checks"]] == [SCHEMA, "Bonjour"]
    assert "provider: openai:${ABSENT}" in caplog.text
    assert "file://check.py: only the study can name files" in caplog.text


def test_a_run_of_the_file_names_the_command(folder, cli):
    path = folder / "config.yaml"
    refused = cli("run", str(path))
    assert refused.code == 2
    assert f"textevolve run init --from {path}" in refused.err


RETRIEVAL = """\
prompts: ["Answer {{query}} by {{context}}"]
providers: ["openai:chat:any"]
tests:
  - vars: {query: How long is leave, context: file://leave.md}
    assert:
      - {type: context-recall, threshold: 0.7, value: Leave takes four months.}
      - {type: context-faithfulness, threshold: 0.6}
"""
CONTEXT = "# Leave\n\nLeave is 4 months.\n"


def test_a_context_in_a_file_is_what_its_checks_read(tmp_path, cli, server, model):
    (tmp_path / "leave.md").write_text(CONTEXT)
    (tmp_path / "config.yaml").write_text(RETRIEVAL)
    study = tmp_path / "study.yaml"
    cli("run", "init", "--from", str(tmp_path / "config.yaml"), "-o", str(study))
    study.write_text(study.read_text().replace("openai/any", model))
    outcome = cli("run", str(study), "--json")
    assert outcome.code == 0, outcome.err
    sent = [body["messages"][-1]["content"] for body in server.requests]
    questions = [text for text in sent if "Does the statement follow" in text]
    assert questions
    assert all(text.startswith("Context:\n> # Leave") for text in questions)
    assert any("> Leave takes four months." in text for text in sent)


@pytest.mark.parametrize(
    ("check", "option"), [("faithfulness", "--context"), ("equals", "--label")]
)
def test_a_check_without_its_column_is_refused_before_any_call(
    tmp_path, cli, server, model, check, option
):
    (tmp_path / "p.txt").write_text("Answer {query}")
    row = {"query": "How long?", "context": CONTEXT, "checks": [{"type": check}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    command = ("compare", "-d", "rows.jsonl", "-p", "p.txt", "-m", model, "--judge", "checks")
    refused = cli(*command)
    assert refused.code == 2
    assert "rows.jsonl:1: a check needs a " in refused.err
    assert f"name its column with {option}" in " ".join(refused.err.split())
    assert server.calls == 0
