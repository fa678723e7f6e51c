"""Does a model tell what a new note replaces from what stands beside it? Two ways of asking.

    python benchmarks/memory_decisions.py [--model local/qwen2.5-coder-1.5b] [--updates 12]
                                          [--others 16] [--ways questions,structured]
                                          [--store FILE]

Facts of made users (`memory-eval synth`): an update must be found to replace its original among the
nearest notes, and any other fact must replace none. Asked as `memories create` asks: by yes / no
questions about each note, and in one structured answer about all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path

from kept_run import keep_run, open_run
from textevolve.errors import AnswerError
from textevolve.llm.catalogue import least_similarity
from textevolve.llm.embeddings import embed_texts
from textevolve.llm.model import Model
from textevolve.memory.creation import ComparedNote, compare_notes
from textevolve.memory.extraction import CreationSettings
from textevolve.memory_eval.synthesis import synthesise
from textevolve.settings import read_settings
from textevolve.store.repository import open_store

EMBEDDER = "local/minilm"


def draw_cases(updates: int, others: int) -> list[tuple[str, list[str], str | None]]:
    """A new fact, what was known before, and what it replaces, if it does."""
    cases: list[tuple[str, list[str], str | None]] = []
    for user in synthesise(8, 4, 11):
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


async def measure(
    way: str, model: Model, cases: list[tuple[str, list[ComparedNote], str | None]]
) -> None:
    settings = CreationSettings.model_validate({"compare": way})
    right = {True: 0, False: 0}
    began = time.monotonic()
    for new, near, original in cases:
        try:
            relation, at, reason = await compare_notes(model, settings, ComparedNote(new), near)
        except AnswerError:
            continue
        print(f"{way}: {new} | {near[at].text}: {relation}, {reason}", file=sys.stderr)
        replaced = near[at].text if relation == "replaces" else None
        right[original is not None] += replaced == original
    total = {kind: sum((case[2] is not None) is kind for case in cases) for kind in right}
    seconds = (time.monotonic() - began) / len(cases)
    print(
        f"| {way} | {right[True]} of {total[True]} | {right[False]} of {total[False]}"
        f" | {seconds:.1f} |",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--others", type=int, default=16)
    parser.add_argument("--ways", default="questions,structured")
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.platform()}, Python {sys.version.split()[0]}")
    path = options.store or Path(tempfile.mkdtemp()) / "store.db"
    settings = read_settings(store=str(path))
    with open_store(path) as store:
        parameters = {"benchmark": "memory_decisions"}
        run = await keep_run(store, settings, options.model, parameters, [])
        async with open_run(store, run, settings) as bench:
            embedder = bench.model_of(EMBEDDER)
            drawn = draw_cases(options.updates, options.others)
            cases = [(new, await find_near(embedder, new, notes), old) for new, notes, old in drawn]
            cases = [case for case in cases if case[1]]
            print(f"{options.model}: {len(cases)} facts with a near note, of {len(drawn)}\n")
            print("| asked | updates right | others right | seconds a fact |\n|---|---|---|---|")
            for way in options.ways.split(","):
                await measure(way, bench.model, cases)


if __name__ == "__main__":
    asyncio.run(main())
