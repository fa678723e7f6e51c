"""How much the candidates of a debate weigh in what is searched for, beside its input.

    python benchmarks/recall_cue.py --store build/recall_cue.db [--embedder local/bge-small]
        [--facts 186] [--cases 60]

Cases and facts are those of `debate_memories.py`. Told is for how many cases the fact they need is
the first of those recalled, and is among the first five, once with the case's question as the input
and once with one that names nothing ("Which of the two statements is true?"). No model but the
embedder is asked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from memory_facts import make_facts, open_place, run_benchmark
from sitting import describe_machine
from textevolve import Cue, Settings
from textevolve.memory import recall
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Origin

VAGUE = "Which of the two statements is true?"
WEIGHTS = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (0.0, 1.0))
WANTED = RecallSettings(collections=("all",), limit=5)


async def compare(arguments: argparse.Namespace, settings: Settings) -> None:
    facts = make_facts(arguments.facts, seed=3)
    async with open_place(settings, arguments.embedder) as place:
        await place.fill("all", [(entry.text, 0.5) for entry in facts], Origin("handbook"))
        embed = place.bench.embed
        store = place.bench.resources.memories(settings.namespace)
        print("input, candidates   own question: first, in five   vague question: first, in five")
        for weights in WEIGHTS:
            recall.INPUT_WEIGHT, recall.CANDIDATES_WEIGHT = weights
            figures: list[int] = []
            for vague in (False, True):
                ranks: list[int] = []
                for fact in facts[: arguments.cases]:
                    cue = Cue("", (), VAGUE if vague else fact.case.input, fact.case.candidates)
                    recalled = await recall_memories(store, embed, WANTED, cue)
                    texts = [memory.text for memory in recalled.memories]
                    ranks += [texts.index(fact.text)] if fact.text in texts else []
                figures += [ranks.count(0), len(ranks)]
            clear_first, five, vague_first, vague_five = figures
            print(
                f"{weights[0]:g}, {weights[1]:<16g} {clear_first:21d} {five:8d} {vague_first:23d}"
                f" {vague_five:8d}"
            )
    print(f"of {arguments.cases} cases, {arguments.facts} facts; {describe_machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--embedder", default="local/bge-small")
    parser.add_argument("--facts", type=int, default=186)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--store", type=Path, required=True, help="a file that is not there yet")
    run_benchmark(parser, compare)


if __name__ == "__main__":
    main()
