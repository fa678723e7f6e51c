"""What is drawn for a person: nothing from outside is obeyed, and nothing missing is made up."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable

import pytest
from rich.console import Console

from textevolve.cli.working import Progress
from textevolve.debate.modes import place_candidates
from textevolve.debate.profile import Profile, load_profile
from textevolve.debate.result import DebateResult, Points, Turn
from textevolve.evaluation import Case, Failure, Usage
from textevolve.events import CallFinished, CallHeld, StepFinished, StepStarted
from textevolve.report.terminal import print_report
from textevolve.studies.evaluate import Evaluations, find_row, report_evaluations
from textevolve.studies.judged_report import LiveDebate

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07 [red]not red[/red] [link=http://x]y[/link] \u202eback \x9b31m \ud800"
)


def a_turn(
    profile: Profile, labels: tuple[int, ...], r: int, i: int, text: str, **more: object
) -> Turn:
    number = r * len(profile.agents) + i
    order = place_candidates(number, labels, profile.order)
    width = len(profile.components)
    scores = tuple(tuple(float(8 - 3 * j + i) for _ in range(width)) for j in range(len(labels)))
    base = {
        "argument": text,
        "points": tuple(Points(f"good {text}", "weak", "mend") for _ in labels),
        "scores": scores,
        "usage": Usage(2, 100, 80, 20, 0.001),
        "seconds": 1.5,
    }
    return Turn(r, i, "local/m", order, **{**base, **more})  # pyright: ignore


def a_result(text: str = "An argument.", candidates: int = 2, **more: object) -> DebateResult:
    profile = load_profile("general")
    names = tuple(f"candidate {n} {text}" for n in range(candidates))
    labels = tuple(range(1, candidates + 1))
    turns = [a_turn(profile, labels, r, i, text) for r in range(2) for i in range(3)]
    fields = {
        "case": Case(f"input {text}", names, "case 1"),
        "profile": profile,
        "turns": tuple(turns),
        "convergence": (0.3, 0.2),
        "stopped": "rounds",
        "labels": labels,
        "nonce": "n",
    }
    return DebateResult(**{**fields, **more})  # pyright: ignore


def a_console(width: int = 100, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        highlight=False,
        markup=False,
    )


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def play(result: DebateResult, console: Console) -> str:
    with Progress(note=LiveDebate(), console=console) as live:
        started = {"case": result.case, "profile": result.profile, "labels": result.labels}
        live(StepStarted("case 1", "debate", started))
        for turn in result.turns:
            agent = result.agents[turn.agent]
            where = {"round": turn.round, "agent": agent, "model": "local/m"}
            live(StepStarted("case 1", "turn", where))
            live(StepStarted("case 1", "probe", {**where, "done": 3, "total": 10}))
            live(CallFinished("local/m", Usage(1, 10, 0, 1, 0.0), 0.1, replayed=False))
            live(StepFinished("case 1", "turn", turn))
            if turn.agent == len(result.agents) - 1:
                r = turn.round
                value = (r, result.convergence[r], result.voters[r])
                live(StepFinished("case 1", "round", value))
        live(StepFinished("case 1", "debate", result))
    print_results([result], console)
    return drawn(console)


def print_results(results: Iterable[DebateResult], console: Console) -> None:
    evaluations = Evaluations()
    for result in results:
        evaluations.add(result, find_row(result))
    print_report(report_evaluations(evaluations, {"Model": "local/m", "Run": "run 1"}), console)


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_written_out_and_never_obeyed(terminal: bool) -> None:
    failed = Turn(1, 2, HOSTILE, (0, 1), failure=Failure("failed", HOSTILE))
    result = a_result(HOSTILE)
    result = a_result(HOSTILE, turns=(*result.turns[:5], failed))
    console = a_console(100, terminal)
    text = play(result, console)
    text.encode()
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert not {"\x07", "\x9b", "\u202e"} & set(text)
    assert "[red]not" in text
    assert "\\x1b" in text
    assert ("\x1b" in text) == terminal


def test_missing_figures_are_dashes() -> None:
    failure = Failure("skipped", "the budget is spent")
    turns = tuple(Turn(0, i, "m", (0, 1), failure=failure) for i in range(3))
    result = a_result(turns=turns, convergence=(math.inf,), stopped="budget")
    text = play(result, a_console())
    assert "no scores: the budget is spent" in text
    assert "0 % (0 of 3 turns)" in text
    assert "0.00" not in text
    assert "s_norm" not in text
    name = "Critic in round 1, Supporter in round 1, Neutral Observer in round 1"
    assert f"{name}: the budget is spent" in " ".join(text.split())
    text = play(a_result(turns=(), convergence=(), stopped="budget", failure=failure), a_console())
    assert "0 rounds, then it was cut short: the budget is spent" in " ".join(text.split())


def test_a_wait_for_a_rate_limit_is_said_until_it_is_over() -> None:
    now, console = [0.0], a_console(200)
    with Progress(3, console=console, clock=lambda: now[0]) as progress:
        progress(CallHeld("openai/m", 12.0, "openai's limit of tokens a minute"))
        assert "waiting 12 s for openai's limit of tokens a minute" in progress.line()
        now[0] = 12.5
        assert "waiting" not in progress.line()


def test_what_is_printed_beside_the_bar_of_a_terminal_goes_where_it_is_to_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(1, console=(console := a_console(terminal=True))):
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in drawn(console)
