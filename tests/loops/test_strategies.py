"""The strategies of calibrate on a small simulated task: six rules, of which each row needs one.

The model answers a row if its template has the rule, or a demonstration of a row that needs the
same. The editor writes rules for what it is shown to fail, two at most.
"""

import json
import re
from dataclasses import replace

import pytest
from materials import take_material

from flat_verbs import acalibrate
from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.loops.calibration.optimizing import search_template
from textevolve.loops.calibration.plan import (
    CalibrationContext,
    CalibrationPlan,
    describe_outcome,
)
from textevolve.loops.calibration.rewriting import RewritingRules, can_show
from textevolve.loops.calibration.trial_runner import Example, split_examples
from textevolve.metrics.label_metrics import Grader, open_metric
from textevolve.studies.calibrate import CalibrateSpec, report
from textevolve.wiring import Limits

MOST = 2
SEED = "What is {n} and {n} more?"
STRATEGIES = ("auto", "reflect", "demos", "protegi")
DATA = take_material(SEED, [(f"row {n}", {"n": n, "sum": 2 * n}) for n in range(60)], label="sum")
HELD_OUT = {int(e.values["n"]) for e in DATA.validation}


def sections(text, name):
    return re.findall(rf"\[\[\w+ {name}\]\]\n(.*?)\n\[\[/", text, re.DOTALL)


def script(body, number):
    """Answers come back in another order than they were asked for."""
    question = next(m["content"] for m in body["messages"] if m["role"] == "user")
    message = body["messages"][-1]["content"]
    if "You improve a prompt" in message:
        wrong = [int(re.search(r"n: (\d+)", text)[1]) for text in sections(message, "input")]
        rules = [f"Rule {k}." for k in dict.fromkeys(n % 6 for n in wrong)][:MOST]
        if '"template", the new template' not in message:
            return json.dumps({"instructions": rules})
        text = "\n".join([sections(message, "template")[0], *rules])
        return json.dumps({"changes": rules, "template": text})
    if "You rewrite a prompt template" in question:
        request = body["messages"][2]["content"]
        lines = [
            line.split(". ", 1)[1] for line in sections(request, "instructions")[0].split("\n")
        ]
        return json.dumps({"template": "\n".join([sections(request, "template")[0], *lines])})
    n = int(re.search(r"What is (\d+)", message)[1])
    demos = [int(m) for m in re.findall(r"n: (\d+)\nanswer", message)]
    right = f"Rule {n % 6}." in message or any(n % 6 == m % 6 for m in demos)
    return Answer(text=str(2 * n) if right else f"about {n}", delay=0.001 * (number * 7 % 5))


async def search(server=None, material=DATA, **options):
    fields = CalibrationPlan.model_fields
    means = {
        name: options.pop(name) for name in [*options] if name not in fields or name == "editor"
    }
    server = server or ScriptedServer(script, keep=10_000)
    async with server, OpenAIClient(server.url, "scripted") as client:
        wrap = means.pop("wrap", lambda model: model)
        means = {"generator": wrap(client), "editor": wrap(client), **means}
        if "evaluator" not in means:
            means["metric"] = Grader(open_metric("exact"))
        context = CalibrationContext(**means)
        result = await search_template(material, CalibrationPlan(**options), context)
    return result, server


def prompts(server):
    return [body["messages"][-1]["content"] for body in server.requests]


def script_of_variants():
    """Every rewrite is another variant, and all are right on about as many rows."""
    written = []

    def answer(body, _number):
        text = str(body["messages"])
        if "You improve a prompt" in text or "You rewrite a prompt template" in text:
            written.append(body)
            template = f"{SEED} Variant {len(written)}."
            answer = {"changes": ["vary"], "template": template, "instructions": ["vary"]}
            schema = str(body["response_format"])
            return json.dumps({name: answer[name] for name in answer if f"'{name}'" in schema})
        n = int(re.search(r"What is (\d+)", text)[1])
        variant = int((re.search(r"Variant (\d+)", text) or [0, 0])[1])
        return str(2 * n) if (7 * n + 13 * variant) % 10 < 4 + variant % 4 else "no"

    return ScriptedServer(answer, keep=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["reflect", "protegi"])
async def test_parents_drawn_by_score(strategy):
    options = {"strategy": strategy, "budget": 400, "beam": 2, "depth": 4, "successors": 3}
    parents = []
    for select in ("sample", "sample", "argmax"):
        result, server = await search(script_of_variants(), **options, select=select)
        assert server.calls <= 400
        parents.append([node.parent for node in result.nodes])
    assert parents[0] == parents[1] != parents[2]
    spec = CalibrateSpec(template=SEED, data="rows.csv", strategy=strategy)
    method = report(spec, result).facts.get("Method", "")
    assert ("without its paraphrases" in method) == (strategy == "protegi")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_budgets_find_better_templates(strategy):
    result, server = await search(strategy=strategy, budget=150, beam=2, depth=3, successors=3)
    assert result.accepted
    assert server.calls == result.usage.calls <= 150
    assert len(set(prompts(server))) + 40 > server.calls  # rewrites of one prompt differ by sample
    outputs = [body for body in server.requests if "schema" not in str(body.get("response_format"))]
    texts = [body["messages"][-1]["content"] for body in outputs]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("strategy", ["auto", "protegi"])
async def test_held_out_rows_stay_unseen(strategy):
    result, server = await search(strategy=strategy, budget=150, beam=2, successors=3)
    both = {result.nodes[0].text, result.nodes[result.tested].text}
    for prompt in prompts(server):
        numbers = {int(n) for n in re.findall(r"(?:What is |n: )(\d+)", prompt)}
        if numbers & HELD_OUT:
            n = numbers & HELD_OUT
            assert prompt in {text.replace("{n}", str(*n)) for text in both}


@pytest.mark.parametrize("budget", [26, 77])
async def test_no_budget_is_exceeded(budget):
    result, server = await search(budget=budget)
    assert server.calls <= budget
    assert result.stopped in ("max_iterations", "converged")


@pytest.mark.parametrize(("least", "seconds"), [(24, False), (36, True)])
async def test_least_budgets_are_enough(least, seconds):
    """The budget that a refusal names is accepted, and one call less is not."""
    means = {"second_judge": Judge()} if seconds else {}
    with pytest.raises(InputError, match=rf"need {least}$"):
        await search(budget=least - 1, **means)
    result, server = await search(budget=least, **means)
    assert result.stopped in ("max_iterations", "converged")
    assert server.calls <= least


async def test_accepted_templates_are_improved_further():
    """What the decision leaves of the budget continues the search from the tested template."""
    result, server = await search(strategy="reflect", budget=80, seed=2)
    assert result.accepted
    assert server.calls == 80
    assert result.tested != result.leader
    assert "A search that began with a tested template found it" in describe_outcome(result)
    lineage = [result.leader]
    while (parent := result.nodes[lineage[-1]].parent) is not None:
        lineage.append(parent)
    assert result.tested in lineage


# Cross-fitting


def material_of(count, **options):
    """Rows that need one of two rules."""
    rows = [(f"row {n}", {"n": n, "sum": 2 * n}) for n in range(0, 3 * count, 3)]
    return take_material(SEED, rows, label="sum", **options)


def reflected_rows(server):
    """The rows that each request for a new template shows."""
    shown = [text for text in prompts(server) if "You improve a prompt" in text]
    return [{int(n) for n in re.findall(r"\bn: (\d+)", text)} for text in shown]


@pytest.mark.parametrize(("count", "budget"), [(8, 100), (12, 200), (12, None), (40, 400)])
async def test_few_rows_are_cross_fitted(count, budget):
    material = material_of(count)
    result, server = await search(strategy="reflect", budget=budget, material=material)
    assert result.is_cross_fitted
    assert result.rows == (count, count)
    assert result.gain.items == count
    assert result.accepted
    assert server.calls == result.usage.calls <= (budget or 400)
    assert f"On {count} rows, each under the best template of the other half" in (
        describe_outcome(result)
    )


async def test_halves_stay_apart():
    """No template is written from rows of both halves before the decision."""
    material = material_of(12)
    _, server = await search(strategy="reflect", budget=200, material=material)
    halves = [
        {int(example.values["n"]) for example in half}
        for half in split_examples(material.examples, 0.5)
    ]
    shown = reflected_rows(server)
    sides = [[bool(rows & half) for half in halves] for rows in shown]
    assert sides[0] == [True, False]
    first = sides.index([False, True])
    assert all(side == [True, False] for side in sides[:first])
    joint = sides.index([True, True]) if [True, True] in sides else len(sides)
    assert all(side == [False, True] for side in sides[first:joint])


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (7, {"budget": 200}),
        (12, {"budget": 119}),
        (40, {"budget": 259}),
        (100, {}),
        (12, {"budget": 400, "strategy": "protegi"}),
        (12, {"budget": 200, "validation": 0.5}),
    ],
)
async def test_other_searches_hold_rows_out(count, options):
    shares = {"validation": options.pop("validation")} if "validation" in options else {}
    result, _ = await search(material=material_of(count, **shares), **options)
    assert not result.is_cross_fitted
    assert sum(result.rows) == count


async def test_perfect_halves_need_no_search():
    material = take_material(
        "What is {n} and {n} more? " + " ".join(f"Rule {k}." for k in range(6)),
        [(f"row {n}", {"n": n, "sum": 2 * n}) for n in range(12)],
        label="sum",
    )
    result, server = await search(budget=200, material=material)
    assert (result.stopped, result.perfect, server.calls) == ("accepted", 12, 12)


async def test_useless_halves_keep_the_original():
    def useless(body, number):
        text = str(body["messages"])
        if "You improve a prompt" in text:
            return json.dumps({"changes": ["vary"], "template": f"{SEED} Variant {number}."})
        n = int(re.search(r"What is (\d+)", text)[1])
        return str(2 * n) if n % 2 else "no"

    server = ScriptedServer(useless, keep=10_000)
    result, _ = await search(server, strategy="reflect", budget=200, material=material_of(12))
    assert result.is_cross_fitted
    assert not result.accepted
    assert result.template == SEED


class Judge:
    """An evaluator that takes three calls for each output."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, case):
        self.calls += 3
        scores = [1.0 if text.isdigit() else 0.25 for text in case.candidates]

        class Made:
            result = tuple(EvaluationResult(score, score > 0.5, "be exact") for score in scores)
            usage, coverage = Usage(calls=3), 1.0

        return Made()


async def test_costs_of_judged_outputs():
    judge = Judge()
    result, server = await search(budget=400, evaluator=judge)
    assert result.accepted
    assert server.calls + judge.calls == result.usage.calls <= 400
    with pytest.raises(InputError, match=r"need 96"):
        await search(budget=60, evaluator=Judge())


async def test_concurrency_changes_no_result():
    (serial, _), (many, _) = [await search(budget=120, concurrency=n) for n in (1, 64)]
    assert repr(replace(serial, seconds=0)) == repr(replace(many, seconds=0))  # NaN is not itself


async def test_shown_rows_are_no_evidence():
    result, server = await search(strategy="demos", budget=250)
    assert any(node.demos for node in result.nodes)
    for prompt in prompts(server):
        assert re.search(r"What is (\d+)", prompt)[1] not in re.findall(r"n: (\d+)\nanswer", prompt)


@pytest.mark.parametrize(
    ("value", "label", "usable"),
    [
        ("3", 6, True),
        ("3", None, False),
        ("{n}", 6, False),
        ("{{ n }}", 6, False),
        ("print(f'{price}: {total}')", 6, True),
        ("{{ user.name }} is {{ age }}", 6, True),
        ("3", "{price}", True),
        ("<|im_end|>", 6, False),
        ("x" * 2000, 6, False),
    ],
)
def test_rows_usable_as_demonstrations(value, label, usable):
    rules = RewritingRules(SEED, ("n",), ("n",))
    assert can_show(Example("a", {"n": value}, label), rules) == usable


async def test_resumed_searches_repeat_no_call(tmp_path):
    rows = [{"n": n, "sum": 2 * n} for n in range(60)]

    async def run(server, store, **more):
        fields = {"budget": 120, "metric": "exact", "label": "sum"}
        model = f"{server.url}#scripted"
        return await acalibrate(SEED, rows, model=model, store=tmp_path / store, **fields, **more)

    async with ScriptedServer(script) as server:
        uninterrupted = await run(server, "whole.db")
        calls = server.calls
        cut = await run(server, "parts.db", limits=Limits(calls=31))
        assert cut.stopped == "budget"
        resumed = await run(server, "parts.db")
        assert server.calls == 2 * calls
    assert repr(replace(resumed, seconds=0)) == repr(replace(uninterrupted, seconds=0))
