"""A judged case for readers and programs: as blocks of a report, with all arguments of a debate; as
a line of JSON; as rows of tables; and as a row of a matrix.

The JSON line of a debate is complete (`DebateResult.from_json` reads it). Tables have a row for
each candidate. Missing values are None, never 0. `evaluate.py` reports on many cases together.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from textevolve.debate import tensor as arithmetic
from textevolve.debate.profile import Profile
from textevolve.debate.quoting import verbatim
from textevolve.debate.result import DebateResult, DecidedBy, Move, Turn, result_metrics
from textevolve.evaluation import (
    GROUP,
    TITLE,
    Case,
    EvaluationResult,
    Failure,
    reaches,
    select_scored,
)
from textevolve.events import Event, StepFinished, StepStarted
from textevolve.images import image_facts, image_reference
from textevolve.judges.cascade import DECIDED_BY
from textevolve.judges.opening import JudgedCase, NamedJudgement, describe_limit
from textevolve.loading import np
from textevolve.mappings import drop_empty, pick
from textevolve.memory.cue import Memory
from textevolve.report import wording
from textevolve.report.blocks import (
    TOOL_CALLS,
    Block,
    Cell,
    Column,
    Entry,
    MatrixRow,
    Note,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Utterance,
)
from textevolve.report.wording import count, letter, letters, number, percent, visible
from textevolve.runs.study import record_reason, record_status
from textevolve.texts.prose import join_lines
from textevolve.trajectory import ToolUse, Trajectory

# Sentences that describe a debate, for its display while it runs and for its report.
#
# The functions return plain text without markup or colour, which is safe to print or to escape.


def verdict(result: DebateResult) -> str:
    """Describe the winner of a debate in a sentence, with the component by which it won."""
    if not result.scored:
        return f"no scores: {visible(reason(result))}"
    best = result.best
    assert best is not None
    scores = result.unit_scores
    if len(result.case.candidates) == 1:
        passed = "passed" if reaches(scores[0], result.profile.threshold) else "not passed"
        return f"{passed}: A scores {scores[0]:.2f} (passes from {result.profile.threshold:g})"
    if result.profile.select == "sample":
        share = percent(float(result.probabilities[best]))
        return f"{letter(best)} was drawn, with a probability of {share}"
    if result.tied:
        return f"{letters(result.tied)} tie at {scores[best]:.2f}"

    runner_up = max((j for j in range(len(scores)) if j != best), key=scores.__getitem__)
    deciding = arithmetic.deciding_turns(result.tensor.values, result.profile.aggregation)
    means = arithmetic.component_scores(deciding)
    gaps = (means[best] - means[runner_up]) / TOP
    widest = int(np.argmax(gaps * result.weights))
    name = visible(result.components[widest])
    lead = f"{gaps[widest]:+.2f} over {letter(runner_up)}"
    totals = f"{scores[best]:.2f} against {scores[runner_up]:.2f} in all"

    return f"{letter(best)} won by {name}, {lead} ({totals})"


def explain_winner(result: DebateResult) -> str:
    """Describe in a sentence whose argument speaks most for the winner, with its quoted words.
    Empty without a single winner, or if nobody quotes a candidate."""
    winner = result.best
    if winner is None or result.tied or len(result.case.candidates) < 2:
        return ""
    argument = _deciding_argument(result, winner)
    if argument is None:
        return ""
    turn, candidate, words = argument
    speaker = visible(result.agents[turn.agent])

    return (
        f"{speaker} speaks most for {letter(winner)}, and quotes {letter(candidate)}:"
        f' "{visible(words)}".'
    )


def _deciding_argument(result: DebateResult, winner: int) -> tuple[Turn, int, str] | None:
    """Return the turn that speaks most for the winner, by its scores, of those that quote the
    winner, or otherwise of those that quote another candidate; with that candidate and the quoted
    words. None if nobody quotes one."""
    quoting: list[tuple[bool, float, Turn, int, str]] = []
    for turn in result.turns:
        if turn.scores is None:
            continue
        totals = arithmetic.turn_scores(np.array(turn.scores), result.weights)
        lead = float(totals[winner] - np.delete(totals, winner).max())
        for j, text in enumerate(result.case.candidates):
            if lead > 0 and (words := verbatim(turn.argument, [text])):
                quoting.append((j == winner, lead, turn, j, words))
    if not quoting:
        return None

    return max(quoting, key=lambda entry: entry[:2])[2:]


def describe_move(move: Move) -> str:
    """Describe in a sentence what an agent's turn changed, and which argument it answers."""
    answers = f", after the argument of {visible(move.answers)}" if move.answers else ""
    return f"{visible(move.agent)}: {_changed_scores(move) or 'no score changed'}{answers}"


def _changed_scores(move: Move) -> str:
    """Describe the scores that a turn changed, such as `A 5.0 → 6.5`; empty if it changed none."""
    return ", ".join(
        f"{letter(j)} {before:.1f} → {after:.1f}"
        for j, (before, after) in enumerate(zip(move.before, move.after, strict=True))
        if abs(before - after) >= SHOWN_MOVE
    )


UNMOVED = (
    "No argument can change a score here: scores are asked for without the arguments (readout"
    " pointwise, that of local models), since small models were right no more often after them."
)


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


def recalled(memory: Memory) -> str:
    """Describe a memory in a line: its text, its source, and its score with the components of the
    score."""
    text = visible(join_lines(memory.text))
    source = visible(memory.source or "no source")
    if memory.score is None:
        return f"{text} ({source})"
    parts = ", ".join(f"{name} {number(part, 2)}" for name, part in memory.parts.items())
    return f"{text} ({source}; {number(memory.score, 2)}: {parts})"


def ending(result: DebateResult) -> str:
    """Describe the number of rounds, and the reason why the debate ended."""
    rounds = len(result.convergence)
    profile = result.profile
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
    elif profile.protocol != "independent" and profile.aggregation == "moderator":
        certainty_text = "none" if certainty is None else f"{certainty:.3f}"
        parts.append(
            f"the moderator's certainty {certainty_text}, the last round from"
            f" {profile.escalate_below:g} on"
        )
    elif profile.protocol != "independent" and profile.convergence is not None:
        parts.append(f"agreed at {profile.convergence:g} or less")

    return "; ".join(parts)


Judged: TypeAlias = DebateResult | JudgedCase
"""A case with its judgement: the result of a debate, which has more details, or that of any other
judge."""

ResultRow: TypeAlias = dict[str, Any]
COMPONENT = "component_"  # the beginning of the column names of component scores in tables
OF_CASCADES = (DECIDED_BY, "certainty", "first_failed")
"""The metadata in the result of a cascade, which passes a case from a cheap judge to a better
one."""


def write_line(judged: Judged) -> str:
    return judged.to_json() if isinstance(judged, DebateResult) else json.dumps(_record(judged))


def candidate_rows(judged: Judged) -> Iterator[ResultRow]:
    """Yield a table row for each candidate; a case without candidates has one row."""
    case = judged.case
    is_debate = isinstance(judged, DebateResult)
    figures = _debate_figures(judged) if is_debate else _judged_figures(judged)

    for j, fields in enumerate(figures):
        place: ResultRow = {"index": judged.index, "id": case.id, **pick(case.parameters, [GROUP])}
        place |= _trajectory_row(case)
        if case.candidates:
            place |= {"candidate": j + 1, "text": case.candidates[j]}
            place |= image_fields(images=case.images, candidate_images=_candidate_images(case, j))
        yield {**place, **fields}


def _trajectory_row(case: Case) -> ResultRow:
    return {} if case.trajectory is None else case.trajectory.as_row()


def _debate_figures(result: DebateResult) -> Iterator[ResultRow]:
    metrics = result_metrics(result)
    voters = metrics["voters"]
    spread = metrics["spread"]
    case_fields: ResultRow = {
        "coverage": metrics["coverage"],
        "rounds": metrics["rounds"],
        "stopped": result.stopped,
        "voters": voters[-1] if voters else None,
        "certainty": metrics["certainty"],
        "status": metrics["status"],
        "reason": reason(result) or None,
        "winner_changes": metrics["winner_changes"] if result.scored else None,
        "case_calls": metrics["calls"],
        "case_tokens": metrics["tokens"],
        "case_cost": metrics["cost"],
        "case_seconds": metrics["seconds"],
    }
    # A case that has no candidates still has a line, which says why.
    if not result.case.candidates:
        yield case_fields

    for j, feedback in enumerate(result.feedback):
        components: dict[str, float] = metrics["components"][j] or {}
        yield {
            "score": metrics["scores"][j],
            "s_norm": metrics["s_norm"][j],
            "probability": metrics["probabilities"][j],
            "passed": metrics["passed"][j],
            "best": j == result.best if result.scored else None,
            "spread": spread[j] if spread else None,
            "round_one_s_norm": metrics["round_one"][j],
            **case_fields,
            "feedback": str(feedback) or None,
            **{COMPONENT + name: components.get(name) for name in result.components},
        }


def _record(judged: JudgedCase) -> ResultRow:
    """Return a case with its complete judgement as JSON-ready data."""
    case = judged.case
    pairs = zip(case.candidates, judged.result, strict=False)
    candidates = [
        {"text": text, **image_fields(images=_candidate_images(case, j)), **_outcome(outcome)}
        for j, (text, outcome) in enumerate(pairs)
    ]

    return {
        "index": judged.index,
        "id": case.id,
        **({"judge": judged.judge} if isinstance(judged, NamedJudgement) else {}),
        "input": case.input,
        **pick(case.parameters, [GROUP]),
        **image_fields(images=case.images),
        **_trajectory_row(case),
        "best": judged.best,
        "candidates": candidates,
        "status": record_status(judged.failure),
        "reason": record_reason(judged.failure),
        "usage": asdict(judged.usage),
    }


def _judged_figures(judged: JudgedCase) -> Iterator[ResultRow]:
    if not judged.case.candidates:
        yield {"status": "failed", "reason": record_reason(judged.failure)}
    for j, outcome in enumerate(judged.result[: len(judged.case.candidates)]):
        outcome_fields = _outcome(outcome)
        yield {
            "score": outcome_fields["score"],
            "log_odds": outcome_fields.get("log_odds"),
            "passed": outcome_fields.get("passed"),
            "best": None if judged.best is None else j == judged.best,
            "status": outcome_fields["status"],
            "reason": outcome_fields.get("reason"),
            DECIDED_BY: outcome_fields.get(DECIDED_BY),
            "certainty": outcome_fields.get("certainty"),
            "case_calls": judged.usage.calls,
            "case_tokens": judged.usage.tokens,
            "case_cost": judged.usage.cost,
            "feedback": outcome_fields.get("feedback"),
        }


def image_fields(**urls: Sequence[str]) -> ResultRow:
    """Return fields with images by short references; a field without images is left out."""
    return {name: list(map(image_reference, images)) for name, images in urls.items() if images}


def _candidate_images(case: Case, candidate: int) -> Sequence[str]:
    return case.candidate_images[candidate] if case.candidate_images else ()


def _outcome(outcome: EvaluationResult | Failure) -> ResultRow:
    if isinstance(outcome, Failure):
        return {"score": None, "status": outcome.kind, "reason": outcome.reason}
    return {
        "score": outcome.score,
        "log_odds": outcome.metadata.get("log_odds"),
        "passed": outcome.passed,
        "status": "scored",
        "feedback": outcome.feedback or None,
        **pick(outcome.metadata, OF_CASCADES),
    }


TOP = 10.0  # the highest score that agents of a debate give
LABEL_SHOWN = 60
NAME_SHOWN = 14
SHOWN_MOVE = 0.05
"""The smallest change of a score, of 10, that is not rounded away."""


def describe_verdict(judged: Judged) -> str:
    """Return the winner in a sentence."""
    if isinstance(judged, DebateResult):
        return verdict(judged)
    if judged.failure is not None:
        return f"not all have a score ({judged.failure.kind}: {judged.failure.reason})"
    if len(judged.result) == 1:
        return "passed" if judged.scores[0].passed else "not passed"
    return "a tie" if judged.best is None else f"best: {wording.letter(judged.best)}"


def show_case(judged: Judged) -> Iterator[Block]:
    """Yield the blocks of a report on one case. A terminal leaves out the sections that a page
    folds."""
    if isinstance(judged, DebateResult):
        yield from _show_debate(judged)
    else:
        yield from _show_judged(judged)


def facts_of(judged: Judged) -> dict[str, str]:
    """Return further facts about the judgement of one case, such as its cost, by their headings."""
    by_text = [("Input", judged.case.images)]
    by_text += [(wording.letter(j), urls) for j, urls in enumerate(judged.case.candidate_images)]
    images = "; ".join(
        f"{name}, image {n}: {image_facts(url)}"
        for name, urls in by_text
        for n, url in enumerate(urls, 1)
    )

    if isinstance(judged, JudgedCase):
        deciders = count_decided(judged)
        facts = {
            "Decided by": describe_deciders(deciders) if deciders else "",
            "Used": wording.used(judged.usage),
            "Images": images,
        }
    else:
        planned = int(np.prod(judged.tensor.shape[:2]))
        present = sum(turn.scores is not None for turn in judged.turns)
        share = wording.percent(judged.coverage)
        # imitations of the marks that separate the texts in a prompt
        marks = judged.sanitized + sum(turn.sanitized for turn in judged.turns)
        harmless = f"{wording.count(marks, 'forged mark')} in the texts, made harmless"
        facts = {
            "Coverage": f"{share} ({present} of {wording.count(planned, 'turn')});"
            f" {ending(judged)}",
            "Used": f"{wording.used(judged.usage)}, {wording.duration(judged.seconds)}",
            "Disarmed": harmless if marks else "",
            "Images": images,
        }
        for failure, turns in failures(judged).items():
            names = ", ".join(f"{judged.agents[t.agent]} in round {t.round + 1}" for t in turns)
            facts[failure.kind.capitalize()] = f"{names}: {failure.reason}"

    return drop_empty(facts)


def count_decided(judged: Judged) -> Counter[str]:
    """Return a counter of the judge that decided this case in a cascade; empty for other judges."""
    scored = select_scored(judged.result)
    judges = {
        str(outcome.metadata[DECIDED_BY]) for outcome in scored if DECIDED_BY in outcome.metadata
    }
    return Counter(judges)


def describe_deciders(counts: Counter[str]) -> str:
    """Describe which judges of a cascade decided, with their shares if there are several."""
    shares = counts.most_common()
    if len(shares) < 2:
        return "".join(counts)
    return ", ".join(f"{name} {wording.percent(n / counts.total(), 1)}" for name, n in shares)


def _show_debate(result: DebateResult) -> Iterator[Block]:
    if result.scored and result.profile.readout == "pointwise" and result.profile.argue:
        yield Note(UNMOVED)
    if explanation := explain_winner(result):
        yield Note(explanation)
    yield _texts(result)
    if any(turn.scores is not None for turn in result.turns):
        yield _draw_debate_scores(result)
    if result.moves and result.profile.readout != "pointwise":
        yield _draw_moves(result)
    if result.turns:
        rounds = [_round(result, r) for r in range(len(result.convergence))]
        yield Section("Debate", rounds, is_long=True)
    if result.scored:
        for j, feedback in enumerate(result.feedback):
            if feedback.strengths or feedback.weaknesses or feedback.instructions:
                yield Texts(f"Feedback on {wording.letter(j)}", [("", str(feedback))])


def _draw_moves(result: DebateResult) -> Block:
    """Return a table of the turns that changed scores: whose mind changed, after whose argument."""
    rows = [
        (move.agent, move.round + 1, changed, *_favourites(move), move.answers)
        for move in result.moves
        if (changed := _changed_scores(move))
    ]
    if not rows:
        return Note("Nobody changed anybody's mind: no score changed after an agent's first turn.")
    columns = ["agent", Column("round", "count"), "scores of 10", "favourite", "argument of"]
    return Table("Who changed whose mind", columns, rows)


def _favourites(move: Move) -> list[str]:
    """Return the candidate that an agent favoured before a turn, with the one after it if that is
    another."""
    tops = [arithmetic.top_candidates(np.array(scores)) for scores in (move.before, move.after)]
    return [" → ".join(dict.fromkeys(map(letters, tops)))]


def _texts(judged: Judged) -> Section:
    """Return the input and the candidates in full."""
    texts = [("Input", judged.case.input)]
    texts += [(wording.letter(j), text) for j, text in enumerate(judged.case.candidates)]
    texts += trajectory_texts(judged.case.trajectory)
    return Section("Input and candidates", [Texts("", texts)], folded=True)


def trajectory_texts(trajectory: Trajectory | None) -> list[tuple[str, str]]:
    """Return the passages that an application retrieved, and its tool calls, as texts with
    headings."""
    if trajectory is None:
        return []
    texts = [(f"Passage {n}", text) for n, text in enumerate(trajectory.contexts, 1)]

    for position, call in enumerate(trajectory.tool_calls or (), 1):
        lines = [_write_call(call)]
        lines += [f"result: {call.result}"] if call.result is not None else []
        lines += [f"error: {call.error}"] if call.error is not None else []
        texts.append((f"Tool call {position}", "\n".join(lines)))

    return texts


CALLS_SHOWN = 400


def describe_calls(trajectory: Trajectory) -> dict[str, str]:
    """Return a fact that lists the tool calls of an answer in one line; empty if there are none."""
    texts = " → ".join(map(_write_call, trajectory.tool_calls or ()))
    return {TOOL_CALLS: wording.shorten(texts, CALLS_SHOWN)} if texts else {}


def _write_call(call: ToolUse) -> str:
    return f"{call.name}({json.dumps(call.arguments, ensure_ascii=False, default=str)})"


def describe_images(urls: Sequence[str]) -> dict[str, str]:
    """Return a fact that lists the images of a text in one line; empty without images."""
    return drop_empty({"images": "; ".join(str(image_facts(url)) for url in urls)})


def winners_of(judged: Judged) -> tuple[int, ...]:
    """Return the candidates with the highest score, several for a tie of a debate; empty without
    scores."""
    tied = judged.tied if isinstance(judged, DebateResult) else ()
    return tied or (() if judged.best is None else (judged.best,))


def _draw_scores(
    judged: Judged,
    columns: Sequence[Column | str],
    figures: Iterable[Sequence[Cell]],
    note: str = "",
) -> Table:
    """Return the table of a case's candidates. `figures`: the cells of each candidate."""
    texts = judged.case.candidates or ("",) * len(judged.result)
    rows = [
        (f"{wording.letter(j)}  {wording.shorten(text, LABEL_SHOWN)}", *cells)
        for j, (text, cells) in enumerate(zip(texts, figures, strict=False))
    ]
    best = frozenset(winners_of(judged) if len(rows) > 1 else ())
    columns = ("candidate", *columns)

    return Table("Scores", columns, rows, best, note, star="Highest score")


def _draw_debate_scores(result: DebateResult) -> Table:
    metrics = result_metrics(result)
    columns = (
        Column("score", "score", 3),
        "passed",
        Column("± agents", "number", 3),
        *(Column(wording.shorten(n, NAME_SHOWN), "score", 2) for n in result.components),
    )
    spread = arithmetic.unit_scores(result.spread, result.weights).tolist()
    figures: list[list[Cell]] = []
    for j, components in enumerate(metrics["components"]):
        parts: Mapping[str, float] = components or {}
        units = [parts[n] / TOP if n in parts else None for n in result.components]
        figures.append([metrics["scores"][j], metrics["passed"][j], spread[j], *units])

    note = (
        f"Scores from 0 to 1; passed from {result.profile.threshold:g} on. ± agents:"
        " standard deviation over the agents."
    )
    weight = float(result.weights.mean())
    if weight < 1 and result.scored:
        sums = ", ".join(f"{letter(j)} {s_norm:.2f}" for j, s_norm in enumerate(result.scores))
        note += (
            f" s_norm ({sums} of 10) lies below the components because it multiplies them by their"
            f" weights, {weight:.2f} on average; the score is divided by the weights."
        )

    return _draw_scores(result, columns, figures, note)


def _round(result: DebateResult, r: int) -> Section:
    cv = result.convergence[r]
    voters = result.voters[r]
    summary = round_text(result.profile, r, cv, result.certainty, voters)
    blocks: list[Block] = [Note(summary)]
    for turn in (turn for turn in result.turns if turn.round == r):
        blocks += _draw_turn(turn, result.profile, result.labels, _note(turn), _list_points(turn))
    if r < len(result.summaries) and result.summaries[r]:
        blocks.append(Texts("Summary for the next round", [("", result.summaries[r])]))

    return Section(f"Round {r + 1}", blocks)


def _draw_turn(
    turn: Turn,
    profile: Profile,
    labels: Sequence[int],
    note: str,
    points: Sequence[tuple[str, str]] = (),
) -> Iterator[Block]:
    """Yield an agent's argument, and its scores as a table of candidates and components, with the
    total score of each candidate in this turn. `labels`: for each candidate, the number by which
    the agents know it."""
    failure = f"{turn.failure.kind}: {turn.failure.reason}" if turn.failure else ""
    speaker = profile.agents[turn.agent].name
    note = f"round {turn.round + 1}, {note}"
    yield Transcript("", [Utterance(speaker, turn.argument, note, points, failure)])
    if turn.scores is None:
        return
    means = np.average(turn.scores, axis=1, weights=profile.weight_list)
    names = [wording.shorten(component.name, NAME_SHOWN) for component in profile.components]
    columns = ["", *(Column(n, "score", 1, TOP) for n in names)]
    equal = len(set(profile.weight_list)) == 1
    columns.append(Column("mean" if equal else "weighted mean", "score", 2, TOP))
    rows = [
        (f"{wording.letter(j)} Response {labels[j]}", *scores, float(means[j]))
        for j, scores in enumerate(turn.scores)
    ]
    yield Table("", columns, rows)


def _list_points(turn: Turn) -> list[tuple[str, str]]:
    """Return an agent's remarks on each candidate, and the memories that it recalled."""
    points: list[tuple[str, str]] = []
    for j, point in enumerate(turn.points):
        groups = (
            ("for", point.strengths),
            ("against", point.weaknesses),
            ("to change", point.instructions),
        )
        points += [(f"{wording.letter(j)}, {name}", text) for name, text in groups if text]

    return [*points, *(("recalled", recalled(memory)) for memory in turn.memories)]


def _note(turn: Turn) -> str:
    order = ", ".join(map(wording.letter, turn.order))
    model = wording.shorten_models(turn.model)
    parts = [model, wording.tokens(turn.usage), wording.duration(turn.seconds)]
    parts += [f"shown in the order {order}"] if order else []
    parts += [f"answer read: {turn.parse_mode}"] if turn.parse_mode else []
    parts += [decided(turn.decided_by)] if turn.decided_by else []
    return ", ".join(parts)


def _show_judged(judged: JudgedCase) -> Iterator[Block]:
    yield _texts(judged)
    columns = (
        Column("score", "number", 3),
        Column("log-odds", "number", 2),
        "passed",
    )
    yield _draw_scores(judged, columns, map(_figures, judged.result))
    explanations = [
        (wording.letter(j), outcome.feedback) for j, outcome in enumerate(judged.result)
    ]
    if texts := [(name, text) for name, text in explanations if text]:
        yield Texts("What the judge says", texts)


def _figures(outcome: EvaluationResult | Failure) -> tuple[Cell, Cell, Cell]:
    if isinstance(outcome, Failure):
        return (None, None, outcome.kind)
    odds = outcome.metadata.get("log_odds")
    return (outcome.score, odds if isinstance(odds, float) else None, outcome.passed)


def case_matrix_row(judged: Judged) -> MatrixRow:
    """Return the matrix row of a case; its texts and all arguments unfold in their cells."""
    case = judged.case
    winners = winners_of(judged)
    texts = case.candidates or ("",) * len(judged.result)
    entries = [
        _entry(judged, j, text, outcome)
        for j, (text, outcome) in enumerate(zip(texts, judged.result, strict=False))
    ]
    details = Section(describe_verdict(judged), show_case(judged), facts_of(judged))
    is_won = winners and len(case.candidates) > 1
    facts = {"winner": wording.letters(winners)} if is_won else {}
    calls = describe_calls(case.trajectory) if case.trajectory else {}
    if len(entries) == 1:  # they are those of the only answer
        entries = [replace(entries[0], facts={**entries[0].facts, **calls})]
    else:
        facts |= calls
    if case.images:
        facts |= describe_images(case.images)
    reference = case.reference or ""
    name = wording.shorten(str(case.id), 30) or str(judged.index + 1)

    title = wording.shorten(case.parameters.get(TITLE, ""), 60)

    return MatrixRow(name, case.input, entries, reference, facts, (details,), title=title)


def _entry(judged: Judged, j: int, text: str, outcome: EvaluationResult | Failure) -> Entry:
    """Return the entry of one candidate; for a debate with the scores of its components."""
    images = judged.case.candidate_images
    facts = describe_images(images[j]) if images else {}
    if isinstance(outcome, EvaluationResult):
        reasons = {"feedback": outcome.feedback} if outcome.feedback else {}
        scores = {"score": outcome.score}
        if isinstance(judged, DebateResult):
            components: Mapping[str, float] = outcome.metadata["components"]
            scores |= {name: score / TOP for name, score in components.items()}
        return Entry(text, scores, outcome.passed, reasons, facts=facts)

    if outcome.kind == "skipped":  # a call that was not made has not failed
        return Entry(text, facts={**facts, "not judged": outcome.reason})

    return Entry(text, failure=f"failed: {outcome.reason}", facts=facts)


class LiveDebate:
    """A listener that describes the events of a debate while it runs: a status line when a step
    starts, and a report when it ends. The final result is in the report of the run."""

    def __init__(self) -> None:
        self._debate: Mapping[str, Any] = {}
        self._certainty: float | None = None

    def __call__(self, event: Event) -> str | Report | None:
        match event:
            case StepStarted(step="debate"):
                self._debate = event.details
            case StepStarted(step="turn" | "probe" | "summary"):
                return self._status(event)
            case StepFinished(step="turn", value=Turn() as turn):
                model = wording.shorten_models(turn.model)
                note = f"{model}, {wording.duration(turn.seconds)}"
                profile = self._debate["profile"]
                labels = self._debate["labels"]
                return Report("", "", list(_draw_turn(turn, profile, labels, note)))
            case StepFinished(step="move", value=Move() as move):
                if self._debate["profile"].readout == "pointwise":
                    return None
                return Report("", "", [Note(describe_move(move))])
            case StepFinished(step="certainty"):
                self._certainty = event.value
            case StepFinished(step="round", value=(r, cv, voters)):
                text = round_text(self._debate["profile"], r, cv, self._certainty, voters)
                return Report("", "", [Note(f"Round {r + 1}: {text}", "strong")])
            case _:
                pass

        return None

    def _status(self, event: StepStarted) -> str:
        doing = "is scoring" if event.step == "probe" else "is arguing"
        if event.step == "summary":
            doing = "the debate so far is being summed up"
        return f"Round {event.details['round'] + 1}  {event.details.get('agent', '')} {doing}"
