"""One turn: what an agent is shown, what it is asked, and what its answer becomes.

A turn's prompt grows at its end: rules, input and candidates, history, then memories, persona and
the request. All turns of a debate share its beginning, which a server keeps in its prefix cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from pydantic import BaseModel

from textevolve.debate.order import place_candidates
from textevolve.debate.profile import Agent, Profile
from textevolve.debate.readout import (
    answer_type,
    probe_score,
    read_expected,
    read_points,
    read_stated,
)
from textevolve.debate.result import Points, Turn
from textevolve.errors import AnswerError, BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Failure, Usage
from textevolve.events import Listener, StepFinished, StepStarted
from textevolve.llm.choices import TOP_LOGPROBS, read_log_odds
from textevolve.llm.fence import disarm, fence
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.structured import Rung, Structured, UnusableAnswer, ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.memory.recall import Cue, Memory, Recall

_VARIABLES = {
    "rules": ("components", "readout", "rules"),
    "case": ("nonce", "input", "responses"),
    "spoken": ("round", "agent", "argument", "scores"),
    "summarised": ("round", "summary"),
    "request": ("memories", "agent", "persona", "round", "rounds", "today", "labels"),
    "probe": ("label", "response", "agent", "question"),
    "summary": (),
}


@cache
def prompt(name: str) -> Template:
    return load_template("textevolve.debate", name, _VARIABLES[name])


def prompts_version() -> dict[str, str]:
    """The version of each prompt a debate uses; a change of one makes another run."""
    return {name: prompt(name).version for name in _VARIABLES}


@dataclass(frozen=True)
class Stage:
    """What stays the same through one debate. `readout` is never `auto` here."""

    case: Case
    profile: Profile
    readout: str
    nonce: str
    labels: tuple[int, ...]
    today: str
    model_of: Callable[[Agent], Model]
    recall: Recall
    listener: Listener
    side_by_side: int
    rules: str
    input: str
    candidates: tuple[str, ...]
    shown: dict[tuple[int, ...], str] = field(default_factory=dict[tuple[int, ...], str])

    def opening(self, order: tuple[int, ...]) -> str:
        """The input and the candidates, as a turn with this order sees them."""
        if order not in self.shown:
            responses = [self.fenced(j) for j in order]
            self.shown[order] = prompt("case").render(
                nonce=self.nonce, input=self.input, responses=responses
            )
        return self.shown[order]

    def fenced(self, candidate: int) -> str:
        """One candidate between its marks."""
        return fence(f"response {self.labels[candidate]}", self.candidates[candidate], self.nonce)


def read_rules(profile: Profile, readout: str) -> str:
    described = tuple((c.name, c.meaning, tuple(c.rubric.items())) for c in profile.components)
    return _rules(described, readout, profile.rules)


_Described = tuple[str, str, tuple[tuple[int, str], ...]]


@lru_cache(maxsize=64)
def _rules(described: tuple[_Described, ...], readout: str, rules: bool) -> str:
    """The rules, which most debates of a run share."""
    components = [{"name": n, "meaning": m, "rubric": dict(rubric)} for n, m, rubric in described]
    return prompt("rules").render(components=components, readout=readout, rules=rules)


@lru_cache(maxsize=256)
def _ending(
    memories: tuple[str, ...],
    agent: str,
    persona: str,
    round: int,
    rounds: int,
    today: str,
    labels: tuple[int, ...],
) -> str:
    """The end of a turn's prompt: where nothing is remembered, that of other debates too."""
    named = [f"Response {n}" for n in labels]
    listed = ", ".join(named[:-1]) + " and " + named[-1] if len(named) > 1 else named[0]
    return prompt("request").render(
        memories=memories,
        agent=agent,
        persona=persona,
        round=round,
        rounds=rounds,
        today=today,
        labels=listed,
    )


async def take_turn(
    stage: Stage, round: int, agent: int, history: Sequence[str], *, sample: int = 0
) -> Turn:
    """Let one agent speak. A turn that fails says so in its `failure` and has no scores.

    Raises:
        FatalModelError: no later call could succeed either.
    """
    speaker = stage.profile.agents[agent]
    number = round * len(stage.profile.agents) + agent
    order = place_candidates(number, stage.labels, stage.profile.order)
    model = stage.model_of(speaker)
    details = {"round": round, "agent": speaker.name, "model": model.name}
    stage.listener(StepStarted(stage.case.id, "turn", details))
    meter = Meter(model)
    asked = _Ask(stage, meter, speaker, round, tuple(history), sample)
    said = await _speak(asked, order)
    turn = Turn(
        round=round,
        agent=agent,
        model=model.name,
        order=order,
        argument=said.argument,
        points=said.points,
        scores=said.scores,
        log_odds=said.log_odds,
        failure=said.failure,
        rung=said.rung,
        memories=said.memories,
        disarmed=said.disarmed,
        usage=meter.usage,
        seconds=meter.seconds,
    )
    stage.listener(StepFinished(stage.case.id, "turn", turn))
    return turn


class Meter:
    """A model that adds up what one turn uses, failed answers included."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.usage = Usage()
        self.seconds = 0.0

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        response = await self.model(request)
        self.usage += response.usage
        self.seconds += response.seconds
        return response


@dataclass(frozen=True, slots=True)
class _Ask:
    """One turn's question, before the candidates are put in an order."""

    stage: Stage
    model: Model
    speaker: Agent
    round: int
    history: tuple[str, ...]
    sample: int

    def request(self, order: tuple[int, ...], memories: Sequence[Memory]) -> Request:
        stage, profile = self.stage, self.stage.profile
        fenced = tuple(
            fence("memory", disarm(m.text, stage.nonce)[0], stage.nonce) for m in memories
        )
        shown = tuple(stage.labels[j] for j in order)
        speaker, number = self.speaker, self.round + 1
        ending = _ending(
            fenced, speaker.name, speaker.persona, number, profile.rounds, stage.today, shown
        )
        return Request(
            messages=(
                Message("system", (stage.rules,)),
                Message("user", (stage.opening(order), *self.history, ending)),
            ),
            temperature=profile.sampling_temperature,
            max_tokens=profile.max_answer_tokens,
            seed=profile.seed,
            sample=self.sample,
            top_logprobs=TOP_LOGPROBS if stage.readout == "expected" else 0,
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """What came of a turn's question; the fields are those of `Turn`."""

    argument: str = ""
    points: tuple[Points, ...] = ()
    scores: tuple[tuple[float, ...], ...] | None = None
    log_odds: tuple[tuple[float, ...], ...] | None = None
    failure: Failure | None = None
    rung: Rung | None = None
    memories: tuple[str, ...] = ()
    disarmed: int = 0


async def _speak(asked: _Ask, order: tuple[int, ...]) -> _Said:
    try:
        memories = await _remember(asked.stage, asked.speaker, asked.history)
        said = await _answer(asked, order, memories)
        if asked.stage.profile.order == "swap" and len(order) > 1:
            said = _average(said, await _answer(asked, order[::-1], memories))
        return said
    except FatalModelError:
        raise
    except BudgetError as error:
        return _Said(failure=Failure("skipped", str(error)))
    except ModelError as error:
        return _Said(failure=Failure("failed", str(error)))


async def _remember(stage: Stage, agent: Agent, history: Sequence[str]) -> tuple[Memory, ...]:
    cue = Cue(
        agent.name,
        agent.collections,
        stage.case.input,
        stage.case.candidates,
        "".join(history),
    )
    try:
        return await stage.recall(cue)
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the recall of {agent.name} failed: {reason}") from error


async def _answer(asked: _Ask, order: tuple[int, ...], memories: tuple[Memory, ...]) -> _Said:
    stage = asked.stage
    names = tuple(c.name for c in stage.profile.components)
    shown = tuple(stage.labels[j] for j in order)
    request = asked.request(order, memories)
    kind = answer_type(shown, names, stage.readout)
    answer = await ask_structured(asked.model, request, kind)
    argument = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
    text, disarmed = disarm(argument, stage.nonce)
    log_odds = None
    if stage.readout == "probe":
        log_odds = await _probe(asked, request, answer)
        scores = tuple(tuple(probe_score(value) for value in row) for row in log_odds)
    elif stage.readout == "expected":
        last = answer.responses[-1]
        scores = read_expected(last, stage.labels, shown, names)
    else:
        scores = read_stated(answer.value, stage.labels)
    return _Said(
        argument=text,
        points=read_points(answer.value, stage.labels),
        scores=scores,
        log_odds=log_odds,
        rung=answer.rung,
        memories=tuple(m.text for m in memories),
        disarmed=disarmed,
    )


async def _probe(
    asked: _Ask,
    request: Request,
    answer: Structured[BaseModel],
) -> tuple[tuple[float, ...], ...]:
    """Ask the yes / no questions, which share the turn's prompt and answer as their prefix.

    Each shows its response again: a small model tells responses apart better so, and all questions
    on one response, which follow each other, share that too.
    """
    from textevolve.engine.local import gather_bounded

    stage = asked.stage
    spoken = (*request.messages, Message("assistant", (answer.responses[-1].text,)))
    components = stage.profile.components
    done = 0

    async def ask(candidate: int, component: int) -> float:
        nonlocal done
        question = prompt("probe").render(
            label=f"Response {stage.labels[candidate]}",
            response=stage.fenced(candidate),
            agent=asked.speaker.name,
            question=components[component].probe,
        )
        response = await asked.model(
            replace(
                request,
                messages=(*spoken, Message("user", (question,))),
                temperature=0.0,
                max_tokens=1,
                top_logprobs=TOP_LOGPROBS,
            )
        )
        done += 1
        details = {
            "round": asked.round,
            "agent": asked.speaker.name,
            "done": done,
            "total": len(stage.labels) * len(components),
        }
        stage.listener(StepStarted(stage.case.id, "probe", details))
        return read_log_odds(response)

    cells = [(j, k) for j in range(len(stage.labels)) for k in range(len(components))]
    work: list[Callable[[], Awaitable[float]]] = [(lambda j=j, k=k: ask(j, k)) for j, k in cells]
    values = await gather_bounded(work, stage.side_by_side)
    width = len(components)
    return tuple(tuple(values[j * width : (j + 1) * width]) for j in range(len(stage.labels)))


def _average(one: _Said, other: _Said) -> _Said:
    """What was said, with the scores of both orders averaged; its argument is that of the first."""
    if one.scores is None or other.scores is None:
        raise AnswerError("one of the two orders gave no scores")
    pairs = zip(one.scores, other.scores, strict=True)
    scores = tuple(tuple((a + b) / 2 for a, b in zip(x, y, strict=True)) for x, y in pairs)
    return replace(one, scores=scores, disarmed=one.disarmed + other.disarmed, log_odds=None)


def quote_turn(stage: Stage, turn: Turn) -> str:
    """A turn as the others see it in their history."""
    name = stage.profile.agents[turn.agent].name
    if turn.scores is None:
        return ""
    lines: list[str] = []
    for j in sorted(range(len(stage.labels)), key=stage.labels.__getitem__):
        row = zip(stage.profile.components, turn.scores[j], strict=True)
        lines.append(
            f"Response {stage.labels[j]}: " + ", ".join(f"{c.name} {s:.1f}" for c, s in row)
        )
    return prompt("spoken").render(
        round=turn.round + 1,
        agent=name,
        argument=fence("argument", turn.argument, stage.nonce),
        scores="; ".join(lines) + ".",
    )


async def sum_up(
    stage: Stage, history: Sequence[str], round: int
) -> tuple[str | None, Usage, Failure | None]:
    """A neutral summary of the debate so far by the first agent's model, fenced for the history."""
    stage.listener(StepStarted(stage.case.id, "summary", {"round": round}))
    meter = Meter(stage.model_of(stage.profile.agents[0]))
    order = place_candidates(0, stage.labels, "fixed")
    text = (stage.opening(order), *history, prompt("summary").render())
    request = Request(
        messages=(Message("system", (stage.rules,)), Message("user", text)),
        temperature=stage.profile.sampling_temperature,
        max_tokens=stage.profile.max_answer_tokens,
        seed=stage.profile.seed,
    )
    try:
        response = await meter(request)
        if not response.text.strip():
            raise AnswerError("the summary was empty")
    except FatalModelError:
        raise
    except BudgetError as error:
        return None, meter.usage, Failure("skipped", str(error))
    except (ModelError, UnusableAnswer) as error:
        return None, meter.usage, Failure("failed", str(error))
    summary, _ = disarm(response.text.strip(), stage.nonce)
    return summary, meter.usage, None
