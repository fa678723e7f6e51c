"""A table of promptfoo's tests has a threshold for each test, and checks that name its columns.

A test passes if the weighted share of its assertions reaches its threshold, as promptfoo's
documentation says; of two equal ones 0.5 is reached with one. (promptfoo/promptfoo#5389, #7861,
#3058)
"""

import json

TABLE = """\
topic,place,__expected1,__expected2,__threshold
cats,Oslo,contains: {{place}},contains: dogs,0.5
cows,Oslo,contains: {{place}},contains: dogs,0.6
owls,Oslo,contains: {{place}},,
"""


def compare(cli, home, server, model, table, *options):
    server.script = lambda _body, _number: "All live in Oslo."
    (home / "say.txt").write_text("Write on {{topic}}")
    (home / "tests.csv").write_text(table)
    command = ["compare", "-p", "say.txt", "-d", "tests.csv", "-m", model, "--judge", "checks"]
    return cli(*command, *options)


def test_thresholds_decide(cli, home, server, model):
    outcome = compare(cli, home, server, model, TABLE, "-o", "out.jsonl")
    assert outcome.code == 0, outcome.err
    lines = map(json.loads, (home / "out.jsonl").read_text().splitlines())
    assert [(line["score"], line["passed"]) for line in lines] == [
        (0.5, True),
        (0.5, False),
        (1.0, True),
    ]
    assert "left out" not in outcome.err


def test_checks_of_the_study_read_columns(cli, home, server, model):
    table = "topic,place\ncats,Oslo\n"
    check = ("--check", "contains: {place}")
    outcome = compare(cli, home, server, model, table, *check)
    assert outcome.code == 0, outcome.err
    assert "left out" not in outcome.err


def test_configurations_keep_thresholds(cli, home):
    (home / "tests.csv").write_text(TABLE)
    (home / "config.yaml").write_text("prompts: ['On {{topic}}']\ntests: tests.csv\n")
    assert cli("run", "init", "--from", "config.yaml").code == 0
    rows = [json.loads(line) for line in (home / "study.jsonl").read_text().splitlines()]
    assert [row["checks"]["threshold"] for row in rows[:2]] == [0.5, 0.6]
    assert "threshold" not in rows[2]["checks"]


def test_files_of_code_are_refused_with_the_option(cli, home, server, model):
    table = "topic,__expected\ncats,file://check.py\n"
    outcome = compare(cli, home, server, model, table)
    assert outcome.code == 2
    assert "--check function:FILE.py:FUNCTION" in outcome.err
