"""The whole way: made users, systems with known faults, a judge that is never wrong. The figures
have to find exactly the faults that were planted."""

import json
import re
from dataclasses import dataclass

import pytest

from textevolve.memory_eval import synthesis
from textevolve.memory_eval.dataset import user_to_line
from textevolve.memory_eval.synthesis import synthesise

USERS, SESSIONS = 3, 6

TOY = '''
"""Forgets every third fact, makes up one a session, and never updates."""

from textevolve.memory_eval.dataset import read_users
from textevolve.memory_eval.dataset import DialogueTurn


def tokens(text):
    return text.split()


def same_matter(one, other):
    a, b = tokens(one), tokens(other)
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1


class Toy:
    def __init__(self):
        self.points = {}
        for user in read_users("data.jsonl"):
            for session in user.sessions:
                self.points[session.dialogue] = (session.index, session.points)
        self.held, self.seen = {}, {}

    def add(self, dialogue, user):
        index, points = self.points[tuple(dialogue)]
        kept = []
        for point in points:
            if point.source == "interference" or point.is_update:
                continue
            self.seen[user] = self.seen.get(user, 0) + 1
            if self.seen[user] % 3:
                kept.append(point.content)
        kept.append(f"Somebody owns the boat number {index}.")
        self.held.setdefault(user, []).extend(kept)
        return kept

    def search(self, query, user, limit):
        held = self.held[user]
        if query.endswith("?"):
            return held[-limit:]
        return [memory for memory in held if memory == query or same_matter(memory, query)]
'''


def same_matter(one, other):
    a, b = one.split(), other.split()
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1


def part(text, name):
    hits = re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n?\[\[/", text, re.DOTALL)[1]
    return "" if hits == "(nothing)" else hits


MISLEADING = ("Let me guess.", "Imagine this", "Another user")


def answer(question, memories):
    """What the memories say, the last one of each matter; nothing that was not meant."""
    lines = [line for line in memories.splitlines() if not any(m in line for m in MISLEADING)]
    values = []
    for _, slot_fact, slot_question, _ in synthesis._SLOTS:
        prompt = re.escape(slot_question).replace(r"\{name\}", r"(\w+ \w+)")
        match = re.search(prompt, question)
        if match:
            fact = re.escape(slot_fact).replace(r"\{name\}", match[1])
            spoken_answer = re.findall(fact.replace(r"\{value\}", r"(\w+)"), "\n".join(lines))
            values.append((match.start(), spoken_answer[-1] if spoken_answer else None))
    if not values or any(value is None for _, value in values):
        return "unknown"
    return " and ".join(value for _, value in sorted(values))


def judge(body, number):
    """Labels by comparing strings, which is perfect on made data."""
    spoken_answer = "".join(message["content"] for message in body["messages"])
    if "Answer the question from the memories alone" in spoken_answer:
        return answer(part(spoken_answer, "question"), part(spoken_answer, "memories"))
    if "[[" in spoken_answer and "kept memory]]" in spoken_answer:
        memory, gold = part(spoken_answer, "kept memory"), part(spoken_answer, "gold memories")
        supported = memory in gold or memory in part(spoken_answer, "conversation")
        included = memory in gold or any(same_matter(memory, g) for g in gold.splitlines())
        return json.dumps(
            {
                "reason": "compared",
                "accuracy_score": 2 * supported,
                "is_included_in_golden_memories": included,
            }
        )
    if "original memory]]" in spoken_answer:
        expected, original = (
            part(spoken_answer, "expected memory"),
            part(spoken_answer, "original memory"),
        )
        memories = part(spoken_answer, "memories")
        label = "Omission"
        if expected in memories and memories.find(original) < memories.find(expected):
            label = "Correct"
        elif any(same_matter(expected, new) for new in memories.splitlines() if new != original):
            label = "Hallucination"  # the original left as it was is none: nothing was made up
        return json.dumps({"reason": "compared", "evaluation_result": label})
    if "reference answer]]" in spoken_answer:
        given, reference = (
            part(spoken_answer, "answer to be checked"),
            part(spoken_answer, "reference answer"),
        )
        wrong = "Omission" if given == "unknown" else "Hallucination"
        label = "Correct" if given == reference else wrong
        return json.dumps({"reasoning": "compared", "evaluation_result": label})
    kept = part(spoken_answer, "expected memory") in part(spoken_answer, "memories").splitlines()
    return json.dumps({"reasoning": "compared", "score": 2 * kept})


@pytest.fixture
def data(home):
    users = list(synthesise(USERS, SESSIONS, seed=4))
    (home / "data.jsonl").write_text("".join(user_to_line(user) + "\n" for user in users))
    (home / "toy.py").write_text(TOY)
    return users


@dataclass
class Expected:
    """Counted by walking over the data once more, with the faults known."""

    points: int = 0
    kept: int = 0
    weight: float = 0.0
    kept_weight: float = 0.0
    traps: int = 0
    extracted: int = 0
    updates: int = 0
    left: int = 0
    questions: int = 0
    right: int = 0
    unknown: int = 0


def count(users):
    expected = Expected()
    for user in users:
        held, seen = [], 0
        for session in user.sessions:
            for point in session.points:
                if point.source != "interference" and not point.is_update:
                    seen += 1
                    if seen % 3:
                        held.append(point.content)
                        expected.kept += 1
                        expected.kept_weight += point.importance
            held.append("")
            if session.is_generated_qa:
                continue
            expected.extracted += 1
            for point in session.points:
                if point.source == "interference":
                    expected.traps += 1
                elif point.is_update and any(same_matter(point.content, h) for h in held):
                    expected.updates += 1
                    near = {h for h in held if same_matter(point.content, h)}
                    expected.left += near <= set(point.originals)
                else:  # an update of which nothing is found is judged as a point
                    expected.points += 1
                    expected.weight += point.importance
            for question in session.questions:
                expected.questions += 1
                spoken_answer = answer(question.question, "\n".join(held[-20:]))
                expected.right += spoken_answer == question.answer
                expected.unknown += spoken_answer == "unknown" != question.answer
    expected.extracted += expected.kept
    return expected


def test_figures_find_exactly_the_faults_that_were_planted(cli, data, server, model):
    server.script = judge
    outcome = cli(
        "memory-eval", "data.jsonl", "-s", "toy.py:Toy", "-m", model, "--json", "-o", "out.jsonl"
    )
    assert outcome.code == 0, outcome.err
    payload = json.loads(outcome.out)
    figures = {name: pair["all"]["value"] for name, pair in payload["overall"].items()}
    expected = count(data)
    assert expected.updates >= expected.left > 3
    assert 0 < expected.right < expected.questions
    precision, recall = 1.0, expected.kept / expected.points
    assert figures == pytest.approx(
        {
            "recall": recall,
            "weighted_recall": expected.kept_weight / expected.weight,
            "fmr": 1.0,
            "target_precision": precision,
            "accuracy": expected.kept / expected.extracted,
            "f1": 2 * precision * recall / (precision + recall),
            "update_correct": 0.0,
            # It never updates. What it holds is the original as it was, or what a judge
            # that is shown the original alone cannot tell from something made up.
            "update_hallucination": 1 - expected.left / expected.updates,
            "update_omission": expected.left / expected.updates,
            "update_other": 0.0,
            "question_correct": expected.right / expected.questions,
            "question_omission": expected.unknown / expected.questions,
            "question_hallucination": 1 - (expected.right + expected.unknown) / expected.questions,
        },
        abs=1e-9,
    )
    assert payload["whole"]
    assert payload["coverage"]["accuracy"]["asked"] == expected.extracted
    records = [json.loads(line) for line in (data_file("out.jsonl"))]
    assert len(records) == sum(value["asked"] for value in payload["coverage"].values())
    made_up = [r for r in records if r["task"] == "accuracy" and r["verdict"]["label"] == 0]
    assert all("boat number" in r["texts"]["memory"] for r in made_up)
    assert len(made_up) == expected.extracted - expected.kept


def data_file(path):
    with open(path, encoding="utf-8") as file:
        yield from file
