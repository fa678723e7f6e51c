"""Guided reasoning as a run: a debate, and the answer that its transcript guides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from textevolve.debate.profile import Profile
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult, Turn
from textevolve.errors import AnswerError, BudgetError
from textevolve.evaluation import Case, EvaluationResult, Usage, check_case
from textevolve.evaluators import say_limit
from textevolve.events import Listener, silence
from textevolve.loops.guidance import Answer, Guided, Plan, guide
from textevolve.memory.recall import Recall, nothing
from textevolve.runs.estimate import SHORT_ANSWER, PriceOf, UsageRange, estimate
from textevolve.runs.improving import count_calls, models_used, open_means, specify_loop
from textevolve.runs.judge_estimate import CHARACTERS_A_TOKEN, estimate_judge
from textevolve.runs.judging import choose_judge
from textevolve.runs.optimization import Judge
from textevolve.runs.spec import MeasurementSpec, name_recall
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits


@dataclass(frozen=True, slots=True)
class GuidedAnswer:
    """The two answers, and the debate that stands between them; None where it was not come to."""

    made: Guided
    debate: DebateResult | None
    run: str
    model: str
    evaluator: str

    @property
    def answer(self) -> str | None:
        """The guided answer."""
        return self.made.guided.text if self.made.guided is not None else None

    @property
    def usage(self) -> Usage:
        return self.made.usage + (self.debate.usage if self.debate is not None else Usage())


async def specify_guidance(
    settings: Settings,
    profile: Profile,
    evaluator: Judge | None,
    plan: Plan,
    model: str | None = None,
    recall: Recall = nothing,
) -> MeasurementSpec:
    """The specification of a guided answer; time and calls in flight are no part of it."""
    parameters: dict[str, Any] = asdict(plan)
    del parameters["seconds"], parameters["side_by_side"]
    parameters |= {"profile": profile.model_dump(mode="json"), "recall": name_recall(recall)}
    chosen = None if evaluator is None else choose_judge(evaluator, alone=False)
    parameters |= {"evaluator": None} if chosen is None else chosen.parameters
    specs = () if chosen is None else chosen.specs
    return await specify_loop(settings, "guide", specs, model, parameters)


def begin_guidance(
    store: Store,
    spec: MeasurementSpec,
    question: str,
    candidates: Sequence[str] = (),
    *,
    name: str = "",
    source: str = "Python",
) -> RunRecord:
    """The run of a guided answer: a new one, or the one that is kept already.

    Raises:
        InputError: the question or a candidate cannot be used.
    """
    given = tuple(candidates)
    check_case(Case(question, given or ("x",)))
    return take_in(store, spec, [Case(question, given, "1")], name=name, source=source)


async def do_guidance(
    store: Store,
    run: RunRecord,
    evaluator: Judge | None,
    plan: Plan,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
    recall: Recall = nothing,
) -> GuidedAnswer:
    """Ask what is missing of a guided answer.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    (case,) = store.iterate_cases(run.id)
    spec = MeasurementSpec.model_validate(run.spec)
    profile = Profile.model_validate(spec.parameters["profile"])
    held: list[DebateResult] = []
    async with open_means(store, run, settings, limits, listener) as means:
        debate = Debate(
            profile=profile,
            model_of=lambda agent: means.model_of(agent.model or spec.model),
            recall=recall,
            listener=listener,
            side_by_side=1 if _all_local(spec, profile) else 64,
            today=spec.today,
        )

        async def discuss(candidates: tuple[str, ...]) -> str:
            result = await debate(Case(case.input, candidates, "debate"))
            held.append(result)
            if result.stopped == "budget":
                raise BudgetError(say_limit(result))
            if not any(turn.argument or turn.points for turn in result.turns):
                first = next((t.failure for t in result.turns if t.failure), result.failure)
                raise AnswerError(first.reason if first else "no agent argued")
            return write_transcript(result)

        chosen = None if evaluator is None else choose_judge(evaluator, alone=False)
        made = await guide(
            case.input,
            means.model,
            discuss,
            replace(plan, side_by_side=means.in_flight),
            candidates=case.candidates,
            evaluator=None if chosen is None else chosen.open(means),
            listener=listener,
        )
        if made.status != "budget":
            store.finish_run(run.id, "finished")
    named = str(spec.parameters["evaluator"] or "")
    return GuidedAnswer(made, held[0] if held else None, run.id, spec.model, named)


def _all_local(spec: MeasurementSpec, profile: Profile) -> bool:
    return all(name.startswith("local/") for name in models_guided(spec, profile))


def models_guided(spec: MeasurementSpec, profile: Profile) -> tuple[str, ...]:
    """Every model that is asked, each once."""
    own = [agent.model for agent in profile.agents if agent.model]
    return tuple(dict.fromkeys((*models_used(spec), *own)))


def write_transcript(result: DebateResult) -> str:
    """What was said in a debate, as plain text, with the responses under the labels that the agents
    knew them by. Scores are left out: they are no reasons."""
    order = sorted(range(len(result.labels)), key=result.labels.__getitem__)
    parts = [f"Response {result.labels[j]}:\n{result.case.candidates[j]}" for j in order]
    parts += [_said(result, turn, order) for turn in result.turns if turn.argument or turn.points]
    return "\n\n".join(parts)


def _said(result: DebateResult, turn: Turn, order: Sequence[int]) -> str:
    lines = [f"Round {turn.round + 1}, {result.agents[turn.agent]}: {turn.argument}".rstrip()]
    for j in order if turn.points else ():
        points = turn.points[j]
        found = [
            f"{name}: {' '.join(text.split())}"
            for name, text in (
                ("good", points.strengths),
                ("bad", points.weaknesses),
                ("to change", points.instructions),
            )
            if text.strip()
        ]
        lines.append(f"- On Response {result.labels[j]}: " + "; ".join(found))
    return "\n".join(lines)


def estimate_guidance(
    case: Case, spec: MeasurementSpec, profile: Profile, plan: Plan, price_of: PriceOf
) -> UsageRange:
    """What a guided answer may take: candidates where none are given, the debate, two answers, and
    the judgement of both."""
    price = price_of(spec.model)
    drawn = 0 if case.candidates else plan.proposals
    found: list[Usage] = []
    for longest in (False, True):
        tokens = plan.max_answer_tokens if longest else SHORT_ANSWER
        text = "x" * (tokens * CHARACTERS_A_TOKEN)
        shown = case.candidates or (text,) * plan.proposals
        ratio = 3 if longest else 5
        used = count_calls(drawn + 1, len(case.input) / ratio, tokens, price)
        debate = estimate([Case(case.input, shown, "1")], profile, spec.model, price_of)
        used += debate.most if longest else debate.least
        said = profile.max_answer_tokens * len(profile.agents) * profile.rounds if longest else 100
        discussed = sum(map(len, shown)) / ratio + said
        used += count_calls(1, (len(case.input) + 900) / ratio + discussed, tokens, price)
        for judge in spec.judges:
            both = Case(case.input, (text, f"{text} "), "1")
            judged = estimate_judge([both], judge, spec.model, price_of)
            used += judged.most if longest else judged.least
        found.append(used)
    return UsageRange(1, found[0], found[1])


def to_data(found: GuidedAnswer) -> Mapping[str, Any]:
    """Everything of a guided answer as JSON-ready data."""
    made = found.made
    return {
        "kind": "guide",
        "run": found.run,
        "model": found.model,
        "evaluator": found.evaluator or None,
        "status": made.status,
        "reason": made.reason,
        "question": made.question,
        "candidates": made.candidates,
        "transcript": made.transcript,
        "plain": _answer(made.plain),
        "guided": _answer(made.guided),
        "usage": asdict(found.usage),
        "seconds": made.seconds,
    }


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    judged = answer.judgement
    return {
        "text": answer.text,
        "failure": answer.failure.reason if answer.failure else None,
        "score": judged.score if isinstance(judged, EvaluationResult) else None,
        "feedback": judged.feedback if isinstance(judged, EvaluationResult) else None,
    }
