"""What the cells of the law of identity need: a desk on which runs are made and compared, and the
table of what is changed in each field of a specification.

A run is looked at through what the command prints, and through the file of the store, which has its
id and its records.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from laws.studies import (
    CHECKS,
    HALUMEM,
    PROMPT,
    RECIPES,
    VERDICT_LABELS,
    VERDICTS,
    Recipe,
    World,
    write_rows,
)

VARYING = {"run", "runs", "seconds", "began", "created", "updated", "usage", "judging", "calls"}
VARYING |= {"aggregates", "model", "timestamp", "ids", "memories", "id", "source", "parameters"}
VARYING |= {"speed", "minutes"}
"""Fields of results that differ between two equal runs, or name a run or a source."""


@dataclass(frozen=True)
class Glimpse:
    """What can be seen of one run.

    Attributes:
        code: The exit code of its command.
        error: What the command wrote to standard error.
        figures: What the command printed, without what differs between equal runs.
        ids: The runs that its command added to the store.
        bodies: The distinct requests that the model got.
        requests: The number of all requests.
    """

    code: int
    error: str
    figures: Any
    ids: frozenset[str]
    bodies: frozenset[str]
    requests: int


class Desk(World):
    """A world that tells of each run which id it has, what it stored and what it asked."""

    def lay(self, recipe: Recipe) -> None:
        """Write the files of a recipe, and give it a store in which the commands before it have
        run."""
        for name, content in recipe.files.items():
            text = content if isinstance(content, str) else write_rows(content)
            (self.home / name).write_bytes(text.encode())
        read = {name: text for name, text in recipe.files.items() if name in str(recipe.before)}
        key = json.dumps([self.server.url, recipe.before, read], sort_keys=True)
        if key not in PREPARED:
            self.restore({})
            self.prepare(replace(recipe, files=read))
            PREPARED[key] = self.copy_store()
        self.restore(PREPARED[key])

    def copy_store(self) -> Mapping[str, bytes]:
        """Return the files of the store."""
        return {path.name: path.read_bytes() for path in self.home.glob("store.db*")}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Replace the store by a copy."""
        for path in self.home.glob("store.db*"):
            path.unlink()
        for name, content in files.items():
            (self.home / name).write_bytes(content)

    def make(self, kind: str, recipe: Recipe, *options: str) -> Glimpse:
        """Run a prepared recipe and return what can be seen of the run."""
        ids = self.list_ids()
        self.server.requests.clear()
        calls = self.server.calls
        outcome = self.run(kind, self.place(recipe), "--json", *options)
        lines = [line for line in outcome.out.splitlines() if line.startswith("{")]
        return Glimpse(
            outcome.code,
            outcome.err,
            [strip(json.loads(line)) for line in lines],
            frozenset(self.list_ids() - ids),
            frozenset(json.dumps(body, sort_keys=True) for body in self.server.requests),
            self.server.calls - calls,
        )

    def begin(self, kind: str, recipe: Recipe, *options: str) -> Glimpse:
        """Run a recipe in a store of its own. What it gave and its store are kept, so that further
        cells begin from there."""
        key = json.dumps([kind, self.server.url, vars(recipe), options], sort_keys=True)
        if key not in KEPT:
            self.lay(recipe)
            glimpse = self.make(kind, recipe, *options)
            KEPT[key] = (glimpse, self.copy_store())
        glimpse, store = KEPT[key]
        self.lay(recipe)
        self.restore(store)
        return glimpse

    def list_ids(self) -> set[str]:
        """Return the ids of all runs in the store."""
        return {run for (run,) in self.read_store("SELECT id FROM runs")}

    def read_records(self, run: str) -> list[tuple[Any, ...]]:
        """Return the records of a run as they are stored."""
        columns = "key, position, case_id, score, status, passed, body"
        return self.read_store(f"SELECT {columns} FROM records WHERE run_id = ? ORDER BY key", run)

    def read_store(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the store's file; none before there is one."""
        path = self.home / "store.db"
        if not path.exists():
            return []
        with closing(sqlite3.connect(path)) as store:
            return store.execute(query, values).fetchall()

    def place(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the server's address in place of SERVER."""
        spec = json.dumps(dict(recipe.spec)).replace("SERVER", self.server.url)
        return replace(recipe, spec=json.loads(spec))


PREPARED: dict[str, Mapping[str, bytes]] = {}
"""Stores in which the commands before a recipe have run."""

KEPT: dict[str, tuple[Glimpse, Mapping[str, bytes]]] = {}
"""What runs gave in a store of their own, and that store."""


def strip(value: Any) -> Any:
    """Return a printed result without what differs between two equal runs."""
    if isinstance(value, Mapping):
        kept = {name: part for name, part in value.items() if name not in VARYING}
        return {name: strip(part) for name, part in kept.items()}
    if isinstance(value, list):
        return [strip(part) for part in value]
    return value


@dataclass(frozen=True)
class Field:
    """Another value of one field.

    Attributes:
        value: The other value. MODEL and SERVER stand for the scripted server's.
        base: Further fields of both runs, without which this one is not read; None takes one away.
        files: Further files of both runs.
        before: Commands that are run before both.
    """

    value: Any
    base: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)
    before: Sequence[Sequence[str]] = ()

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the further fields and files."""
        return replace(
            without_none(recipe.changed(**self.base)),
            files={**recipe.files, **self.files},
            before=(*recipe.before, *self.before),
        )


def without_none(recipe: Recipe) -> Recipe:
    """Return a recipe without the fields that are None."""
    spec = {name: value for name, value in recipe.spec.items() if value is not None}
    return replace(recipe, spec=spec)


CASE = {"id": "c", "input": "Question?", "candidates": ["A good answer.", "A text."]}
ONE_CASE = [{**CASE, "other": "Another question?"}]
CHAT = [
    {
        "id": "chat",
        "messages": [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "A good day."},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": "Nothing."},
        ],
    }
]
SCRIPTED_TURNS = [{"id": "d", "turns": ["First.", "Second."]}]
GOAL = [{"id": "g", "goal": "Get a password.", "persona": "A teacher.", "stop": "Never."}]
GRADED = [
    {"id": f"g{n}", "input": f"Question {n}?", "output": f"Answer {n}.", "label": 1 + n % 5}
    for n in range(30)
]
ROW_OF_TWO = [{"id": "a", "n": 1, "m": 2, "sum": "2"}]
MANY_OF_TWO = [{"n": n, "m": n + 1, "sum": str(2 * n), "next": str(n + 1)} for n in range(20)]
TASKS = [{"task": "Say what moves the sea.", "other": "Say what moves the wind."}]
STEP = {"episode": "a", "step": 0, "node": "plan", "seconds": 0.4, "tokens": 30, "type": "PLAN"}
SAID = {"text": "Explain tides.", "more": "Explain winds."}
STEPS = [{**STEP, "input": SAID, "output": {"text": "The moon.", "note": "The sun.", "sure": 0.6}}]
CHAIN_OF_TWO = """\
name: twice
inputs: {n: integer}
outputs: [story]
steps:
  - {ask: first, prompt: "What is {n} and {n} more?"}
  - {ask: story, prompt: "Tell a man about {first}."}
"""
PROGRAM = """\
name: sums
inputs: {n: integer}
outputs: [first, second]
steps:
  - {ask: first, prompt: "What is {n} and {n} more?"}
  - {ask: second, prompt: "What is {n} and {first}?"}
"""
SENT = {"messages": [{"role": "user", "content": "What is {n} and {n} more?"}]}
TARGET = {"target": "SERVER/chat/completions", "body": SENT, "answer": "choices.0.message.content"}
SENT_CASE = {"messages": [{"role": "user", "content": "What is 2, {input}"}]}
TARGET_OF_CASES = {**TARGET, "body": SENT_CASE}
TWO_PROMPTS = {"one": PROMPT, "two": "What is {n} and also {n} more?"}
PROGRAMS = {"template": None, "program": "program.yaml", "answer": "first", "step": "first"}
DEBATE = {"judge": None, "readout": "verbalized"}
SENT_INPUT = [{"id": "a", "input": "2?"}]
PROGRAM_FILES = {"program.yaml": PROGRAM, "other.yaml": PROGRAM.replace("more", "again")}
TASK_CHAIN = CHAIN_OF_TWO.replace("{n: integer}", "{task: text}").replace("{n}", "{task}")
WRITERS = (
    "def one(task, **rest):\n    return 'A good text.'\n\n\n"
    "def two(task, **rest):\n    return 'A text.'\n"
)
OTHER_HANDBOOK = "# Gates\n\nThe gates open at six.\n"


def _cut_users(users: int, sessions: int) -> str:
    """Return the first users of the recorded dialogues, with their first sessions."""
    text = json.loads(HALUMEM.read_text(encoding="utf-8"))["files"]["data.jsonl"]
    cut: list[str] = []
    for line in text.splitlines()[:users]:
        user = json.loads(line)
        cut.append(json.dumps({**user, "sessions": user["sessions"][:sessions]}))
    return "\n".join(cut) + "\n"


ONE_USER = _cut_users(1, 1)
TWO_USERS = _cut_users(2, 1)
TWO_SESSIONS = _cut_users(1, 2)
OTHER_USER = TWO_USERS.splitlines()[1] + "\n"


def of_debate(value: Any, **base: Any) -> Field:
    """Return another value of a debate's parameter, on one case."""
    return Field(value, {**DEBATE, **base}, {"cases.jsonl": ONE_CASE})


EVE = (("agents", "create", "eve", "--persona", "You are Eve, a cook.", "--memories", "chats"),)
AGENTS = (
    ("agents", "create", "ada", "--persona", "You are Ada, a nurse."),
    ("agents", "create", "eve", "--persona", "You are Eve, a cook."),
)
OTHER_CHATS = (("memories", "collections", "create", "others", "--embedder", "MODEL-embeddings"),)
OTHER_DIALOGUES = [{"id": "d9", "turns": [{"role": "user", "content": "FACT: Cid sails."}]}]
TWO_SUMS = {"rows.jsonl": ROW_OF_TWO}
TALKING = {"label": None, "metric": None, "judge": "probe", "prompts": {"p": "Help."}}
ROLE = {"role": "a nurse"}
STEP_FILE = {"trace.jsonl": STEPS}

START: Mapping[str, Recipe] = {
    **RECIPES,
    # Only a proposal leaves the agent as it was, so that a repeated run has the same world.
    "evolve-persona": RECIPES["evolve-persona"].changed(propose=True),
    "read-corpus": RECIPES["read-corpus"].changed(role="a nurse"),
    # Both are dear, and one item or signal shows what they read.
    "ablation": RECIPES["ablation"].changed(limit=1, orders="given"),
    "fit": RECIPES["fit"].changed(signals="length"),
}
"""The run of each kind of study from which its cells begin."""

HALT = ("--max-calls", "1")
HALTED = ("create-memories", "integrate-memories", "read-corpus")
"""Kinds whose finished run changes the memories that it reads. Their runs are halted, so that the
same command goes on with the same run."""

FIELDS: Mapping[str, Mapping[str, Field]] = {
    "evaluate": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "judge": Field("single"),
        "rubric": Field("Is it polite?"),
        "check": Field(["contains: good"]),
        "threshold": Field(0.95),
        "cases": Field("others.jsonl", {}, {"others.jsonl": ONE_CASE}),
        "map": Field({"input": "other"}, {}, {"cases.jsonl": ONE_CASE}),
        "each_reply": Field(True, {}, {"cases.jsonl": CHAT}),
        "target": Field(
            {**TARGET_OF_CASES, "answer": "choices.0.message"},
            {"target": TARGET_OF_CASES},
            {"cases.jsonl": SENT_INPUT},
        ),
        "target_version": Field("2", {"target": TARGET_OF_CASES}, {"cases.jsonl": SENT_INPUT}),
        "agents": Field("ada,eve", {**DEBATE, "agents": "ada"}, {"cases.jsonl": ONE_CASE}, AGENTS),
        "rounds": of_debate(1),
        "convergence": of_debate(0.9),
        "convergence_mode": of_debate("pooled"),
        "history_rounds": of_debate(0),
        "protocol": of_debate("simultaneous"),
        "escalate_below": of_debate(0.99),
        "readout": of_debate("after-argument"),
        "decider": of_debate("MODEL-decider", readout="decide", rounds=1),
        "argue": of_debate(False, readout="pointwise", rounds=1),
        "argument_words": of_debate(40),
        "rules": of_debate(True),
        "order": of_debate("swap"),
        "weights": of_debate("relevance=0.2"),
        "aggregation": of_debate("median"),
        "select": of_debate("sample"),
        "temperature": of_debate(3.0),
        "sampling_temperature": of_debate(0.3),
        "max_answer_tokens": of_debate(300),
        "profile": of_debate("mad"),
    },
    "compare": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "prompts": Field({"plain": "What is {n} and also {n}?"}),
        "models": Field(["MODEL-a"]),
        "system": Field("Be brief."),
        "samples": Field(2),
        "temperature": Field(0.4),
        "max_output_tokens": Field(99),
        "metric": Field("contains"),
        "judge": Field("single"),
        "check": Field(["contains: {n}"]),
        "threshold": Field(0.95),
        "score_by": Field("probe"),
        "side_by_side": Field(True, {"judge": "debate+readout=verbalized+rounds=1"}, TWO_SUMS),
        "baseline": Field("two", {"prompts": TWO_PROMPTS, "judge": None}, TWO_SUMS),
        "data": Field("other.jsonl", {}, {"other.jsonl": ROW_OF_TWO}),
        "label": Field("m", {}, TWO_SUMS),
        "input": Field("m", {}, TWO_SUMS),
        "context": Field("n", {"judge": "faithfulness", "context": "m"}, TWO_SUMS),
        "outputs": Field("m", {"prompts": None, "outputs": "n", "judge": None}, TWO_SUMS),
        "targets": Field(
            [{**TARGET, "answer": "choices.0.message"}],
            {"prompts": None, "targets": [TARGET], "judge": None},
            TWO_SUMS,
        ),
        "user_model": Field(
            "MODEL-visitor",
            {**TALKING, "user_model": "MODEL-user", "max_turns": 1},
            {"rows.jsonl": GOAL},
        ),
        "max_turns": Field(
            2, {**TALKING, "user_model": "MODEL-user", "max_turns": 1}, {"rows.jsonl": GOAL}
        ),
        "each_turn": Field("probe", TALKING, {"rows.jsonl": SCRIPTED_TURNS}),
    },
    "compare-quants": {
        "model": Field("MODEL-other", {"judge": "probe"}),
        "original": Field("MODEL-large"),
        "quants": Field(["MODEL-tiny"]),
        "check": Field(["contains: 4"]),
    },
    "calibrate": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "strategy": Field("demos"),
        "budget": Field(60),
        "editor": Field("MODEL-editor"),
        "beam": Field(2),
        "depth": Field(2),
        "successors": Field(2),
        "gradient_depth": Field(2),
        "minibatch": Field(4),
        "selection_minibatch": Field(3),
        "final_minibatch": Field(5),
        "selection": Field("ucb"),
        "select": Field("sample"),
        "patience": Field(1),
        "template": Field("What is {n} and still {n}?"),
        "validation": Field(0.4),
        "data": Field("other.jsonl", {}, {"other.jsonl": MANY_OF_TWO[:12]}),
        "label": Field("next", {}, {"values.jsonl": MANY_OF_TWO}),
        "metric": Field("contains"),
        "judge": Field("single", {"metric": None, "judge": "probe"}),
        "judge_model": Field("MODEL-judge", {"metric": None, "judge": "probe"}),
        "second_judge": Field("probe"),
        "program": Field("other.yaml", PROGRAMS, PROGRAM_FILES),
        "step": Field("second", PROGRAMS, PROGRAM_FILES),
        "answer": Field("second", PROGRAMS, PROGRAM_FILES),
    },
    "chain": {
        "model": Field("MODEL-other"),
        "chain": Field("other.yaml", {}, {"other.yaml": CHAIN_OF_TWO}),
        "input": Field({"n": "3"}, {"data": None, "input": {"n": "2"}}),
        "data": Field("other.jsonl", {}, {"other.jsonl": ROW_OF_TWO}),
    },
    "agreement": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "items": Field("other.jsonl", {}, {"other.jsonl": GRADED}),
        "limit": Field(4),
        "half": Field("tune"),
        "good": Field("4,5", {}, {"items.jsonl": GRADED}),
        "orders": Field("given"),
        "equal_tokens": Field(True, {"judge": ["probe", "single"]}),
        "judge": Field("single"),
        "samples": Field(2),
        "threshold": Field(0.95, {}, {"items.jsonl": GRADED}),
    },
    "ablation": {
        "model": Field("MODEL-other"),
        "profile": Field("mad"),
        "judge_option": Field(["readout=verbalized", "rules"]),
        "minimum_effect": Field(0.2),
    },
    "escalation": {
        "model": Field("MODEL-other"),
        "first": Field("probe+rules"),
        "then": Field("jury"),
        "agreement": Field(0.6),
        "confidence": Field(0.7),
    },
    "robustness": {
        "model": Field("MODEL-other"),
        "judge": Field("single"),
        "cases": Field("other.yaml", {}, {"other.yaml": CHECKS.replace("It is bad", "It is poor")}),
        "seeds": Field(3),
    },
    "fit": {
        "model": Field("MODEL-other", {"signals": "probe"}),
        "seed": Field(7),
        "signals": Field("look:length,metric:contains"),
        "precision": Field(0.7),
        "confidence": Field(0.7),
    },
    "rates": {
        "judged": Field("other.jsonl", {}, {"other.jsonl": VERDICTS[:20]}),
        "labelled": Field("other.jsonl", {}, {"other.jsonl": VERDICT_LABELS[:12]}),
        "field": Field(
            "second",
            {"field": "judged"},
            {
                "judged.jsonl": [{**row, "second": True} for row in VERDICTS],
                "labelled.jsonl": [{**row, "second": True} for row in VERDICT_LABELS],
            },
        ),
    },
    "nodes": {
        "model": Field("MODEL-other"),
        "threshold": Field(["outputs.sure=0.7"], {}, STEP_FILE),
        "latency": Field(0.2),
        "tokens": Field(10),
        "consistency": Field(True),
        "only": Field(["DECOMPOSE"], {"instruction": ["plan=DECOMPOSE"]}),
        "input_key": Field("more", {"input_key": "text"}, STEP_FILE),
        "output_key": Field("note", {"output_key": "text"}, STEP_FILE),
        "trace": Field("other.jsonl", {}, {"other.jsonl": STEPS}),
        "judge": Field("single"),
        "instruction": Field(["plan=DECOMPOSE"]),
    },
    "memory-eval": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "data": Field("other.jsonl", {}, {"other.jsonl": OTHER_USER}),
        "system": Field("none"),
        "judge": Field("single"),
        "answer_model": Field("MODEL-answers"),
        "users": Field(1, {}, {"data.jsonl": TWO_USERS}),
        "sessions": Field(1, {}, {"data.jsonl": TWO_SESSIONS}),
        "fresh": Field("again"),
    },
    "optimize": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "task": Field("Say what moves the wind."),
        "threshold": Field(0.2),
        "max_iterations": Field(2),
        "min_improvement": Field(0.4),
        "convergence_window": Field(1),
        "oscillation_limit": Field(0.3),
        "mode": Field("best-of-n"),
        "temperature": Field(0.4),
        "max_answer_tokens": Field(99),
        "judge": Field("single"),
        "second_judge": Field("probe+rules"),
        "step_judge": Field(
            {"first": "probe+rules"},
            {"model": "twice.yaml", "task": "Two and two.", "step_judge": {"first": "probe"}},
            {"twice.yaml": TASK_CHAIN},
        ),
        "generator": Field("write.py:two", {"generator": "write.py:one"}, {"write.py": WRITERS}),
    },
    "innovate": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "outputs": Field(3),
        "fresh": Field(4),
        "rounds": Field(2),
        "select": Field("sample"),
        "min_gain": Field(0.3),
        "patience": Field(2),
        "threshold": Field(0.95),
        "temperature": Field(0.4),
        "max_answer_tokens": Field(99),
        "input": Field("Tell a man of the sea."),
        "judge": Field("single"),
        "judge_model": Field("MODEL-judge"),
    },
    "guide": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "proposals": Field(3, {"candidates": None, "proposals": 2}),
        "proposal_temperature": Field(0.3, {"candidates": None, "proposals": 2}),
        "temperature": Field(0.4),
        "max_answer_tokens": Field(99),
        "question": Field("Why is the sky red?"),
        "candidates": Field(["The air.", "The dust."]),
        "profile": Field("mad"),
        "debate": Field({"rounds": 1}),
    },
    "profile": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "agents": Field(4),
        "subject": Field("Replies to patients of a clinic."),
    },
    "summarize": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "files": Field("other.txt", {}, {"other.txt": "The wind is cold and dry. " * 300}),
        "budget": Field(200),
        "focus": Field("the colour"),
        "context": Field(4096),
    },
    "create-memories": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "about": Field("Ann"),
        "focus": Field("food"),
        "window": Field(300),
        "overlap": Field(1),
        "neighbours": Field(1),
        "floor": Field(0.2),
        "compare": Field("structured"),
        "trust_user": Field(0.8),
        "trust_assistant": Field(0.5),
        "trust_others": Field(0.4),
        "entities": Field(True),
        "data": Field("other.jsonl", {}, {"other.jsonl": OTHER_DIALOGUES}),
        "collection": Field("others", before=OTHER_CHATS),
    },
    "integrate-memories": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "always": Field(True, {"always": None, "threshold": 0.1}),
        "threshold": Field(0.2, {"always": None, "threshold": 0.1}),
        "questions": Field(2),
        "insights": Field(2),
        "newest": Field(2),
        "recalled": Field(2),
        "budget": Field(900),
        "min_trust": Field(0.7),
    },
    "read-corpus": {
        "model": Field("MODEL-other", ROLE),
        "seed": Field(7, ROLE),
        "role": Field("a porter", ROLE),
        "chunk_tokens": Field(128, ROLE),
        "trust": Field(0.5, ROLE),
        "importance": Field(0.4, ROLE),
        "files": Field("other.md", ROLE, {"other.md": OTHER_HANDBOOK}),
        "collection": Field("others", ROLE, before=OTHER_CHATS),
    },
    "evolve-persona": {
        "model": Field("MODEL-other"),
        "seed": Field(7),
        "agent": Field("eve", before=EVE),
        "rewrite": Field(True),
        "changes": Field(2),
        "persona_tokens": Field(300),
        "newest": Field(2),
        "budget": Field(900),
        "min_trust": Field(0.7),
        "propose": Field(False),
    },
}
"""Another valid value for each field of each kind. A field that two kinds share is tried in one."""

NO_INFLUENCE: Mapping[str, str] = {
    "evaluate / recall": "only Python can give it",
    "guide / recall": "only Python can give it",
    "evaluate / score_by": "it chooses whose scores the gates check, and changes none",
    "rates / model": "no model is asked",
    "compare-quants / models": "`original` and `quants` take its place",
    "compare-quants / baseline": "`original` takes its place",
    "compare-quants / sizes": "it is told in the report alone",
}
"""Fields that cannot change a result, each with the reason."""

ASKED = {"model", "seed", "prompts", "template", "system", "rubric", "question", "focus", "task"}
ASKED |= {"input", "subject", "max_output_tokens", "sampling_temperature", "temperature"}
ASKED |= {"max_answer_tokens", "judge_model", "editor", "answer_model", "decider", "quants"}
"""Fields that a model is told, so that no answer to another value of them may be taken."""

NOT_ASKED = {
    "agreement / seed": "the seed of intervals",
    "fit / seed": "the seed of folds",
    "evaluate / temperature": "the temperature of a softmax over scores",
    "read-corpus / model": "the run is halted at its first call",
    "read-corpus / seed": "the run is halted at its first call",
}
"""Fields of the same names that a model is not told, or not in the runs of these cells."""
