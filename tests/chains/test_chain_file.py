"""Chains in YAML files, and by import path; what is wrong is said with its line."""

import json
import re
from pathlib import Path

import pytest

from textevolve.errors import InputError
from textevolve.llm.chains.chain import as_chain, load_chain, names_chain, perform_chain, read_chain
from textevolve.llm.chains.scope import ChainContext
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer

WHOLE = """\
name: whole
inputs: {question: text, chapters: list}
outputs: [verdict, answer]
steps:
  - {ask: pros, prompt: "For {chapters}", temperature: 0.5}
  - {ask: cons, file: cons.md}
  - ask: verdict
    system: Judge.
    prompt: "{pros} {cons} {question}"
    fields: {sure: number, kind: [fact, opinion], why: list of text}
    attempts: 2
  - {call: first, function: code.py:first, inputs: {items: verdict.why}}
  - {ask: answer, messages: [{role: user, content: "{first} {verdict.sure}"}]}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cons.md").write_text("Against {chapters}")
    (tmp_path / "code.py").write_text(
        "from textevolve.llm.chains.chain import Chain\n"
        "from textevolve.llm.chains.steps import ask\n"
        "def first(items):\n    return items[0]\n"
        "async def later(x):\n    return x\n"
        "chain = Chain('mine', ask('a', 'x'))\n"
    )
    (tmp_path / "whole.yaml").write_text(WHOLE)
    return tmp_path


async def test_every_kind_of_step_can_be_written_down(folder):
    def script(body, _number):
        if "response_format" in body:
            return json.dumps({"sure": 0.5, "kind": "fact", "why": ["it is"]})
        return body["messages"][-1]["content"].upper()

    chain = load_chain("whole.yaml", folder)
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "m") as client:
        values = {"question": "Is it?", "chapters": ["one", "two"]}
        found = await perform_chain(chain, values, ChainContext(lambda _: client, "m"))
    assert found["answer"] == "IT IS 0.5"
    assert found["verdict"].sure == 0.5
    assert server.requests[-2]["messages"][0] == {"role": "system", "content": "Judge."}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("{items: verdict.why}", "{items: verdct.why}", "chain 'whole': step 'first'.*'verdct'"),
        ("attempts: 2", "atempts: 2", r"whole.yaml:11: .*unknown field 'atempts'; did you mean"),
        ("code.py:first", "code.py:last", "code.py:last: there is no object with that name"),
        ("  - ask: verdict", "  - aks: verdict", r"whole.yaml:7: a step begins with one of: ask"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(folder, before, after, told):
    assert before in WHOLE
    (folder / "whole.yaml").write_text(WHOLE.replace(before, after))
    with pytest.raises(InputError, match=told):
        load_chain("whole.yaml", folder)


def test_chains_and_functions_are_found_by_import_path(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    assert load_chain("code.py:chain", folder).name == "mine"
    later = load_chain("code.py:later", folder)
    assert (later.name, tuple(later.inputs), tuple(later.outputs)) == ("later", ("x",), ("output",))
    for name, message in (
        ("code.py:none", "there is no object with that name"),
        ("nowhere.chains:x", "cannot be loaded"),
        ("openai/gpt-6-luna", "is not the name of a chain"),
    ):
        with pytest.raises(InputError, match=message):
            load_chain(name, folder)
    with pytest.raises(InputError, match="is no function"):
        as_chain(7)


def test_a_chain_that_calls_itself_is_refused(tmp_path):
    (tmp_path / "self.yaml").write_text("steps: [{call: a, function: self.yaml}]\n")
    with pytest.raises(InputError, match="the chain calls itself"):
        load_chain("self.yaml", tmp_path)


def test_models_are_not_taken_for_chains():
    models = "openai/gpt-6-luna", "http://h:8000/v1#m", "ollama/llama3:8b", "local/x.gguf", "openai"
    assert not any(map(names_chain, models))
    chains = "chain.yaml", "a/b.YML", "my.module:chain", "x/code.py:chain", "python:mine"
    assert all(map(names_chain, chains))


def test_the_chain_in_the_docs_can_be_read():
    page = (Path(__file__).parents[2] / "docs" / "chains.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    chain = read_chain(written)
    assert (tuple(chain.inputs), tuple(chain.outputs)) == (("question", "text"), ("answer",))
