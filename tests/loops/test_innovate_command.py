"""`innovate` as it is used on the command line."""

import json

import pytest
from test_innovation import TASK, Writer

from textevolve.llm.testing import Answer


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
    assert "attempt 3: 0.800" in ended.err
    assert (home / "new.txt").read_text() == f"{TASK} Level 2: name the moon and the sun.\n"
    found = json.loads((home / "all.json").read_text())
    assert (found["improved"], found["gain"]["value"]) == (True, pytest.approx(0.5))
    assert len(found["after"]["samples"]) == 3
