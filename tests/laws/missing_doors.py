"""Doors through which no model's answer comes, and what can be bad there: code of the user,
targets, embeddings, batches, files.

Where a door takes many rows, one run has a row for each way: its text names the way, and the code
or the application misbehaves in that way when it sees the text.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laws.judges import METRICS
from laws.missing_world import SETTINGS, answer_well, read_lines, select
from laws.studies import COLLECTIONS, DIALOGUES, HANDBOOK, PAIRS, World, write_rows
from textevolve import Client, TextEvolveError
from textevolve.llm.testing import Answer, BatchFault

WHOLE_SCORE = 0.75
"""What the code of the user gives for each text that names no way."""


@dataclass(frozen=True)
class Outcome:
    """The scores of what was judged under one way, and the reason where there are none."""

    scores: Sequence[float | None]
    reason: str


@dataclass(frozen=True)
class Misbehaviour:
    """What code or an application does in the place of an answer.

    Attributes:
        does: Its statement, its body or its line of a program, as its door has it.
        reason: What the reason must say, as a pattern.
    """

    does: Any
    reason: str


# Code of the user

CODE_FAULTS: Mapping[str, Misbehaviour] = {
    "raises": Misbehaviour("raise RuntimeError('the quota is used up')", "quota is used up"),
    "returns None": Misbehaviour("return None", "None"),
    "returns NaN": Misbehaviour("return float('nan')", "nan"),
    "returns infinity": Misbehaviour("return float('inf')", "inf"),
    "returns 2.0": Misbehaviour("return 2.0", "2"),
    "returns -1": Misbehaviour("return -1", "-1"),
    "returns a text": Misbehaviour("return 'excellent'", "excellent|str|text"),
    "returns a list": Misbehaviour("return [1.0]", "list|1.0"),
}


def name_fault(fault: str) -> str:
    """Return the word that stands for a way in texts."""
    return "fault-" + re.sub(r"\W+", "-", fault) + "."


def write_code(signature: str, text: str) -> str:
    """Return a function that misbehaves on the texts that name a way."""
    branches = "".join(
        f"    if {name_fault(fault)!r} in {text}:\n        {misbehaviour.does}\n"
        for fault, misbehaviour in CODE_FAULTS.items()
    )
    return f"def {signature}:\n{branches}    return {WHOLE_SCORE}\n"


CODE_TEXTS = {
    "whole": "It is whole.",
    **{fault: f"It is {name_fault(fault)}" for fault in CODE_FAULTS},
}
METRIC = write_code("score(output, label=None)", "output")


def start(world: World, files: Mapping[str, str]) -> None:
    """Write the settings and the files of a door; the models answer well."""
    (world.home / "textevolve.toml").write_text(SETTINGS, encoding="utf-8")
    for name, content in files.items():
        (world.home / name).write_text(content, encoding="utf-8")
    world.server.script = answer_well


def read_outcomes(world: World, key: str, score: str, reasons: Sequence[str]) -> dict[str, Outcome]:
    """Return the outcome of each line of the table that a command wrote, by the way that the column
    `key` names."""
    outcomes: dict[str, Outcome] = {}
    for line in read_lines(world.home / "lines.csv"):
        fault = line[key].partition(":")[0]
        value = [float(line[score]) if line[score] else None]
        outcomes[fault] = Outcome(value, " ".join(line.get(reason) or "" for reason in reasons))
    return outcomes


def judge_with_a_metric(world: World) -> Mapping[str, Outcome]:
    """Judge with a metric of the user as the judge."""
    rows = [
        {"id": fault, "input": "Say it.", "candidates": [text]}
        for fault, text in CODE_TEXTS.items()
    ]
    start(world, {"own.py": METRIC, "rows.jsonl": write_rows(rows)})
    world.cli("evaluate", "rows.jsonl", "--judge", "metric:own.py:score", "-o", "lines.csv")
    return read_outcomes(world, "id", "score", ["reason"])


def compare_by_a_metric(world: World) -> Mapping[str, Outcome]:
    """Compare outputs by a metric of the user."""
    rows = [{"id": fault, "text": text} for fault, text in CODE_TEXTS.items()]
    start(world, {"own.py": METRIC, "rows.jsonl": write_rows(rows)})
    world.cli(
        *("compare", "--data", "rows.jsonl", "--outputs", "text"),
        *("--metric", "own.py:score", "-o", "lines.csv"),
    )
    return read_outcomes(world, "row", "score", ["reason", "reasons.score"])


def judge_nodes_by_a_metric(world: World) -> Mapping[str, Outcome]:
    """Judge the nodes of a trace by a metric of the user."""
    rows = [
        {"episode": fault, "step": 0, "node": "plan", "input": "Say it.", "output": text}
        for fault, text in CODE_TEXTS.items()
    ]
    start(world, {"own.py": METRIC, "trace.jsonl": write_rows(rows)})
    world.cli(
        "nodes", "evaluate", "trace.jsonl", "--judge", "metric:own.py:score", "-o", "lines.csv"
    )
    lines = read_lines(world.home / "lines.csv")
    columns = [name for name in lines[0] if name.endswith("reason")]
    return read_outcomes(world, "episode", "score", columns)


def agree_with_a_metric(world: World) -> Mapping[str, Outcome]:
    """Measure the agreement of a metric of the user with people; a tie is half right."""
    rows = [
        {"id": fault, "input": "Say it.", "group": fault, "winner": 1}
        | {"candidates": [text, "It is another."]}
        for fault, text in CODE_TEXTS.items()
    ]
    start(world, {"own.py": METRIC, "rows.jsonl": write_rows(rows)})
    world.cli(
        "bench", "agreement", "rows.jsonl", "--judge", "metric:own.py:score", "-o", "lines.csv"
    )
    outcomes = read_outcomes(world, "item", "credit", ["reason"])
    assert outcomes["whole"].scores == [0.5]
    return {**outcomes, "whole": Outcome([WHOLE_SCORE], "")}


def judge_with_a_function(world: World) -> Mapping[str, Outcome]:
    """Judge with a function of Python."""
    start(world, {})
    namespace: dict[str, Any] = {}
    exec(write_code("judge(case)", "case.candidates[0]"), namespace)
    outcomes: dict[str, Outcome] = {}
    with Client(world.model, store=world.home / "store.db") as client:
        for fault, text in CODE_TEXTS.items():
            try:
                result = client.evaluate("Say it.", [text], judge=namespace["judge"])
            except (TextEvolveError, RuntimeError) as error:
                outcomes[fault] = Outcome([None], str(error))
            else:
                reason = "" if result.failure is None else result.failure.reason
                outcomes[fault] = Outcome(list(result.scores), reason)
    return outcomes


CODE_DOORS: Mapping[str, Callable[[World], Mapping[str, Outcome]]] = {
    "evaluate": judge_with_a_metric,
    "compare": compare_by_a_metric,
    "nodes": judge_nodes_by_a_metric,
    "agreement": agree_with_a_metric,
    "evaluate in Python": judge_with_a_function,
}


@dataclass(frozen=True)
class Loop:
    """A study that works with code of the user on texts that it makes itself.

    Attributes:
        kind: The kind of the study.
        options: What its recipe gets in the place of its judge or metric.
        code: The file with the user's code, in which STATEMENT is what it does at bad texts.
        figures: The paths in the summary of the figures that come from this code, as a pattern.
            Each of them is WHOLE_SCORE, since the code gives no other score.
    """

    kind: str
    options: Mapping[str, Any]
    code: str
    figures: str


def score_unless(word: str) -> str:
    """Return a metric that misbehaves on texts with a word."""
    return (
        "def score(output, label=None):\n"
        f"    if {word!r} in output:\n        STATEMENT\n    return {WHOLE_SCORE}\n"
    )


OWN_JUDGE = {"judge": "metric:own.py:score"}
LOOPS: Mapping[str, Loop] = {
    "calibrate": Loop(
        *("calibrate", {"metric": "own.py:score"}, score_unless("about")),
        r"placings\[\d\]\.mean$|^\.gain\.(first|second)$",
    ),
    "optimize": Loop(
        *("optimize", OWN_JUDGE, score_unless("good point")),
        r"^\.tasks\[0\]\.(attempts.*evaluation\.score|score)$",
    ),
    "innovate": Loop(
        *("innovate", OWN_JUDGE, score_unless("Level")),
        r"^\.(before|after)\.(value|samples\[\d\]\.score)$|^\.attempts\[\d\]\.score$",
    ),
}

# Targets


@dataclass(frozen=True)
class Target:
    """An application under test.

    Attributes:
        option: What `--target` names; URL stands for the server.
        write: Makes its file from the ways, by the words that name them in a row.
        faults: The ways in which its answers are bad.
    """

    option: str
    write: Callable[[Mapping[str, Misbehaviour]], Mapping[str, str]]
    faults: Mapping[str, Misbehaviour]


def write_function(faults: Mapping[str, Misbehaviour]) -> Mapping[str, str]:
    """Return an application as a function of Python."""
    branches = "".join(
        f"    if {name_fault(fault)!r} in question:\n        {misbehaviour.does}\n"
        for fault, misbehaviour in faults.items()
    )
    return {"failing_app.py": f"def reply(question):\n{branches}    return 'Oslo'\n"}


def write_program(faults: Mapping[str, Misbehaviour]) -> Mapping[str, str]:
    """Return an application as a program of the shell, which reads a row."""
    branches = "".join(
        f"  *{name_fault(fault)}*) {misbehaviour.does};;\n"
        for fault, misbehaviour in faults.items()
    )
    return {"app.sh": f'read row\ncase "$row" in\n{branches}  *) echo Oslo;;\nesac\n'}


def body(value: Any, status: int = 200) -> Answer:
    """Return an answer of an application over HTTP."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status=status, body=content)


def events(*lines: str) -> Answer:
    """Return a stream of server-sent events."""
    return Answer(body=b"", events=tuple(f"{line}\n\n".encode() for line in lines))


WORDS = 'data: {"answer": "Oslo"}'
BESIDE = {"answer": "Oslo", "error": "the backend is down"}
TARGETS: Mapping[str, Target] = {
    "HTTP": Target(
        "URL/ask",
        lambda _faults: {},
        {
            "status 500": Misbehaviour(body({"detail": "it broke"}, 500), "500"),
            "status 422": Misbehaviour(body({"detail": "no such field"}, 422), "422"),
            "an empty body": Misbehaviour(body(b""), "empty|no answer|no text"),
            "an answer that is null": Misbehaviour(
                body({"answer": None}), "null|None|no answer|empty|no text"
            ),
            "an empty answer": Misbehaviour(body({"answer": ""}), "empty|no answer"),
            "an error without answer": Misbehaviour(body({"error": "quota"}), "quota|no answer"),
            "an error beside the answer": Misbehaviour(body(BESIDE), "backend is down"),
            "an error event after words": Misbehaviour(
                events(WORDS, 'event: error\ndata: {"error": {"message": "overloaded"}}'),
                "overloaded",
            ),
            "a failed run after words": Misbehaviour(
                events(WORDS, 'data: {"type": "RUN_ERROR", "message": "overloaded"}'), "overloaded"
            ),
            "an unframed error after words": Misbehaviour(
                events(WORDS, '{"code": 500, "message": "overloaded"}'), "overloaded"
            ),
            "status 403": Misbehaviour(body({"detail": "not for you"}, 403), "403.*not for you"),
            "status 404": Misbehaviour(body({"detail": "no such page"}, 404), "404.*no such page"),
            "a status beside the answer": Misbehaviour(
                body({"answer": "Oslo", "status": "failed", "reason": "overloaded"}), "overloaded"
            ),
            "an event of the type error": Misbehaviour(
                events(WORDS, 'data: {"type": "error", "message": "overloaded"}'), "overloaded"
            ),
        },
    ),
    "Python": Target(
        "python:failing_app.reply",
        write_function,
        {
            "raises": Misbehaviour(
                "raise RuntimeError('the quota is used up')", "quota is used up"
            ),
            "returns None": Misbehaviour("return None", "None|null|no answer|no text|empty"),
            "returns an empty text": Misbehaviour("return ''", "empty|no answer|no text"),
            "returns an answer that is None": Misbehaviour(
                "return {'answer': None}", "None|null|no answer|no text|empty"
            ),
            "returns an error beside the answer": Misbehaviour(
                f"return {BESIDE!r}", "backend is down"
            ),
            "returns an error without answer": Misbehaviour(
                "return {'error': 'quota'}", "quota|no answer"
            ),
            "runs out of time": Misbehaviour(
                "raise TimeoutError('the database is slow')", "database is slow|TimeoutError"
            ),
        },
    ),
    "command": Target(
        "cmd:sh app.sh",
        write_program,
        {
            "ends with 3": Misbehaviour("echo it broke >&2; exit 3", "3|it broke"),
            "ends with 3 after words": Misbehaviour("echo Oslo; exit 3", "3"),
            "says nothing but an error": Misbehaviour("echo it broke >&2", "empty.*it broke"),
            "says nothing": Misbehaviour("true", "empty|no answer|nothing|no text"),
            "has an error beside the answer": Misbehaviour(
                f"echo '{json.dumps(BESIDE)}'", "backend is down"
            ),
            "has an answer that is null": Misbehaviour(
                """echo '{"answer": null}'""", "null|None|no answer|empty|no text"
            ),
        },
    ),
}


def run_target(world: World, kind: str) -> Mapping[str, Outcome]:
    """Ask an application a question for each way; the right answer is Oslo."""
    target = TARGETS[kind]
    rows = [{"id": "whole", "question": "Which city?", "answer": "Oslo"}]
    rows += [
        {**rows[0], "id": way, "question": f"Which? {name_fault(way)}"} for way in target.faults
    ]
    start(world, {**target.write(target.faults), "rows.jsonl": write_rows(rows)})
    answer_others = world.server.answer

    def answer(method: str, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        if not path.endswith("/ask"):
            return answer_others(method, path, headers, content)
        for way, misbehaviour in target.faults.items():
            if name_fault(way).encode() in content:
                return misbehaviour.does
        return body({"answer": "Oslo"})

    world.server.answer = answer
    outcome = world.cli(
        *("compare", "--target", target.option.replace("URL", world.server.url)),
        *("-d", "rows.jsonl", "--label", "answer", "--metric", "contains", "-o", "lines.csv"),
    )
    assert outcome.code == 3, outcome.err
    return read_outcomes(world, "row", "score", ["reason", "reasons.contains"])


# Embeddings


def spoil_vectors(world: World, fault: str) -> Callable[[], None]:
    """Let the server answer each request for embeddings in a bad way; return what ends that."""
    answer_others = world.server.answer

    def answer(method: str, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        good = answer_others(method, path, headers, content)
        if not path.endswith("/embeddings"):
            return good
        bad = VECTOR_FAULTS[fault].does(json.loads(good.body or b""))
        return Answer(body=json.dumps(bad).encode())

    def end() -> None:
        world.server.answer = answer_others

    world.server.answer = answer
    return end


def with_vectors(change: Callable[[list[float]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return what changes each vector of an answer."""

    def spoil(answer: dict[str, Any]) -> dict[str, Any]:
        data = [{**part, "embedding": change(part["embedding"])} for part in answer["data"]]
        return {**answer, "data": data}

    return spoil


VECTOR_FAULTS: Mapping[str, Misbehaviour] = {
    "NaN in a vector": Misbehaviour(
        with_vectors(lambda v: [float("nan"), *v[1:]]), "(?i)nan|finite|not an embedding"
    ),
    "infinity in a vector": Misbehaviour(
        with_vectors(lambda v: [float("inf"), *v[1:]]), "(?i)inf|finite|not an embedding"
    ),
    "null in a vector": Misbehaviour(with_vectors(lambda v: [None, *v[1:]]), "."),
    "zero vectors": Misbehaviour(with_vectors(lambda v: [0.0] * len(v)), "(?i)zero|length|norm|0"),
    "empty vectors": Misbehaviour(with_vectors(lambda _v: []), "empty|dimension|0|length"),
    "null for vectors": Misbehaviour(with_vectors(lambda _v: None), "."),
    "too few vectors": Misbehaviour(
        lambda answer: {**answer, "data": answer["data"][:-1]}, "vectors|embeddings|number"
    ),
    "an error within a 200": Misbehaviour(
        lambda _answer: {"error": {"message": "the model is loading", "code": 503}}, "is loading"
    ),
}


@dataclass(frozen=True)
class VectorDoor:
    """What asks for embeddings.

    Attributes:
        command: The command; MODEL stands for the server's model.
        before: Commands whose embeddings are good.
        files: The files that it reads.
        collection: Where it stores memories, if it does.
        faults: The ways that are tried on it; None: all.
    """

    command: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    collection: str = ""
    faults: Sequence[str] | None = None


REFERRED = {"id": "r", "input": "Why?", "candidates": ["It rains."], "reference": "It rained."}
NOTE = ("memories", "add", "chats", "Ann drinks tea.")
VECTOR_DOORS: Mapping[str, VectorDoor] = {
    "the judge embedding": VectorDoor(
        ("evaluate", "rows.jsonl", "--judge", "embedding@MODEL-embeddings", "-o", "lines.csv"),
        files={"rows.jsonl": write_rows([REFERRED])},
    ),
    "memories add": VectorDoor(NOTE, COLLECTIONS[:1], collection="chats"),
    "memories search": VectorDoor(
        ("memories", "search", "chats", "What does Ann drink?"),
        (COLLECTIONS[0], NOTE),
        faults=("NaN in a vector", "zero vectors", "an error within a 200"),
    ),
    "memories read": VectorDoor(
        ("memories", "read", "handbook.md", "--collection", "docs"),
        COLLECTIONS[1:2],
        {"handbook.md": HANDBOOK},
        "docs",
        ("infinity in a vector", "zero vectors", "too few vectors"),
    ),
    "memories create": VectorDoor(
        ("memories", "create", "rows.jsonl", "--collection", "chats", "-m", "MODEL"),
        COLLECTIONS[:1],
        {"rows.jsonl": write_rows(DIALOGUES)},
        "chats",
        ("empty vectors", "NaN in a vector", "an error within a 200"),
    ),
    "memories re-embed": VectorDoor(
        ("memories", "re-embed", "chats", "--embedder", "MODEL-others"),
        (COLLECTIONS[0], NOTE),
        faults=("NaN in a vector", "zero vectors", "too few vectors", "an error within a 200"),
    ),
}


def count_memories(world: World, collection: str) -> int:
    """Return how many memories a collection has."""
    return len(world.cli("memories", "list", collection, "--json").rows)


# Batches

BATCHES = SETTINGS + "[batches]\nquiet = 0.01\npoll = [0.01, 0.01]\n"
BATCH_REASONS: Mapping[str, str] = {
    "INVALID": "no batches of this|invalid_model",
    "QUEUE_FULL": "[Ee]nqueued token limit|queue",
    "EXPIRED": "expired|not asked",
    "CANCELLED": "cancelled|not asked",
    "ERROR_LINES": "it went wrong|500",
    "REFUSED_LINES": "it went wrong|400",
    "LOST_LINES": "without an answer|can be read in its results",
    "POLLS_FAIL": "try again|500",
    "CREATED_UNSAID": "something broke|500",
    "RESULTS_GONE": "no such file|404|result",
    "RESULTS_LATE": "results cannot be read",
    "RESULTS_EMPTY": "results cannot be read",
    "RESULTS_A_PAGE": "results cannot be read",
    "RESULTS_CUT": "results cannot be read",
    "FILE_UNNAMED": "results cannot be read",
    "FAILED_FIRST": "it went wrong|500",
}
"""What the reason must say after each fault of a batch, if a score is missing."""


def fail_batches(fault: BatchFault) -> Callable[[int], BatchFault | None]:
    """Return what fails each job; a full queue only the first, since it is waited for."""
    first_alone = fault is BatchFault.QUEUE_FULL
    return lambda job: None if first_alone and job > 1 else fault


# Files

UNREADABLE: Mapping[str, Any] = {
    "null": None,
    "an empty text": "",
    "NaN": float("nan"),
    "a word": "perhaps",
}
"""What stands in the place of a label, a verdict or a number."""
REFERENCE_METRICS = tuple(
    name for name, recipe in METRICS.items() if recipe.row.get("reference") is not None
)
SURE = "sure"
"""The key of the threshold."""
RATES = r"^\.(?!aggregates|run$|missing$|sentences)"
"""The figures of `bench rate`, without what tells of missing verdicts."""
PEOPLE = 12
"""How many rows have a verdict and a label."""


Read = tuple[Any, Any]
"""What the product makes of what it reads, and what is right."""


def read_reference(world: World, metric: str, value: Any) -> Read:
    """A metric has no score where its reference cannot be read, and names the reference."""
    recipe = METRICS[metric]
    row = {**recipe.row, "id": "bad", "reference": value}
    start(world, {**recipe.files, "rows.jsonl": write_rows([{**recipe.row, "id": "whole"}, row])})
    world.cli("evaluate", "rows.jsonl", "--judge", recipe.text, "-o", "lines.csv")
    lines = [line for line in read_lines(world.home / "lines.csv") if line["id"] == "bad"]
    outcomes = [
        (line["score"], bool(re.search("reference|perhaps", line["reason"]))) for line in lines
    ]
    return outcomes, [("", True) for _candidate in recipe.row["candidates"]]


def read_label(world: World, value: Any) -> Read:
    """A row whose label cannot be read is left out of agreement, or the file is refused."""
    rows = [{**row, "candidates": ["A good answer.", "Poor."], "winner": 1} for row in PAIRS]
    rows[0] = {**rows[0], "winner": value}
    start(world, {"rows.jsonl": write_rows(rows)})
    outcome = world.cli(
        *("bench", "agreement", "rows.jsonl", "--judge", "look:length", "-o", "summary.json")
    )
    if outcome.code == 2:
        return "winner" in outcome.err, True
    summary = json.loads((world.home / "summary.json").read_text(encoding="utf-8"))["summary"]
    # People take the longer text in each row that has their label, look:length the shorter one.
    return (summary["labelled"], summary["judges"][0]["accuracy"]["value"]), (len(rows) - 1, 0.0)


def read_verdict(world: World, value: Any) -> Read:
    """A verdict that cannot be read is neither passed nor failed: all figures are as without its
    row, or the file is refused."""
    judged = [{"id": f"t{n}", "judged": n % 3 > 0} for n in range(PEOPLE)]
    labelled = [{"id": f"t{n}", "judged": n % 3 > 0, "human": n % 4 > 0} for n in range(PEOPLE)]
    start(world, {"labelled.jsonl": write_rows(labelled), "judged.jsonl": write_rows(judged)})
    command = ("bench", "rate", "judged.jsonl", "labelled.jsonl", "-o", "summary.json")
    world.cli(*command)
    full_payload = json.loads((world.home / "summary.json").read_text(encoding="utf-8"))
    rows = [*judged, {"id": "bad", "judged": value}]
    (world.home / "judged.jsonl").write_text(write_rows(rows), encoding="utf-8")
    outcome = world.cli(*command)
    if outcome.code == 2:
        return "judged" in outcome.err, True
    summary = json.loads((world.home / "summary.json").read_text(encoding="utf-8"))
    return (summary["missing"], select(RATES, summary)), (1, select(RATES, full_payload))


def read_threshold(world: World, value: Any) -> Read:
    """A number under a threshold's key that cannot be read gives no score."""
    rows = [
        {
            "episode": f"e{n}",
            "step": 0,
            "node": "plan",
            "input": "Say it.",
            "output": {SURE: number},
        }
        for n, number in enumerate((0.9, value))
    ]
    start(world, {"trace.jsonl": write_rows(rows)})
    world.cli("nodes", "evaluate", "trace.jsonl", "--threshold", f"{SURE}=0.7", "-o", "lines.csv")
    return [line["score"] for line in read_lines(world.home / "lines.csv")], ["0.9", ""]


FILE_DOORS: Mapping[str, Callable[[World, Any], Read]] = {
    "a label of agreement": read_label,
    "a verdict of bench rate": read_verdict,
    "a key of nodes --threshold": read_threshold,
}
