"""Sentences that describe a debate, for its display while it runs and for its report.

The functions return plain text without markup or colour, which is safe to print or to escape.
"""

from __future__ import annotations

import math

from textevolve.debate.profile import Profile
from textevolve.debate.result import DebateResult, DecidedBy, Turn
from textevolve.evaluation import Failure
from textevolve.evaluators import describe_limit
from textevolve.memory.cue import Memory
from textevolve.report.wording import count, letter, letters, number, percent, visible


def verdict(result: DebateResult) -> str:
    """Describe the winner of a debate in a sentence."""
    if not result.scored:
        return f"no scores: {visible(reason(result))}"
    best = result.best
    assert best is not None
    scores = result.unit_scores
    if len(result.case.candidates) == 1:
        passed = "passed" if scores[0] >= result.profile.threshold else "not passed"
        return f"{passed}: A scores {scores[0]:.2f} (passes from {result.profile.threshold:g})"
    if result.profile.select == "sample":
        share = percent(float(result.probabilities[best]))
        return f"{letter(best)}, drawn with a probability of {share}"
    if result.tied:
        return f"a tie of {letters(result.tied)} at {scores[best]:.2f}"
    runner_up = sorted(range(len(scores)), key=lambda j: -scores[j])[1]
    lead = f"{scores[best] - scores[runner_up]:.2f} ahead of {letter(runner_up)}"
    return f"{letter(best)} with {scores[best]:.2f}, {lead}"


def reason(result: DebateResult) -> str:
    """Return the reason for missing scores; empty if there are scores."""
    outcome = result.result[0]
    return outcome.reason if isinstance(outcome, Failure) else ""


def failures(result: DebateResult) -> dict[Failure, list[Turn]]:
    """Return the failed turns, grouped by their reason."""
    turns_by_failure: dict[Failure, list[Turn]] = {}
    for turn in result.turns:
        if turn.failure:
            turns_by_failure.setdefault(turn.failure, []).append(turn)
    return turns_by_failure


def decided(by: DecidedBy) -> str:
    """Describe which model gave the scores of a turn, for debates whose scores are read by the
    readout `decide` (answers to typed questions)."""
    sentence = f"scores decided by {by.model}" + (", emulated" if by.emulated else "")
    return sentence + (f", {by.cut:,} characters left out" if by.cut else "")


def changes(result: DebateResult) -> str:
    """Describe in a sentence which agents changed their winner during the debate; empty for a
    single round or a single candidate."""
    if len(result.convergence) < 2 or len(result.case.candidates) < 2 or not result.swings:
        return ""
    changed = [s for s in result.swings if s.changed]
    summary = f"{len(changed)} of {len(result.swings)} agents changed their winner"
    moves = [f"{visible(s.agent)} {_side(s.first)} → {_side(s.last)}" for s in changed]
    return f"{summary}: {', '.join(moves)}" if moves else summary


def recalled(memory: Memory) -> str:
    """Describe a memory in a line: its text, its source, and its score with the components of the
    score."""
    text = visible(" ".join(memory.text.split()))
    source = visible(memory.source or "no source")
    if memory.score is None:
        return f"{text} ({source})"
    parts = ", ".join(f"{name} {number(part, 2)}" for name, part in memory.parts.items())
    return f"{text} ({source}; {number(memory.score, 2)}: {parts})"


def _side(winner: int | None) -> str:
    return "tie" if winner is None else letter(winner)


def ending(result: DebateResult) -> str:
    """Describe the number of rounds, and the reason why the debate ended."""
    rounds, profile = len(result.convergence), result.profile
    cause = {
        "rounds": "all that were planned" if rounds >= profile.rounds else "all that were asked",
        "converged": "and a later one would change no score"
        if profile.repeats
        else "then the agents agreed",
        "certain": "then the outcome was certain enough",
        "budget": f"then it was cut short: {describe_limit(result)}",
        "failed": "then no agent gave an answer",
    }[result.stopped]
    return f"{count(rounds, 'round')}, {cause}"


def round_text(profile: Profile, r: int, cv: float, certainty: float | None, voters: int) -> str:
    """Describe the figures of round r, counted from 0, with the limits at which the debate ends.
    `cv`: the coefficient of variation of the agents' scores. `certainty`: the certainty of the
    first round's result; None if it is not used. `voters`: the number of agents with scores in
    round r."""
    agents = len(profile.agents)
    parts = [f"CV {cv:.3f}" if math.isfinite(cv) else "no score above 0, so no CV"]
    parts += [f"{voters} of {agents} agents voted"] if voters < agents else []
    if profile.protocol == "escalation" and r == 0:
        certainty_text = "none" if certainty is None else f"{certainty:.3f}"
        parts.append(f"certainty {certainty_text}, no debate from {profile.escalate_below:g} on")
    elif profile.protocol != "independent" and profile.convergence is not None:
        parts.append(f"agreed at {profile.convergence:g} or less")
    return "; ".join(parts)
