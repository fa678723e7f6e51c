"""The studies in which verdicts are read, and how the results of two runs of one are compared."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laws.studies import RECIPES, WITHOUT_FILE, Recipe, World

TYPED_CHAIN = """\
name: checked
inputs: {n: integer}
outputs: [verdict]
steps:
  - ask: verdict
    prompt: "Is {n} even? Answer with a JSON object."
    fields: {supported: boolean, count: integer, kind: [fact, opinion]}
"""
GOALS = [{"id": f"g{n}", "goal": f"Get ticket {n}.", "persona": "A teacher."} for n in range(2)]

VARIANTS: Mapping[str, tuple[str, Recipe]] = {
    "create-memories with questions": (
        "create-memories",
        RECIPES["create-memories"].changed(floor=-1.0),
    ),
    "create-memories, structured": (
        "create-memories",
        RECIPES["create-memories"].changed(floor=-1.0, compare="structured"),
    ),
    "chain with fields": (
        "chain",
        RECIPES["chain"].with_file("twice.yaml", TYPED_CHAIN),
    ),
    "compare with a simulated user": (
        "compare",
        Recipe(
            {"prompts": {"plain": "You help.\n"}, "data": "goals.jsonl", "judge": "probe"}
            | {"user_model": "MODEL", "max_turns": 2},
            {"goals.jsonl": GOALS},
        ),
    ),
    "compare side by side": (
        "compare",
        RECIPES["compare"].changed(
            prompts={"plain": "What is {n} and {n} more?\n", "long": "Tell me of {n} at length.\n"},
            judge="pairwise",
            side_by_side=True,
        ),
    ),
}
"""Further runs of kinds whose own recipe does not reach each of their readers."""

STUDIES: Mapping[str, tuple[str, Recipe]] = {
    **{kind: (kind, recipe) for kind, recipe in RECIPES.items()},
    **VARIANTS,
}

FORMS: Mapping[str, tuple[str, ...]] = {
    "evaluate": ("choice",),
    "compare": ("choice", "text"),
    "compare-quants": ("text",),
    "calibrate": ("object", "text"),
    "chain": ("text",),
    "agreement": ("choice",),
    "ablation": ("object",),
    "escalation": ("choice", "object"),
    "robustness": ("choice",),
    "fit": ("choice",),
    "nodes": ("choice",),
    "memory-eval": ("object", "text"),
    "optimize": ("choice", "text"),
    "innovate": ("choice", "object", "text"),
    "guide": ("object", "text"),
    "profile": ("object",),
    "summarize": ("text",),
    "create-memories": ("object",),
    "integrate-memories": ("object",),
    "evolve-persona": ("object",),
    "create-memories with questions": ("choice",),
    "create-memories, structured": ("object",),
    "chain with fields": ("object",),
    "compare with a simulated user": ("object",),
    "compare side by side": ("choice",),
}
"""The forms of answers that each kind reads."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "ablation": ("numbers",),
    "escalation": ("numbers",),
    "memory-eval": ("numbers", "truths", "choices"),
    "guide": ("numbers",),
    "profile": ("numbers",),
    "create-memories": ("numbers",),
    "integrate-memories": ("numbers",),
    "evolve-persona": ("numbers", "choices"),
    "create-memories, structured": ("numbers",),
    "chain with fields": ("numbers", "truths", "choices"),
    "compare with a simulated user": ("choices",),
}
"""What the objects of each kind hold besides texts."""
ASKS_NOTHING = {
    **WITHOUT_FILE,
    "rates": "it counts verdicts that are there",
    "read-corpus": "it cuts documents without a model",
}
"""Kinds that read no answer, each with the reason."""

UNSTABLE = re.compile(r"http://127\S*?#|me_[0-9a-f]+|20\d{6}-\w{4}")
"""Parts of texts that differ between two equal runs: addresses and ids."""
UNCOMPARED = re.compile(
    r"run|aggregates|usage|judging|began|timestamp|seconds|minutes|speed|model|.*tokens|calls|cost"
    r"|failures?|reason|notes"
)
"""Fields on the course of a run and not on its result."""
VERDICTS = re.compile(r"score|log_odds|passed|credit|certainty|best|winner|label|action|decision")
"""Fields with the verdict on one text."""


def fits(study: str, way: str) -> bool:
    """Return whether a way of saying an object changes anything in the objects of a study."""
    value = way.partition(" ")[0]
    return value not in ("numbers", "truths", "choices") or value in VALUES.get(study, ())


def list_leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value of a run's JSON with its path, without what differs between equal runs."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not UNCOMPARED.fullmatch(name):
                yield from list_leaves(part, (*path, UNSTABLE.sub("X", name)))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from list_leaves(part, (*path, place))
    elif isinstance(value, str):
        yield path, UNSTABLE.sub("X", value)
    elif isinstance(value, float):
        yield path, float(f"{value:.6g}")
    else:
        yield path, value


@dataclass(frozen=True)
class Run:
    """How a study ended, and the values of its result by their paths."""

    ended: Any
    values: Mapping[tuple[Any, ...], Any]


def run_study(world: World, study: str, script: Callable[..., Any], *options: str) -> Run:
    """Run a study with a script that answers its calls."""
    kind, recipe = STUDIES[study]
    world.prepare(recipe)
    world.server.requests.clear()
    world.script = script
    outcome = world.run(kind, recipe, "--json", *options)
    try:
        result = json.loads(outcome.out)
    except ValueError:
        result = [json.loads(line) for line in outcome.out.splitlines()]
    return Run(outcome, dict(list_leaves(result)))


def list_differences(plain: Run, run: Run) -> list[tuple[str, Any, Any]]:
    """Return the values that are not those of the plain run, by their paths."""
    differences: list[tuple[str, Any, Any]] = []
    for path in {**plain.values, **run.values}:
        before = plain.values.get(path)
        after = run.values.get(path)
        if before != after:
            differences.append((".".join(map(str, path)), before, after))
    return differences


REASON = re.compile(
    r"unusable|unreadable|cannot be read|is empty|was empty|neither|none of the given"
    r"|no answer after|no log-probabilities|not a chat completion"
)
"""The words in which a reason says that an answer was not read."""


def list_other_verdicts(differences: Sequence[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Return the differences that are a verdict in place of another one."""
    return [
        (path, before, after)
        for path, before, after in differences
        if VERDICTS.fullmatch(path.rpartition(".")[2]) and None not in (before, after)
    ]
