"""`innovate` as it is used on the command line."""

import json
import re
import signal
import time

import pytest
from test_innovation import TASK, Writer, asks_for_input

from textevolve.llm.testing import Answer, ScriptedServer


class Knows(Writer):
    """Also a judge by questions, that thinks well of higher levels."""

    def __call__(self, body, number):
        shown = body["messages"][-1]["content"]
        if body.get("logprobs"):
            return Answer(yes=0.3 + 0.2 * ("level 1" in shown) + 0.5 * ("level 2" in shown))
        return super().__call__(body, number)


@pytest.fixture
def asked(cli, server, model):
    server.script = Knows(1, 2, 2, 1)

    def run(*more, text=TASK, judge="probe"):
        return cli("innovate", text, "-j", judge, "-m", model, "--outputs", 2, *more)

    return run


def words(text):
    return " ".join(text.split())


def test_the_refined_input_is_shown_with_before_and_after(asked, home):
    ended = asked("--fresh", 3, "-o", "new.txt", "-o", "all.json")
    assert ended.code == 0, ended.err
    said = words(ended.out)
    for part in (
        "The refined input Tell a child why there are tides. Level 2",
        "Tuned on 0.300, 0.500, 0.800, ",
        "Ended as converged: no gain of 0.01 in 1 round",
        "Before 0.300 (95 %: 0.051 to 0.774; 3 fresh outputs)",
        "After 0.800",
        "Gain 0.500",
        "Judge probe",
    ):
        assert part in said
    assert "round 2: 0.800" in ended.err
    assert (home / "new.txt").read_text() == f"{TASK} Level 2: name the moon and the sun.\n"
    found = json.loads((home / "all.json").read_text())
    assert (found["improved"], found["gain"]["value"]) == (True, pytest.approx(0.5))
    assert len(found["after"]["samples"]) == 3


def test_the_same_command_again_asks_nothing(asked, server):
    first = json.loads(asked("--json").out)
    calls = server.calls
    again = json.loads(asked("--json").out)
    assert server.calls == calls
    assert {**again, "seconds": 0} | {"attempts": []} == {**first, "seconds": 0} | {"attempts": []}
    assert [a["score"] for a in again["attempts"]] == [a["score"] for a in first["attempts"]]


def test_a_limit_ends_it_with_what_there_is_and_says_how_to_go_on(asked, server):
    ended = asked("--max-calls", 12)
    assert ended.code == 3
    assert server.calls == 12
    assert "not finished within the limits (the limit of 12 calls is reached" in ended.err
    assert "Go on with: textevolve runs resume" in ended.err
    assert asked("--max-calls", 200).code == 0
    assert server.calls == len(server.seen)


def test_nothing_with_a_score_is_said(asked, server):
    server.script = lambda body, number: "Perhaps."
    ended = asked()
    assert ended.code == 3
    assert "Nothing has a score; the input stands" in ended.out


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        (" ", (), "the input is blank"),
        (TASK, ("-j", "pairwise"), "cannot be compared"),
        (TASK, ("-o", "new.docx"), "must end in .json, .html"),
        (TASK, ("--temperature", "0"), "temperature"),
        ("@gone", (), "gone"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(asked, server, text, more, reason):
    ended = asked(*more, text=text)
    assert (ended.code, server.calls) == (2, 0)
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1


def test_hostile_text_is_not_obeyed(asked, server):
    hostile = json.dumps({"input": f"{TASK} \x1b[31m Level 1 [bold]"})
    server.script = Knows(1, refine=lambda body, n: hostile)
    ended = asked("--rounds", 1)
    assert "\x1b" not in ended.out + ended.err
    assert "[bold]" in ended.out


@pytest.mark.slow
def test_an_interrupt_shows_the_best_so_far_and_how_to_go_on(home, spawn):
    knows = Knows(1, 2)
    refinements = []

    def script(body, number):
        refinements.append(asks_for_input(body))
        slow = Answer(text=json.dumps({"input": "x"}), delay=60)
        return slow if sum(refinements) > 1 else knows(body, number)

    with ScriptedServer(script) as server:
        process = spawn(*("innovate", TASK, "-j", "probe", "-m", f"{server.url}#x", "--outputs", 1))
        while sum(refinements) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate()
    assert process.returncode == 130
    assert "was not tried on fresh outputs" in words(out)
    assert "Level 1" in out
    assert "Go on with: textevolve runs resume" in said
    assert re.search(r"Spent +[1-9]", out)
    assert "Traceback" not in said


RULES = "rules:\n  - {kind: keywords, any: [level 1, level 2], gate: false}\n"


def test_rules_judge_alone_or_before_a_judge(asked, server, home):
    (home / "rules.yaml").write_text(RULES)
    ended = asked("--fresh", 3, judge="rules:rules.yaml")
    assert "Tuned on 0.000, 1.000, 1.000" in words(ended.out)
    assert not any(body.get("logprobs") for body in server.requests)
    ended = asked("--json", judge="hybrid:rules.yaml:probe")
    scores = [a["score"] for a in json.loads(ended.out)["attempts"]]
    assert (scores[0], max(scores)) == (pytest.approx(0.15), pytest.approx(0.9))
    (home / "rules.yaml").write_text(RULES.replace("level 1, ", ""))
    assert json.loads(asked("--json", judge="rules:rules.yaml").out)["improved"] is False


def test_a_run_is_shown_again_from_the_store(cli, asked, server):
    first = asked("--rounds", 1)
    calls = server.calls
    again = cli("runs", "show")
    assert (again.code, server.calls) == (0, calls)
    assert words(again.out).split("Spent")[0] == words(first.out).split("Spent")[0]
