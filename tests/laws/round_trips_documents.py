"""Files of ours that are no exports of runs, each with its readers: labels, memories, agents and
what belongs to them, prompts in the formats of models, templates, judges and profiles."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
import yaml

from laws.round_trips_world import (
    FILES,
    GROUPS,
    KEEP,
    KEEPER,
    KEYS,
    NOTE,
    NOTES,
    OTHER,
    OUT,
    Seen,
    label_all,
    read_lines,
    read_metric,
    write_csv,
    write_lines,
    write_parquet,
)
from laws.studies import RECIPES, Rows, World, write_rows

ENDINGS = (".jsonl", ".csv", ".parquet")
"""The endings of exports of labels and of memories."""


def do(world: World, *command: str) -> str:
    """Run a command that succeeds, and return its output. MODEL stands for the server's model."""
    outcome = world.cli(*(word.replace("MODEL", world.model) for word in command))
    assert outcome.code == 0, outcome.err
    return outcome.out


def write(world: World, name: str, content: str) -> None:
    (world.home / name).write_bytes(content.encode())


def read(world: World, name: str) -> str:
    return (world.home / name).read_bytes().decode()


# Labels

LABELLED: Seen = {
    key: text for key, text in KEYS.items() if any(text in texts[:2] for texts in GROUPS.values())
}
"""The first two texts of each group, by their keys."""
SERVED: Seen = {
    key: text for key, text in KEYS.items() if any(text == texts[0] for texts in GROUPS.values())
}
"""The first text of each group, by its key."""
TASKS: Mapping[str, Sequence[str]] = {
    "pass or fail": ("--kind", "single"),
    "grades": ("--kind", "single", "--scale", "5"),
    "pairs": ("--kind", "pairs"),
}
"""The options that make each kind of labelling task."""
JUDGED = "judged.jsonl"


@dataclass(frozen=True)
class LabelReader:
    """A reader of exported labels.

    Attributes:
        command: The command that reads FILE.
        tasks: The kinds of tasks that it reads.
    """

    command: Sequence[str]
    tasks: Sequence[str]
    read: Callable[[World], Seen] = read_metric


def _read_second_task(world: World) -> Seen:
    label_all(world)
    do(world, "labels", "export", "second", *OUT)
    rows = read_lines(read(world, OUT[1]))
    return {row["reference"]: row.get("output", row.get("candidate_1")) for row in rows}


SINGLES = ("pass or fail", "grades")
ALL_TASKS = (*SINGLES, "pairs")
LABEL_READERS: Mapping[str, LabelReader] = {
    "bench agreement": LabelReader(("bench", "agreement", "FILE", *KEEPER), ALL_TASKS),
    "evaluate": LabelReader(("evaluate", "FILE", *KEEPER), ALL_TASKS),
    "compare": LabelReader(
        (
            *("compare", "--data", "FILE", "--outputs", "output", "--label", "reference"),
            *("--metric", KEEP),
        ),
        SINGLES,
    ),
    "labels create": LabelReader(
        ("labels", "create", "second", "FILE"), ALL_TASKS, _read_second_task
    ),
    "bench escalation": LabelReader(
        ("bench", "escalation", "FILE", "--first", f"metric:{KEEP}", "--then", "look:length"),
        ("pairs",),
    ),
    "judges fit": LabelReader(
        ("judges", "fit", "FILE", "--signals", f"metric:{KEEP},length"), ("pairs",)
    ),
}
"""The readers of exported labels."""


_labels: dict[tuple[str, str], bytes] = {}


def read_labels(world: World, task: str, ending: str, reader: LabelReader) -> Seen | str:
    """Give exported labels of texts to a reader. Return the texts that it read, by their keys, or
    its refusal."""
    for name, content in FILES.items():
        write(world, name, content)
    file = f"labels{ending}"
    (world.home / file).write_bytes(export_labels(world, task, ending))
    printing = ("--json",) if reader.read is read_metric else ()
    command = [file if word == "FILE" else word for word in reader.command]
    outcome = world.cli(*command, *printing)
    return reader.read(world) if outcome.code in (0, 3) else outcome.err


def export_labels(world: World, task: str, ending: str) -> bytes:
    """Return the file of a task's labels; it is made once."""
    if (task, ending) not in _labels:
        rows = [_item(task, key, text) for key, text in LABELLED.items()]
        write(world, "tasks.jsonl", write_rows(rows))
        do(world, "labels", "create", "first", "tasks.jsonl", *TASKS[task])
        label_all(world)
        do(world, "labels", "export", "first", "-o", f"first{ending}")
        _labels[task, ending] = (world.home / f"first{ending}").read_bytes()
    return _labels[task, ending]


def list_labels(task: str) -> Rows:
    """Return the rows that an export of a task's labels must have."""
    rows: Rows = []
    for number, (key, text) in enumerate(LABELLED.items()):
        row = _item(task, key, text)
        row["labels"] = 1
        row["notes"] = f"ann: {NOTE}"
        high = number % 2
        if task == "pairs":
            row["candidate_1"], row["candidate_2"] = row.pop("candidates")
            row["scores"] = [float(high), float(1 - high)]
        else:
            # The second of five grades is a quarter of the way to the last.
            row["human"] = high / (4 if task == "grades" else 1)
        rows.append(row)
    return rows


def _item(task: str, key: str, text: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": key, "input": f"input {key}", "reference": key}
    row["context"] = f"context: {text}."
    if task == "pairs":
        return {**row, "candidates": [text, OTHER]}
    return {**row, "output": text}


def _grade(name: str, grade: int) -> dict[str, Any]:
    id = f"{name}{grade}"
    return {"id": id, "input": f"{id}?", "output": f"grade {grade}", "label": grade}


GRADES: Mapping[str, Rows] = {
    "low": [_grade("low", grade) for grade in (1, 2, 3)],
    "high": [_grade("high", grade) for grade in (3, 4, 5)],
}
"""Labels of one scale in two files, of which neither has all grades."""
GRADER = "def grade(output, label):\n    return (int(output[-1]) - 1) / 4\n"


def agree_on_grades(world: World, ending: str) -> tuple[Rows, Rows]:
    """Measure a metric on grades in two files and in one. Return the records of both."""
    write(world, "grade.py", GRADER)
    make = {".jsonl": write_lines, ".csv": write_csv, ".parquet": write_parquet}[ending]
    both = [*GRADES["low"], *GRADES["high"]]
    for name, rows in {**GRADES, "both": both}.items():
        (world.home / f"{name}{ending}").write_bytes(make(rows))
    command = ("bench", "agreement", "--judge", "metric:grade.py:grade", *OUT)
    credits: list[Rows] = []
    for files in ((f"low{ending}", f"high{ending}"), (f"both{ending}",)):
        do(world, *command, *files)
        records = read_lines(read(world, OUT[1]))
        credits.append([{name: row[name] for name in ("item", "credit")} for row in records])
    return credits[0], credits[1]


def rate_results(world: World, ending: str) -> tuple[float, float]:
    """Evaluate texts with awkward ids, and give the results to `bench rate` with labels of ten.
    Return how many labels are without a verdict, and the rate of the other verdicts."""
    texts = list(LABELLED.values())
    rows = [{"id": text, "input": "i", "output": str(n)} for n, text in enumerate(texts)]
    write(world, "rows.jsonl", write_rows(rows))
    write(world, "odd.py", "def odd(output):\n    return float(output[-1] in '13579')\n")
    do(world, "evaluate", "rows.jsonl", "--judge", "metric:odd.py:odd", "-o", f"judged{ending}")
    labels = [{"id": text, "human": n % 4 > 0} for n, text in enumerate(texts[:10])]
    write(world, "labelled.jsonl", write_rows(labels))
    rate = json.loads(do(world, "bench", "rate", f"judged{ending}", "labelled.jsonl", "--json"))
    return rate["missing_labelled"], rate["raw"]


# Memories

_PLACES = ("id", "collection", "added", "supersedes", "superseded_by")
"""The fields of a memory that say where it stood, and are made anew by an import."""
_memories: dict[str, dict[str, Rows]] = {}


def read_memories(request: pytest.FixtureRequest, ending: str) -> dict[str, Rows]:
    """Export memories with awkward texts, import them into another collection and return both
    collections, without the fields that an import makes anew."""
    if ending not in _memories:
        _memories[ending] = _read_memories(request.getfixturevalue("world"), ending)
    return _memories[ending]


def _read_memories(world: World, ending: str) -> dict[str, Rows]:
    texts = {key: text for key, text in KEYS.items() if len(text) < 20_000}
    write(world, "rows.jsonl", write_rows([_memory(*pair) for pair in texts.items()]))
    for name in ("notes", "copies"):
        do(world, *(name if word == "notes" else word for word in NOTES))
    do(world, "memories", "import", "notes", "rows.jsonl")
    do(world, "memories", "export", "notes", f"notes{ending}")
    do(world, "memories", "import", "copies", f"notes{ending}")
    return {name: _list_memories(world, name) for name in ("notes", "copies")}


def _memory(key: str, text: str) -> dict[str, Any]:
    number = int(key[1:])
    return {
        "text": text,
        "source": text,
        "author": key,
        "turn": 1 + number,
        "trust": 0.1 + number / 1000,
        "importance": 1 / (number + 3),
        "created": "2026-01-02T03:04:05.000001Z",
        "valid_from": "2026-01-02T03:04:05.123456Z",
        "entities": [text],
        "reason": text,
    }


def _list_memories(world: World, name: str) -> Rows:
    rows = read_lines(do(world, "memories", "export", name, "-"))
    return [{key: row[key] for key in row if key not in _PLACES} for row in rows]


# Agents, users, collections, namespaces

RESOURCES: Mapping[str, Sequence[str]] = {
    "agents": ("agents",),
    "users": ("agents", "users"),
    "collections": ("memories", "collections"),
    "namespaces": ("agents", "namespaces"),
}
"""The command of each kind of thing that is exported to a file."""
_NAMES = {"agents": "ada", "users": "ann", "collections": "notes", "namespaces": "default"}
_NEW = ("id", "name", "namespace", "collection", "created", "updated", "changed", "version")
"""The fields of an export that are another thing's after an import under another name."""
_resources: dict[str, dict[str, tuple[Rows, Rows]]] = {}


def read_resource(request: pytest.FixtureRequest, kind: str, text: str) -> tuple[Rows, Rows]:
    """Export a thing of a kind that has a text, import it under another name and export that.
    Return both exports without what is new."""
    if text not in _resources:
        _resources[text] = _read_resources(request.getfixturevalue("world"), text)
    return _resources[text][kind]


def _read_resources(world: World, text: str) -> dict[str, tuple[Rows, Rows]]:
    sentence = f"It says: {text} so it says."
    do(world, *NOTES, "--description", sentence)
    write(world, "rows.jsonl", write_rows([{"text": sentence, "entities": [sentence]}]))
    do(world, "memories", "import", "notes", "rows.jsonl")
    do(world, "agents", "users", "create", "ann", "--description", sentence)
    do(
        world,
        *("agents", "create", "ada", "--persona", sentence, "--description", sentence),
        *("--collection", "notes", "--min-score", "0.1", "--budget", "321"),
    )
    for kind, command in RESOURCES.items():
        do(world, *command, "export", _NAMES[kind], "-o", f"{kind}.jsonl")
    pairs: dict[str, tuple[Rows, Rows]] = {}
    for kind, command in RESOURCES.items():
        do(world, *command, "import", f"{kind}.jsonl", "--name", "other")
        exported = read_lines(read(world, f"{kind}.jsonl"))
        imported = read_lines(do(world, *command, "export", "other"))
        pairs[kind] = (_same_fields(exported), _same_fields(imported))
    return pairs


def _same_fields(rows: Any) -> Any:
    if isinstance(rows, list):
        return [_same_fields(row) for row in rows]
    if isinstance(rows, dict):
        return {name: _same_fields(value) for name, value in rows.items() if name not in _NEW}
    return rows


def strings_of(value: Any) -> list[str]:
    """Return all texts within a value of JSON."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in strings_of(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in strings_of(inner)]
    return [value] if isinstance(value, str) else []


# Prompts in the formats of models


def convert_and_back(world: World, format: str, text: str) -> tuple[str, str]:
    """Write a chat in ChatML, at once and by way of another format; return both."""
    chat = [
        {"role": "system", "content": f"Be {text} brief."},
        {"role": "user", "content": f"What {text} is it?"},
        {"role": "assistant", "content": f"It {text} is."},
        {"role": "user", "content": f"Why {text} so?"},
    ]
    if format in WITHOUT_SYSTEM:
        chat = chat[1:]
    write(world, "chat.json", json.dumps(chat))
    convert = ("models", "templates", "convert")
    write(world, "prompt.txt", do(world, *convert, "chat.json", "--to", format))
    direct = do(world, *convert, "chat.json", "--to", "chatml")
    return direct, do(world, *convert, "prompt.txt", "--from", format, "--to", "chatml")


WITHOUT_SYSTEM = ("gemma", "gemma-3", "mistral-v1", "mistral-v3", "mistral-v3-tekken")
"""Formats that write a system message into a turn of the user, from which it is not told apart."""


# Templates, judges, profiles


def calibrate(world: World, placeholder: str) -> str:
    """Let a template be rewritten by an editor that writes placeholders in single braces, and
    return what `calibrate` wrote."""
    usual = world.script

    def script(body: Mapping[str, Any], number: int) -> Any:
        reply = usual(body, number)
        if isinstance(reply, str) and reply.startswith('{"template"'):
            return reply.replace("{{ n }}", "{n}").replace("{{n}}", "{n}")
        return reply

    world.script = script
    recipe = RECIPES["calibrate"]
    world.prepare(recipe.with_file("template.txt", f"What is {placeholder} and more?\n"))
    outcome = world.run("calibrate", recipe, "-o", "best.txt")
    assert outcome.code == 0, outcome.err
    return read(world, "best.txt")


def compare_template(world: World, text: str) -> tuple[str, str]:
    """Calibrate a template with a text in it, and ask with the file that was written. Return the
    filled-in template and what was sent."""
    recipe = RECIPES["calibrate"].with_file("template.txt", f"What is {{n}}? {text} Now.\n")
    world.prepare(recipe)
    outcome = world.run("calibrate", recipe, "-o", "best.txt")
    assert outcome.code == 0, outcome.err
    best = json.loads(do(world, "runs", "show", "last", "--json"))["template"]
    write(world, "row.jsonl", '{"n": "many"}\n')
    world.server.requests.clear()
    do(
        world,
        *("compare", "-p", "best.txt", "-d", "row.jsonl", "-m", "MODEL", "--metric", "regex:."),
    )
    (body,) = world.server.requests
    return best.replace("{n}", "many"), body["messages"][-1]["content"]


def judge_by_file(world: World) -> tuple[float, float]:
    """Fit a judge, and judge a case by its file. Return the score, and the score that the file's
    formula gives with the scores of its signals."""
    world.fit_judge("fit.judge")
    fit = yaml.safe_load(read(world, "fit.judge"))
    write(world, "case.jsonl", write_rows([CASE]))
    utility = fit["intercept"]
    for signal in fit["signals"]:
        value = _judge_case(world, signal["judge"])["log_odds"]
        utility += signal["weight"] * (value - signal["mean"]) / signal["scale"]
    return _judge_case(world, "fit.judge")["score"], 1 / (1 + math.exp(-utility))


CASE = {"id": "c", "input": "Question 1: why?", "output": "A good answer, a little longer."}


def _judge_case(world: World, judge: str) -> dict[str, float]:
    do(world, "evaluate", "case.jsonl", "--judge", judge, "-m", "MODEL", "-o", "case.csv")
    (row,) = csv.DictReader(io.StringIO(read(world, "case.csv"), newline=""))
    return {name: float(row[name]) for name in ("score", "log_odds") if row[name]}


def ask_by_profile(world: World) -> tuple[list[str], list[str]]:
    """Generate a profile, and judge a case by its file. Return the texts of the file that agents
    must be told, and those of them that stand in no request."""
    do(world, "judges", "profiles", "generate", "Replies.", "-m", "MODEL", "-o", "own.yaml")
    profile = yaml.safe_load(read(world, "own.yaml"))
    write(world, "case.jsonl", write_rows([CASE]))
    world.server.requests.clear()
    do(world, "evaluate", "case.jsonl", "--profile", "own.yaml", "-m", "MODEL", "--rounds", "1")
    sent = "\n".join(json.dumps(body, ensure_ascii=False) for body in world.server.requests)
    texts = [agent[name] for agent in profile["agents"] for name in ("name", "persona")]
    for part in profile["components"]:
        texts += [part["name"], part["meaning"], *part["rubric"].values()]
    return texts, [text for text in texts if text not in sent]


# What a server takes in and gives out


@dataclass
class Served:
    """What a client read from a server after it had written there.

    Attributes:
        texts: For each door, the texts that were read, by their keys.
        reports: The report of a study in each format.
        exports: The same of `runs export` on the command line, which shares the server's store.
    """

    texts: dict[str, Seen]
    reports: dict[str, bytes]
    exports: dict[str, bytes]


DOORS = (
    "a memory that is added",
    "memories that are imported",
    "a user's description",
    "an agent's persona",
    "an agent's persona after a change",
    "a case of a study",
)
"""The doors of a server through which a text goes in and out."""
REPORTS = ("jsonl", "json", "csv", "parquet", "html", "md")
_SPACE = "/v1/namespaces/default"
_served: list[Served] = []


def serve_texts(request: pytest.FixtureRequest) -> Served:
    """Send awkward texts to a server, once for all cells, and return what it gives back."""
    if not _served:
        world = request.getfixturevalue("world")
        world.server.script = world.script
        do(world, *NOTES)
        do(world, *("imported" if word == "notes" else word for word in NOTES))
        _served.append(_serve_texts(world, request.getfixturevalue("spawn")))
    return _served[0]


def _serve_texts(world: World, spawn: Callable[..., Any]) -> Served:
    process = spawn("serve", "--model", world.model, "--port", "0", "--no-jobs")
    address = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
    assert address is not None
    url = address[0]
    texts: dict[str, Seen] = {}

    memories = f"{url}{_SPACE}/collections/notes/memories"
    for key, text in SERVED.items():
        if len(text) < 20_000:
            _send(memories, {"text": text, "source": key})
    texts["a memory that is added"] = _read_notes(memories)

    memories = f"{url}{_SPACE}/collections/imported/memories"
    rows = [{"text": t, "source": key} for key, t in SERVED.items() if len(t) < 20_000]
    _send(f"{memories}/import", write_rows(rows))
    texts["memories that are imported"] = _read_notes(memories)

    for key, text in SERVED.items():
        _send(f"{url}{_SPACE}/users", {"name": key, "description": text})
        _send(f"{url}{_SPACE}/agents", {"name": key, "persona": text})
        _send(f"{url}{_SPACE}/agents", {"name": f"{key}-2", "persona": "You are Ann."})
        _send(f"{url}{_SPACE}/agents/{key}-2", {"persona": text}, "PATCH")
    texts["a user's description"] = _read_fields(f"{url}{_SPACE}/users", "", "description")
    texts["an agent's persona"] = _read_fields(f"{url}{_SPACE}/agents", "", "persona")
    texts["an agent's persona after a change"] = _read_fields(
        f"{url}{_SPACE}/agents", "-2", "persona"
    )

    cases = [{"id": key, "input": "i", "output": text} for key, text in SERVED.items()]
    files = {"cases.jsonl": write_rows(cases)}
    spec = {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "look:length"}
    study = _send(f"{url}/v1/studies", {**spec, "run": {"files": files}})
    address = f"{url}/v1/studies/{study['id']}"
    with urlopen(f"{address}/events", timeout=60) as events:
        events.read()  # they end with the study
    reports = {}
    exports = {}
    for format in REPORTS:
        with urlopen(f"{address}/report?format={format}", timeout=60) as response:
            reports[format] = response.read()
        do(world, "runs", "export", study["id"], f"report.{format}")
        exports[format] = (world.home / f"report.{format}").read_bytes()
    lines = read_lines(reports["jsonl"].decode())
    texts["a case of a study"] = {row["id"]: row["candidates"][0]["text"] for row in lines}
    return Served(texts, reports, exports)


def _send(url: str, body: Any, method: str = "POST") -> Any:
    is_text = isinstance(body, str)
    data = body if is_text else json.dumps(body, ensure_ascii=False)
    kind = "application/x-ndjson" if is_text else "application/json"
    request = Request(url, data.encode(), {"Content-Type": kind}, method=method)
    with urlopen(request, timeout=60) as response:
        return json.load(response)


def _list(url: str) -> Rows:
    """Return all pages of a list."""
    rows: Rows = []
    cursor = ""
    for _ in SERVED:
        with urlopen(f"{url}?limit=20{cursor}", timeout=60) as response:
            page = json.load(response)
        rows += page["data"]
        if not page["next"]:
            break
        cursor = f"&cursor={quote(page['next'])}"
    return rows


def _read_notes(url: str) -> Seen:
    return {row["source"]: row["text"] for row in _list(url)}


def _read_fields(url: str, ending: str, field: str) -> Seen:
    names = {f"{key}{ending}": key for key in SERVED}
    return {names[row["name"]]: row[field] for row in _list(url) if row["name"] in names}
