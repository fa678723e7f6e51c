"""A user's rows depend on each other: replies of a chat, rows of a group, one row several times.

Six chats of 20 replies, three with good replies alone and three with none: clustered by chat, the
share that passes has the interval [14.0, 86.0] (Wilson's interval of 3 of 6 with Student's t of
five degrees of freedom); as 120 independent rows it would be [41.2, 58.8]. Of four groups in all of
which one variant is better, a sign-flip test has 16 patterns, of which two are as far: p = 0.125.
"""

import csv
import json
import sqlite3
from contextlib import closing

import pytest
from asked import write_rows

from textevolve import Client
from textevolve.bench.items import items_of
from textevolve.loops.calibration.trial_runner import (
    ProgramNames,
    count_groups,
    part_examples,
    take_examples,
)
from textevolve.runs.gates import Gates, check_gates
from textevolve.runs.report import compare_runs, read_figures
from textevolve.runs.study import Row
from textevolve.store.repository import Store

INTERVAL = "50.0 % [14.0, 86.0]"
GROUPS = range(6)
MEMBERS = range(20)


def answer(group):
    return "good" if group % 2 else "bad"


def chats():
    for group in GROUPS:
        turns = []
        for member in MEMBERS:
            turns.append({"role": "user", "content": f"chat {group} q{member}"})
            turns.append({"role": "assistant", "content": f"{answer(group)} {member}"})
        yield {"id": f"c{group}", "messages": turns}


def grouped(column, group):
    return [
        {column: f"g{group}", "input": f"Question {group} {member}?", "output": answer(group)}
        for member in MEMBERS
    ]


def repeated(group):
    return [
        {
            "id": f"{group}-{member}",
            "asked_at": f"2026-03-{member + 1:02}T10:0{group}",
            "input": f"Question{' ' * (member + 1)}{group}?",
            "output": answer(group),
        }
        for member in MEMBERS
    ]


def judge(cli, path, *options):
    outcome = cli("evaluate", path, "--judge", "metric:regex:good", *options)
    assert outcome.code == 0, outcome.err
    return outcome.out


def test_replies_of_chats(cli, home):
    write_rows(home / "chats.jsonl", chats())
    written = judge(cli, "chats.jsonl", "--each-reply", "-o", "replies.jsonl", "-o", "replies.csv")
    assert INTERVAL in written
    assert "60 of 120 cases in 6 independent groups passed" in written

    # What is exported depends as much when it is read again.
    assert INTERVAL in judge(cli, "replies.jsonl", "--seed", "1")
    mapped = ("--map", "input=index", "--map", "output=text")
    assert INTERVAL in judge(cli, "replies.csv", *mapped)


@pytest.mark.parametrize("column", ["group", "Chat ID", "sessionId", "thread_id"])
def test_rows_of_groups(cli, home, column):
    write_rows(home / "rows.jsonl", [row for n in GROUPS for row in grouped(column, n)])
    assert INTERVAL in judge(cli, "rows.jsonl")
    with closing(Store(home / "store.db")) as store:
        (run,) = store.list_runs(9)
    assert INTERVAL in cli("runs", "show", run.id).out


def test_equal_rows_in_a_table(cli, home):
    rows = [row for n in GROUPS for row in repeated(n)]
    with (home / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert INTERVAL in judge(cli, "rows.csv")


def test_one_row_eight_times(cli, home):
    write_rows(home / "rows.jsonl", [{"id": n, "input": "q", "output": "good"} for n in range(8)])
    assert "8 of 8 cases in 1 independent group passed (100.0 %)" in judge(cli, "rows.jsonl")


def test_one_instruction_for_all(cli, home):
    """An input that all rows share tells no row from another."""
    rows = [{"id": n, "input": "Label it.", "output": answer(n)} for n in range(20)]
    write_rows(home / "rows.jsonl", rows)
    assert "50.0 % [29.9, 70.1]" in judge(cli, "rows.jsonl")


def test_repeats_of_promptfoo(cli, home):
    results = [
        {
            "promptIdx": 0,
            "testIdx": len(GROUPS) * member + group,
            "testCase": {"vars": {"n": group}},
            "vars": {"n": group},
            "prompt": {"raw": f"Question {group}?"},
            "provider": {"id": "p"},
            "response": {"output": f"{answer(group)} {member}"},
        }
        for member in MEMBERS
        for group in GROUPS
    ]
    (home / "results.json").write_text(json.dumps({"results": {"results": results}}))
    assert INTERVAL in judge(cli, "results.json")


def paired(rows):
    """Four groups of five rows, in all of which the second output is right."""
    return [
        {"q": f"Question {row}?", "want": "yes", "old": "no", "new": "yes", **row_fields}
        for row, row_fields in rows
    ]


@pytest.mark.parametrize("kind", ["groups", "equal rows"])
def test_variants_on_four_groups(cli, home, kind):
    numbers = [(group, member) for group in range(4) for member in range(5)]
    if kind == "groups":
        rows = paired((f"{g} {m}", {"group": g}) for g, m in numbers)
    else:
        rows = paired((g, {"id": f"{g}-{m}"}) for g, m in numbers)
    write_rows(home / "rows.jsonl", rows)
    options = ("--outputs", "old", "--outputs", "new", "--label", "want", "--input", "q")
    outcome = cli("compare", "-d", "rows.jsonl", *options, "--metric", "exact", "--json")
    figures = json.loads(outcome.out)["differences"]["new"]
    assert (figures["p"], figures["items"], figures["groups"]) == (0.125, 20, 4)
    sentence = json.loads(outcome.out)["sentence"]
    assert "20 rows in 4 independent groups" in sentence
    assert "beats" not in sentence


def test_prompts_on_equal_rows(cli, home, server, model):
    """A column that no prompt reads makes no row different."""
    server.script = lambda body, _number: "yes" if "please" in str(body) else "no"
    numbers = [(group, member) for group in range(4) for member in range(5)]
    rows = [{"id": f"{g}-{m}", "q": f"Q{g}?", "tag": m, "want": "yes"} for g, m in numbers]
    (home / "old.txt").write_text("{q}")
    (home / "new.txt").write_text("{q} please")
    write_rows(home / "rows.jsonl", rows)
    options = ("-d", "rows.jsonl", "--label", "want", "--metric", "exact", "-m", model)
    outcome = cli("compare", "-p", "old.txt", "-p", "new.txt", *options, "--json")
    (figures,) = json.loads(outcome.out)["differences"].values()
    assert (figures["p"], figures["groups"]) == (0.125, 4)


def list_rows(score, group=lambda n: f"group {n % 4}"):
    return [Row(str(n), n, str(n), score, passed=score > 0.5, cluster=group(n)) for n in range(60)]


def test_gates_count_groups():
    gates = Gates(no_worse_than="main", margin=0.3)
    (alone,) = check_gates(list_rows(1.0, str), gates, list_rows(1.0, str))
    assert alone.holds
    (outcome,) = check_gates(list_rows(1.0), gates, list_rows(1.0))
    assert not outcome.holds
    assert "60 cases in 4 independent groups" in outcome.found
    # Runs of earlier versions know no groups.
    (outcome,) = check_gates(list_rows(1.0), gates, list_rows(1.0, lambda _: ""))
    assert not outcome.holds


def test_stored_runs_count_groups():
    comparison = compare_runs(list_rows(0.0, lambda _: ""), list_rows(1.0))
    assert comparison.data["scores"]["p"] == 0.125
    assert comparison.data["scores"]["groups"] == 4


def test_rows_from_python(home):
    rows = paired((f"{n} {m}", {"group": n}) for n in range(4) for m in range(5))
    options = {"outputs": ("old", "new"), "label": "want", "metric": "exact"}
    with Client() as client:
        comparison = client.compare(rows, **options)
    assert (comparison.differences["new"].p, comparison.differences["new"].groups) == (0.125, 4)


def test_labelled_items():
    rows = [{"chat_id": "c", "input": f"q{n}", "output": "a", "label": n % 2} for n in range(4)]
    assert len({item.group for item in items_of(rows)}) == 1


def split(rows, **options):
    program = options.get("program")
    template = "{word}"
    examples, columns = take_examples(template, rows, label="label", **options)
    material = part_examples(template, examples, columns, "label", None, program)
    return material.training, material.validation


def questions(**columns):
    return [
        (
            f"row {4 * word + time}",
            {
                "id": f"t{4 * word + time}",
                "asked_at": f"2026-03-0{time + 1}",
                "word": f"W{word}",
                "label": f"R{word}",
                **{name: value(word, time) for name, value in columns.items()},
            },
        )
        for word in range(12)
        for time in range(4)
    ]


def test_ids_make_no_question():
    """A program gets whole rows, and 12 questions of which each was asked four times."""
    program = ProgramNames(None, (("ask", ("word",)),), whole=True)
    training, validation = split(questions(), program=program, keep_rows=True)
    assert (len(training), len(validation)) == (16, 32)
    assert (count_groups(training), count_groups(validation)) == (4, 8)
    words = [{example.values["word"] for example in side} for side in (training, validation)]
    assert not words[0] & words[1]


def test_ids_that_a_program_needs():
    """Where rows have nothing but an id, the id is what the program reads."""
    program = ProgramNames(None, (("ask", ()),), whole=True)
    rows = [(f"row {n}", {"doc_id": f"d{n}", "label": n % 2}) for n in range(12)]
    training, validation = split(rows, program=program, keep_rows=True)
    assert count_groups(training) + count_groups(validation) == 12


def test_groups_of_a_prompt():
    rows = questions(group=lambda word, _: word % 9, word=lambda word, time: f"W{word} {time}")
    training, validation = split(rows)
    assert count_groups(training) + count_groups(validation) == 9
    groups = [{example.group for example in side} for side in (training, validation)]
    assert not groups[0] & groups[1]


def test_group_as_a_value():
    """A column `group` that the template shows is an input like any other."""
    rows = [(f"row {n}", {"group": n % 2, "word": n, "label": n}) for n in range(9)]
    examples, _ = take_examples("{group} {word}", rows, label="label")
    assert count_groups(examples) == 9


def test_stored_runs_of_groups(cli, home):
    for output in ("bad", "good"):
        rows = [row for n in range(4) for row in grouped("group", n)]
        write_rows(home / f"{output}.jsonl", [{**row, "output": output} for row in rows])
        judge(cli, f"{output}.jsonl", "--name", output)
    compared = cli("runs", "compare", "bad", "good")
    assert compared.code == 0, compared.err
    # As 80 independent rows all of which are better the difference would be significant.
    assert "No significant difference from bad" in compared.out
    assert "(80 rows in 4 independent groups)" in compared.out


def test_older_stores_open(cli, home):
    write_rows(home / "rows.jsonl", [row for n in GROUPS for row in grouped("group", n)])
    judge(cli, "rows.jsonl")
    assert count_clusters(home) == (120, len(GROUPS))
    with closing(sqlite3.connect(home / "store.db")) as raw:
        raw.execute("DROP INDEX records_in_order")
        raw.execute("ALTER TABLE records DROP COLUMN cluster")
        raw.execute("CREATE INDEX records_in_order ON records (run_id, position)")
        raw.execute("UPDATE alembic_version SET version_num = '0010'")
        raw.commit()
    assert count_clusters(home) == (120, 120)


def count_clusters(home):
    """Return how many scores a page of the run has, and how many of them are independent."""
    with closing(Store(home / "store.db")) as store:
        (run,) = store.list_runs(9)
        (figures,) = read_figures(store, run).values()
    return figures.scored, figures.clusters
