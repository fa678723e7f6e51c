"""How often recall puts the right memory first, by the setting `rerank` and other weights.

    python benchmarks/recall_ranking.py --store build/ranking.db [--part choose|report]
        [--locomo FOLDER] [--embedder local/bge-small] [--rerank auto off cross]

Sets of questions, each asked of a collection of its own:

- people: the questions of `recall_people.txt` about ten people, of whom five choose settings and
  five report; facts that changed were superseded;
- facts: with --facts, the facts that LoCoMo's authors took from the turns, alone and with the turn
  behind each;
- languages: ten questions in each of six languages, of `recall_languages.txt`, with --languages;
- labels: 20 queries that are nothing but a name or a number, which one fact of many holds;
- locomo: questions of LoCoMo (Maharana and others, Evaluating Very Long-Term Conversational Memory
  of LLM Agents, ACL 2024) over the turns of its dialogues, one collection for each file NAME.json
  of the folder, without questions that are adversarial or have no evidence. The conversations 26,
  30 and 41 choose, 42 and 43 report.

For each set and each setting: how often a right memory is the first, which share of the right ones
is among the first five, the mean reciprocal rank of the best of them among the first 50, how often
an outdated fact is among the first five, and milliseconds of CPU time a question, the embedding
included. The clock is fixed, so that the same store gives the same figures. No model but the
embedder and those that rank is asked.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memory_place import NAMES, Place, open_place, run_benchmark
from sitting import describe_machine
from textevolve import Settings
from textevolve.agents.resources import CollectionSpec
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.ranking import with_tokens
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, NewMemory, Origin, Supersede
from textevolve.store import kinds
from textevolve.texts.dates import read_moment

DAY = 24 * 3600.0
NOW = 1_760_000_000.0
"""2025-10-09: when the facts are asked for, and all that LoCoMo tells of is older."""
ADVERSARIAL = 5
"""A category of LoCoMo: nothing in the dialogue answers it."""
CONVERSATIONS = {"choose": ("26", "30", "41"), "report": ("42", "43")}
PERSONS = {"choose": range(5), "report": range(5, 10)}
"""What chooses settings, and what reports on them: fixed before the first run."""
PEOPLE = Path(__file__).with_name("recall_people.txt")
TRANSLATIONS = Path(__file__).with_name("recall_languages.txt")
LANGUAGES = ("German", "French", "Russian", "Chinese", "Arabic", "Thai")
LABELS = (
    ("The parcel for the {name} depot has the number {number}.", "{number}"),
    ("The {name} warehouse is let to the firm of Osk.", "{name}"),
)

NOWHERE = Origin()


@dataclass(frozen=True)
class Row:
    """A memory. `key`: tells which it is; `earlier`: the fact that it replaced; empty if none.
    `evidence`: the turn behind it."""

    key: str
    text: str
    created: float
    earlier: str = ""
    origin: Origin = NOWHERE
    evidence: str = ""


@dataclass(frozen=True)
class QuestionSet:
    """Questions, each with the keys of the memories that answer it, and all memories."""

    name: str
    rows: Sequence[Row]
    questions: Sequence[tuple[str, frozenset[str]]]


def read_people(chosen: range, path: Path = PEOPLE, name: str = "people") -> QuestionSet:
    """Read all facts of a file, and the questions of the sections at these positions."""
    rng = random.Random(29)
    rows: list[Row] = []
    questions: list[tuple[str, frozenset[str]]] = []
    section = -1
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("["):
            section += 1
        if not line or line[0] in "#[":
            continue
        facts, _, question = line.partition(" | ")
        earlier, _, text = facts.rpartition(" -> ")
        rows.append(Row(str(number), text, NOW - rng.uniform(1, 400) * DAY, earlier))
        if question and section in chosen:
            questions.append((question, frozenset([str(number)])))
    return QuestionSet(name, rows, questions)


def make_labels() -> QuestionSet:
    rng = random.Random(30)
    numbers = rng.sample(range(1000, 9999), len(NAMES))
    rows: list[Row] = []
    questions: list[tuple[str, frozenset[str]]] = []
    for place, (name, number) in enumerate(zip(NAMES[:30], numbers, strict=False)):
        sentence, query = LABELS[place % 2]
        text = sentence.format(name=name, number=number)
        rows.append(Row(name, text, NOW - rng.uniform(1, 400) * DAY))
        if place < 20:
            query = query.format(name=name, number=number)
            questions.append((query, frozenset([name])))
    return QuestionSet("labels", rows, questions)


def read_locomo(path: Path) -> QuestionSet:
    dialogue: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows: list[Row] = []
    number = 1
    while (turns := dialogue.get(f"session_{number}")) is not None:
        created = read_moment(dialogue[f"session_{number}_date_time"]).timestamp()
        for place, turn in enumerate(turns, 1):
            image = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{image}"
            origin = Origin(f"session {number}", place, turn["speaker"])
            rows.append(Row(turn["dia_id"], text, created, origin=origin))
        number += 1
    keys = {row.key for row in rows}
    questions: list[tuple[str, frozenset[str]]] = []
    for question in dialogue["qa"]:
        evidence = re.findall(r"D\d+:\d+", " ".join(question.get("evidence") or ()))
        right = keys & set(evidence)
        if question["category"] != ADVERSARIAL and right:
            questions.append((question["question"], frozenset(right)))
    return QuestionSet(f"locomo-{path.stem}", rows, questions)


def read_facts(path: Path, has_turns: bool) -> QuestionSet:
    """Read the facts that LoCoMo's authors took from the turns, each with its turn if `has_turns`.
    A fact is right if its turn is evidence."""
    dialogue: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    turns = {row.key: row for row in read_locomo(path).rows}
    rows: list[Row] = []
    facts: dict[str, set[str]] = {}
    for name, observed in dialogue.items():
        if not name.endswith("_observation"):
            continue
        for text, source in (fact for stated in observed.values() for fact in stated):
            for id in re.findall(r"D\d+:\d+", str(source)):
                if id in turns:
                    key = f"{id} {len(rows)}"
                    evidence = turns[id].text if has_turns else ""
                    rows.append(Row(key, text, turns[id].created, evidence=evidence))
                    facts.setdefault(id, set()).add(key)
    questions: list[tuple[str, frozenset[str]]] = []
    for question, evidence in read_locomo(path).questions:
        right = {key for id in evidence for key in facts.get(id, ())}
        if right:
            questions.append((question, frozenset(right)))
    return QuestionSet(f"facts-{path.stem}-{int(has_turns)}", rows, questions)


async def fill(place: Place, questions: QuestionSet) -> None:
    """Keep the memories of a set, unless an earlier run has done so."""
    namespace = place.bench.settings.namespace
    resources = place.bench.resources
    resources.ensure_namespace(namespace)
    collections = resources.read(kinds.list_all, kinds.COLLECTIONS, namespace)
    if any(collection.name == questions.name for collection in collections):
        return
    earlier = [row for row in questions.rows if row.earlier]
    texts = [row.earlier for row in earlier] + [row.text for row in questions.rows]
    vectors = await embed_texts(place.bench.model_of(place.embedder), texts)
    spec = CollectionSpec(name=questions.name, embedder=place.embedder, dimension=len(vectors[0]))
    resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)
    store = resources.memories(namespace)
    collection = await store.collection(questions.name)
    old = [
        Add(NewMemory(text=row.earlier, embedding=vector, created=row.created - 9 * DAY))
        for row, vector in zip(earlier, vectors, strict=False)
    ]
    applied = await store.apply(
        questions.name, await with_tokens(place.bench.embed, collection, old)
    )
    replaced = dict(zip((row.key for row in earlier), applied.ids, strict=True))
    changes: list[Add | Supersede] = []
    for row, vector in zip(questions.rows, vectors[len(earlier) :], strict=True):
        # The reason tells which memory it is, as it has no influence on recall.
        memory = NewMemory(
            text=row.text, embedding=vector, created=row.created, origin=row.origin, reason=row.key
        )
        old_id = replaced.get(row.key)
        changes.append(Add(memory) if old_id is None else Supersede((old_id,), memory))
    evidence = [row.evidence for row in questions.rows]
    with_vectors = await with_tokens(place.bench.embed, collection, changes, evidence)
    await store.apply(questions.name, with_vectors)


@dataclass
class Figures:
    asked: int = 0
    first: int = 0
    in_five: float = 0.0
    reciprocal: float = 0.0
    outdated: int = 0
    cpu: float = 0.0

    def add(self, ranked: Sequence[str], right: frozenset[str]) -> None:
        ranks = [place for place, key in enumerate(ranked, 1) if key in right]
        self.asked += 1
        self.first += ranks[:1] == [1]
        self.in_five += sum(rank <= 5 for rank in ranks) / len(right)
        self.reciprocal += 1 / ranks[0] if ranks else 0.0


async def ask(place: Place, questions: QuestionSet, rerank: str, figures: Figures) -> None:
    embed = replace(place.bench.embed, rerank=rerank)
    store = place.bench.resources.memories(place.bench.settings.namespace)
    settings = RecallSettings(collections=(questions.name,), limit=50)
    await recall_memories(store, embed, settings, "What opens the models?", now=NOW)
    for question, right in questions.questions:
        began = time.process_time()
        answer = await recall_memories(store, embed, settings, question, now=NOW)
        figures.cpu += time.process_time() - began
        records = {r.id: r for r in await store.get([memory.id for memory in answer.memories])}
        ranked = [records[memory.id] for memory in answer.memories]
        figures.add([record.reason for record in ranked], right)
        figures.outdated += any(record.closed is not None for record in ranked[:5])


async def compare(options: argparse.Namespace, settings: Settings) -> None:
    groups = {"people": [read_people(PERSONS[options.part])], "labels": [make_labels()]}
    if options.languages:
        groups = {
            language: [read_people(range(place, place + 1), TRANSLATIONS, "languages")]
            for place, language in enumerate(LANGUAGES)
        }
    elif options.facts:
        files = [options.locomo / f"{name}.json" for name in CONVERSATIONS[options.part]]
        groups = {
            name: [read_facts(file, has_turns) for file in files]
            for name, has_turns in (("facts", False), ("facts with turns", True))
        }
    elif options.locomo:
        files = [options.locomo / f"{name}.json" for name in CONVERSATIONS[options.part]]
        groups["locomo"] = [read_locomo(file) for file in files]
    async with open_place(settings, options.embedder) as place:
        print("| set | rerank | questions | recall@5 | first | MRR | outdated in 5 | ms CPU |")
        print("|---|---|---|---|---|---|---|---|")
        for group, sets in groups.items():
            for questions in sets:
                await fill(place, questions)
            for rerank in options.rerank:
                figures = Figures()
                for questions in sets:
                    await ask(place, questions, rerank, figures)
                n = figures.asked
                shares = (figures.in_five / n, figures.first / n, figures.reciprocal / n)
                cells = [f"{share:.3f}" for share in shares]
                outdated = f"{figures.outdated / n:.2f}"
                milliseconds = f"{figures.cpu / n * 1000:.1f}"
                print("|", " | ".join((group, rerank, str(n), *cells, outdated, milliseconds)), "|")
    print(f"{options.embedder}, {options.part}; {describe_machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--embedder", default="local/bge-small")
    parser.add_argument("--part", choices=("choose", "report"), default="choose")
    parser.add_argument("--rerank", nargs="+", default=["off", "auto"])
    parser.add_argument("--locomo", type=Path, help="a folder with the files of LoCoMo")
    parser.add_argument("--languages", action="store_true", help="six languages alone")
    parser.add_argument("--facts", action="store_true", help="LoCoMo's facts in place of turns")
    parser.add_argument("--store", type=Path, required=True, help="a file; it is kept")
    run_benchmark(parser, compare)


if __name__ == "__main__":
    main()
