"""Options of studies that no word can show: another value gives another run, or is refused."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laws.nothing_vanishes_world import Evidence
from laws.studies import CHAIN, RECIPES, SEA, TEXTS, Recipe

FLEETING = frozenset({"run", "parameters", "seconds", "minutes", "began", "timestamp", "created"})
"""What tells one run from another of the same study, or repeats its options."""
MADE_UP = re.compile(r"me_[0-9a-f]{32}")
"""Ids of memories, which are drawn at random."""


@dataclass(frozen=True)
class Options:
    """A study, and other values of its fields; the others of a mapping with the field's own name
    are what it needs beside it."""

    recipe: Recipe
    values: Mapping[str, Any]

    def changed(self, field: str) -> Recipe:
        """Return the study with another value of a field."""
        value = self.values[field]
        if isinstance(value, dict) and field in value:
            return self.recipe.changed(**value)
        return self.recipe.changed(**{field: value})


def digest(evidence: Evidence) -> str:
    """Return what a run asked and what it printed, without what differs from run to run."""
    requests = MADE_UP.sub("ID", evidence.requests)
    bodies = sorted(json.dumps(body, sort_keys=True) for body in json.loads(requests))
    printed = MADE_UP.sub("ID", evidence.out).splitlines()
    results = [drop_fleeting(json.loads(line)) for line in printed]
    text = json.dumps([bodies, results], sort_keys=True)
    return re.sub(r"http://127\.0\.0\.1:\d+", "URL", text)


def drop_fleeting(value: Any) -> Any:
    """Return a value without the fields that differ from run to run."""
    if isinstance(value, dict):
        # The name of a figure may have parts: `variants.plain.seconds`.
        keys = [key for key in value if FLEETING.isdisjoint(key.split("."))]
        return {key: drop_fleeting(value[key]) for key in keys}
    if isinstance(value, list):
        return [drop_fleeting(part) for part in value]
    return value


DEBATED = Recipe(
    {"cases": "cases.jsonl"}, {"cases.jsonl": [{**TEXTS[0], "candidates": ["Good.", "Bad?"]}]}
)
CHATTED = Recipe(
    {"prompts": {"plain": "Be brief."}, "data": "rows.jsonl", "judge": "probe"}
    | {"user_model": "MODEL"},
    {"rows.jsonl": [{"id": "r1", "goal": "A new password."}]},
)
OPTIONS: Mapping[str, Options] = {
    "evaluate": Options(
        DEBATED,
        {
            "rounds": 1,
            "convergence": 0.9,
            "history_rounds": 0,
            "protocol": "independent",
            "readout": "pointwise",
            "rules": True,
            "order": "fixed",
            "weights": {"accuracy": 1},
            "aggregation": "median",
            "select": "sample",
            "temperature": 3.0,
            "threshold": 0.93,
            "argue": {"argue": False, "readout": "pointwise"},
            "argument_words": 20,
            "decider": {"decider": "MODEL-small", "readout": "decide"},
        },
    ),
    "compare": Options(
        RECIPES["compare"], {"threshold": 0.0, "samples": 2, "score_by": "probe", "input": "n"}
    ),
    "compare conversations": Options(CHATTED, {"each_turn": "probe"}),
    "chain": Options(
        Recipe({"chain": "twice.yaml", "input": {"n": "3"}}, {"twice.yaml": CHAIN}),
        {"input": {"input": {"n": "4"}}},
    ),
    "calibrate": Options(
        RECIPES["calibrate"],
        {"beam": 2, "depth": 2, "successors": 2, "minibatch": 5, "budget": 40, "validation": 0.4},
    ),
    "agreement": Options(
        RECIPES["agreement"],
        {
            "limit": 2,
            "half": "tune",
            "orders": "given",
            "samples": 2,
            "threshold": 0.9,
            "seed": 5,
            "good": {"good": 1, "limit": 2},
        },
    ),
    "ablation": Options(
        RECIPES["ablation"],
        {"limit": 1, "half": "tune", "orders": "given", "judge_option": ["rounds=1"]},
    ),
    "escalation": Options(
        RECIPES["escalation"],
        {"limit": 2, "half": "tune", "orders": "given", "agreement": 0.2, "confidence": 0.8},
    ),
    "robustness": Options(RECIPES["robustness"], {"seeds": 3}),
    "fit": Options(RECIPES["fit"], {"confidence": 0.8}),
    "rates": Options(RECIPES["rates"], {"field": "other"}),
    "nodes": Options(
        RECIPES["nodes"],
        {
            "threshold": "confidence=0.5",
            "latency": 0.2,
            "tokens": 20,
            "consistency": True,
            "only": "GENERATE",
            "instruction": "plan=GENERATE",
        },
    ),
    "memory-eval": Options(RECIPES["memory-eval"], {"seed": 5}),
    "optimize": Options(
        RECIPES["optimize"],
        {
            "threshold": 0.2,
            "max_iterations": 2,
            "min_improvement": 0.9,
            "oscillation_limit": None,
            "mode": "best-of-n",
            "second_judge": "single",
        },
    ),
    "innovate": Options(
        RECIPES["innovate"],
        {"outputs": 3, "fresh": 4, "rounds": 2, "threshold": 0.2, "min_gain": 0.9, "seed": 5},
    ),
    "guide": Options(RECIPES["guide"], {"debate": {"debate": {"rounds": 1}}}),
    "guide with proposals": Options(Recipe({"question": "Why is the sky blue?"}), {"proposals": 2}),
    "profile": Options(RECIPES["profile"], {"agents": 4}),
    "summarize": Options(RECIPES["summarize"], {"budget": 600, "context": 2048}),
    "create-memories": Options(RECIPES["create-memories"], {"floor": -1, "entities": True}),
    "integrate-memories": Options(
        RECIPES["integrate-memories"],
        {"always": False, "questions": 1, "min_trust": 0.95},
    ),
    "read-corpus": Options(
        RECIPES["read-corpus"].with_file("handbook.md", SEA),
        {"chunk_tokens": 64, "role": "A cook."},
    ),
    "evolve-persona": Options(
        RECIPES["evolve-persona"],
        {"rewrite": True, "min_trust": 0.99},
    ),
}
"""Other values of options that no word can show."""

SILENT: Mapping[str, str] = {
    "kind": "it is the study",
    "model": "each request goes to it",
    **dict.fromkeys(("target", "targets", "target_version"), "applications have their own cells"),
    **dict.fromkeys(("map", "user_model", "models", "outputs", "input"), "it has a cell elsewhere"),
    **dict.fromkeys(("data", "files", "trace", "judged", "labelled", "system"), "it is read whole"),
    **dict.fromkeys(("collection", "agent", "original", "profile", "context"), "the same"),
    **dict.fromkeys(
        ("label", "metric", "judge", "good", "each_turn", "check"), "it decides scores alone"
    ),
    **dict.fromkeys(("score_by", "baseline", "threshold", "side_by_side"), "the same"),
    **dict.fromkeys(("each_reply", "precision", "minimum_effect", "sizes"), "the same"),
    **dict.fromkeys(("agents", "recall", "generator", "program"), "it needs more than a file"),
    **dict.fromkeys(("step", "answer", "step_judge"), "the same"),
    **dict.fromkeys(("patience", "convergence_window", "selection"), "a longer search feels it"),
    **dict.fromkeys(("gradient_depth", "selection_minibatch", "final_minibatch"), "the same"),
    "select": "a search in which several texts have scores feels it",
    **dict.fromkeys(("strategy", "convergence_mode", "escalate_below", "second_judge"), "the same"),
    **dict.fromkeys(("max_turns", "samples", "equal_tokens", "fresh"), "the same"),
    **dict.fromkeys(("users", "sessions", "half", "orders", "seed", "limit"), "more rows feel it"),
    **dict.fromkeys(("budget", "window", "overlap", "neighbours"), "longer chats feel it"),
    **dict.fromkeys(("compare", "trust_assistant", "trust_others"), "the same"),
    **dict.fromkeys(
        ("insights", "recalled", "changes", "persona_tokens", "newest", "propose"), "the same"
    ),
}
"""Fields of which some kind has neither a word nor another value here, each with the reason."""
RECORDS: Mapping[str, Sequence[str]] = {
    "evaluate": ("c0", "Good.", "Bad?"),
    "compare": ("r0", "r1", "r2", "r3"),
    "compare conversations": ("r1",),
    "chain": ("story",),
    "calibrate": ("What is {n} and {n} more?", "Add carefully."),
    "agreement": tuple(f"i{n}" for n in range(6)),
    "ablation": ("i0", "i1", "jury"),
    "escalation": tuple(f"i{n}" for n in range(6)),
    "robustness": ("order-0", "length-1", "consistency-2", "content-free-2"),
    "fit": tuple(f"i{n}" for n in range(24)),
    "rates": ("as judged",),
    "nodes": ("the sea, a 0.", "the sea, a 1.", "the sea, b 0.", "the sea, b 1."),
    "memory-eval": ("synth-0-1", "Lou"),
    "optimize": ("Say what moves the sea.",),
    "innovate": ("Tell a child of the sea.",),
    "guide": ("plain", "guided"),
    "guide with proposals": ("plain", "guided"),
    "profile": ("weight",),
    "summarize": ("Text 0 on this",),
    "create-memories": ("green tea", "Graz", "black tea"),
    "integrate-memories": ("What does Mrs. Okafor need?", "How does Mr. Lind like answers?"),
    "read-corpus": ("handbook.md",),
    "evolve-persona": ("You like short answers.",),
}
"""Words of the records of each study, all of which stand in each file of its records."""
