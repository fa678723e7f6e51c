"""How much the candidates of a debate weigh in what is searched for, beside its input.

    python benchmarks/recall_cue.py --store build/recall_cue.db [--embedder local/minilm]
        [--facts 186] [--cases 60]

Cases and facts are those of `debate_memories.py`. Told is for how many cases the fact they need is
the first of those recalled, and is among the first five, once with the case's question as the input
and once with one that names nothing ("Which of the two statements is true?"). No model but the
embedder is asked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from memory_facts import make_facts, open_place, run_benchmark, say_machine
from textevolve import Cue, Settings
from textevolve.memory import recall
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Origin
from textevolve.memory_snapshots import embed_with

VAGUE = "Which of the two statements is true?"
WEIGHTS = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (0.0, 1.0))
WANTED = RecallSettings(collections=("all",), limit=5)


async def compare(wanted: argparse.Namespace, settings: Settings) -> None:
    facts = make_facts(wanted.facts, seed=3)
    async with open_place(settings, wanted.embedder) as place:
        await place.fill("all", [(one.text, 0.5) for one in facts], Origin("handbook"))
        embed = embed_with(place.bench.model_of)
        store = place.bench.resources.memories(settings.namespace)
        print("input, candidates   own question: first, in five   vague question: first, in five")
        for weights in WEIGHTS:
            recall.INPUT_WEIGHT, recall.CANDIDATES_WEIGHT = weights
            told: list[int] = []
            for vague in (False, True):
                ranks: list[int] = []
                for fact in facts[: wanted.cases]:
                    cue = Cue("", (), VAGUE if vague else fact.case.input, fact.case.candidates)
                    found = await recall_memories(store, embed, WANTED, cue)
                    texts = [memory.text for memory in found.memories]
                    ranks += [texts.index(fact.text)] if fact.text in texts else []
                told += [ranks.count(0), len(ranks)]
            own, five, vague_first, vague_five = told
            print(
                f"{weights[0]:g}, {weights[1]:<16g} {own:21d} {five:8d} {vague_first:23d}"
                f" {vague_five:8d}"
            )
    print(f"of {wanted.cases} cases, {wanted.facts} facts; {say_machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--embedder", default="local/minilm")
    parser.add_argument("--facts", type=int, default=186)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--store", type=Path, required=True, help="a file that is not there yet")
    run_benchmark(parser, compare)


if __name__ == "__main__":
    main()
