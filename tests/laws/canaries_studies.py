"""A small run of each kind of study with canaries in all that it reads.

The recipes are those of all laws (`studies.py`), with words added in places that the run needs, and
with models that are named after what they do: `tested`, `judge`, `referee` (a judge that reads
references), `editor`, `user`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import laws.studies as plain
from laws.canaries_world import Host, canary, row_canary
from laws.studies import RECIPES, Recipe, Rows
from textevolve.llm.testing import Answer

COLUMNS: Mapping[str, str] = {
    "label": canary("label"),
    "reference": canary("reference"),
    "context": canary("passage"),
    "label_ann": canary("label of a person"),
    "group": canary("group"),
    "note": canary("unread column"),
}
"""Columns of rows that are judged, each with its secret's word."""
OF_ROWS = ("label", "reference", "passage", "label of a person", "group", "unread column")
OF_PAIRS = ("reference", "passage", "group", "unread column")
ELSEWHERE_KEPT = ("memory of another collection", "memory of another namespace")
DISTRUSTED = "distrusted memory"
QUESTION = canary("question")


@dataclass(frozen=True)
class Exposure:
    """A recipe with canaries.

    Attributes:
        recipe: What is run.
        secrets: The secrets whose words it holds, as the table of the law names them.
        reader: A model that must read the word `question`, or None where no model is asked: if it
            does not, the run shows nothing.
        rows_apart: Whether each request may hold the words of one row only.
    """

    recipe: Recipe
    secrets: tuple[str, ...] = ()
    reader: str | None = "judge"
    rows_apart: bool = False


def _planted(rows: Rows, column: str, names: tuple[str, ...] = tuple(COLUMNS)) -> Rows:
    """Return rows with the question's and the row's word in a column, and further columns."""
    further = {name: COLUMNS[name] for name in names}
    return [
        {**row, column: f"{row[column]} {row_canary(number % 20)} {QUESTION}", **further}
        for number, row in enumerate(rows)
    ]


def _stories(rows: Rows) -> Rows:
    """Return rows of sums with a label that is a canary, and a column for the prompt."""
    return [
        {
            "id": f"{canary('id')}{number}",
            "n": row["n"],
            "tale": f"{row_canary(number)} {QUESTION}",
            "sum": f"{canary('label')} {row['sum']}",
            "reference": canary("reference"),
            "note": canary("unread column"),
        }
        for number, row in enumerate(rows)
    ]


STORY = "What is {n} and {n} more?\n{tale}\n"
PAIRED = ("reference", "context", "note")


def _pairs(kind: str, **fields: Any) -> Exposure:
    """Return a run of a kind that measures judges on labelled pairs."""
    rows = RECIPES[kind].files["items.jsonl"]
    assert not isinstance(rows, str)
    planted = _planted(rows, "input", PAIRED)
    for number, row in enumerate(planted):
        row["group"] = f"{canary('group')} {number // 2}"
    recipe = RECIPES[kind].changed(model="own/judge", **fields).with_file("items.jsonl", planted)
    return Exposure(recipe, OF_PAIRS, rows_apart=True)


def write_memory_users() -> str:
    """Return two users of the recorded data set with a session each, and a canary in all that only
    the judge of memories may see."""
    user = json.loads(plain.write_memory_users())
    lines: list[str] = []
    for number in range(2):
        copied = json.loads(json.dumps(user))
        copied["uuid"] = f"user-{number}"
        for session in copied["sessions"]:
            _plant_session(session, row_canary(number))
        lines.append(json.dumps(copied) + "\n")
    return "".join(lines)


def _plant_session(session: dict[str, Any], word: str) -> None:
    for turn in session["dialogue"]:
        turn["content"] += f" {word}"
    for point in session["memory_points"]:
        point["memory_content"] += f" {canary('gold memory')}"
    for question in session["questions"]:
        question["question"] += f" {word} {QUESTION}"
        question["answer"] += f" {canary('gold answer')}"
        question["evidence"] = [{"memory_content": canary("gold evidence")}]


def serve_memories(host: Host) -> None:
    """Let a host be a memory system, which keeps what users say."""
    fields: dict[str, list[str]] = {}

    def add(body: str) -> Answer:
        session = json.loads(body)
        texts = [turn["content"] for turn in session["dialogue"] if turn["role"] == "user"]
        fields.setdefault(session["user"], []).extend(texts)
        return Answer(body=json.dumps({"memories": texts[:2]}).encode())

    def search(body: str) -> Answer:
        query = json.loads(body)
        return Answer(body=json.dumps({"memories": fields[query["user"]][-2:]}).encode())

    host.replies |= {"/add": add, "/search": search}


DIALOGUES: Rows = [
    {
        "id": row["id"],
        "turns": [{"role": "system", "content": f"Be kind. {canary('system message')}"}]
        + [{**turn, "content": f"{turn['content']} {QUESTION}"} for turn in row["turns"]],
    }
    for row in plain.DIALOGUES
]
ELSEWHERE = (
    ("agents", "namespaces", "create", "acme"),
    ("memories", "collections", "create", "acme/chats", *plain.EMBEDDER),
    ("memories", "collections", "create", "secrets", *plain.EMBEDDER),
    ("memories", "add", "acme/chats", f"Ann drinks {canary(ELSEWHERE_KEPT[1])}."),
    ("memories", "add", "secrets", f"Ann drinks {canary(ELSEWHERE_KEPT[0])}."),
)
"""Memories that a run on `chats` of the namespace `default` must not see."""


def _memories(kind: str, *secrets: str, **fields: Any) -> Exposure:
    """Return a run of a kind that works on memories of an agent."""
    recipe = RECIPES[kind].changed(model="own/judge", **fields)
    doubtful = f"Ann wants {canary(DISTRUSTED)}."
    distrust = ("memories", "add", "chats", doubtful, "--trust", "0.1")
    before = (*recipe.before[:4], *ELSEWHERE, distrust, *recipe.before[4:])
    files = {**recipe.files, "dialogues.jsonl": DIALOGUES}
    return Exposure(Recipe(recipe.spec, files, before), (*ELSEWHERE_KEPT, *secrets))


DOCUMENT = "# {name}\n\nThe wards close at nine. {word} " + QUESTION + "\n"
CHECKED = plain.CHECKS.replace("kind: mine", f"kind: {canary('kind of a check')}")
PLANTED = ("label", "reference", "unread column", "id")
CHECKS_OF_ROW = [
    f"not: contains: {canary('check of a row')}",
    f"rubric: It names {canary('rubric of a row')}.",
]
EXPOSED: Mapping[str, Exposure] = {
    "evaluate": Exposure(
        RECIPES["evaluate"]
        .changed(model="own/judge", judge=["probe", "checks"])
        .with_file(
            "cases.jsonl",
            [{**row, "checks": CHECKS_OF_ROW} for row in _planted(plain.TEXTS, "input")],
        ),
        (*OF_ROWS, "check of a row", "rubric of a row"),
        rows_apart=True,
    ),
    "compare": Exposure(
        RECIPES["compare"]
        .changed(model="own/referee", models=["own/tested"], judge=["reference", "checks"])
        .changed(prompts={canary("name of a variant"): STORY})
        .with_file(
            "rows.jsonl", [{**row, "checks": CHECKS_OF_ROW} for row in _stories(plain.SUMS)]
        ),
        (*PLANTED, "name of a variant", "check of a row", "rubric of a row"),
        "tested",
        rows_apart=True,
    ),
    "compare-quants": Exposure(
        RECIPES["compare-quants"]
        .changed(original="own/tested", quants=["own/tested-small"], prompts={"plain": STORY})
        .with_file("rows.jsonl", _stories(plain.SUMS)),
        ("label", "reference", "unread column", "id"),
        "tested",
        rows_apart=True,
    ),
    "calibrate": Exposure(
        RECIPES["calibrate"]
        .changed(model="own/tested", editor="own/editor")
        .with_file("template.txt", STORY)
        .with_file("values.jsonl", _stories(plain.MANY_SUMS)),
        ("label", "reference", "unread column", "id"),
        "tested",
    ),
    "chain": Exposure(
        RECIPES["chain"]
        .changed(model="own/tested")
        .with_file("rows.jsonl", _stories(plain.SUMS))
        .with_file(
            "twice.yaml",
            plain.CHAIN.replace("integer}", "integer, tale: text}").replace(
                "more?", "more? {tale}"
            ),
        ),
        ("label", "reference", "unread column", "id"),
        "tested",
        rows_apart=True,
    ),
    "agreement": _pairs("agreement"),
    "ablation": _pairs("ablation"),
    "escalation": _pairs("escalation"),
    "fit": _pairs("fit"),
    "robustness": Exposure(
        RECIPES["robustness"]
        .changed(model="own/judge")
        .with_file("checks.yaml", CHECKED.replace("even?", f"even? {QUESTION}")),
        ("kind of a check",),
    ),
    "rates": Exposure(
        RECIPES["rates"].with_file(
            "labelled.jsonl", [{**row, **COLUMNS} for row in plain.VERDICT_LABELS]
        ),
        OF_ROWS,
        None,
    ),
    "nodes": Exposure(
        RECIPES["nodes"]
        .changed(model="own/judge")
        .with_file(
            "trace.jsonl",
            [
                {
                    **row,
                    "label": canary("label"),
                    "reference": canary("reference"),
                    "user_id": canary("id"),
                    "note": canary("unread column"),
                    "input": {"text": f"Explain tides. {row_canary(number // 2)} {QUESTION}"},
                }
                for number, row in enumerate(plain.TRACE)
            ],
        ),
        ("label", "reference", "id", "unread column"),
        rows_apart=True,
    ),
    "memory-eval": Exposure(
        RECIPES["memory-eval"]
        .changed(model="own/memory-judge", answer_model="own/tested", system="SYSTEM")
        .with_file("data.jsonl", write_memory_users()),
        ("gold memory", "gold answer", "gold evidence"),
        "tested",
        rows_apart=True,
    ),
    "optimize": Exposure(
        RECIPES["optimize"]
        .changed(task=f"Say what moves the sea. {QUESTION}", model="own/tested")
        .changed(judge_model="own/judge", second_judge="probe+rubric=second.md")
        .with_file("second.md", f"Is it clear, {canary('rubric of the second judge')}?"),
        ("rubric of the second judge",),
        "tested",
    ),
    "innovate": Exposure(
        RECIPES["innovate"].changed(
            input=f"Tell a child of the sea. {QUESTION}", model="own/tested"
        ),
        reader="tested",
    ),
    "guide": Exposure(
        RECIPES["guide"].changed(question=f"Why is the sky blue? {QUESTION}", model="own/tested"),
        reader="tested",
    ),
    "profile": Exposure(
        RECIPES["profile"].changed(subject=f"Replies of a shop. {QUESTION}", model="own/tested"),
        reader="tested",
    ),
    "summarize": Exposure(
        RECIPES["summarize"]
        .changed(model="own/tested")
        .with_file("text.txt", f"{plain.SEA} {QUESTION}"),
        reader="tested",
    ),
    "create-memories": _memories("create-memories", "system message"),
    "integrate-memories": _memories(
        "integrate-memories", "system message", DISTRUSTED, min_trust=0.5
    ),
    "read-corpus": Exposure(
        Recipe(
            {**RECIPES["read-corpus"].spec, "files": ["a.md", "b.md"], "role": "a nurse"}
            | {"model": "own/judge"},
            {
                "a.md": DOCUMENT.format(name="A", word=row_canary(0)),
                "b.md": DOCUMENT.format(name="B", word=row_canary(1)),
            },
            (*RECIPES["read-corpus"].before, *ELSEWHERE),
        ),
        ELSEWHERE_KEPT,
    ),
    "evolve-persona": _memories("evolve-persona", "system message", DISTRUSTED),
}
"""The exposure of each kind of study."""
