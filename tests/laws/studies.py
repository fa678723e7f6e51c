"""A small run of each kind of study: the files that it reads, its specification, what must be there
before it.

Every law that runs studies takes them from here, through `textevolve run file`, so that a change of
one influence is a change of one value of a dictionary. What the scripted server answers is drawn
from the texts of each case (`recorded/scripted.py`).
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from laws.judges import JudgeRecipe
from recorded.scripted import answer as recorded_answer
from textevolve.llm.testing import Answer

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """A run of one kind of study.

    Attributes:
        spec: The specification, as a study file has it, without `kind` and `model`.
        files: The content of each file; rows are written as JSON lines.
        before: The commands that make what the study works on. MODEL in them, and in the
            specification, stands for the scripted server's model.
    """

    spec: Mapping[str, Any]
    files: Mapping[str, str | Rows] = field(default_factory=dict)
    before: Sequence[Sequence[str]] = ()

    def changed(self, **fields: Any) -> "Recipe":
        """Return the recipe with other values of its specification."""
        return replace(self, spec={**self.spec, **fields})

    def with_file(self, name: str, content: str | Rows) -> "Recipe":
        """Return the recipe with another content of one file."""
        return replace(self, files={**self.files, name: content})


TEXTS: Rows = [
    {"id": f"c{n}", "input": f"Question {n}?", "candidates": [f"A good answer {n}.", f"Text {n}."]}
    for n in range(3)
]
SUMS: Rows = [{"id": f"r{n}", "n": n, "sum": str(2 * n)} for n in range(4)]
MANY_SUMS: Rows = [{"n": n, "sum": str(2 * n)} for n in range(20)]
PAIRS: Rows = [
    {
        "id": f"i{n}",
        "input": f"Question {n}?",
        "group": f"q{n // 2}",
        "candidates": [f"A good answer, number {n}.", f"Answer {n} is poor."],
        "winner": 1 + n % 2,
    }
    for n in range(6)
]
FIT_PAIRS: Rows = [
    {
        "id": f"i{n}",
        "input": f"Question {n}: why?",
        "output_1": f"A good answer {n}.",
        "output_2": f"An answer {n} {('good', 'bad')[n % 3 > 0]} longer.",
        "label": (1, 2, 1, 1)[n % 4],
    }
    for n in range(24)
]
VERDICTS: Rows = [{"id": f"t{n}", "judged": n % 3 > 0} for n in range(30)]
VERDICT_LABELS: Rows = [{"id": f"t{n}", "judged": n % 3 > 0, "human": n % 4 > 0} for n in range(16)]
TRACE: Rows = [
    {
        "episode": episode,
        "step": step,
        "node": ("plan", "write")[step],
        "input": {"text": "Explain tides."},
        "output": {"text": f"The moon pulls on the sea, {episode} {step}.", "confidence": 0.6},
        "seconds": 0.4,
        "tokens": 30,
    }
    for episode in ("a", "b")
    for step in range(2)
]
DIALOGUES: Rows = [
    {
        "id": "d1",
        "turns": [
            {"role": "user", "content": "FACT: Ann drinks green tea."},
            {"role": "assistant", "content": "Good."},
            {"role": "user", "content": "FACT: Ben lives in Graz."},
        ],
    },
    {"id": "d2", "turns": [{"role": "user", "content": "FACT: Ann drinks black tea."}]},
]
CHECKS = "".join(
    f"- id: {family}-{n}\n  family: {family}\n  kind: mine\n  input: Is {n} even?\n"
    f"  good: It is a good answer, {family} {n}.\n  bad: It is bad, {family} {n}.\n"
    for family in ("order", "length", "consistency", "content-free")
    for n in range(3)
)
ECHO = """\
class Echo:
    def __init__(self):
        self.held = {}

    def add(self, dialogue, user):
        texts = [turn.content for turn in dialogue if turn.role == "user"]
        self.held.setdefault(user, []).extend(texts)
        return texts

    def search(self, query, user, limit):
        return self.held[user][-limit:]
"""
CHAIN = """\
name: twice
inputs: {n: integer}
outputs: [story]
steps:
  - {ask: first, prompt: "What is {n} and {n} more?"}
  - {ask: story, prompt: "Tell a child about {first}."}
"""
HANDBOOK = "# Wards\n\nThe wards close at nine.\n\n# Food\n\nFood is served at six.\n"
SEA = "The sea is deep and wide. " * 300
PROMPT = "What is {n} and {n} more?\n"
SCORES = "scores.csv"
HALUMEM = Path(__file__).parents[1] / "recorded" / "memory.json"

EMBEDDER = ("--embedder", "MODEL-embeddings")
ADA = "You are Ada, a nurse. You speak calmly. You like long answers."
REMEMBERS = ("--memories", "chats", "--insights", "insights")
COLLECTIONS = (
    ("memories", "collections", "create", "chats", *EMBEDDER),
    ("memories", "collections", "create", "docs", "--kind", "semantic", *EMBEDDER),
    ("memories", "collections", "create", "insights", "--kind", "insight", *EMBEDDER),
    ("agents", "create", "ada", "--persona", ADA, "--collection", "chats", *REMEMBERS),
)
REMEMBERED = (
    *COLLECTIONS,
    ("memories", "create", "dialogues.jsonl", "--collection", "chats"),
)


def write_memory_users() -> str:
    """Return one user of the recorded data set of dialogues, with a first session alone."""
    text = json.loads(HALUMEM.read_text(encoding="utf-8"))["files"]["data.jsonl"]
    user = json.loads(text.splitlines()[0])
    user["sessions"] = user["sessions"][:1]
    return json.dumps(user) + "\n"


RECIPES: Mapping[str, Recipe] = {
    "evaluate": Recipe({"cases": "cases.jsonl", "judge": "probe"}, {"cases.jsonl": TEXTS}),
    "compare": Recipe(
        {"prompts": {"plain": PROMPT}, "data": "rows.jsonl", "label": "sum"}
        | {"metric": "exact", "judge": "probe"},
        {"rows.jsonl": SUMS},
    ),
    "compare-quants": Recipe(
        {"original": "MODEL", "quants": ["MODEL-small"], "data": "rows.jsonl"}
        | {"prompts": {"plain": PROMPT}, "label": "sum", "metric": "exact"},
        {"rows.jsonl": SUMS},
    ),
    "calibrate": Recipe(
        {"template": {"file": "template.txt"}, "data": "values.jsonl", "label": "sum"}
        | {"metric": "exact", "strategy": "protegi", "beam": 1, "depth": 1, "successors": 1}
        | {"minibatch": 3},
        {"template.txt": PROMPT, "values.jsonl": MANY_SUMS},
    ),
    "chain": Recipe(
        {"chain": "twice.yaml", "data": "rows.jsonl"}, {"twice.yaml": CHAIN, "rows.jsonl": SUMS}
    ),
    "agreement": Recipe({"items": "items.jsonl", "judge": "probe"}, {"items.jsonl": PAIRS}),
    "ablation": Recipe(
        {"items": "items.jsonl", "judge_option": ["readout=verbalized"], "limit": 2},
        {"items.jsonl": PAIRS},
    ),
    "escalation": Recipe(
        {"items": "items.jsonl", "first": "probe", "then": "single+readout=verbalized"}
        | {"agreement": 0.4, "confidence": 0.6},
        {"items.jsonl": PAIRS},
    ),
    "robustness": Recipe(
        {"judge": "probe", "cases": "checks.yaml", "seeds": 2}, {"checks.yaml": CHECKS}
    ),
    "fit": Recipe({"items": "items.jsonl", "signals": "probe,length"}, {"items.jsonl": FIT_PAIRS}),
    "rates": Recipe(
        {"judged": "judged.jsonl", "labelled": "labelled.jsonl"},
        {"judged.jsonl": VERDICTS, "labelled.jsonl": VERDICT_LABELS},
    ),
    "nodes": Recipe({"trace": "trace.jsonl", "judge": "probe"}, {"trace.jsonl": TRACE}),
    "memory-eval": Recipe(
        {"data": "data.jsonl", "system": "echo.py:Echo"},
        {"data.jsonl": write_memory_users(), "echo.py": ECHO},
    ),
    "optimize": Recipe({"task": "Say what moves the sea.", "judge": "probe"}),
    "innovate": Recipe(
        {"input": "Tell a child of the sea.", "judge": "probe", "rounds": 1}
        | {"outputs": 2, "fresh": 3}
    ),
    "guide": Recipe({"question": "Why is the sky blue?", "candidates": ["The air.", "The sea."]}),
    "profile": Recipe({"subject": "Replies to customers of a shop."}),
    "summarize": Recipe({"files": "text.txt", "budget": 300}, {"text.txt": SEA}),
    "create-memories": Recipe(
        {"data": "dialogues.jsonl", "collection": "chats"},
        {"dialogues.jsonl": DIALOGUES},
        COLLECTIONS,
    ),
    "integrate-memories": Recipe(
        {"agent": "ada", "always": True}, {"dialogues.jsonl": DIALOGUES}, REMEMBERED
    ),
    "read-corpus": Recipe(
        {"files": "handbook.md", "collection": "docs"}, {"handbook.md": HANDBOOK}, COLLECTIONS
    ),
    "evolve-persona": Recipe({"agent": "ada"}, {"dialogues.jsonl": DIALOGUES}, REMEMBERED),
}
WITHOUT_FILE = {
    "assertions": "a test session makes such runs itself, with the fixture `judge` of pytest",
}
"""Kinds that no study file runs, each with the reason."""


def answer(body: Mapping[str, Any], number: int) -> Answer | str | None:
    """Answer as the recordings do; what their script cannot read, as the scripted server does
    without a script."""
    has_parts = any(isinstance(message["content"], list) for message in body["messages"])
    if body.get("grammar") or has_parts:
        return None
    reply = recorded_answer(body, number)
    unreadable = isinstance(reply, Answer) and reply.status == 400
    return None if unreadable else reply


@dataclass
class World:
    """A folder, a scripted server and the command line, in which recipes run.

    The server answers by `script`, which a law may replace by one that misbehaves.
    """

    home: Path
    server: Any
    cli: Callable[..., Any]
    script: Callable[[Mapping[str, Any], int], Any] = answer

    @property
    def model(self) -> str:
        """The server's model, which stands for MODEL in specifications and commands."""
        return f"{self.server.url}#scripted"

    def prepare(self, recipe: Recipe) -> None:
        """Write the files of a recipe and run the commands before it, whose answers are good."""
        for name, content in recipe.files.items():
            lines = content if isinstance(content, str) else write_rows(content)
            (self.home / name).write_text(lines, encoding="utf-8")
        self.server.script = answer
        for command in recipe.before:
            words = [word.replace("MODEL", self.model) for word in command]
            outcome = self.cli(*words, *self._model_option(command))
            assert outcome.code == 0, outcome.err

    def run(self, kind: str, recipe: Recipe, *options: str):
        """Run a prepared recipe through a study file, with further options of the command; return
        how the command ended."""
        spec = {"kind": kind, "model": self.model}
        spec |= json.loads(json.dumps(dict(recipe.spec)).replace("MODEL", self.model))
        (self.home / "study.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        self.server.script = self.script
        return self.cli("run", "file", "study.yaml", *options)

    def judge(self, recipe: JudgeRecipe, *options: str):
        """Judge the row of a judge's recipe on the command line; return how the command ended.
        `read_scores` has the scores then."""
        for name, content in recipe.files.items():
            (self.home / name).write_text(content, encoding="utf-8")
        if recipe.text.endswith(".judge"):
            self.fit_judge(recipe.text)
        self.server.script = self.script
        (self.home / "row.jsonl").write_text(write_rows([recipe.row]), encoding="utf-8")
        judge = recipe.text.replace("MODEL", self.model)
        command = ("evaluate", "row.jsonl", "--judge", judge, "-m", self.model)
        (self.home / SCORES).unlink(missing_ok=True)
        return self.cli(*command, "--seed", "1", "-o", SCORES, *options)

    def read_scores(self) -> list[float | None]:
        """Return the score of each candidate of the row that was judged last, in order; None where
        there is none. The list is empty if the command wrote no scores."""
        path = self.home / SCORES
        if not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return [float(row["score"]) if row["score"] else None for row in csv.DictReader(file)]

    def fit_judge(self, file: str) -> None:
        """Fit a judge to labels and write its file, with answers that are good."""
        fit = RECIPES["fit"]
        self.prepare(fit)
        outcome = self.cli(
            *("judges", "fit", "items.jsonl", "--signals", fit.spec["signals"]),
            *("-o", file, "-m", self.model),
        )
        assert outcome.code == 0, outcome.err

    def _model_option(self, command: Sequence[str]) -> tuple[str, ...]:
        if tuple(command[:2]) == ("memories", "create"):
            return ("-m", self.model)
        return ()


def write_rows(rows: Rows) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
