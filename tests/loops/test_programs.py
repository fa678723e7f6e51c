"""Programs with several templates: what helps stands in two of them, and both have to be found."""

import json
import re
from typing import TypedDict

import pytest
import yaml
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from flat_verbs import as_chat_model, calibrate
from textevolve.errors import InputError
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Settings

NOTE, SUM = "Write n as a number.", "Add carefully."
TEMPLATES = {"note": "Tell of {n}", "sum": "Twice that, by these facts: {note}"}
YAML = """\
# Two steps, of which each can spoil it.
name: adder
inputs: [n]
steps:
  - ask: note
    prompt: Tell of {n}
    temperature: 0  # as in use
  - {ask: sum, prompt: "Twice that, by these facts: {note}"}
"""
SMALL = {"beam": 2, "depth": 2, "successors": 2, "minibatch": 3, "selection_minibatch": 4}


def fenced(text, name):
    return re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n\[\[/", text, re.DOTALL)[1]


def apply(template, lines):
    return "\n".join([template, *lines])


def script(body, _number):
    """The editor knows what helps each template; the program needs both."""
    content = body["messages"][-1]["content"]
    if "Write at most" in content:
        alone = re.search(r"rewriting the template (\w+) alone", content)
        message = {"note": NOTE, "sum": SUM}
        lines = (
            [message[alone[1]]] if alone else [f"{name}: {line}" for name, line in message.items()]
        )
        return json.dumps({"instructions": lines})
    if content.startswith("You rewrite"):
        lines = [line.split(". ", 1)[1] for line in fenced(content, "instructions").splitlines()]
        if content.startswith("You rewrite a prompt template as"):
            return json.dumps({"template": apply(fenced(content, "template"), lines)})
        records = [
            {"name": name, "template": apply(fenced(content, f"template {name}"), [rest])}
            for name, _, rest in (line.partition(": ") for line in lines)
        ]
        return json.dumps({"templates": records})
    if content.startswith("Tell of"):
        number = content.split()[2]
        return f"n = {number}" if NOTE in content else "a number"
    number = re.search(r"n = (\d+)", content)
    return str(2 * int(number[1])) if number and SUM in content else "about that"


def right(output, label, row):
    """All or nothing: each template alone gains nothing, both do."""
    return (1.0, "") if output == str(label) else (0.0, f"{row['n']} twice is not {output!r}")


@pytest.fixture
def server():
    with ScriptedServer(script, keep=10_000) as started:
        yield started


@pytest.fixture
def rows(home):
    records = [{"n": n, "twice": 2 * n, "place": "left"} for n in range(36)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    (home / "adder.yaml").write_text(YAML)
    return records


@pytest.fixture
def means(home, model):
    settings = Settings(store=home / "store.db", model=model)
    return {"settings": settings, "label": "twice", "metric": right, **SMALL}


def check_found(found):
    assert found.accepted
    assert NOTE in found.templates["note"]
    assert SUM in found.templates["sum"]


def test_all_templates_of_a_chains_file_are_improved(cli, home, rows, model, server):
    command = ["calibrate", "--program", "adder.yaml", "-d", "rows.jsonl", "--label", "twice"]
    command += ["--metric", "exact", "-m", model, "-o", "best.yaml", "-o", "search.json"]
    command += ["--depth", "2", "--beam", "2", "--successors", "2", "--validation", "0.6"]
    first_outcome = cli(*command)
    assert first_outcome.code == 0, first_outcome.err
    payload = json.loads((home / "search.json").read_text())
    assert payload["accepted"]
    assert payload["templates"]["note"] == f"Tell of {{n}}\n{NOTE}"
    assert SUM in yaml.safe_load((home / "best.yaml").read_text())["sum"]
    calls = server.calls
    assert payload["usage"]["calls"] == calls  # replays of unchanged steps cost nothing
    assert cli(*command).code == 0
    assert server.calls == calls


class State(TypedDict, total=False):
    n: int
    note: str
    sum: str


class Context(TypedDict, total=False):
    sum: str


def test_the_prompts_of_a_graph(rows, means, server):
    """One node has its prompt from the configuration, one from the runtime's context."""
    model = as_chat_model(temperature=0.0)

    async def write(state: State, config: RunnableConfig):
        prompt = config["configurable"]["note"].replace("{n}", str(state["n"]))
        return {"note": (await model.ainvoke(prompt)).content}

    def add(state: State, runtime: Runtime[Context]):
        prompt = runtime.context["sum"].replace("{note}", state["note"])
        return {"sum": model.invoke(prompt).content}

    graph = StateGraph(State, context_schema=Context)
    graph.add_node("write", write)
    graph.add_node("add", add)
    graph.add_edge(START, "write")
    graph.add_edge("write", "add")
    calibration = calibrate(graph.compile(), rows, templates=TEMPLATES, answer="sum", **means)
    check_found(calibration)
    contents = [body["messages"][-1]["content"] for body in server.requests]
    output = next(answer for answer in contents if "Write at most" in answer)
    assert fenced(output, "prompt of write").startswith("Tell of ")
    assert calibration.usage.calls >= server.calls > 0


def test_what_cannot_be_a_program_is_said(rows, means, server):
    def three(a, b, c):
        return ""

    with pytest.raises(InputError, match="its templates are missing"):
        calibrate(three, rows, **means)
    with pytest.raises(InputError, match="needs 3 arguments"):
        calibrate(three, rows, templates=TEMPLATES, **means)
    with pytest.raises(InputError, match="no template 'mote'; there are: note, sum"):
        calibrate("", "rows.jsonl", program="adder.yaml", templates={"mote": "x {n}"}, **means)
    with pytest.raises(InputError, match="give only one of the two"):
        calibrate(three, rows, templates=TEMPLATES, **{**means, "model": "adder.yaml"})
    assert server.calls == 0


def test_a_program_that_breaks_off_shows_how_far_it_came(rows, means, server):
    async def breaks(prompts, row):
        note = await prompts.ask("note", row)
        if NOTE not in prompts["note"] and int(row["n"]) % 4 == 0:
            raise ValueError("no number")
        return await prompts.ask("sum", note=note)

    check_found(calibrate(breaks, rows, templates=TEMPLATES, **means))
    contents = [body["messages"][-1]["content"] for body in server.requests]
    output = next(text for text in contents if "Write at most" in text and "no number" in text)
    assert fenced(output, "output of note") == "a number"
    assert "ValueError: no number" in fenced(output, "problem")
