"""A configuration of promptfoo has variables of the environment in the names of its models, and a
check with a schema in a file. By promptfoo's documentation the variable stands for its value, and
the schema decides; a user who runs the file itself has to learn the command that converts it."""

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
