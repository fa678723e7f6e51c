"""Chains in the place of models: run, compared, calibrated, optimised, estimated, resumed."""

import json
import re

import pytest

from flat_verbs import compare, run_chain
from textevolve import Chain, Limits, ask, call
from textevolve.llm.testing import Answer, ScriptedServer

HELPS, IDLE = "Add carefully.", "Be friendly."
YAML = """\
name: adder
inputs: [n]
steps:
  - {ask: facts, prompt: "Tell of {n}"}
  - {ask: sum, prompt: "What is {n} twice, given {facts}?"}
"""


def part(text, name):
    return re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n\[\[/", text, re.DOTALL)[1]


def script(body, _number):
    """Sums are right only where the prompt says what helps."""
    said = body["messages"][-1]["content"]
    if "Write at most" in said:
        return json.dumps({"instructions": [IDLE, HELPS]})
    if "You rewrite a prompt" in said:
        lines = [line.split(". ", 1)[1] for line in part(said, "instructions").splitlines()]
        return json.dumps({"template": "\n".join([part(said, "template"), *lines])})
    if said.startswith("What is"):
        n = int(re.search(r"What is (\d+)", said)[1])
        return str(2 * n) if HELPS in said else f"about {n}"
    if said.startswith("Tell"):
        return f"facts of {said.split()[-1]}"
    if body.get("max_tokens") == 1:
        return Answer(yes=0.4)
    return None


@pytest.fixture
def server():
    with ScriptedServer(script) as started:
        yield started


@pytest.fixture
def folder(home):
    (home / "adder.yaml").write_text(YAML)
    (home / "p.txt").write_text("What is {n} twice?")
    rows = [{"n": n, "twice": 2 * n} for n in range(20)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "code.py").write_text(
        "from textevolve import Chain, ask, call\n"
        "def double(n):\n    return str(2 * int(n))\n"
        "chain = Chain('coded', ask('facts', 'Tell of {n}'), call('sum', double))\n"
    )
    return home


def test_compare_takes_chains_as_variants(cli, folder, model, server):
    found = cli(
        *("compare", "-d", "rows.jsonl", "-m", "adder.yaml", "-m", "code.py:chain"),
        *("--judge-model", model, "--label", "twice", "--metric", "exact", "-o", "out.json"),
    )
    assert found.code == 0, found.err
    told = json.loads((folder / "out.json").read_text())
    means = {one["variant"]: one["mean"]["value"] for one in told["variants"]}
    assert means == {"adder.yaml": 0.0, "code.py:chain": 1.0}
    spent = {one["variant"]: one["usage"]["calls"] for one in told["variants"]}
    assert spent == {"adder.yaml": 40, "code.py:chain": 20}
    rows = [{"n": n, "twice": 2 * n} for n in range(4)]
    coded = Chain("mine", ask("facts", "Tell of {n}"), call("sum", lambda n: str(2 * int(n))))
    made = compare(rows, models=[coded, "adder.yaml"], model=model, label="twice", metric="exact")
    assert [one.variant for one in made.variants] == ["mine", "adder.yaml"]
    assert made.variants[0].mean.value == 1.0
    assert server.calls == 40


def test_limits_stop_a_chain_and_resuming_goes_on(folder, model, server):
    chain = Chain("two", ask("facts", "Tell of {n}"), ask("sum", "What is {n} {facts}"))
    rows = [{"n": n} for n in range(4)]
    kept = {"model": model, "store": folder / "store.db"}
    found = run_chain(chain, data=rows, limits=Limits(calls=3), **kept)
    assert found.failed >= 2
    assert {one.failure.kind for one in found.runs if one.failure} == {"skipped"}
    assert server.calls == 3
    assert run_chain(chain, data=rows, **kept).failed == 0
    assert server.calls == 8


def test_what_a_function_gives_or_raises_costs_its_own_row_alone(folder, model):
    def read(n):
        if n == 1:
            raise StopIteration("no more")
        return {"half \ud83d": ["\ud83d"]}

    chain = Chain("own", call("read", read), inputs="n")
    rows = [{"n": n} for n in range(3)]
    found = run_chain(chain, data=rows, model=model, store=folder / "store.db")
    assert [one.failure is None for one in found.runs] == [True, False, True]
    assert "read raised StopIteration: no more" in found.runs[1].failure.reason
    assert found.runs[0].outputs == {"read": {"half \ufffd": ["\ufffd"]}}
