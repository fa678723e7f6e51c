"""A debate, E: X x Y* x P* -> S*, round by round.

`Debate` is an `Evaluator`. For each round, for each agent in order: recall memories, render the
prompt, call the model, and put the j x k scores into S[r, i]. After each round the agents'
disagreement is measured; CV <= c ends the debate, if enough of them gave scores. The protocol
determines what a turn sees, and which turns run concurrently. The protocols, with the number of
calls that run one after another:

    sequential             all earlier turns within the window        r x i
    blind-first            nothing in round 1, then as sequential     1 + (r - 1) x i
    escalation             as blind-first                             1, or 1 + (r - 1) x i
    rebuttal               nothing in round 1, then the strongest     r x i
                           argument against the agent's favourite
    simultaneous           completed rounds only                      r
    simultaneous-summary   a summary of the completed rounds          2 r
    independent            nothing: a jury                            1

An escalation continues after round 1 only if the winner of that round is uncertain.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from textevolve.debate import tensor as arithmetic
from textevolve.debate.context import DebateContext, DebateMessage, load_prompt, read_rules
from textevolve.debate.modes import draw_labels
from textevolve.debate.profile import Agent, Profile, override
from textevolve.debate.result import (
    DebateResult,
    Stop,
    Turn,
    end_early,
    measure_certainty,
    measure_move,
    stack_scores,
    strongest_opponent,
)
from textevolve.debate.tensor import Array
from textevolve.debate.turn import quote_turn, sum_up, take_turn
from textevolve.engine.local import gather_bounded
from textevolve.errors import CapabilityError, InputError
from textevolve.evaluation import Case, Failure, Usage, check_case, select_skipped, settings_of
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.model import Model
from textevolve.llm.prompts import draw_nonce, fence, quote, sanitize
from textevolve.llm.refusals import NO_LOGPROBS
from textevolve.loading import np
from textevolve.mappings import pick
from textevolve.memory.cue import Recall, nothing
from textevolve.settings import today as this_day


@dataclass(frozen=True)
class Debate:
    """A judge that holds a debate of the profile's agents over a case.

    `model_of`: returns the model of an agent; for the profile's `decider` it is called with an
    agent that has the decider as its model. `recall`: recalls the agents' memories. `recalls_all`:
    it is also called for agents without collections, as a function of the user's is. `put_agents`:
    puts stored agents into the profile that a case sets for itself. `concurrency`: the maximum
    number of concurrent calls of one debate, if the protocol allows any; 1 lets a local server
    reuse its prefix cache. `today`: the date in every prompt, as YYYY-MM-DD.
    """

    profile: Profile
    model_of: Callable[[Agent], Model]
    recall: Recall = nothing
    recalls_all: bool = True
    put_agents: Callable[[Profile], Profile] = lambda profile: profile
    listener: Listener = silence
    concurrency: int = 64
    today: str = field(default_factory=this_day)

    async def __call__(self, case: Case, /) -> DebateResult:
        """Hold the debate over one case, and return its result.

        Raises:
            InputError: the case or its parameters cannot be used.
            FatalModelError: no call can succeed (key, model, capability).
        """
        parameters = settings_of(case)
        profile = override(self.profile, parameters)
        if "agents" in parameters:
            # Those of the profile itself were put in when the debate was opened.
            profile = self.put_agents(profile)
        check_case(case)

        for agent in profile.agents:
            if not agent.persona:
                raise InputError(
                    f"agent '{agent.stored}' is a stored agent, which only a run can read from a"
                    " store; evaluate the case with `evaluate`"
                )

        context = self._open_context(case, profile)
        begun = {"case": case, "profile": context.profile, "labels": context.labels}
        self.listener(StepStarted(case.id, "debate", begun))

        try:
            result = await _debate(context)
        except CapabilityError as error:
            hint = ", or choose the readout `verbalized`" if NO_LOGPROBS in str(error) else ""
            raise CapabilityError(f"{error}{hint}") from error

        self.listener(StepFinished(case.id, "debate", result))

        return result

    def _open_context(self, case: Case, profile: Profile) -> DebateContext:
        nonce = draw_nonce((case.input, *sorted(case.candidates)), profile.seed)
        generator = random.Random(f"{profile.seed}:{nonce}")
        profile = self._settle(profile)

        return DebateContext(
            case=case,
            profile=profile,
            nonce=nonce,
            labels=draw_labels(len(case.candidates), generator),
            today=self.today,
            model_of=self.model_of,
            recall=self.recall,
            recalls_all=self.recalls_all,
            listener=self.listener,
            concurrency=self.concurrency,
            rules=read_rules(profile),
            input=sanitize(case.input, nonce)[0],
            candidates=tuple(sanitize(text, nonce)[0] for text in case.candidates),
        )

    def _settle(self, profile: Profile) -> Profile:
        """Return the profile with the readout and the protocol that `auto` stands for."""
        automatic = [name for name in ("readout", "protocol") if getattr(profile, name) == "auto"]
        if not automatic:
            return profile
        models = [self.model_of(agent).name for agent in profile.agents]
        # Small models that state scores give most candidates the same score, and seeing other
        # candidates or arguments makes their scores worse (docs/measurements.md, Judges). They
        # repeat the arguments that they see (docs/measurements.md, Arguments).
        settled = {"readout": "verbalized", "protocol": "sequential"}
        if all(name.startswith("local/") for name in models):
            settled = {"readout": "pointwise", "protocol": "rebuttal"}

        return profile.model_copy(update=pick(settled, automatic))


async def _debate(context: DebateContext) -> DebateResult:
    profile = context.profile
    table = _Table(context)
    cvs: list[float] = []
    stopped: Stop = "rounds"
    certainty: float | None = None

    if profile.protocol == "independent":
        places = [(r, i) for r in range(profile.rounds) for i in table.agents]
        table.turns = await gather_bounded(
            [partial(take_turn, context, r, i, ()) for r, i in places],
            context.concurrency,
        )
        cvs = [table.disagreement(table.scores(r)) for r in range(profile.rounds)]
        stopped = table.broken(0) or stopped
    else:
        for r in range(profile.rounds):
            await table.play_round(r)
            scores = table.scores(r)
            cvs.append(table.disagreement(scores))
            moderated = profile.aggregation == "moderator"
            if moderated or (profile.protocol == "escalation" and r == 0):
                certainty = measure_certainty(scores, profile, context.nonce)
                context.listener(StepFinished(context.case.id, "certainty", certainty))
            voters = int(arithmetic.voters(scores))
            context.listener(StepFinished(context.case.id, "round", (r, cvs[-1], voters)))
            if ending := table.broken(r) or end_early(profile, r, cvs[-1], certainty, voters):
                stopped = ending
                break

    return DebateResult(
        case=context.case,
        profile=profile,
        turns=tuple(table.turns),
        convergence=tuple(cvs),
        stopped=stopped,
        labels=context.labels,
        nonce=context.nonce,
        sanitized=sanitize(
            "\n".join((context.case.input, *context.case.candidates)), context.nonce
        )[1],
        summaries=tuple(table.summaries),
        extra_usage=table.extra,
    )


class _Table:
    """The state of a debate that is running: its turns, and the messages that the next turn may
    see."""

    def __init__(self, context: DebateContext) -> None:
        self.context = context
        self.agents = range(len(context.profile.agents))
        self.turns: list[Turn] = []
        self.spoken: list[tuple[int, DebateMessage]] = []
        self.summaries: list[str] = []
        self.extra = Usage()

    async def play_round(self, r: int) -> None:
        protocol = self.context.profile.protocol
        blind_first = protocol in ("blind-first", "escalation")
        if protocol in ("sequential", "rebuttal") or (blind_first and r > 0):
            for i in self.agents:
                history = self._rebutted(r, i) if protocol == "rebuttal" else self._window(r)
                self._hear(await take_turn(self.context, r, i, history, self._arguments()))
            return

        history = () if r == 0 else self._window(r)

        if protocol == "simultaneous-summary" and r > 0:
            summary, usage = await sum_up(self.context, history, r)
            self.extra += usage
            if isinstance(summary, Failure):
                reason = f"the summary before round {r + 1}: {summary.reason}"
                skipped = Failure(summary.kind, reason)
                for i in self.agents:
                    model = self.context.model_of(self.context.profile.agents[i]).name
                    self._hear(Turn(r, i, model, (), failure=skipped))
                return

            self.summaries.append(summary)
            fenced = fence("summary", summary, self.context.nonce)
            marked = load_prompt("summarised").render(round=r, summary=fenced)
            history = (DebateMessage(marked, quote(summary)),)

        turns = await gather_bounded(
            [
                partial(take_turn, self.context, r, i, history, self._arguments())
                for i in self.agents
            ],
            self.context.concurrency,
        )
        for turn in turns:
            self._hear(turn)

    def _hear(self, turn: Turn) -> None:
        context = self.context
        self.turns.append(turn)
        if context.listener is not silence:
            move = measure_move(self.turns, turn, context.profile)
            if move is not None:
                context.listener(StepFinished(context.case.id, "move", move))
        if turn.scores is not None:
            self.spoken.append((turn.round, quote_turn(context, turn, turn.scores)))

    def _arguments(self) -> tuple[str, ...]:
        return tuple(turn.argument for turn in self.turns if not turn.is_silent)

    def _rebutted(self, r: int, agent: int) -> tuple[DebateMessage, ...]:
        """Return the strongest argument against the agent's favourite; nothing in round 1."""
        turn = strongest_opponent(self.turns, self.context.profile, r, agent)
        if turn is None or turn.scores is None:
            return ()
        return (quote_turn(self.context, turn, turn.scores),)

    def _window(self, r: int) -> tuple[DebateMessage, ...]:
        """Return the texts of the turns that round r may see: those of rounds q with r - l <= q (l:
        the profile's `history_rounds`; None: all), including the current round."""
        window = self.context.profile.history_rounds
        start = 0 if window is None else r - window
        return tuple(message for q, message in self.spoken if q >= start)

    def scores(self, r: int) -> Array:
        """Return the scores of round r, shape (agents, candidates, components); NaN if a turn
        failed."""
        context = self.context
        return stack_scores(self.turns, r + 1, context.profile, len(context.labels))[r]

    def disagreement(self, scores: Array) -> float:
        profile = self.context.profile
        weights = np.array(profile.weight_list)
        return float(arithmetic.disagreement(scores, weights, profile.convergence_mode))

    def broken(self, first: int) -> Stop | None:
        """Return the reason why the debate cannot continue: the budget is spent, or no agent
        answered from round `first` on. None if it can."""
        turns = [t for t in self.turns if t.round >= first]
        if select_skipped(turn.failure for turn in turns):
            return "budget"
        return "failed" if all(t.failure for t in turns) else None
