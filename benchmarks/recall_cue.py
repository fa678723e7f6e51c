"""How much the candidates of a debate weigh in what is searched for, beside its input.

    python benchmarks/recall_cue.py --store build/recall_cue.db [--embedder local/bge-small]
        [--facts 186] [--cases 60]

A case asks for one private fact that stands only in memory; all is made from templates and a seed.
Told is for how many cases the fact they need is the first of those recalled, and is among the first
five, once with the case's question as the input and once with one that names nothing. No model but
the embedder is asked.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memory_place import NAMES, open_place, run_benchmark
from sitting import describe_machine
from textevolve import Cue, Settings
from textevolve.memory import recall
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Origin

VAGUE = "Which of the two statements is true?"
WEIGHTS = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (0.0, 1.0))
WANTED = RecallSettings(collections=("all",), limit=5)
Value = Callable[[random.Random], str]


@dataclass(frozen=True)
class Kind:
    """A kind of fact: a question, a sentence that answers it, and how its values are drawn."""

    question: str
    sentence: str
    value: Value


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(15, 20)}:{rng.choice(('10', '20', '40', '50'))}"


def _one_of(*values: str) -> Value:
    return lambda rng: rng.choice(values)


KINDS = (
    Kind("At what time does the {} depot close?", "The {} depot closes at {}.", _clock),
    Kind(
        "How much is the yearly fee of the {} library?",
        "The yearly fee of the {} library is {} crowns.",
        lambda rng: str(rng.randrange(20, 95, 5)),
    ),
    Kind(
        "From which pier does the {} ferry leave?",
        "The {} ferry leaves from pier {}.",
        lambda rng: str(rng.randint(2, 19)),
    ),
    Kind(
        "Who holds the key of the {} warehouse?",
        "The key of the {} warehouse is held by {}.",
        _one_of("Ingrid Sole", "Pavel Hart", "Noor Aziz", "Tomas Blum", "Lena Frost", "Omar Reed"),
    ),
    Kind(
        "What colour is the door of the {} clinic?",
        "The door of the {} clinic is {}.",
        _one_of("green", "yellow", "blue", "red", "white", "grey"),
    ),
    Kind(
        "On which day is the {} workshop closed?",
        "The {} workshop is closed on {}.",
        _one_of("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays"),
    ),
)


@dataclass(frozen=True)
class Fact:
    """`text`: what a memory says; `question`: what it answers; `candidates`: what it says and the
    same sentence with another value, the right one first in half of the cases."""

    text: str
    question: str
    candidates: tuple[str, ...]


def make_facts(number: int, seed: int) -> list[Fact]:
    """The first `number` of at most 192 facts, each about a place of its own."""
    rng = random.Random(seed)
    places = [(name, kind) for name in NAMES for kind in KINDS]
    rng.shuffle(places)
    facts: list[Fact] = []
    for n, (name, kind) in enumerate(places[:number]):
        value = wrong = kind.value(rng)
        while wrong == value:
            wrong = kind.value(rng)
        sentences = [kind.sentence.format(name, each) for each in (value, wrong)]
        ordered = tuple(sentences if n % 2 == 0 else reversed(sentences))
        facts.append(Fact(sentences[0], kind.question.format(name), ordered))
    return facts


async def compare(arguments: argparse.Namespace, settings: Settings) -> None:
    facts = make_facts(arguments.facts, seed=3)
    async with open_place(settings, arguments.embedder) as place:
        await place.fill("all", [(entry.text, 0.5) for entry in facts], Origin("handbook"))
        store = place.bench.resources.memories(settings.namespace)
        print("input, candidates   own question: first, in five   vague question: first, in five")
        for weights in WEIGHTS:
            recall.INPUT_WEIGHT, recall.CANDIDATES_WEIGHT = weights
            figures: list[int] = []
            for vague in (False, True):
                ranks: list[int] = []
                for fact in facts[: arguments.cases]:
                    cue = Cue("", (), VAGUE if vague else fact.question, fact.candidates)
                    recalled = await recall_memories(store, place.bench.embed, WANTED, cue)
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
