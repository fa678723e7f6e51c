"""From which probability on does a new note replace an earlier one, or say nothing new?

    python benchmarks/memory_decisions.py [--model local/qwen2.5-coder-1.5b] [--updates 12]
                                          [--others 16] [--seed 11] [--store FILE]

Facts of made users (`memory-eval synth`): an update must be found to replace its original among the
nearest notes, and any other fact must replace none. Asked as `memories create` asks: by yes / no
questions about each note. Beside the made users, pairs of notes on one theme are asked about
(`decision_pairs.yaml`), of which the later one changes the earlier one, says the same, or stands
beside it. Told are, for each least probability, the changes that are found and the other notes that
would be closed wrongly, and the repetitions that are found and the other notes that would be
dropped wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

import yaml

from kept_run import keep_run, open_run
from sitting import describe_machine
from textevolve.llm.catalogue import least_similarity
from textevolve.llm.embeddings import embed_texts
from textevolve.llm.model import Model
from textevolve.memory.creation import KNOWN, REPLACED, ComparedNote, probability
from textevolve.memory.extraction import CreationSettings
from textevolve.memory_eval.synthesis import synthesise
from textevolve.settings import read_settings
from textevolve.store.repository import open_store

EMBEDDER = "local/minilm"
MARGINS = (0.45, 0.48, 0.49, 0.5, 0.51, 0.52, 0.53, 0.55, 0.6)
PAIRS: dict[str, list[tuple[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("decision_pairs.yaml").read_text(encoding="utf-8")
)
"""Pairs of an earlier note and a later one, by what the later one does to it."""


def draw_cases(updates: int, others: int, seed: int) -> list[tuple[str, list[str], str | None]]:
    """A new fact, what was known before, and what it replaces, if it does."""
    cases: list[tuple[str, list[str], str | None]] = []
    for user in synthesise(8, 4, seed):
        notes: list[str] = []
        for session in user.sessions:
            for point in session.points:
                if point.source == "interference":
                    continue
                original = point.originals[0] if point.is_update else None
                cases.append((point.content, list(notes), original))
                notes = [note for note in notes if note != original] + [point.content]
    random.Random(0).shuffle(cases)
    cases = [case for case in cases if case[1]]
    changed = [case for case in cases if case[2]][:updates]
    return changed + [case for case in cases if not case[2]][:others]


async def find_near(embedder: Model, new: str, notes: list[str]) -> list[ComparedNote]:
    settings = CreationSettings()
    vector, *vectors = await embed_texts(embedder, [new, *notes])
    like = sorted(((float(v @ vector), text) for v, text in zip(vectors, notes, strict=True)))[::-1]
    near = [ComparedNote(text) for number, text in like if number >= least_similarity(EMBEDDER)]
    return near[: settings.neighbours]


def tell_margins(name: str, decisions: list[tuple[str, float, str | None]]) -> None:
    """One row for each least probability. A decision: the most probable note, its probability, and
    the note that is replaced indeed, if one is."""
    changed = [decision for decision in decisions if decision[2] is not None]
    others = [decision for decision in decisions if decision[2] is None]
    for least in MARGINS:
        right = sum(note == original for note, p, original in changed if p >= least)
        wrong = sum(p >= least for _, p, _ in others)
        wrong_note = sum(note != original for note, p, original in changed if p >= least)
        cells = (
            f"{right} of {len(changed)}",
            f"{wrong} of {len(others)}",
            f"{wrong_note} of {len(changed)}",
        )
        print(f"| {name} | {least:g} |", " | ".join(cells), "|", flush=True)


async def measure(model: Model, cases: list[tuple[str, list[ComparedNote], str | None]]) -> None:
    pairs = [(new, old, True) for old, new in PAIRS["changes"]]
    pairs += [(new, old, False) for old, new in PAIRS["additions"]]
    one_note = [(new, [ComparedNote(old)], old if is_new else None) for new, old, is_new in pairs]
    known: dict[bool, list[float]] = {True: [], False: []}
    for kind in ("repetitions", "changes", "additions"):
        for old, new in PAIRS[kind]:
            share = await probability(model, KNOWN, ComparedNote(new), ComparedNote(old))
            known[kind == "repetitions"].append(share)
            print(f"known {share:.3f} {new} | {old}", file=sys.stderr)
    print("| from P(known) | repetitions found | others dropped |")
    print("|---|---|---|")
    for least in MARGINS:
        counts = [
            f"{sum(p >= least for p in shares)} of {len(shares)}" for shares in known.values()
        ]
        print(f"| {least:g} |", " | ".join(counts), "|", flush=True)

    print("| facts | from P | changes found | others closed | wrong note closed |")
    print("|---|---|---|---|---|")
    for name, part in (("pairs on one theme", one_note), ("made users", cases)):
        decisions: list[tuple[str, float, str | None]] = []
        for new, near, original in part:
            shares = [await probability(model, REPLACED, ComparedNote(new), note) for note in near]
            most = max(range(len(near)), key=shares.__getitem__)
            kind = "other" if original is None else "change"
            print(f"{kind} {shares[most]:.3f} {new} | {near[most].text}", file=sys.stderr)
            decisions.append((near[most].text, shares[most], original))
        tell_margins(name, decisions)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--others", type=int, default=16)
    parser.add_argument("--seed", type=int, default=11, help="of the made users")
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    print(describe_machine())
    path = options.store or Path(tempfile.mkdtemp()) / "store.db"
    settings = read_settings(store=str(path))
    with open_store(path) as store:
        parameters = {"benchmark": "memory_decisions"}
        run = await keep_run(store, settings, options.model, parameters, [])
        async with open_run(store, run, settings) as bench:
            embedder = bench.model_of(EMBEDDER)
            drawn = draw_cases(options.updates, options.others, options.seed)
            cases = [(new, await find_near(embedder, new, notes), old) for new, notes, old in drawn]
            cases = [case for case in cases if case[1]]
            print(f"{options.model}: {len(cases)} facts with a near note, of {len(drawn)}\n")
            await measure(bench.model, cases)


if __name__ == "__main__":
    asyncio.run(main())
