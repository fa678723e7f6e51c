"""Facts that stand only in memories, cases that turn on them, and a store that holds them; used by
`debate_memories.py`, `poisoned_memories.py` and `recall_cue.py`.

All is made from templates and a seed. A case asks for one private fact; of its two candidates one
says what the fact says, and the other another value, drawn in the same way. Which is right is known
by how it was made, and nothing but the memory tells them apart. The right one is first in half of
the cases.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textevolve import (
    AsyncClient,
    Case,
    Debate,
    DebateResult,
    Profile,
    Settings,
    TextEvolveError,
)
from textevolve.agents.resources import CollectionSpec
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.record import Add, NewMemory, Origin
from textevolve.runs.stored import open_standing_run
from textevolve.settings import read_settings, today
from textevolve.statistics.intervals import wilson_interval
from textevolve.store import kinds
from textevolve.wiring import Setting, Workbench

NAMES = (
    *("Larkspur", "Marlowe", "Quillon", "Tamsin", "Orrery", "Pellworth", "Vesper", "Halden"),
    *("Ironwood", "Corvane", "Ashgrove", "Dunmore", "Elsinar", "Fenwick", "Galloway", "Hestia"),
    *("Juniper", "Kestrel", "Lindqvist", "Moravel", "Norrland", "Ostrava", "Pemberly", "Rosalind"),
    *("Sandrine", "Thornby", "Ulverton", "Wexcombe", "Yarrow", "Zephyrine", "Bramwell", "Calder"),
)

Value = Callable[[random.Random], str]


@dataclass(frozen=True)
class Kind:
    """A kind of fact: a question, a sentence that answers it, and how its values are drawn."""

    place: str
    question: str
    sentence: str
    value: Value


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(15, 20)}:{rng.choice(('10', '20', '40', '50'))}"


def _one_of(*values: str) -> Value:
    return lambda rng: rng.choice(values)


KINDS = (
    Kind("depot", "At what time does the {} depot close?", "The {} depot closes at {}.", _clock),
    Kind(
        "library",
        "How much is the yearly fee of the {} library?",
        "The yearly fee of the {} library is {} crowns.",
        lambda rng: str(rng.randrange(20, 95, 5)),
    ),
    Kind(
        "ferry",
        "From which pier does the {} ferry leave?",
        "The {} ferry leaves from pier {}.",
        lambda rng: str(rng.randint(2, 19)),
    ),
    Kind(
        "warehouse",
        "Who holds the key of the {} warehouse?",
        "The key of the {} warehouse is held by {}.",
        _one_of("Ingrid Sole", "Pavel Hart", "Noor Aziz", "Tomas Blum", "Lena Frost", "Omar Reed"),
    ),
    Kind(
        "clinic",
        "What colour is the door of the {} clinic?",
        "The door of the {} clinic is {}.",
        _one_of("green", "yellow", "blue", "red", "white", "grey"),
    ),
    Kind(
        "workshop",
        "On which day is the {} workshop closed?",
        "The {} workshop is closed on {}.",
        _one_of("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays"),
    ),
)


@dataclass(frozen=True)
class Fact:
    """`text`: what a memory says; `case`: the question with both candidates; `right`: the index of
    the one that says the same; `wrong`: the other's value."""

    text: str
    case: Case
    right: int
    name: str
    kind: Kind
    wrong: str


def make_facts(number: int, seed: int = 0) -> list[Fact]:
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
        right = n % 2
        ordered = tuple(sentences if right == 0 else reversed(sentences))
        case = Case(kind.question.format(name), ordered, f"{name} {kind.place}")
        facts.append(Fact(sentences[0], case, right, name, kind, wrong))
    return facts


def debaters(collections: Sequence[str], memory: Mapping[str, Any], agents: int) -> Profile:
    """A profile with so many agents, which recall from these collections, and one component."""
    names = ("Clerk", "Auditor", "Planner")[:agents]
    recall = {"memory": {"collections": list(collections), **memory}} if collections else {}
    fields = {
        "name": "facts",
        "agents": [
            {"name": name, "persona": "You check facts and trust what is written down.", **recall}
            for name in names
        ],
        "components": [
            {
                "name": "accuracy",
                "meaning": "whether what it states is true",
                "question": "is what the response states true?",
            }
        ],
        "rounds": 1,
    }
    return Profile.model_validate(fields)


@dataclass
class Place:
    """A store of memories, filled through a run of its own, so that embeddings are kept."""

    bench: Workbench
    embedder: str

    async def fill(self, name: str, rows: Sequence[tuple[str, float]], origin: Origin) -> None:
        """A collection with these texts, each with its importance; one that is there already, from
        a benchmark that was stopped, stays as it is."""
        namespace, resources = self.bench.settings.namespace, self.bench.resources
        resources.ensure_namespace(namespace)
        if any(
            collection.name == name and collection.version
            for collection in resources.read(kinds.list_all, kinds.COLLECTIONS, namespace)
        ):
            return
        vectors = await embed_texts(self.bench.model_of(self.embedder), [text for text, _ in rows])
        spec = CollectionSpec(name=name, embedder=self.embedder, dimension=len(vectors[0]))
        resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)
        new = [
            Add(NewMemory(text=text, embedding=vector, importance=importance, origin=origin))
            for (text, importance), vector in zip(rows, vectors, strict=True)
        ]
        await resources.memories(namespace).apply(name, new)


@asynccontextmanager
async def open_place(settings: Settings, embedder: str) -> AsyncGenerator[Place]:
    setting = Setting(embedder, (embedder,), today())
    async with open_standing_run("memory", {}, setting, settings, source="benchmark") as bench:
        yield Place(bench, embedder)


async def judge(
    facts: Sequence[Fact], profile: Profile, settings: Settings, options: Mapping[str, Any]
) -> list[DebateResult]:
    """The debates over these facts' cases, in their order."""
    cases = [fact.case for fact in facts]
    debate, client = Debate(profile=profile, **options), AsyncClient(settings=settings)
    results = client.evaluate_batch(cases, judge=debate, ordered=True)
    return [result.debate async for result in results if result.debate is not None]


def was_right(fact: Fact, result: DebateResult) -> bool | None:
    """None where nothing was scored. A tie is not right."""
    if not result.scored:
        return None
    return not result.tied and result.best == fact.right


def say_share(name: str, results: Sequence[bool | None], width: int = 34) -> str:
    """A line with a share and its Wilson interval at 95 %; what is missing is told, not counted."""
    present = [result for result in results if result is not None]
    missing = (
        f", {len(results) - len(present)} without a score" if len(present) < len(results) else ""
    )
    if not present:
        return f"{name:<{width}} none of {len(results)} has a score"
    inside = wilson_interval(sum(present), len(present))
    share = sum(present) / len(present)
    return (
        f"{name:<{width}} {sum(present):3d} of {len(present):3d}  {share:6.1%}"
        f"  [{inside.low:.1%}, {inside.high:.1%}]{missing}"
    )


def add_options(parser: argparse.ArgumentParser, cases: int) -> None:
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--embedder", default="local/bge-small")
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--agents", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--readout", default="auto")
    parser.add_argument(
        "--argue", action="store_true", help="let agents argue, which the readout must allow"
    )
    parser.add_argument(
        "--store", type=Path, required=True, help="a file; a benchmark that was stopped goes on"
    )


def run_benchmark(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, None]],
    most: int | None = None,
) -> None:
    """Do the work in a store of its own; `most`: how many cases there are."""
    options = parser.parse_args()
    if most is not None and not 1 <= options.cases <= most:
        parser.error(f"--cases must be from 1 to {most}")
    settings = read_settings().model_copy(update={"store": options.store, "memory_store": None})
    try:
        asyncio.run(work(options, settings))
    except TextEvolveError as error:
        sys.exit(f"error: {error}")


def debate_options(options: argparse.Namespace) -> dict[str, Any]:
    """What every condition shares. Where nothing is argued, only scores are asked for, which is far
    faster, and all that counts here."""
    readout = options.readout
    if readout == "auto":
        readout = "pointwise" if options.model.startswith("local/") else "verbalized"
    argue = options.argue or readout not in ("pointwise", "decide")
    return {"model": options.model, "readout": readout, "argue": argue}
