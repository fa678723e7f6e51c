"""What a person is shown of texts that were optimised: attempts, what has changed, the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.loops.attempt import Attempt
from textevolve.loops.optimization import Optimization, OptimizationPlan
from textevolve.loops.revising import why_anew
from textevolve.report import wording
from textevolve.report.blocks import (
    BarChart,
    Block,
    Column,
    Diff,
    Note,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Utterance,
)


def make_report(
    plan: OptimizationPlan, judges: Sequence[str], found: Sequence[Optimization]
) -> Report:
    facts = {"Judge": ", beside it ".join(judges)}
    if said := _weigh_revising(plan, found):
        facts["Revising"] = said
    if len(found) == 1:
        (made,) = found
        title = wording.shorten(made.task, 120)
        return Report(title, say_end(made), _draw(made), facts)
    reached = sum(made.status == "accepted" for made in found)
    sentence = f"{reached:,} of {len(found):,} tasks reached the threshold of {plan.threshold:g}."
    return Report(f"{len(found):,} tasks", sentence, _draw_all(found), facts)


def say_end(made: Optimization) -> str:
    """Why it ended, and whether the least that was asked for is reached."""
    minimum = say_minimum(made)
    return f"Ended as {made.status}: {made.reason}" + (f"; {minimum}" if minimum else "")


def say_minimum(made: Optimization) -> str:
    """A sentence where the best score is below the least that was asked for; else nothing."""
    if made.reached_minimum is not False:
        return ""
    least = wording.number(made.minimum_score)
    if made.score is None:
        return f"no attempt has a score, so the minimum of {least} is not reached"
    return f"the best score of {wording.number(made.score)} is below the minimum of {least}"


def _weigh_revising(plan: OptimizationPlan, found: Sequence[Optimization]) -> str:
    """What became of the first revisions; or that no revision scored above its first attempt."""
    revised = [made for made in found if sum(a.score is not None for a in made.attempts) > 1]
    if plan.way == "auto":
        return _weigh_first(found, plan.min_improvement)
    gained = any(made.best is not made.attempts[0] for made in revised)
    if plan.way == "best-of-n" or not revised or gained:
        return ""
    return "no revision scored above the first attempt; --best-of-n writes each attempt anew"


def _weigh_first(found: Sequence[Optimization], least: float) -> str:
    """In how many tasks the first revision earned others; of a single task, why it did not."""
    tried = [made for made in found if any(a.made == "revised" for a in made.attempts)]
    anew = [why for made in tried if (why := why_anew(made.attempts, "auto", least))]
    if not tried or (len(found) == 1 and not anew):
        return ""
    if len(found) == 1:
        (made,) = found
        later = made.attempts[-1].made == "written"
        return anew[0] + (", so the rest was written anew" if later else "")
    told = f"the first revision gained enough in {len(tried) - len(anew):,} of {len(tried):,} tasks"
    return f"{told}; in the others what came after it was written anew"


def _draw_all(found: Sequence[Optimization]) -> Iterator[Block]:
    columns = (
        Column("task"),
        Column("ended"),
        Column("first", "score", 3),
        Column("best", "score", 3),
        Column("attempts", "count"),
        Column("tokens", "count"),
    )
    rows = [
        (
            wording.shorten(f"{made.id}  {made.task}", 60),
            made.status,
            made.attempts[0].score if made.attempts else None,
            made.score,
            len(made.attempts),
            made.usage.tokens,
        )
        for made in found
    ]
    links = [f"task-{n}" for n in range(len(found))]
    yield Table("Tasks", columns, rows, links=links)
    for link, made in zip(links, found, strict=True):
        name = wording.shorten(f"{made.id}  {made.task}", 120)
        blocks = [Note(say_end(made)), *_draw(made)]
        yield Section(name, blocks, folded=True, anchor=link)


def _draw(made: Optimization) -> Iterator[Block]:
    """A task: its attempts, what each was told, what has changed, and the best."""
    if not made.attempts:
        return
    yield _table(made)
    bars = [(f"attempt {a.iteration}", a.score) for a in made.attempts]
    yield BarChart("Scores", bars, made.threshold, "threshold")
    written = Transcript("", [_utter(attempt) for attempt in made.attempts])
    yield Section("What was written", [written], folded=True)
    first, best = next((a for a in made.attempts if a.output), None), made.best
    if first is not None and best is not None and first.iteration != best.iteration:
        title = f"From attempt {first.iteration} to attempt {best.iteration}"
        yield Diff(title, first.output or "", best.output or "")
    if best is not None and best.output is not None:
        yield Texts(f"The best: attempt {best.iteration}", [("", best.output)])


def _table(made: Optimization) -> Table:
    second = any(attempt.second is not None for attempt in made.attempts)
    told = any(attempt.made is not None for attempt in made.attempts)  # of old runs it is not known
    columns = [Column("attempt", "text"), Column("score", "score", 3)]
    columns += [Column("second judge", "score", 3)] * second
    columns += [Column("made", "text")] * told
    columns += [
        Column("like before", "percent", 0),
        Column("characters", "count"),
        Column("tokens", "count"),
        Column("time", "duration"),
    ]
    rows = [
        [
            f"attempt {a.iteration}",
            a.score,
            *([_score(a.second)] * second),
            *([a.made] * told),
            a.similarity,
            None if a.output is None else len(a.output),
            a.usage.tokens,
            a.seconds,
        ]
        for a in made.attempts
    ]
    best = made.best
    marked = {n for n, a in enumerate(made.attempts) if best and a.iteration == best.iteration}
    notes = [(a.iteration, [*_why(a.evaluation), *_why(a.second), *a.notes]) for a in made.attempts]
    note = "\n".join(f"Attempt {n}: {'; '.join(said)}" for n, said in notes if said)
    return Table("Attempts", columns, rows, frozenset(marked), note)


def _score(outcome: EvaluationResult | Failure | None) -> float | None:
    return outcome.score if isinstance(outcome, EvaluationResult) else None


def _why(outcome: EvaluationResult | Failure | None) -> list[str]:
    return [f"{outcome.kind}: {outcome.reason}"] if isinstance(outcome, Failure) else []


def _utter(attempt: Attempt) -> Utterance:
    """An attempt, what its score is made of, and what the judge wants changed."""
    outcome = attempt.evaluation
    points = [("wanted", line) for line in attempt.instructions]
    if isinstance(outcome, EvaluationResult) and (parts := _parts(outcome)):
        points.insert(0, ("made of", ", ".join(parts)))
    return Utterance(
        f"attempt {attempt.iteration}" + (f", {attempt.made}" if attempt.made else ""),
        attempt.output or "",
        wording.number(attempt.score, 3),
        points,
        "; ".join(_why(outcome)),
    )


def _parts(outcome: EvaluationResult) -> list[str]:
    """The scores that a score is made of: rules, components, samples."""
    found: list[str] = []
    for name in ("rules_score", "judge_score", "raw_score", "spread"):
        if isinstance(value := outcome.metadata.get(name), float):
            found.append(f"{name.replace('_', ' ')} {wording.number(value, 3)}")
    for name in ("rules", "components"):
        parts: object = outcome.metadata.get(name)
        if isinstance(parts, Mapping):
            for part, value in cast("Mapping[str, float]", parts).items():
                found.append(f"{part} {wording.number(float(value), 2)}")
    return found
