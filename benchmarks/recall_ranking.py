"""How often recall puts the right memory first, with the default weights and with other ones.

    python benchmarks/recall_ranking.py --store build/recall_ranking.db [--locomo FOLDER]
        [--embedder local/minilm] [--questions 200]

Three sets of questions, each asked of a collection of its own:

- facts: 60 questions in other words than the facts, which are 20 to 400 days old and lie among 60
  remarks of the last week; importance is drawn for all of them;
- labels: 20 queries that are nothing but a name or a number, which one fact of many holds;
- locomo: questions of LoCoMo (Maharana and others, Evaluating Very Long-Term Conversational Memory
  of LLM Agents, ACL 2024) over the turns of its dialogues, one collection for each file NAME.json
  of the folder, of each the first questions that are neither adversarial nor without evidence.

For each set and each weighting: how often a right memory is the first, which share of the right
ones is among the first five, and the mean reciprocal rank of the best of them among the first 50.
The clock is fixed, so that the same store gives the same figures. No model but the embedder is
asked.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_facts import NAMES, Place, open_place, run_benchmark, say_machine
from textevolve import Settings
from textevolve.agents.resources import CollectionSpec
from textevolve.llm.embeddings import embed_texts
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, NewMemory, Origin
from textevolve.memory.sameness import names_in
from textevolve.memory_snapshots import embed_with
from textevolve.store import kinds
from textevolve.texts.dates import parse_time

DAY = 24 * 3600.0
NOW = 1_760_000_000.0
"""2025-10-09: when the made facts are asked for, and all that LoCoMo tells of is older."""
ADVERSARIAL = 5
"""A category of LoCoMo: nothing in the dialogue answers it."""
WEIGHTS: dict[str, dict[str, float | bool]] = {
    "default": {},
    "1/1/1": {"relevance": 1, "importance": 1, "recency": 1},
    "1/.2/.2": {"relevance": 1, "importance": 0.2, "recency": 0.2},
}
"""By what is printed: relevance / importance / recency."""

FACTS = (
    ("{} is allergic to walnuts.", "Which food could make {} ill?"),
    ("{} grew up on a farm near Odense.", "Where did {} spend the childhood?"),
    ("{} works as a night nurse in a clinic.", "What is the job of {}?"),
    ("{} plays the cello in a quartet.", "Does {} make music?"),
    ("{} has two sons, Pelle and Arvid.", "How many children has {}?"),
    ("{} is afraid of flying.", "Why does {} take the train to far countries?"),
    ("{} drives an old red Volvo.", "What car has {}?"),
    ("{} eats no meat.", "What should not be on the plate when {} comes to dinner?"),
    ("{} studied chemistry in Uppsala.", "What was {} taught at the university?"),
    ("{} broke the left knee while skiing.", "Which injury did {} have in the snow?"),
    ("{} speaks Portuguese fluently.", "In which foreign tongue can one talk to {}?"),
    ("{} married Kim in a lighthouse.", "How did the wedding of {} go?"),
    ("{} keeps bees behind the house.", "Which animals does {} look after?"),
    ("{} sleeps badly when the moon is full.", "What disturbs the nights of {}?"),
    ("{} owes the bank forty thousand crowns.", "Does {} have debts?"),
    ("{} wants to open a bakery one day.", "What does {} dream of doing in future?"),
    ("{} lost the father early.", "Which parent of {} died?"),
    ("{} swims in the lake each morning.", "How does {} keep fit?"),
    ("{} collects stamps of the colonies.", "What is the hobby of {}?"),
    ("{} votes for the Greens.", "Which party does {} support?"),
    ("{} takes pills against high blood pressure.", "Which medicine does {} need?"),
    ("{} lives on the third floor without a lift.", "Is the flat of {} hard to reach?"),
    ("{} cannot tell red from green.", "What is wrong with the eyes of {}?"),
    ("{} is the chair of the chess club.", "Which office does {} hold?"),
    ("{} was born in February.", "When is the birthday of {}?"),
    ("{} reads crime novels only.", "What kind of books would {} like as a present?"),
    ("{} gave up smoking.", "Does {} want a cigarette?"),
    ("{} has a twin sister in Chile.", "Who of the family of {} lives abroad?"),
    ("{} hates the smell of coffee.", "Which drink should one not offer to {}?"),
    ("{} learned to sail from an uncle.", "Who taught {} to handle a boat?"),
)
PEOPLE = ("Ann", "Bruno")
REMARKS = (
    "{} said that the weather was nice.",
    "{} asked for the time.",
    "{} thanked for the help.",
    "{} was a little tired on {day}.",
    "{} had pasta for lunch on {day}.",
    "{} liked the picture of {day}.",
    "{} was late for the call on {day}.",
    "{} wished a good weekend.",
    "{} laughed about a joke.",
    "{} went for a walk on {day}.",
)
WEEK = ("Monday", "Wednesday", "Friday")
LABELS = (
    ("The parcel for the {name} depot has the number {number}.", "{number}"),
    ("The {name} warehouse is let to the firm of Osk.", "{name}"),
)


@dataclass(frozen=True)
class Row:
    """A memory, by a key that tells which it is."""

    key: str
    text: str
    created: float
    importance: float = 0.5


@dataclass(frozen=True)
class QuestionSet:
    """Questions, each with the keys of the memories that answer it, and all memories."""

    name: str
    rows: Sequence[Row]
    questions: Sequence[tuple[str, frozenset[str]]]


def make_facts() -> QuestionSet:
    rng = random.Random(29)
    rows: list[Row] = []
    questions: list[tuple[str, frozenset[str]]] = []
    for person in PEOPLE:
        for number, (fact, question) in enumerate(FACTS):
            key, age = f"{person} {number}", rng.uniform(20, 400)
            rows.append(Row(key, fact.format(person), NOW - age * DAY, rng.uniform(0.3, 0.9)))
            questions.append((question.format(person), frozenset([key])))
        for number in range(30):
            text = REMARKS[number % len(REMARKS)].format(person, day=WEEK[number % len(WEEK)])
            age = rng.uniform(0, 7)
            rows.append(
                Row(f"{person} said {number}", text, NOW - age * DAY, rng.uniform(0.1, 0.9))
            )
    return QuestionSet("facts", rows, questions)


def make_labels() -> QuestionSet:
    rng = random.Random(30)
    numbers = rng.sample(range(1000, 9999), len(NAMES))
    rows: list[Row] = []
    questions: list[tuple[str, frozenset[str]]] = []
    for place, (name, number) in enumerate(zip(NAMES[:30], numbers, strict=False)):
        sentence, query = LABELS[place % 2]
        text = sentence.format(name=name, number=number)
        rows.append(Row(name, text, NOW - rng.uniform(1, 400) * DAY, rng.uniform(0.1, 0.9)))
        if place < 20:
            query = query.format(name=name, number=number)
            questions.append((query, frozenset([name])))
    return QuestionSet("labels", rows, questions)


def read_locomo(path: Path, most: int) -> QuestionSet:
    dialogue: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows: list[Row] = []
    number = 1
    while (turns := dialogue.get(f"session_{number}")) is not None:
        created = parse_time(dialogue[f"session_{number}_date_time"])
        assert created is not None
        rows += [Row(t["dia_id"], f"{t['speaker']}: {t['text']}", created) for t in turns]
        number += 1
    keys = {row.key for row in rows}
    questions = [
        (question["question"], frozenset(question["evidence"]) & keys)
        for question in dialogue["qa"]
        if question["category"] != ADVERSARIAL and keys & set(question["evidence"])
    ]
    return QuestionSet(f"locomo-{path.stem}", rows, questions[:most])


async def fill(place: Place, questions: QuestionSet) -> None:
    """Keep the memories of a set, unless an earlier run has done so."""
    namespace, resources = place.bench.settings.namespace, place.bench.resources
    resources.ensure_namespace(namespace)
    if any(
        collection.name == questions.name
        for collection in resources.read(kinds.list_all, kinds.COLLECTIONS, namespace)
    ):
        return
    texts = [row.text for row in questions.rows]
    vectors = await embed_texts(place.bench.model_of(place.embedder), texts)
    spec = CollectionSpec(name=questions.name, embedder=place.embedder, dimension=len(vectors[0]))
    resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)
    new = [
        Add(
            NewMemory(
                text=row.text,
                embedding=vector,
                importance=row.importance,
                created=row.created,
                origin=Origin(row.key),
                entities=names_in(row.text, openings=()),
            )
        )
        for row, vector in zip(questions.rows, vectors, strict=True)
    ]
    await resources.memories(namespace).apply(questions.name, new)


@dataclass
class Figures:
    asked: int = 0
    first: int = 0
    in_five: float = 0.0
    in_ten: float = 0.0
    reciprocal: float = 0.0

    def add(self, ranked: Sequence[str], right: frozenset[str]) -> None:
        ranks = [place for place, key in enumerate(ranked, 1) if key in right]
        self.asked += 1
        self.first += ranks[:1] == [1]
        self.in_five += sum(rank <= 5 for rank in ranks) / len(right)
        self.in_ten += sum(rank <= 10 for rank in ranks) / len(right)
        self.reciprocal += 1 / ranks[0] if ranks else 0.0


async def ask(
    place: Place, questions: QuestionSet, weights: dict[str, float | bool], figures: Figures
) -> None:
    embed = embed_with(place.bench.model_of)
    store = place.bench.resources.memories(place.bench.settings.namespace)
    fields: dict[str, Any] = {"collections": (questions.name,), "limit": 50, **weights}
    settings = RecallSettings(**fields)
    for question, right in questions.questions:
        answer = await recall_memories(store, embed, settings, question, now=NOW)
        records = await store.get([memory.id for memory in answer.memories])
        figures.add([record.origin.source for record in records], right)


async def compare(options: argparse.Namespace, settings: Settings) -> None:
    groups = {"facts": [make_facts()], "labels": [make_labels()]}
    if options.locomo:
        files = sorted(options.locomo.glob("*.json"))
        groups["locomo"] = [read_locomo(file, options.questions) for file in files]
    async with open_place(settings, options.embedder) as place:
        print(f"{'set':8s} {'weights':9s} questions  recall@1  recall@5  recall@10   MRR")
        for group, sets in groups.items():
            for name, weights in WEIGHTS.items():
                figures = Figures()
                for questions in sets:
                    await fill(place, questions)
                    await ask(place, questions, weights, figures)
                n = figures.asked
                print(
                    f"{group:8s} {name:9s} {n:9d}  {figures.first / n:8.3f}"
                    f"  {figures.in_five / n:8.3f}  {figures.in_ten / n:9.3f}"
                    f"  {figures.reciprocal / n:.3f}",
                    flush=True,
                )
    print(f"{options.embedder}; {say_machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--embedder", default="local/minilm")
    parser.add_argument("--locomo", type=Path, help="a folder with the files of LoCoMo")
    parser.add_argument("--questions", type=int, default=200, help="of each file, at most")
    parser.add_argument("--store", type=Path, required=True, help="a file; it is kept")
    run_benchmark(parser, compare)


if __name__ == "__main__":
    main()
