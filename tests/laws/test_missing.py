"""Law 2: missing is not a value.

An answer that failed, is empty, was cut, filtered or refused, and code of the user that raised or
returned no score, give a reason. They never give a number, a default, or the value of something
else. A reference, label or verdict that cannot be read is missing; a whole answer of the candidate
in which a metric finds nothing is a wrong answer, 0; a cut, filtered or refused answer is missing.

A cell is a door (a judge, a kind of study and one kind of its calls, a gate, a target, embeddings,
code of the user, a file) under one way in which an answer is bad. Its name says both: `probe /
refusal` is the judge `probe` whose model refuses. A failure shows the score that there must not be,
or the reason that does not say what happened. The ways of models are in `missing_world.py`, those
of other doors in `missing_doors.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table as read_parquet

from laws.judges import JUDGES, OPTIONS_OF_JUDGES, JudgeRecipe
from laws.matrix import check_known, check_members, parametrize
from laws.missing_doors import (
    BATCH_REASONS,
    BATCHES,
    CODE_DOORS,
    CODE_FAULTS,
    FILE_DOORS,
    LOOPS,
    REFERENCE_METRICS,
    TARGETS,
    UNREADABLE,
    VECTOR_DOORS,
    VECTOR_FAULTS,
    WHOLE_SCORE,
    Outcome,
    count_memories,
    fail_batches,
    read_reference,
    run_target,
    spoil_vectors,
    start,
)
from laws.missing_world import (
    ASKING_NO_MODEL,
    HASTY,
    ONE_ROW,
    PARTS,
    ROW_FAULTS,
    RUN_FAULTS,
    SETTINGS,
    STUDY_CALLS,
    WAITING,
    WAYS,
    WITHOUT_LOGPROBS,
    Judged,
    answer_by_marks,
    answer_well,
    flatten,
    judge_rows,
    mark_row,
    name_form,
    read_junit,
    read_lines,
    run_study,
    select,
    spoil_answer,
)
from laws.registries import list_outputs
from laws.studies import RECIPES, TEXTS, Recipe, World
from textevolve.llm.testing import BatchFault, Fault, ScriptedBatches

pytestmark = pytest.mark.guard

PASSING_RULES = "rules: [{kind: must_not, pattern: no such words, gate: false}]\n"
LONE_JUDGE = "instruction-likelihood"
"""It gives up the endpoint after one answer that does not have the tokens of its text."""
ASKING = {
    name: recipe
    for name, recipe in {**JUDGES, **OPTIONS_OF_JUDGES}.items()
    if recipe.asks and name != "embedding@MODEL"
}
# One round shows what two do.
ASKING["debate:PROFILE"] = JudgeRecipe("debate+rounds=1")
ASKING["hybrid:FILE.yaml:JUDGE"] = JudgeRecipe(
    "hybrid:rules.yaml:probe", files={"rules.yaml": PASSING_RULES}
)
TEXT_JUDGES = (
    "debate:PROFILE",
    "jury:PROFILE",
    "single",
    "escalation:PROFILE",
    "checklist",
    "single+readout=verbalized",
    "single+readout=logprob-weighted",
    "single+readout=after-argument",
    "single+readout=decide",
)
"""Judges that ask for texts. The others ask for one token, which is always at its limit and has no
JSON that could be damaged."""
REFUSED_CALLS = (
    *("SERVER_ERROR", "OVERLOADED", "RATE_LIMIT", "RATE_LIMIT_WAIT", "RESET", "CUT_BODY"),
    *("NOT_JSON", "TOO_LONG_OPENAI", "TOO_LONG_LLAMACPP", "NO_IMAGES_OPENAI"),
    "NO_IMAGES_LLAMACPP",
)
"""Ways that no judge sees, since its client fails: each judge is tried with some of them."""
SHARED_WAYS = [way for way in WAYS if way not in (*RUN_FAULTS, *WITHOUT_LOGPROBS)]


def list_ways_of(judge: str) -> list[str]:
    """Return the ways that a judge is tried with."""
    number = list(ASKING).index(judge)
    left_out = {way for place, way in enumerate(REFUSED_CALLS) if (place + number) % 3}
    readable = judge in TEXT_JUDGES
    ways = [way for way in SHARED_WAYS if way not in left_out]
    return [way for way in ways if readable or not WAYS[way].texts_only]


def list_judge_cells() -> dict[str, tuple[str, str]]:
    """Return each judge under each way that can concern it."""
    return {
        f"{judge} / {way}": (judge, way)
        for judge in ASKING
        if judge != LONE_JUDGE
        for way in list_ways_of(judge)
    }


JUDGE_CELLS = list_judge_cells()
RUNS: dict[str, tuple[Judged, Judged]] = {}
"""What each judge said of its whole row and of the readable ones alone, and of all rows."""


def judge_all_ways(request, judge: str) -> tuple[Judged, Judged]:
    """Judge one row for each way, in one run; and the rows that a careful reader can still read
    with good answers, in another."""
    if judge not in RUNS:
        world = request.getfixturevalue("world")
        recipe = ASKING[judge]
        ways = list_ways_of(judge)
        readable = ["whole", *(way for way in ways if may_be_right(way))]
        undisturbed = judge_rows(
            world, recipe, answer_well, *(mark_row(recipe.row, way) for way in readable)
        )
        rows = [mark_row(recipe.row, way) for way in ("whole", *ways)]
        RUNS[judge] = undisturbed, judge_rows(world, recipe, answer_by_marks, *rows)
    return RUNS[judge]


def may_be_right(way: str) -> bool:
    """Tell whether the right value may come out of a bad answer: it can be read, or an answer
    without the part that is bad was not changed."""
    cut = "length" in way or "MAX_TOKENS" in way or way == "CUT_JSON"
    return WAYS[way].readable or (WAYS[way].texts_only and not cut)


def check_missing(way: str, scores: list[float | None], reasons: list[str]) -> None:
    """Assert that there is no score, and a reason that says what happened."""
    assert scores == [None] * len(scores), reasons
    for reason in reasons:
        assert re.search(WAYS[way].reason, reason), f"the reason does not name it: {reason}"
        check_advice(way, reason)


def check_advice(way: str, reason: str) -> None:
    """Assert that a reason advises more room only where room was short."""
    short = (
        "length" in way
        or "MAX_TOKENS" in way
        or "THOUGHT" in way
        or way in ("CUT_JSON", "EMPTY", "blank text")
    )
    assert short or "max-output-tokens" not in reason, f"this advice does not help: {reason}"


@parametrize("missing", "cell", JUDGE_CELLS, quick=1)
def test_a_bad_answer_gives_no_score(request, cell):
    judge, way = cell
    undisturbed, judged = judge_all_ways(request, judge)
    scores = judged.read_scores(way)
    if may_be_right(way) and scores == undisturbed.read_scores(way):
        return
    check_missing(way, scores, judged.read_reasons(way))


BESIDE_CELLS = {f"{judge} / rows beside bad ones": judge for judge in ASKING if judge != LONE_JUDGE}


@parametrize("missing", "judge", BESIDE_CELLS, quick=0)
def test_rows_beside_keep_their_scores(request, judge):
    undisturbed, judged = judge_all_ways(request, judge)
    scores = judged.read_scores("whole")
    assert None not in scores
    assert scores == undisturbed.read_scores("whole")
    assert judged.code == 3


def list_lone_cells() -> dict[str, tuple[str, str]]:
    """Return judges under ways that concern an endpoint: each way with some judges and each judge
    with some ways, and all ways with the judge that always has runs of its own."""
    ways = [*RUN_FAULTS, *WITHOUT_LOGPROBS]
    # The fitted judge asks as `probe` does, and takes a second to be fitted.
    judges = [judge for judge in ASKING if judge not in (LONE_JUDGE, "FILE.judge")]
    pairs = [(judge, ways[(5 * number) % len(ways)]) for number, judge in enumerate(judges)]
    lone = [way for way in WAYS if not WAYS[way].texts_only]
    pairs += [(LONE_JUDGE, way) for way in lone[::3]]
    return {f"{judge} / {way} alone": (judge, way) for judge, way in sorted(set(pairs))}


LONE_CELLS = list_lone_cells()


@parametrize("missing", "cell", LONE_CELLS, quick=1)
def test_a_bad_endpoint_gives_no_score(world, cell):
    judge, way = cell
    recipe = ASKING[judge]
    rows = [mark_row(recipe.row, "whole"), mark_row(recipe.row, way)]
    if way in RUN_FAULTS:
        settings = HASTY if way == "TIMEOUT" else SETTINGS
        judged = judge_rows(world, recipe, lambda *_: Fault[way], *rows, settings=settings)
        scores = [score for row in judged.rows for score in judged.read_scores(row)]
        assert scores == [None] * len(scores)
        assert judged.code in (1, 3)
        assert re.search(WAYS[way].reason, judged.err), judged.err
        return
    full_judged = judge_rows(world, recipe, answer_well, rows[0])
    judged = judge_rows(world, recipe, answer_by_marks, *rows)
    assert {"whole", way} <= judged.rows.keys(), f"one bad row stops the others: {judged.err}"
    assert judged.read_scores("whole") == full_judged.read_scores("whole")
    check_missing(way, judged.read_scores(way), judged.read_reasons(way))


FAILED_WAYS = (
    *("finish reason error", "finish reason abort", "finish reason insufficient_system_resource"),
    *("blank text", "EMPTY", "ERROR_IN_200", "NOT_JSON", "SERVER_ERROR", "RESET", "CUT_BODY"),
)
"""Ways that say nothing about the next answer to the same request."""
AGAIN_JUDGES = ("single", "probe", "checklist")
AGAIN_CELLS = {
    f"{judge} / asked again after {way}": (judge, way)
    for judge in AGAIN_JUDGES
    for way in FAILED_WAYS
}
AGAIN_RUNS: dict[str, tuple[Judged, Judged]] = {}
"""What each judge says of its rows in an empty store, and after they failed."""


@parametrize("missing", "cell", AGAIN_CELLS, quick=0)
def test_a_failed_answer_is_not_kept(request, cell):
    judge, way = cell
    if judge not in AGAIN_RUNS:
        world = request.getfixturevalue("world")
        recipe = ASKING[judge]
        rows = [mark_row(recipe.row, way) for way in FAILED_WAYS]
        undisturbed = judge_rows(world, recipe, answer_well, *rows)
        judge_rows(world, recipe, answer_by_marks, *rows)
        again = judge_rows(world, recipe, answer_well, *rows, again=True)
        AGAIN_RUNS[judge] = undisturbed, again
    undisturbed, again = AGAIN_RUNS[judge]
    assert again.read_scores(way) == undisturbed.read_scores(way), again.read_reasons(way)


LOST_WAYS = ("SERVER_ERROR", "CALLS_ONLY", "ERROR_IN_200", "refusal")
ENDED_WAYS = (
    "finish reason error",
    "finish reason content_filter",
    "finish reason abort",
    "finish reason insufficient_system_resource",
)


def list_study_cells() -> dict[str, tuple[str, str]]:
    """Return each form of each study's calls without text, and under one other way of each sort,
    in turn, so that each way meets many kinds."""
    cells: dict[str, tuple[str, str]] = {}
    for number, calls in enumerate(STUDY_CALLS):
        ways = ["blank text", (LOST_WAYS, ENDED_WAYS)[number % 2][number // 2 % 4]]
        if not calls.endswith("decisions"):
            ways.append("THOUGHT_ONLY" if number % 4 == 0 else "finish reason length")
        cells |= {f"{calls} / {way}": (calls, way) for way in ways}
    return cells


STUDY_CELLS = list_study_cells()
SUMMARIES: dict[str, Mapping[str, Any]] = {}
"""The summary of each kind of study whose answers were all good."""


def run_undisturbed(world: World, kind: str) -> Mapping[str, Any]:
    """Return the summary of a study whose answers are all good."""
    if kind not in SUMMARIES:
        outcome, SUMMARIES[kind] = run_study(world, kind, answer_well)
        assert outcome.code == 0, outcome.err
        (world.home / "store.db").unlink()
        (world.home / "summary.json").unlink()
    return SUMMARIES[kind]


@parametrize("missing", "cell", STUDY_CELLS, quick=4)
def test_a_study_invents_no_figure(world, cell):
    calls, way = cell
    kind, _, form = calls.partition(", ")
    undisturbed = run_undisturbed(world, kind)

    def answer(body, number):
        good = answer_well(body, number)
        return spoil_answer(way, good, body) if name_form(body) == form else good

    outcome, summary = run_study(world, kind, answer)
    expected = STUDY_CALLS[calls]
    assert select(expected.figures, undisturbed), "the pattern names no figure"
    assert select(expected.figures, summary) == {}
    if expected.kept:
        assert select(expected.kept, summary) == select(expected.kept, undisturbed)
    assert outcome.code == expected.code
    texts = [text for text in flatten(summary).values() if isinstance(text, str)]
    report = " ".join((outcome.err + outcome.out + "\n".join(texts)).split())
    assert re.search(WAYS[way].reason, report), f"the report does not name it: {outcome.err}"
    check_advice(way, outcome.err)


PART_WAYS = zip(PARTS, cycle(("blank text", "SERVER_ERROR")), strict=False)
PART_CELLS = {f"{kind} / one row, {way}": (kind, way) for kind, way in PART_WAYS}
LINES: dict[str, list[dict[str, str]]] = {}
"""The table of each kind of study whose answers were all good."""


def read_undisturbed_lines(world: World, kind: str) -> list[dict[str, str]]:
    """Return the table of a study whose answers are all good."""
    if kind not in LINES:
        run_study(world, kind, answer_well, "-o", "lines.csv")
        LINES[kind] = read_lines(world.home / "lines.csv")
        (world.home / "store.db").unlink()
        (world.home / "lines.csv").unlink()
    return LINES[kind]


@parametrize("missing", "cell", PART_CELLS, quick=2)
def test_one_bad_row_is_left_out(world, cell):
    kind, way = cell
    part = PARTS[kind]
    undisturbed = read_undisturbed_lines(world, kind)

    def answer(body, number):
        good = answer_well(body, number)
        return spoil_answer(way, good, body) if part.needle in json.dumps(body) else good

    gates = ("--min-mean", "0", "--min-pass-rate", "0", "--junit", "junit.xml")
    outcome, summary = run_study(world, kind, answer, "-o", "lines.csv", *gates)
    lines = read_lines(world.home / "lines.csv")

    def name_row(line: Mapping[str, str]) -> str:
        return ",".join(line[key] for key in part.keys)

    affected = [line for line in lines if re.search(part.row, name_row(line))]
    assert affected
    for line in affected:
        assert [line[column] for column in part.values] == [""] * len(part.values)
        assert re.search(WAYS[way].reason, " ".join(map(str, line.values())))
    other_records = [line for line in lines if line not in affected]
    before = [line for line in undisturbed if not re.search(part.row, name_row(line))]
    columns = (*part.keys, *part.values)
    assert [[line[column] for column in columns] for line in other_records] == [
        [line[column] for column in columns] for line in before
    ]
    if part.mean is not None:
        pattern, compute = part.mean
        assert list(select(pattern, summary).values()) == [pytest.approx(compute(before))]

    assert outcome.code == 4, "a gate holds by leaving a row out"
    assert re.search("gate fails.*(without a|have no) score", outcome.err)
    junit = read_junit(world.home / "junit.xml")
    assert len(junit["error"]) == part.records
    assert junit["failure"] == []
    assert junit["gate"] != []


OUTPUTS: Mapping[str, Callable[[Path], object]] = {
    ".csv": lambda path: [line["score"] for line in read_lines(path)][2:4] == ["", ""],
    ".jsonl": lambda path: read_json_scores(path) == [None, None],
    ".json": lambda path: json.loads(path.read_text("utf-8"))["failed"] == 1,
    ".parquet": lambda path: read_parquet(path).column("score").to_pylist()[2:4] == [None, None],
    ".html": lambda path: re.search(r">c1<.{0,200}failed", path.read_text("utf-8"), re.DOTALL),
    ".md": lambda path: re.search(r"\| c1 \| *failed", path.read_text("utf-8")),
}
"""How each format shows that a case has no score."""
OUTPUT_CELLS = {f"evaluate -o {ending} / one row": ending for ending in OUTPUTS}


def read_json_scores(path: Path) -> list[float | None]:
    """Return the scores of the second case in JSON lines."""
    case = json.loads(path.read_text("utf-8").splitlines()[1])
    return [candidate["score"] for candidate in case["candidates"]]


@parametrize("missing", "ending", OUTPUT_CELLS, quick=1)
def test_an_output_shows_no_score(world, ending):
    def answer(body, number):
        good = answer_well(body, number)
        bad = PARTS["evaluate"].needle in json.dumps(body)
        return spoil_answer("blank text", good, body) if bad else good

    run_study(world, "evaluate", answer, "-o", f"table{ending}")
    assert OUTPUTS[ending](world.home / f"table{ending}")
    exported = f"exported{ending}"
    assert world.cli("runs", "export", "last", exported).code == 0
    assert OUTPUTS[ending](world.home / exported)


REVISIONS: Mapping[str, Recipe] = {
    "evaluate": RECIPES["evaluate"].with_file(
        "cases.jsonl", [{**row, "candidates": [f"New text {row['id']}."]} for row in TEXTS]
    ),
    "compare": RECIPES["compare"].changed(prompts={"plain": "What is {n} and {n} more? Be brief."}),
    "optimize": RECIPES["optimize"].changed(seed=1),
}
"""Another run of each kind that a baseline is often taken of, on the same rows."""
BASELINE_CELLS = {
    f"{kind} / {rows} of the baseline without a score": (kind, rows)
    for kind in REVISIONS
    for rows in ("no row", "one row", "all rows")
    if (kind, rows) != ("optimize", "one row")
}


@parametrize("missing", "cell", BASELINE_CELLS, quick=0)
def test_a_baseline_vouches_for_scores(world, cell):
    kind, rows = cell

    def answer(body, number):
        good = answer_well(body, number)
        bad = rows == "all rows" or (rows == "one row" and PARTS[kind].needle in json.dumps(body))
        return spoil_answer("blank text", good, body) if bad else good

    run_study(world, kind, answer, "--name", "main")
    recipe = REVISIONS[kind]
    world.prepare(recipe)
    world.script = answer_well
    outcome = world.run(kind, recipe, "--no-worse-than", "main", "--max-regressions", "100")
    assert re.search(r"^gate (holds|fails)", outcome.err, re.MULTILINE), outcome.err
    # Any loss is allowed, so nothing but the rows that main lacks can make the gate fail.
    assert outcome.code == (0 if rows == "no row" else 4), outcome.err


CODE_CELLS = {
    f"{door} / a function that {fault}": (door, fault)
    for door in CODE_DOORS
    for fault in CODE_FAULTS
    # A judge's list has a score for each candidate.
    if (door, fault) != ("evaluate in Python", "returns a list")
}
CODE_RUNS: dict[str, Mapping[str, Outcome]] = {}
"""What each door says of the texts on which the user's function misbehaves, by the way."""


@parametrize("missing", "cell", CODE_CELLS, quick=2)
def test_user_code_gives_no_score(request, cell):
    door, fault = cell
    if door not in CODE_RUNS:
        CODE_RUNS[door] = CODE_DOORS[door](request.getfixturevalue("world"))
    outcomes = CODE_RUNS[door]
    assert outcomes["whole"].scores == [WHOLE_SCORE]
    assert outcomes[fault].scores == [None]
    assert re.search(CODE_FAULTS[fault].reason, outcomes[fault].reason), outcomes[fault].reason


LOOP_CELLS = {
    f"{name} / a metric that {fault}": (name, fault)
    for name in LOOPS
    for fault in ("raises", "returns None", "returns NaN", "returns 2.0")
}


@parametrize("missing", "cell", LOOP_CELLS, quick=1)
def test_user_code_decides_no_loop(world, cell):
    name, fault = cell
    loop = LOOPS[name]
    code = loop.code.replace("STATEMENT", CODE_FAULTS[fault].does)
    (world.home / "own.py").write_text(code, encoding="utf-8")
    recipe = RECIPES[name].changed(**loop.options)
    outcome, summary = run_study(world, name, answer_well, recipe=recipe)
    scores = set(select(loop.figures, summary).values())
    assert scores == {WHOLE_SCORE}, "the metric gave no other score"
    report = " ".join(outcome.err.split())
    assert re.search(CODE_FAULTS[fault].reason, report), f"the report does not name it: {report}"


TARGET_CELLS = {
    f"{kind} target / {fault}": (kind, fault)
    for kind, target in TARGETS.items()
    for fault in target.faults
}
TARGET_RUNS: dict[str, Mapping[str, Outcome]] = {}


@parametrize("missing", "cell", TARGET_CELLS, quick=2)
def test_a_bad_target_has_no_score(request, cell):
    kind, fault = cell
    if kind not in TARGET_RUNS:
        TARGET_RUNS[kind] = run_target(request.getfixturevalue("world"), kind)
    outcomes = TARGET_RUNS[kind]
    assert outcomes["whole"].scores == [1.0]
    assert outcomes[fault].scores == [None]
    reason = outcomes[fault].reason
    assert re.search(TARGETS[kind].faults[fault].reason, reason), reason


VECTOR_CELLS = {
    f"{name} / {fault}": (name, fault)
    for name, door in VECTOR_DOORS.items()
    for fault in door.faults or VECTOR_FAULTS
}


@parametrize("missing", "cell", VECTOR_CELLS, quick=1)
def test_a_bad_vector_is_no_vector(world, cell):
    name, fault = cell
    door = VECTOR_DOORS[name]
    start(world, door.files)
    for words in door.before:
        assert world.cli(*[word.replace("MODEL", world.model) for word in words]).code == 0
    command = [word.replace("MODEL", world.model) for word in door.command]
    answer_well_again = spoil_vectors(world, fault)
    outcome = world.cli(*command)
    assert outcome.code in (1, 3), outcome.out
    assert re.search(VECTOR_FAULTS[fault].reason, outcome.err), outcome.err
    if door.collection:
        assert count_memories(world, door.collection) == 0
    if name == "the judge embedding":
        assert [line["score"] for line in read_lines(world.home / "lines.csv")] == [""]
    answer_well_again()
    again = world.cli(*command)
    assert again.code == 0, f"the bad answer was kept: {again.err}"


BATCH_CELLS = {
    f"{kind} in batches / {fault.value}": (kind, fault)
    for kind, faults in (("evaluate", tuple(BatchFault)), ("compare", tuple(BatchFault)[::3]))
    for fault in faults
}


@parametrize("missing", "cell", BATCH_CELLS, quick=1)
def test_a_batch_gives_whole_answers_alone(world, cell):
    kind, fault = cell
    part = PARTS[kind]
    undisturbed = read_undisturbed_lines(world, kind)
    world.server.batches = ScriptedBatches(seconds=0, faults=fail_batches(fault))
    outcome, _ = run_study(world, kind, answer_well, "-o", "lines.csv", "--batch", settings=BATCHES)
    path = world.home / "lines.csv"
    lines = read_lines(path) if path.exists() else []
    whole = {tuple(line[key] for key in part.keys): line for line in undisturbed}
    missing = len(undisturbed) - len(lines)
    for line in lines:
        before = whole[tuple(line[key] for key in part.keys)]
        for column in part.values:
            # A column without any value is not in the table.
            assert (line.get(column) or "") in ("", before[column])
        missing += not line[part.values[0]]
    assert (outcome.code == 0) == (missing == 0), outcome.err
    assert missing == 0 or re.search(BATCH_REASONS[fault.name], outcome.err), outcome.err


REFERENCE_CELLS = {
    f"{metric} / {name} as reference": (metric, value)
    for metric in REFERENCE_METRICS
    for name, value in UNREADABLE.items()
    # A word is a text like others, unless a number is wanted.
    if name != "a word" or metric == "numeric"
}


@parametrize("missing", "cell", REFERENCE_CELLS, quick=1)
def test_an_unreadable_reference_gives_no_score(world, cell):
    outcomes, right = read_reference(world, *cell)
    assert outcomes == right


FILE_CELLS = {
    f"{door} / {name}": (door, value) for door in FILE_DOORS for name, value in UNREADABLE.items()
}


@parametrize("missing", "cell", FILE_CELLS, quick=1)
def test_what_is_unreadable_is_missing(world, cell):
    door, value = cell
    figures, right = FILE_DOORS[door](world, value)
    assert figures == right


def test_each_member_is_tried(cli):
    check_members("output", [*list_outputs(cli)], OUTPUTS)
    check_members("fault", [fault.name for fault in Fault], [*ROW_FAULTS, *RUN_FAULTS, *WAITING])
    check_members("fault of batches", [fault.name for fault in BatchFault], BATCH_REASONS)
    check_members(
        "study", RECIPES, [*{calls.partition(", ")[0] for calls in STUDY_CALLS}, *ASKING_NO_MODEL]
    )
    several = [kind for kind in RECIPES if kind not in ASKING_NO_MODEL]
    check_members("study", several, [*PARTS, *ONE_ROW])


def test_known_failures_are_cells():
    check_known(
        "missing",
        *(
            JUDGE_CELLS,
            BESIDE_CELLS,
            LONE_CELLS,
            AGAIN_CELLS,
            OUTPUT_CELLS,
            STUDY_CELLS,
            PART_CELLS,
            BASELINE_CELLS,
        ),
        *(CODE_CELLS, LOOP_CELLS, TARGET_CELLS, VECTOR_CELLS, BATCH_CELLS),
        *(REFERENCE_CELLS, FILE_CELLS),
    )
