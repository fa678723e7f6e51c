"""`textevolve optimize` as it is used, on the scripted server."""

import json
import re
import signal
import time

import pytest
import yaml

from flat_verbs import optimize
from textevolve import AsyncClient, Limits
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.loops.rules import Rules, RulesJudgement, parse_rules
from textevolve.report import differences
from textevolve.report.differences import find_differences

TASK = "Say in a sentence what moves the sea."
DRAFTS = ("The sea is moved.", "The sea is moved by the moon.", "The sea is pulled by the moon.")
RULES = {
    "name": "sea",
    "rules": [
        {"kind": "keywords", "all": ["moon"], "name": "moon"},
        {"kind": "must_not", "pattern": "moved", "gate": False},
    ],
}


def said(body):
    return body["messages"][-1]["content"]


def is_written(body):
    return "Write the answer now." in said(body) or "Write the revised answer now." in said(body)


def worth(text):
    return 0.2 + 0.3 * ("moon" in text) + 0.4 * ("pulled" in text)


def able(body, _number=0):
    """A model that revises step by step, and a judge by probes that sees how well."""
    if is_written(body):
        shown = [draft for draft in DRAFTS if draft in said(body)]
        return (
            DRAFTS[DRAFTS.index(shown[-1]) + 1] if shown and shown[-1] != DRAFTS[-1] else DRAFTS[0]
        )
    return Answer(yes=worth(said(body)))


@pytest.fixture
def ably(server):
    server.script = able
    return server


@pytest.fixture
def rules(home):
    path = home / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES))
    return path


def words(text):
    return " ".join(text.split())


def asked(model, *more):
    return ("optimize", TASK, "-m", model, "-j", "probe", *more)


def test_a_text_is_made_better_shown_and_written(home, cli, ably, model):
    written = ("-o", "a.txt", "-o", "a.jsonl", "-o", "a.html", "--name", "sea")
    ended = cli(*asked(model), *written)
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err
    shown = words(ended.out)
    for part in (
        "attempt 1 0.200",
        "attempt 3 0.900",
        "From attempt 1 to attempt 3 - The sea is moved. + The sea is pulled by the moon.",
        "The best: attempt 3 The sea is pulled by the moon.",
        "Ended as accepted: attempt 3 reached the threshold of 0.8",
        f"Model {model} (named) Spent",
        "Judge probe Model",
    ):
        assert part in shown, part
    assert f"{home / 'store.db'}" in shown.replace(" ", "")
    assert max(map(len, ended.out.splitlines())) <= 120
    assert "attempt 2 0.500" in words(ended.err)
    assert (home / "a.txt").read_text() == DRAFTS[2] + "\n"
    (row,) = [json.loads(line) for line in (home / "a.jsonl").read_text().splitlines()]
    assert (row["status"], row["best"], row["output"]) == ("accepted", 3, DRAFTS[2])
    assert [a["evaluation"]["score"] for a in row["attempts"]] == pytest.approx([0.2, 0.5, 0.9])
    assert row["attempts"][0]["instructions"][0].startswith("Let the answer to this be a clear yes")
    assert row["usage"]["calls"] == ably.calls == 12
    page = (home / "a.html").read_text()
    assert "<ins>pulled by the moon.</ins>" in page
    assert "accepted: attempt 3 reached the threshold" in page


def test_a_limit_ends_it_with_the_best_so_far_and_it_can_be_gone_on_with(cli, ably, model):
    short = cli(*asked(model, "--max-calls", 7))
    assert short.code == 3
    assert ably.calls == 7
    assert "Ended as budget: the limit of 7 calls is reached" in words(short.out)
    assert "The best: attempt 1" in short.out
    assert "Go on with: textevolve runs resume" in short.err
    whole = cli(*asked(model, "--json"))
    assert whole.code == 0
    assert ably.stats()["calls"] == ably.stats()["distinct"] == 12


@pytest.mark.slow
def test_an_interrupt_shows_the_best_so_far_and_says_how_to_go_on(spawn, home, stalling):
    with ScriptedServer(stalling(6, able)) as server:
        process = spawn(*asked(f"{server.url}#x", "--json", "-o", "a.html", "-o", "a.jsonl"))
        while server.calls < 7:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert process.returncode == 130
        assert "Traceback" not in err
        assert "Go on with: textevolve runs resume" in err
        assert out == ""
        assert "budget: not in the journal; resume the run" in (home / "a.html").read_text()
        row = json.loads((home / "a.jsonl").read_text())
        assert (row["status"], row["best"], len(row["attempts"])) == ("budget", 1, 2)
        server.script = able
        again = spawn(*asked(f"{server.url}#x", "--json"))
        out, _ = again.communicate()
        assert json.loads(out)["status"] == "accepted"
        assert server.stats()["distinct"] == 12
        assert server.calls <= 16  # the call in flight when it was interrupted is asked again


def test_rules_alone_cost_no_judge(cli, ably, model, rules):
    ended = cli("optimize", TASK, "-m", model, "--json", "-j", f"rules:{rules}")
    (row,) = ended.rows
    assert (row["status"], row["output"]) == ("accepted", DRAFTS[2])
    assert row["usage"]["calls"] == 3
    assert row["attempts"][0]["instructions"] == [
        "Use the word or phrase 'moon'.",
        "Remove what matches the pattern moved.",
    ]
    assert all(is_written(body) for body in ably.requests)
    shown = cli("optimize", TASK, "-m", model, "-j", f"rules:{rules.name}").out
    assert "Judge rules:rules.yaml" in words(shown)


@pytest.mark.parametrize(("first", "later", "told"), [(0.6, 0.4, True), (0.4, 0.6, False)])
def test_revising_that_gains_nothing_is_said(cli, server, model, first, later, told):
    def script(body, _number):
        if is_written(body):
            return "A second." if "earlier answer" in said(body) else "A first."
        return Answer(yes=first if "A first." in said(body) else later)

    server.script = script
    command = ("optimize", TASK, "-m", model, "-j", "probe", "--max-iterations", 2)
    shown = words(cli(*command, "--max-iterations", 3).out)
    why = "the first revision gained -0.200 on attempt 1, not 0.05 or more"
    assert (f"Attempt 3: written anew: {why}" in shown) is told
    assert re.search(r"attempt 2 0\.\d+ revised", shown)
    calls = server.calls
    assert ("written anew" in words(cli(*command, "--max-iterations", 3).out)) is told
    assert server.calls == calls  # the journal answers, and the loop goes the same way


# Many tasks


def test_a_file_of_tasks(home, cli, ably, model):
    (home / "tasks.jsonl").write_text(
        '{"id": "a", "task": "Move the sea."}\n{"input": "Pull the sea."}\n'
    )
    ended = cli(
        "optimize", "tasks.jsonl", "-m", model, "-j", "probe", "-o", "h.jsonl", "-o", "h.html"
    )
    assert ended.code == 0, ended.err
    assert "a Move the sea. accepted 0.200 0.900 3" in words(ended.out)
    assert "2: accepted at 0.900" in ended.err
    rows = [json.loads(line) for line in (home / "h.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["a", "2"]
    assert "2 of 2 tasks reached the threshold of 0.8" in words(ended.out)
    assert "2 tasks" in (home / "h.html").read_text()
    (home / "tasks.csv").write_text("id,task\na,Move the sea.\n2,Pull the sea.\n")
    calls = ably.calls
    again = cli("optimize", "tasks.csv", "-m", model, "-j", "probe", "--json")
    assert [row["output"] for row in again.rows] == [DRAFTS[2]] * 2
    assert ably.calls == calls
    short = cli("optimize", "tasks.csv", "-m", model, "-j", "probe+seed=4", "--max-calls", 12)
    assert short.code == 3
    assert "budget" in short.out


def test_a_task_from_a_file_and_from_standard_input(home, cli, ably, model):
    (home / "t.txt").write_text(TASK)
    named = cli("optimize", "@t.txt", "-m", model, "-j", "probe", "--json")
    calls = ably.calls
    piped = cli("optimize", "-", "-m", model, "-j", "probe", "--json", stdin=TASK.encode())
    assert named.rows[0]["task"] == piped.rows[0]["task"] == TASK
    assert ably.calls == calls
    odd = cli("optimize", "Write hello.json", "-m", model, "-j", "probe", "--json")
    assert odd.rows[0]["task"] == "Write hello.json"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ((TASK, "-j", "pairwise"), "take another judge, such as probe+rules"),
        ((TASK, "--second-judge", "pairwise"), "cannot be compared"),
        ((TASK, "-j", "rules:bad.yaml"), "rules bad.yaml:2: rules.0 must be of a known kind"),
        ((TASK, "--generator", "none.py:write"), "none.py"),
        (("none.jsonl",), "none.jsonl: cannot be read"),
        (("twice.jsonl",), "two tasks have the id 'a'"),
        (("bare.jsonl",), "bare.jsonl:1: 'task' must be there"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(home, cli, server, model, more, reason):
    (home / "bad.yaml").write_text("rules:\n- kind: nothing\n")
    (home / "weighed.yaml").write_text("share: 3\nrules:\n- {kind: length, max: 3}\n")
    (home / "empty.jsonl").write_text("\n")
    (home / "twice.jsonl").write_text('{"id": "a", "task": "x"}\n' * 2)
    (home / "bare.jsonl").write_text('{"id": "a"}\n')
    ended = cli("optimize", *more, "-m", model)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0


def test_control_characters_and_markup_are_not_obeyed(home, cli, server, model):
    evil = "\x1b[31m<script>alert(1)</script>[bold]{{ 7 * 7 }}"

    def script(body, number):
        return f"{evil} {number}" if is_written(body) else Answer(yes=min(0.9, number / 20))

    server.script = script
    ended = cli(*asked(model, "-o", "a.html"))
    assert "\x1b" not in ended.out + ended.err
    assert "[bold]{{ 7 * 7 }}" in ended.out
    page = (home / "a.html").read_text()
    assert "<script>" not in page
    assert "\x1b" not in page


# Python


def test_optimize_from_python(home, ably, model, rules):
    found = optimize(TASK, model=model, judge="probe")
    assert (found.status, found.output) == ("accepted", DRAFTS[2])
    calls = ably.calls
    again = optimize(TASK, model=model, judge="probe")
    assert again.score == found.score
    assert ably.calls == calls
    ruled = optimize(TASK, model=model, judge=f"rules:{rules}", seed=3)
    assert ruled.usage.calls == 3
    made = parse_rules(yaml.safe_dump(RULES))
    assert optimize(TASK, model=model, judge=Rules(made.file), seed=3).output == ruled.output
    assert optimize(TASK, model=model, judge="probe", limits=Limits(calls=0), seed=9).status == (
        "budget"
    )


async def test_optimize_with_a_judge_and_a_writer_of_ones_own(home, ably, model):
    async def judge(case):
        (text,) = case.candidates
        return RulesJudgement((EvaluationResult(worth(text), True, "More moon."),), Usage())

    async def write(task, /, *, previous=None, feedback=(), temperature=None):
        return DRAFTS[1] if previous is None else f"{DRAFTS[2]} {', '.join(feedback)}"

    heard = []
    found = await AsyncClient(model=model, listener=heard.append).optimize(TASK, judge=judge)
    assert found.output == DRAFTS[2]
    own = await AsyncClient(model=model).optimize(TASK, judge=judge, generator=write)
    assert own.output == f"{DRAFTS[2]} More moon."
    assert own.usage.calls == 0
    assert heard
    assert all(is_written(body) for body in ably.requests)


# Pages and differences


def test_a_text_that_there_is_not_is_not_written_over_an_older_one(home, cli, ably, model):
    (home / "best.txt").write_text("An older text.")
    ended = cli(*asked(model, "--max-calls", 0, "-o", "best.txt", "-o", "all.jsonl"))
    assert ended.code == 3
    assert "best.txt: is not written" in ended.err
    assert (home / "best.txt").read_text() == "An older text."
    assert (home / "all.jsonl").exists()


def test_differences_join_up_to_both_texts(monkeypatch):
    monkeypatch.setattr(differences, "MOST_WORDS", 400)  # with all 4000 the last takes 3 s
    for old, new in (
        ("", ""),
        ("a b c", "a x c d"),
        ("a\n\nb", "b  "),
        ("w " * 500, "w " * 499 + "v"),
    ):
        pieces = find_differences(old, new)
        assert "".join(p.text for p in pieces if p.kind != "added") == old
        assert "".join(p.text for p in pieces if p.kind != "removed") == new
    assert [p.kind for p in find_differences("a b c", "a x c")] == [
        "same",
        "removed",
        "added",
        "same",
    ]
    assert re.search("a", find_differences("a b", "a b")[0].text)
