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
    content = body["messages"][-1]["content"]
    if "Write at most" in content:
        return json.dumps({"instructions": [IDLE, HELPS]})
    if "You rewrite a prompt" in content:
        lines = [line.split(". ", 1)[1] for line in part(content, "instructions").splitlines()]
        return json.dumps({"template": "\n".join([part(content, "template"), *lines])})
    if content.startswith("What is"):
        n = int(re.search(r"What is (\d+)", content)[1])
        return str(2 * n) if HELPS in content else f"about {n}"
    if content.startswith("Tell"):
        return f"facts of {content.split()[-1]}"
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
    outcome = cli(
        *("compare", "-d", "rows.jsonl", "-m", "adder.yaml", "-m", "code.py:chain"),
        *("--judge-model", model, "--label", "twice", "--metric", "exact", "-o", "out.json"),
    )
    assert outcome.code == 0, outcome.err
    payload = json.loads((folder / "out.json").read_text())
    means = {variant["variant"]: variant["mean"]["value"] for variant in payload["variants"]}
    assert means == {"adder.yaml": 0.0, "code.py:chain": 1.0}
    spent = {variant["variant"]: variant["usage"]["calls"] for variant in payload["variants"]}
    assert spent == {"adder.yaml": 40, "code.py:chain": 20}
    rows = [{"n": n, "twice": 2 * n} for n in range(4)]
    coded = Chain("mine", ask("facts", "Tell of {n}"), call("sum", lambda n: str(2 * int(n))))
    comparison = compare(
        rows, models=[coded, "adder.yaml"], model=model, label="twice", metric="exact"
    )
    assert [variant.variant for variant in comparison.variants] == ["mine", "adder.yaml"]
    assert comparison.variants[0].mean.value == 1.0
    assert server.calls == 40


def test_limits_stop_a_chain_and_resuming_goes_on(folder, model, server):
    chain = Chain("two", ask("facts", "Tell of {n}"), ask("sum", "What is {n} {facts}"))
    rows = [{"n": n} for n in range(4)]
    record = {"model": model, "store": folder / "store.db"}
    chain_result = run_chain(chain, data=rows, limits=Limits(calls=3), **record)
    assert chain_result.failed >= 2
    assert {run.failure.kind for run in chain_result.runs if run.failure} == {"skipped"}
    assert server.calls == 3
    assert run_chain(chain, data=rows, **record).failed == 0
    assert server.calls == 8


def test_what_a_function_gives_or_raises_costs_its_own_row_alone(folder, model):
    def read(n):
        if n == 1:
            raise StopIteration("no more")
        return {"half \ud83d": ["\ud83d"]}

    chain = Chain("own", call("read", read), inputs="n")
    rows = [{"n": n} for n in range(3)]
    chain_result = run_chain(chain, data=rows, model=model, store=folder / "store.db")
    assert [run.failure is None for run in chain_result.runs] == [True, False, True]
    assert "read raised StopIteration: no more" in chain_result.runs[1].failure.reason
    assert chain_result.runs[0].outputs == {"read": {"half \ufffd": ["\ufffd"]}}
