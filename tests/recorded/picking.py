"""How the figures are picked out of what a command printed: one function for each kind of output.

If the layout of an output changes, the function of its kind is adapted, and the recorded figures
stay as they are. Ids of runs, times, paths and seconds are never among them.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

ID = re.compile(r"\b([a-z]{2}_)[0-9a-f]{32}\b")
UNSTABLE = frozenset(
    {"run", "source", "seconds", "minutes", "created", "timestamp", "last_used", "valid_from"}
    | {"began"}
)
WORDS = frozenset({"reason", "sentence", "sentences", "meaning", "title", "note", "said"})


class Ended(Protocol):
    """How a command ended, as `cli` of the tests' conftest gives it."""

    out: str

    @property
    def rows(self) -> list[Any]: ...


def without(data: Any, names: Iterable[str] = UNSTABLE | WORDS) -> Any:
    """The data without the fields of these names, however deep they are, or figures with paths that
    end in one."""
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if key.rpartition(".")[2] not in names}
        return {key: without(value, names) for key, value in kept.items()}
    return [without(value, names) for value in data] if isinstance(data, list) else data


def take(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names}


def pick_debates(ended: Ended) -> Any:
    """`evaluate --json` with a debate: a line a case."""
    return [
        {
            "case": row["case"]["id"],
            **take(row, "convergence", "stopped", "labels"),
            **without(row["metrics"]),
            "turns": [_turn(turn) for turn in row["turns"]],
        }
        for row in ended.rows
    ]


def _turn(turn: Mapping[str, Any]) -> list[Any]:
    used = turn["usage"]
    return [turn["order"], turn["parse_mode"], used["calls"], used["prompt_tokens"], turn["scores"]]


def pick_judged(ended: Ended) -> Any:
    """`evaluate --json` with another judge: a line a case."""
    return [
        {
            **take(row, "id", "best", "status", "usage"),
            "scores": [candidate["score"] for candidate in row["candidates"]],
            "log_odds": [candidate.get("log_odds") for candidate in row["candidates"]],
            "passed": [candidate.get("passed") for candidate in row["candidates"]],
        }
        for row in ended.rows
    ]


def pick_agreement(ended: Ended) -> Any:
    """`bench agreement --json`: all of its summary."""
    return without(take(json.loads(ended.out), "half", "orders", "samples", "summary"))


def pick_payoff(ended: Ended) -> Any:
    """`bench ablate --json`: whether the debate pays, and each judge's accuracy and kappa."""
    data = json.loads(ended.out)
    names = ("name", "accuracy", "kappa", "per_item")
    judges = [take(judge, *names) for judge in data["summary"]["judges"]]
    payoff = dict(data["payoff"])
    payoff["worth"] = payoff.pop("minimum_effect")
    return without({**take(data, "samples"), "payoff": payoff, "summary": judges})


def pick_escalation(ended: Ended) -> Any:
    """`bench escalation --json`: each item's certainty and outcomes, the curve, the threshold."""
    data = json.loads(ended.out)
    items = [
        [
            *(item["item"], item["certainty"], item["first"]["credit"], item["second"]["credit"]),
            *(item[judge]["usage"]["calls"] for judge in ("first", "second")),
        ]
        for item in data["items"]
    ]
    parts = ("first", "difference", "chosen", "usage")
    curve = [without(point, {"tokens", "cost"}) for point in data["curve"]]
    return without(
        {
            "items": items,
            "debate": data["second"],
            "curve": curve,
            **take(data, *parts),
            "calibration": data["selection"],
        }
    )


def pick_card(ended: Ended) -> Any:
    """`bench card --json`: each rate as its counts and its interval."""
    data = json.loads(ended.out)
    counts = ("hits", "count", "asked", "refused", "rate", "interval", "coverage")
    return {
        **take(data, "questions", "scored", "failed", "refused", "coverage", "usage"),
        "checks": {
            check["family"]: {
                rate["name"]: [rate[name] for name in counts] for rate in check["rates"]
            }
            for check in data["checks"]
        },
    }


def pick_rate(ended: Ended) -> Any:
    """`bench rate --json`, but for what needs an extra that may not be installed."""
    return without(json.loads(ended.out), UNSTABLE | WORDS | {"powered", "powered_note"})


def pick_memory(ended: Ended) -> Any:
    """`memory-eval --json`: each measure as its value, the ends of its interval, and of how many.

    What judging used is not among it but for the calls, since the prompts are being reworded.
    """
    data = json.loads(ended.out)
    parts = {"all": data["overall"], **data["by_type"]}
    return {
        **take(data, "users", "sessions", "coverage"),
        "labels": {task: dict(sorted(found.items())) for task, found in data["labels"].items()},
        "calls": data["usage"]["calls"],
        "figures": {part: _measures(found) for part, found in parts.items()},
    }


def _measures(found: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, measure in found.items():
        over = {
            kind: [measure[kind][n] for n in ("value", "low", "high", "of")] for kind in measure
        }
        fields[name] = over["all"] if over["all"] == over["valid"] else over
    return fields


def pick_nodes(ended: Ended) -> Any:
    """`nodes evaluate --json` and `nodes show --json`: a line a node."""
    return [
        {
            **take(row, "episode", "step", "node"),
            "results": {name: _result(found) for name, found in row["results"].items()},
        }
        for row in ended.rows
    ]


def _result(found: Mapping[str, Any]) -> Any:
    if "failure" in found:
        return found["failure"]
    about = found.get("metadata", {})
    more = [about[name] for name in ("log_odds", "usage", "likeness") if name in about]
    return [found["score"], found["passed"], *more]


def pick_tallies(ended: Ended) -> Any:
    """`runs show`: the table has a row of numbers for each evaluator."""
    rows = re.findall(r"^ *(\S+(?: \S+)*?) {2,}([\d.]+(?: +\d+)+) *$", ended.out, re.MULTILINE)
    return {name: numbers.split() for name, numbers in rows}


def pick_calibration(ended: Ended) -> Any:
    """`calibrate --json`: the tree of templates, what was chosen, and what it gained."""
    data = json.loads(ended.out)
    names = ("accepted", "template", "beam", "leader", "stopped", "rounds", "rows", "tried")
    return {
        **take(data, *names, "failed", "gain", "usage"),
        "nodes": [
            {
                **take(node, "number", "parent", "round", "text"),
                "placings": [
                    [place[name] for name in ("stage", "round", "mean", "scored", "asked", "kept")]
                    for place in node["placings"]
                ],
            }
            for node in data["nodes"]
        ],
    }


def pick_optimized(ended: Ended) -> Any:
    """`optimize --json`: a line a task, with its attempts, as they finish."""
    return [
        {
            **take(row, "id", "status", "score", "best", "output"),
            **_spent(row),
            "attempts": [
                {
                    **take(attempt, "iteration", "output", "similarity"),
                    **_spent(attempt),
                    "score": attempt["evaluation"]["score"],
                    "passed": attempt["evaluation"]["passed"],
                    "second": (attempt["second"] or {}).get("score"),
                }
                for attempt in row["attempts"]
            ],
        }
        for row in sorted(ended.rows, key=lambda row: row["position"])
    ]


def _spent(row: Mapping[str, Any]) -> dict[str, Any]:
    used = row["usage"]
    tokens = used["prompt_tokens"] + used["completion_tokens"]
    return {"calls": used["calls"], "tokens": tokens, "cost": used["cost"]}


def pick_innovated(ended: Ended) -> Any:
    """`innovate --json`: the scores of each input, and what came of the refined one."""
    data = json.loads(ended.out)
    return {
        **take(data, "status", "improved", "refined", "usage"),
        "gain": without(data["gain"]),
        **{name: _drawn(data[name], "value") for name in ("before", "after")},
        "attempts": [
            {**take(attempt, "iteration", "input", "similarity"), **_drawn(attempt, "score")}
            for attempt in data["attempts"]
        ],
    }


def _drawn(found: Mapping[str, Any], mean: str) -> dict[str, Any]:
    return {
        mean: found[mean],
        "interval": without(found.get("interval")),
        "samples": [sample["score"] for sample in found["samples"]],
    }


def pick_guided(ended: Ended) -> Any:
    """`guide --json`: the two answers."""
    data = json.loads(ended.out)
    answers = {name: data[name]["text"] for name in ("plain", "guided")}
    return {**take(data, "status", "usage"), **answers}


def pick_json(ended: Ended) -> Any:
    """All of a command's JSON, or JSON lines, but what differs from run to run; ids as their
    numbers."""
    ids: dict[str, str] = {}
    text = ID.sub(lambda m: ids.setdefault(m[0], f"{m[1]}{len(ids) + 1}"), ended.out)
    try:
        return without(json.loads(text))
    except json.JSONDecodeError:
        return without([json.loads(line) for line in text.splitlines()])


def pick_text(ended: Ended) -> Any:
    """The lines that were printed."""
    return ended.out.splitlines()


def pick_nothing(ended: Ended) -> Any:
    """A command that makes what the next one reads."""
    return None


PICKERS: Mapping[str, Callable[[Ended], Any]] = {
    name.removeprefix("pick_"): value
    for name, value in globals().items()
    if name.startswith("pick_")
}
