"""Two ways in which the same texts are scored, for each kind of study that has scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from laws.identity_contents import BY_METRIC, METRIC
from laws.identity_world import START, without_none
from laws.studies import PAIRS, Recipe, write_rows


@dataclass(frozen=True)
class Ruler:
    """Two ways in which the same texts are scored.

    Attributes:
        kind: The kind of study.
        main: Fields of the baseline.
        other: Fields that are other in the second run.
        files: Further files of both.
        verdicts: Whether the rows pass or fail; otherwise their means are compared.
        edited: Contents of files that are other in the second run.
    """

    kind: str
    main: Mapping[str, Any]
    other: Mapping[str, Any]
    files: Mapping[str, Any] = field(default_factory=dict)
    verdicts: bool = True
    edited: Mapping[str, str] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """The run of the baseline."""
        recipe = without_none(START[self.kind].changed(**self.main))
        return replace(recipe, files={**recipe.files, **self.files})

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the gate."""
        limit = ("--max-regressions", "0") if self.verdicts else ("--margin", "1")
        return ("--no-worse-than", "main", *limit)


WHOLE = METRIC.replace("0.25", "1.0")
BY_WHOLE = {"m.py": WHOLE}
OUTPUTS = {
    "rows.jsonl": [
        {"id": f"r{n}", "out": f"yes {n}", "label": "yes", "second": f"yes {n}"} for n in range(4)
    ]
}
EXISTING = {"prompts": None, "outputs": "out", "label": "label", "judge": None}
REFERRED = {
    "cases.jsonl": [
        {"id": f"c{n}", "input": f"Say {n}.", "candidates": [f"good {n}"], "reference": "good"}
        for n in range(3)
    ]
}
CHECKED = {
    "cases.jsonl": [{**row, "checks": ["contains: good"]} for row in REFERRED["cases.jsonl"]]
}
OTHER_CHECKS = write_rows([{**row, "checks": ["contains: oo"]} for row in CHECKED["cases.jsonl"]])
OTHER_REFERENCE = write_rows([{**row, "reference": "g"} for row in REFERRED["cases.jsonl"]])
OTHER_LABEL = write_rows([{**row, "label": "y"} for row in OUTPUTS["rows.jsonl"]])
OTHER_WINNER = write_rows([{**row, "winner": 1} for row in PAIRS])
SCHEMAS = {"s.json": '{"type": "string"}'}

RULERS: Mapping[str, Ruler] = {
    "compare / metric": Ruler(
        "compare", {**EXISTING, "metric": "contains"}, {"metric": "regex:e"}, OUTPUTS
    ),
    "compare / body of a metric": Ruler(
        "compare",
        {**EXISTING, "metric": "m.py:worth"},
        {},
        OUTPUTS | BY_WHOLE,
        edited={"m.py": WHOLE.replace("1.0", "len(output) / len(output)")},
    ),
    "compare / threshold": Ruler(
        "compare",
        {**EXISTING, "metric": "chrf", "threshold": 0.5},
        {"threshold": 0.1},
        OUTPUTS,
    ),
    "compare / label that is edited": Ruler(
        "compare",
        {**EXISTING, "metric": "contains"},
        {},
        OUTPUTS,
        edited={"rows.jsonl": OTHER_LABEL},
    ),
    "compare / decisive metric": Ruler(
        "compare",
        {**EXISTING, "metric": ["contains", "chrf"], "score_by": "contains"},
        {"score_by": "chrf"},
        OUTPUTS,
    ),
    "compare / judge": Ruler(
        "compare",
        {**EXISTING, "metric": None, "judge": "probe", "input": "second", "threshold": 0.0},
        {"judge": "metric:regex:y"},
        OUTPUTS,
    ),
    "compare-quants / metric": Ruler("compare-quants", {}, {"metric": "contains"}),
    "evaluate / judge": Ruler(
        "evaluate", {"judge": "metric:contains"}, {"judge": "metric:regex:go"}, REFERRED
    ),
    "evaluate / rubric": Ruler("evaluate", {}, {"rubric": "Is it polite?"}, REFERRED),
    "evaluate / threshold": Ruler("evaluate", {}, {"threshold": 0.1}, REFERRED),
    "evaluate / model of the judge": Ruler("evaluate", {}, {"judge": "probe@MODEL-b"}, REFERRED),
    "evaluate / reference that is edited": Ruler(
        "evaluate",
        {"judge": "metric:contains"},
        {},
        REFERRED,
        edited={"cases.jsonl": OTHER_REFERENCE},
    ),
    "evaluate / schema that is edited": Ruler(
        "evaluate",
        {"judge": "metric:json-schema:s.json"},
        {},
        SCHEMAS | {"cases.jsonl": [{"id": "a", "input": "One?", "candidates": ['"b"']}]},
        edited={"s.json": '{"type": ["string", "number"]}'},
    ),
    "evaluate / checks": Ruler(
        "evaluate",
        {"judge": "checks", "check": ["contains: good"]},
        {"check": ["contains: {candidates}"]},
        REFERRED,
    ),
    "evaluate / checks of a row that are edited": Ruler(
        "evaluate",
        {"judge": "checks"},
        {},
        CHECKED,
        edited={"cases.jsonl": OTHER_CHECKS},
    ),
    "evaluate / function of a check that is edited": Ruler(
        "evaluate",
        {"judge": "checks", "check": ["function: m.py:worth"]},
        {},
        REFERRED | BY_WHOLE,
        edited={"m.py": WHOLE.replace("1.0", "len(output) / len(output)")},
    ),
    "evaluate / prompt of the judge that is edited": Ruler(
        "evaluate",
        {"judge": "prompt:p.md+numbers=1-3"},
        {},
        REFERRED | {"p.md": "Good? {output}"},
        edited={"p.md": "Bad? {output}"},
    ),
    "compare / checks of a row that are edited": Ruler(
        "compare",
        {**EXISTING, "label": None, "metric": None, "judge": "checks", "input": "second"},
        {},
        {"rows.jsonl": [{**row, "checks": ["contains: yes"]} for row in OUTPUTS["rows.jsonl"]]},
        edited={
            "rows.jsonl": write_rows(
                [{**row, "checks": ["contains: y"]} for row in OUTPUTS["rows.jsonl"]]
            )
        },
    ),
    "nodes / judge": Ruler("nodes", BY_METRIC, {"judge": "metric:regex:moon"}, BY_WHOLE),
    "nodes / latency": Ruler("nodes", {"judge": None, "latency": 1.0}, {"latency": 5.0}),
    "nodes / threshold": Ruler(
        "nodes",
        {"judge": None, "threshold": ["confidence=0.5"]},
        {"threshold": ["confidence=0.1"]},
    ),
    "optimize / judge": Ruler("optimize", BY_METRIC, {"judge": "metric:regex:Text"}, BY_WHOLE),
    "innovate / judge": Ruler(
        "innovate", BY_METRIC, {"judge": "metric:regex:Text"}, BY_WHOLE, verdicts=False
    ),
    "robustness / judge": Ruler(
        "robustness", {"judge": "metric:regex:good"}, {"judge": "metric:regex:It"}, verdicts=False
    ),
    "memory-eval / judge": Ruler("memory-eval", {}, {"judge": "single"}, verdicts=False),
    "escalation / second judge": Ruler(
        "escalation", {"then": "metric:regex:good"}, {"then": "metric:regex:A"}, verdicts=False
    ),
    "agreement / threshold": Ruler("agreement", {}, {"threshold": 0.9}, verdicts=False),
    "agreement / labels that are edited": Ruler(
        "agreement", {}, {}, verdicts=False, edited={"items.jsonl": OTHER_WINNER}
    ),
    "fit / label that is edited": Ruler(
        "fit",
        {"signals": "length"},
        {},
        verdicts=False,
        edited={
            "items.jsonl": write_rows(
                [{**r, "label": 2} for r in START["fit"].files["items.jsonl"]]
            )
        },
    ),
}
"""Two rulers for each kind that has scores."""

UNGATED: Mapping[str, str] = {
    "calibrate": "its rows are templates, which two searches do not share",
    "ablation": "its rows are judges, which have other names under another profile",
    "chain": "has no scores",
    "rates": "has no scores",
    "guide": "has no scores",
    "profile": "has no scores",
    "summarize": "has no scores",
    "create-memories": "has no scores",
    "integrate-memories": "has no scores",
    "read-corpus": "has no scores",
    "evolve-persona": "has no scores",
}
"""Kinds without scores that a baseline could have, each with the reason."""


HELD: Mapping[str, Ruler] = {
    "compare / ruler at a gate / none: other outputs fail": Ruler(
        "compare",
        {**EXISTING, "metric": "contains"},
        {},
        OUTPUTS,
        edited={"rows.jsonl": write_rows([{**r, "out": "no"} for r in OUTPUTS["rows.jsonl"]])},
    ),
    "evaluate / ruler at a gate / none: other candidates fail": Ruler(
        "evaluate",
        {"judge": "metric:contains"},
        {},
        REFERRED,
        edited={
            "cases.jsonl": write_rows(
                [{**r, "candidates": ["bad"]} for r in REFERRED["cases.jsonl"]]
            )
        },
    ),
}
