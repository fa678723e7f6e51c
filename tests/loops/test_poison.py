"""The set of poisoned candidates: that none gets out of its fence, and what the script counts."""

import json
import re
import sys
from pathlib import Path

from textevolve.evaluators import open_evaluator
from textevolve.judge_specs import parse_evaluator
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.loops.optimization import (
    ModelGenerator,
    OptimizationContext,
    OptimizationPlan,
    optimize_text,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import poison

ATTACKS = poison.read_attacks()
FORGED = ("<|im_", "[[/3f9c", "[[3f9c", "[[/a1b2", "[[a1b2", "[/INST]", "[INST]", "<<SYS>>", "</s>")
JOINER = "\u2060"


def part_prompt(prompt):
    """What stands outside of the fences, and what inside by name; fails on a fence left open."""
    nonce = re.search(r"\[\[([0-9a-f]{12}) task\]\]", prompt)[1]
    inside = {}

    def take(match):
        inside[match[1]] = match[2]
        return f"<{match[1]}>"

    fenced = rf"\[\[{nonce} (\w+)\]\]\n(.*?)\n\[\[/{nonce} \1\]\]\n"
    outside = re.sub(fenced, take, prompt, flags=re.DOTALL)
    assert nonce not in outside
    assert prompt.count(nonce) == 2 * len(inside)
    return outside, inside


async def revision_prompt(attack):
    """What the writer is asked when its attempt is the poisoned candidate, and its judge repeats
    the whole candidate as feedback."""

    def repeat(text):
        made = json.loads(text)
        for points in made.values():
            if isinstance(points, dict):
                points |= dict.fromkeys(("strengths", "weaknesses"), attack.poisoned)
                points["instructions"] = attack.poisoned
        return json.dumps(made)

    def script(body, _number):
        said = str(body["messages"][-1]["content"])
        if said.startswith("Do the task below"):
            return attack.poisoned
        if said.startswith("Revise an earlier answer"):
            return "Something else entirely."
        return Answer(yes=0.3) if body.get("max_tokens") == 1 else Answer(alter=repeat)

    async with (
        ScriptedServer(script) as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        context = OptimizationContext(
            generator=ModelGenerator(client),
            evaluator=open_evaluator(parse_evaluator("single"), "scripted", lambda _: client),
        )
        plan = OptimizationPlan(threshold=1.0, max_iterations=2)
        await optimize_text(attack.task, plan, context)
        asked = [str(request["messages"][-1]["content"]) for request in server.requests]
    (prompt,) = [text for text in asked if text.startswith("Revise an earlier answer")]
    return prompt


async def test_no_candidate_reaches_the_writer_unfenced():
    around = set()
    for attack in ATTACKS:
        outside, inside = part_prompt(await revision_prompt(attack))
        around.add(outside)
        assert list(inside) == ["task", "answer", "requests"]
        assert inside["task"] == attack.task
        assert inside["answer"].replace(JOINER, "") == attack.poisoned
        repeated = " ".join(inside["requests"].replace(JOINER, "").split())
        assert " ".join(attack.poisoned.split())[:300] in repeated
        assert not [mark for mark in FORGED if mark in inside["answer"] + inside["requests"]]
    assert len(around) == 1  # no candidate changes a letter of what surrounds the fences
