"""How well faithfulness is judged on WiCE's claims (Kamoi et al. 2023, arXiv 2303.01432).

    python benchmarks/faithfulness.py wice_claims.jsonl --store build/faithfulness.db
    python benchmarks/faithfulness.py wice_claims.jsonl --judge look:facts

A claim is good if its page supports it; partly supported and unsupported ones are not. Half of the
claims, by a hash of their id, chooses the threshold of each judge (the one of the best balanced
accuracy), the other half reports at that threshold. `--half choose` shows the half that chooses.

`--characters` leaves out longer pages: a model on two cores reads about 30 tokens a second.

The judges are asked by `textevolve bench agreement`, one at a time, with its journal in `--store`,
so that the script can be stopped at any time and started again. `look:facts` asks no model.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textevolve.bench.items import draw_side
from textevolve.statistics.agreement import area_under_curve
from textevolve.statistics.intervals import Array

JUDGES = ("look:facts", "faithfulness", "probe", "decide")
# The others see the page in the instruction.
READS_CONTEXT = ("look:facts", "faithfulness")
DRAWS = 2000
SHIPPED_THRESHOLD = 0.5
TASK = "Write one sentence that the page supports."


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    page: str
    supported: bool


@dataclass(frozen=True)
class Verdicts:
    """The scores of a judge by the id of the claim, with the means of a claim."""

    scores: Mapping[str, float]
    tokens: float = 0.0
    seconds: float = 0.0


def read_claims(path: Path) -> list[Claim]:
    claims: list[Claim] = []
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        page = "\n".join(row["evidence"])
        claims.append(Claim(row["id"], row["claim"], page, row["label"] == "supported"))
    return claims


def in_half(claim: Claim, half: str) -> bool:
    return draw_side(f"faithfulness: {claim.id}") == (half == "choose")


def ask_judge(judge: str, claims: Sequence[Claim], options: argparse.Namespace) -> Verdicts:
    """Ask a judge about claims through the command line, which resumes what is stored."""
    with tempfile.TemporaryDirectory() as folder:
        items = Path(folder) / "claims.jsonl"
        rows = [
            {
                "id": claim.id,
                "input": TASK if judge in READS_CONTEXT else f"{TASK}\n\n{claim.page}",
                "output": claim.text,
                "context": claim.page,
                "label": "pass" if claim.supported else "fail",
            }
            for claim in claims
        ]
        items.write_text("".join(json.dumps(row) + "\n" for row in rows))
        output = Path(folder) / "verdicts.jsonl"
        command = [sys.executable, "-m", "textevolve", "bench", "agreement", str(items)]
        command += ["--judge", judge, "-o", str(output), "--store", str(options.store)]
        if options.model:
            command += ["--model", options.model]
        if subprocess.run(command, check=False).returncode not in (0, 3):
            raise SystemExit(f"{judge}: stopped; start this again to resume")
        verdicts: list[dict[str, Any]] = [
            json.loads(line) for line in output.read_text().splitlines()
        ]

    scored: dict[str, float] = {
        row["item"]: row["scores"][0] for row in verdicts if row["scores"][0] is not None
    }
    if any(row["unit"] == "log-odds" for row in verdicts):
        scored = {id: 1 / (1 + math.exp(-odds)) for id, odds in scored.items()}
    tokens = sum(row["tokens"] or 0 for row in verdicts) / len(verdicts)
    seconds = sum(row["seconds"] for row in verdicts) / len(verdicts)

    return Verdicts(scored, tokens, seconds)


def balance(scores: Array, labels: NDArray[np.bool_], threshold: float) -> float:
    passed = scores >= threshold
    return float(passed[labels].mean() + (~passed[~labels]).mean()) / 2


def choose_threshold(scores: Array, labels: NDArray[np.bool_]) -> float:
    return max(np.unique(scores).tolist(), key=lambda value: balance(scores, labels, value))


def resample(scores: Array, labels: NDArray[np.bool_], threshold: float) -> tuple[float, float]:
    """Return the 95 % interval of the balanced accuracy, by resampling each class."""
    generator = np.random.default_rng(0)
    values: list[float] = []
    sides = [np.flatnonzero(labels), np.flatnonzero(~labels)]
    for _ in range(DRAWS):
        drawn = np.concatenate([generator.choice(side, side.size) for side in sides])
        values.append(balance(scores[drawn], labels[drawn], threshold))
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def arrange(claims: Iterable[Claim], verdicts: Verdicts) -> tuple[Array, NDArray[np.bool_]]:
    """Return the scores and the labels of the claims that have a score."""
    scored = [claim for claim in claims if claim.id in verdicts.scores]
    scores = np.array([verdicts.scores[claim.id] for claim in scored])
    return scores, np.array([claim.supported for claim in scored], dtype=np.bool_)


def main() -> None:
    parser = argparse.ArgumentParser(description="How well is faithfulness judged?")
    parser.add_argument("claims", type=Path)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--judge", action="append", help=f"default: {', '.join(JUDGES)}")
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int, help="the most claims of each half")
    parser.add_argument("--characters", type=int, help="the longest page whose claims are read")
    parser.add_argument("--store", type=Path, default=Path("build/faithfulness.db"))
    options = parser.parse_args()

    claims = read_claims(options.claims)
    if options.characters is not None:
        claims = [claim for claim in claims if len(claim.page) <= options.characters]
    halves = {half: [c for c in claims if in_half(c, half)] for half in ("choose", "report")}
    halves = {half: of_half[: options.limit] for half, of_half in halves.items()}
    chooses = halves["choose"]
    shown = halves[options.half]
    print(f"{len(shown)} claims, {sum(c.supported for c in shown)} supported ({options.half})")

    for judge in options.judge or JUDGES:
        asked = chooses if options.half == "choose" else [*chooses, *shown]
        verdicts = ask_judge(judge, asked, options)
        threshold = choose_threshold(*arrange(chooses, verdicts))
        scores, labels = arrange(shown, verdicts)
        low, high = resample(scores, labels, threshold)
        area = area_under_curve(scores, labels.astype(np.float64))
        shipped = balance(scores, labels, SHIPPED_THRESHOLD)
        print(
            f"{judge}: balanced accuracy {balance(scores, labels, threshold):.1%}"
            f" [{low:.1%}, {high:.1%}] from {threshold:.3g} on; AUC {area.value:.2f}"
            f" [{area.interval.low:.2f}, {area.interval.high:.2f}]; {shipped:.1%} from"
            f" {SHIPPED_THRESHOLD} on; scored {len(scores)} of {len(shown)};"
            f" a claim {verdicts.tokens:,.0f} tokens, {verdicts.seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
