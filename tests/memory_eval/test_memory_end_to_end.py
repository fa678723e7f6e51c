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
    found = re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n?\[\[/", text, re.DOTALL)[1]
    return "" if found == "(nothing)" else found


MISLEADING = ("Let me guess.", "Imagine this", "Another user")


def answer(question, memories):
    """What the memories say, the last one of each matter; nothing that was not meant."""
    lines = [line for line in memories.splitlines() if not any(m in line for m in MISLEADING)]
    values = []
    for _, slot_fact, slot_question, _ in synthesis._SLOTS:
        asked = re.escape(slot_question).replace(r"\{name\}", r"(\w+ \w+)")
        found = re.search(asked, question)
        if found:
            fact = re.escape(slot_fact).replace(r"\{name\}", found[1])
            said = re.findall(fact.replace(r"\{value\}", r"(\w+)"), "\n".join(lines))
            values.append((found.start(), said[-1] if said else None))
    if not values or any(value is None for _, value in values):
        return "unknown"
    return " and ".join(value for _, value in sorted(values))


def judge(body, number):
    """Labels by comparing strings, which is perfect on made data."""
    said = "".join(message["content"] for message in body["messages"])
    if "Answer the question from the memories alone" in said:
        return answer(part(said, "question"), part(said, "memories"))
    if "[[" in said and "kept memory]]" in said:
        memory, gold = part(said, "kept memory"), part(said, "gold memories")
        supported = memory in gold or memory in part(said, "conversation")
        included = memory in gold or any(same_matter(memory, g) for g in gold.splitlines())
        return json.dumps(
            {
                "reason": "compared",
                "accuracy_score": 2 * supported,
                "is_included_in_golden_memories": included,
            }
        )
    if "original memory]]" in said:
        expected, original = part(said, "expected memory"), part(said, "original memory")
        memories = part(said, "memories")
        label = "Omission"
        if expected in memories and memories.find(original) < memories.find(expected):
            label = "Correct"
        elif any(same_matter(expected, new) for new in memories.splitlines() if new != original):
            label = "Hallucination"  # the original left as it was is none: nothing was made up
        return json.dumps({"reason": "compared", "evaluation_result": label})
    if "reference answer]]" in said:
        given, reference = part(said, "answer to be checked"), part(said, "reference answer")
        wrong = "Omission" if given == "unknown" else "Hallucination"
        label = "Correct" if given == reference else wrong
        return json.dumps({"reasoning": "compared", "evaluation_result": label})
    kept = part(said, "expected memory") in part(said, "memories").splitlines()
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
    found = Expected()
    for user in users:
        held, seen = [], 0
        for session in user.sessions:
            for point in session.points:
                if point.source != "interference" and not point.is_update:
                    seen += 1
                    if seen % 3:
                        held.append(point.content)
                        found.kept += 1
                        found.kept_weight += point.importance
            held.append("")
            if session.is_generated_qa:
                continue
            found.extracted += 1
            for point in session.points:
                if point.source == "interference":
                    found.traps += 1
                elif point.is_update and any(same_matter(point.content, h) for h in held):
                    found.updates += 1
                    near = {h for h in held if same_matter(point.content, h)}
                    found.left += near <= set(point.originals)
                else:  # an update of which nothing is found is judged as a point
                    found.points += 1
                    found.weight += point.importance
            for question in session.questions:
                found.questions += 1
                said = answer(question.question, "\n".join(held[-20:]))
                found.right += said == question.answer
                found.unknown += said == "unknown" != question.answer
    found.extracted += found.kept
    return found


def test_figures_find_exactly_the_faults_that_were_planted(cli, data, server, model):
    server.script = judge
    ended = cli(
        "memory-eval", "data.jsonl", "-s", "toy.py:Toy", "-m", model, "--json", "-o", "out.jsonl"
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    figures = {name: pair["all"]["value"] for name, pair in found["overall"].items()}
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
    assert found["whole"]
    assert found["coverage"]["accuracy"]["asked"] == expected.extracted
    records = [json.loads(line) for line in (data_file("out.jsonl"))]
    assert len(records) == sum(one["asked"] for one in found["coverage"].values())
    made_up = [r for r in records if r["task"] == "accuracy" and r["verdict"]["label"] == 0]
    assert all("boat number" in r["texts"]["memory"] for r in made_up)
    assert len(made_up) == expected.extracted - expected.kept


def data_file(path):
    with open(path, encoding="utf-8") as file:
        yield from file
