"""The result of a debate: its turns, and everything computed from them.

Only the turns and the profile are stored. Scores, probabilities, feedback and the rest are computed
from them on demand, so a result can be scored again with other weights (`rescore`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import to_json

from textevolve.debate import tensor as arithmetic
from textevolve.debate.profile import Profile, override
from textevolve.debate.quoting import SAME_REMARK, repeats
from textevolve.debate.tensor import Array, LabelledTensor
from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Failure,
    Usage,
    empty_default,
    reaches,
    select_scored,
)
from textevolve.llm.structured import ParseMode
from textevolve.loading import np
from textevolve.memory.cue import Memory
from textevolve.rows import mend_halves
from textevolve.showing import Shown
from textevolve.spec import explain
from textevolve.texts.prose import join_lines

Stop = Literal["rounds", "converged", "certain", "budget", "failed"]
"""Why a debate ended: all rounds have run, the agents agreed, the first round of an escalation was
certain, the budget was spent, or no agent answered."""


NOTHING_TO_ADD = "Nothing to add."
"""The argument of an agent that twice repeated what was said before."""


def measure_certainty(scores: Array, profile: Profile, nonce: str) -> float | None:
    """Compute the certainty of one round's scores, of shape (agents, candidates, components): the
    probability in [0, 1] that the round's winner is the best. None if too few agents gave scores to
    represent all.

    The same scores, seed and nonce give the same number. A single candidate is compared with an
    imaginary one whose scores all equal the passing threshold. If a moderator decides, only the
    moderator's scores count.
    """
    scores = arithmetic.deciding_turns(scores[None], profile.aggregation)[0]
    if not arithmetic.is_quorum(int(arithmetic.voters(scores)), len(scores)):
        return None
    weights = np.array(profile.weight_list)
    if scores.shape[-2] == 1:
        bar = np.full_like(scores, profile.threshold * arithmetic.TOP_SCORE)
        scores = np.concatenate([scores, np.where(np.isnan(scores), np.nan, bar)], axis=-2)
    leaders = arithmetic.top_candidates(
        arithmetic.normalise(scores[None], weights, profile.aggregation)
    )
    seed = random.Random(f"{profile.seed}:{nonce}:certainty").getrandbits(128)
    certainty = arithmetic.certainty(scores, weights, leaders, seed)
    if np.isnan(certainty) and profile.aggregation == "moderator":
        # A single score of one agent cannot be drawn again; the moderator has decided, or has not.
        return 1 / len(leaders)

    return None if np.isnan(certainty) else certainty


def is_certain(profile: Profile, certainty: float | None) -> bool:
    """Return whether a winner is certain enough for the debate to end."""
    return certainty is not None and reaches(certainty, profile.escalate_below)


def end_early(
    profile: Profile, r: int, cv: float, certainty: float | None, voters: int
) -> Stop | None:
    """Return the reason why a debate ends after round r (from 0) before all rounds have run; None
    if it continues. `cv`: the round's disagreement. `certainty`: the first round's, or the one of
    the moderator's scores in this round. `voters`: the number of agents with scores in the round.

    If too few agents gave scores, the debate does not converge, since a single agent always agrees
    with itself. If later rounds would ask the same questions again, as with the readout
    `pointwise`, a debate with a convergence threshold ends as converged. After the first round of
    an escalation only the certainty decides, because agents may agree that two candidates are
    equally good.
    """
    if profile.protocol == "independent":
        return None
    if profile.aggregation == "moderator" and is_certain(profile, certainty):
        return "certain"
    if profile.protocol == "escalation" and r == 0:
        return "certain" if is_certain(profile, certainty) else None
    if profile.convergence is None or not arithmetic.is_quorum(voters, len(profile.agents)):
        return None

    return "converged" if cv <= profile.convergence or profile.repeats else None


def _earlier(name: str, former: str) -> Any:
    """Return a field that is also read from records of earlier versions, under its former name."""
    return Field(validation_alias=AliasChoices(name, former))


def _read_memory(value: object) -> object:
    """Convert a memory in a record of an earlier version, which holds the text alone."""
    return {"text": value} if isinstance(value, str) else value


Sanitized: TypeAlias = Annotated[int, _earlier("sanitized", "disarmed")]
"""The number of forged marks that were removed from texts; records of earlier versions name it
`disarmed`."""


@dataclass(frozen=True, slots=True)
class Points:
    """The remarks of one turn on one candidate, one sentence each. `instructions`: the requested
    changes."""

    strengths: str
    weaknesses: str
    instructions: str


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """The model that scored a turn with the readout `decide`. `emulated`: whether it is a chat
    model that emulates a decision model. `cut`: the number of characters of the prompt that did not
    fit into its context."""

    model: str
    emulated: bool = False
    cut: int = 0


ScoreMatrix: TypeAlias = tuple[tuple[float, ...], ...]
"""Scores or log-odds, with a row for each candidate, in the case's order, and a column for each
component."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a debate, in which one agent argues and scores all candidates. `round` and
    `agent`: numbers from 0. `order`: the candidates' indices in the positions in which they were
    shown. `points`: the remarks on each candidate. `scores`: j x k, in the case's order of
    candidates and the profile's order of components, from 0 to 10; None if the turn failed.
    `log_odds`: of the same shape; None unless the readout asks yes / no questions. `decided_by`:
    None unless the readout is `decide`. `parse_mode`: how the answer was parsed. `memories`: the
    recalled memories. `sanitized`: the number of forged marks that were removed from the answer.
    `seconds`: the duration of the model calls."""

    round: int
    agent: int
    model: str
    order: tuple[int, ...]
    argument: str = ""
    points: tuple[Points, ...] = ()
    scores: ScoreMatrix | None = None
    log_odds: ScoreMatrix | None = None
    decided_by: DecidedBy | None = None
    failure: Failure | None = None
    parse_mode: Annotated[ParseMode | None, _earlier("parse_mode", "rung")] = None
    memories: tuple[Annotated[Memory, BeforeValidator(_read_memory)], ...] = ()
    sanitized: Sanitized = 0
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def is_silent(self) -> bool:
        return self.argument in ("", NOTHING_TO_ADD)


def stack_scores(turns: Iterable[Turn], rounds: int, profile: Profile, candidates: int) -> Array:
    """Return the scores of the first rounds of a debate, shape (rounds, agents, candidates,
    components); NaN where a turn has no scores."""
    shape = rounds, len(profile.agents), candidates, len(profile.components)
    scores = np.empty(shape)
    scores.fill(np.nan)
    for turn in turns:
        if turn.scores and turn.round < rounds:
            scores[turn.round, turn.agent] = turn.scores
    return scores


def strongest_opponent(
    turns: Sequence[Turn], profile: Profile, round: int, agent: int
) -> Turn | None:
    """Return the latest turn of another agent, from before the given turn, with the strongest
    argument against the agent's favourite: that of the agent which scores another candidate highest
    above it, or, of a single candidate, whose score differs most. None if the agent has no earlier
    turn with scores, or no other agent has one with an argument."""
    weights = np.array(profile.weight_list)
    place = round * len(profile.agents) + agent
    latest: dict[int, tuple[Turn, Array]] = {}
    for turn in turns:
        earlier = turn.round * len(profile.agents) + turn.agent < place
        # An agent that fell silent is answered on what it said before.
        if turn.scores is not None and earlier and (turn.agent == agent or not turn.is_silent):
            latest[turn.agent] = turn, arithmetic.turn_scores(np.array(turn.scores), weights)
    if agent not in latest:
        return None

    own_scores = latest.pop(agent)[1]
    favourite = int(np.argmax(own_scores))
    best: tuple[float, Turn] | None = None

    for turn, scores in latest.values():
        other_scores = np.delete(scores, favourite)
        opposition = float(
            other_scores.max() - scores[favourite]
            if other_scores.size
            else abs(scores[0] - own_scores[0])
        )
        if best is None or opposition > best[0]:
            best = opposition, turn

    return None if best is None else best[1]


@dataclass(frozen=True, slots=True)
class Swing:
    """The candidate that an agent's scores favoured in its first and in its last turn; None if
    several had the top score."""

    agent: str
    first: int | None
    last: int | None

    @property
    def changed(self) -> bool:
        return self.first != self.last


@dataclass(frozen=True, slots=True)
class Move:
    """A change of an agent's scores by one of its later turns: the weighted mean over components of
    each candidate's scores before and after that turn, from 0 to 10. `answers`: the agent whose
    argument speaks most against the favourite before; None if no other agent gave one."""

    round: int
    agent: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    answers: str | None


def measure_move(turns: Sequence[Turn], turn: Turn, profile: Profile) -> Move | None:
    """Return what a turn changed; None if the agent has no earlier scores or gave none now. With
    the protocol `independent` nobody hears the others, so nothing is answered."""
    former = [
        other.scores
        for other in turns
        if other.agent == turn.agent and other.round < turn.round and other.scores
    ]
    if turn.scores is None or not former:
        return None
    before, after = (
        tuple(np.average(scores, axis=1, weights=profile.weight_list).tolist())
        for scores in (former[-1], turn.scores)
    )
    opponent = None
    if profile.protocol != "independent":
        opponent = strongest_opponent(turns, profile, turn.round, turn.agent)
    answers = None if opponent is None else profile.agents[opponent.agent].name

    return Move(turn.round, profile.agents[turn.agent].name, before, after, answers)


@dataclass(frozen=True, slots=True)
class Feedback:
    """The agents' remarks on one candidate, each with its speakers, the latest round first; what
    several say in nearly the same words stands once.
    `weakest_component`: the component with the lowest mean score among those with a weight above 0,
    as a text with that score; None without scores."""

    strengths: tuple[str, ...]
    weaknesses: tuple[str, ...]
    instructions: tuple[str, ...]
    weakest_component: str | None = None

    def __str__(self) -> str:
        parts = [
            f"{title}:\n" + "\n".join(f"- {line}" for line in lines)
            for title, lines in (
                ("Strengths", self.strengths),
                ("Weaknesses", self.weaknesses),
                ("Instructions", self.instructions),
            )
            if lines
        ]
        if self.weakest_component:
            parts.append(f"Weakest component: {self.weakest_component}")

        return "\n".join(parts)


@with_config(ConfigDict(ser_json_inf_nan="strings"))
@dataclass(frozen=True, repr=False)
class DebateResult(Shown):
    """A finished debate over one case. Candidates are numbered from 0 in the case's order.

    `convergence`: the disagreement (CV) after each round that ran. `stopped`: why the debate ended.
    `labels`: the number by which the agents knew each candidate. `nonce`: the code in the marks
    around texts. `sanitized`: the number of forged marks that were removed from input and
    candidates. `summaries`: with the protocol `simultaneous-summary`, the summary that replaced the
    transcript after each round. `extra_usage`: of calls that belong to no turn. `index`: the
    position of the case in the run. `failure`: the reason why nothing was scored; None if there are
    scores.
    """

    case: Case
    profile: Profile
    turns: tuple[Turn, ...]
    convergence: tuple[float, ...]
    stopped: Stop
    labels: tuple[int, ...]
    nonce: str
    sanitized: Sanitized = 0
    summaries: tuple[str, ...] = ()
    extra_usage: Usage = Usage()
    index: int = 0
    failure: Failure | None = None
    metadata: Mapping[str, Any] = empty_default(dict)

    def __repr__(self) -> str:
        scores = [round(result.score, 3) for result in select_scored(self.result)]
        text = f"scores {scores}" if scores else f"{self.result[0]}"
        return f"DebateResult({self.case.id!r}, {text}, best={self.best}, stopped={self.stopped!r})"

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.profile.agents)

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.profile.components)

    @cached_property
    def weights(self) -> Array:
        return np.array(self.profile.weight_list)

    @cached_property
    def tensor(self) -> LabelledTensor:
        """Return the score tensor S, shape (rounds done, agents, candidates, components), in [0,
        10]."""
        rounds = len(self.convergence)
        candidates = len(self.case.candidates)
        values = stack_scores(self.turns, rounds, self.profile, candidates)
        return LabelledTensor(values, self.agents, self.case.candidates, self.components)

    @cached_property
    def scores(self) -> Array:
        """Return each candidate's score s_norm, shape (candidates,), in [0, 10]; NaN for one
        without scores."""
        return self._normalise(self.tensor.values)

    @cached_property
    def probabilities(self) -> Array:
        """Return each candidate's probability s_phi, shape (candidates,); they sum to 1, NaN for a
        candidate without scores."""
        return arithmetic.softmax(self.scores, self.profile.temperature)

    @property
    def spread(self) -> Array:
        """Return the standard deviation of each candidate's score over the agents, on the scale of
        0 to 10."""
        return arithmetic.spread(self.tensor.values, self.weights)

    @property
    def tied(self) -> tuple[int, ...]:
        """Return the indices of the candidates that share the highest score; empty if only one has
        it."""
        top = arithmetic.top_candidates(self.scores)
        return top if len(top) > 1 else ()

    @property
    def best(self) -> int | None:
        """Return the index of the chosen candidate, by the profile's `select`; the first of a tie;
        None if nothing was scored."""
        if not self.scored:
            return None
        if self.profile.select == "sample":
            return self.sample(random.Random(f"{self.profile.seed}:{self.nonce}"))
        return arithmetic.top_candidates(self.scores)[0]

    @cached_property
    def scored(self) -> bool:
        return bool(self.scores.size) and not any(map(math.isnan, self.scores.tolist()))

    @cached_property
    def unit_scores(self) -> tuple[float, ...]:
        """Return the scores scaled to [0, 1], whatever the weights; NaN for a candidate without
        scores."""
        return tuple(arithmetic.unit_scores(self.scores, self.weights).tolist())

    @cached_property
    def _by_component(self) -> Array:
        turns = arithmetic.deciding_turns(self.tensor.values, self.profile.aggregation)
        return arithmetic.component_scores(turns)

    def sample(self, generator: random.Random | np.random.Generator | None = None) -> int:
        """Draw a candidate at random by the probabilities s_phi; return its index.

        Raises:
            InputError: there are no scores to draw by.
        """
        if not self.scored:
            raise InputError("nothing was scored, so no candidate can be drawn")
        draw = (generator or random.Random()).random()
        cumulative = np.cumsum(self.probabilities)

        return int(min(np.searchsorted(cumulative, draw, side="right"), len(cumulative) - 1))

    @property
    def round_one(self) -> Array:
        """Return the scores s_norm of the first round alone. Its agents had not heard each other,
        except with the protocol `sequential`."""
        return self._normalise(self.tensor.values[:1])

    @cached_property
    def certainty(self) -> float | None:
        """Return the probability in [0, 1], computed from the first round, that its winner is the
        best; of a single candidate, that it rightly passes or fails. None if too few agents gave
        scores, or if the agents of that round heard each other."""
        if self.profile.protocol == "sequential" or not self.tensor.values.size:
            return None
        return measure_certainty(self.tensor.values[0], self.profile, self.nonce)

    @property
    def swings(self) -> tuple[Swing, ...]:
        """Return for each agent with at least one scored turn its winner in its first and last
        turn."""
        votes = arithmetic.turn_scores(self.tensor.values, self.weights)
        swings_list: list[Swing] = []

        for agent, name in enumerate(self.agents):
            rounds = [v for v in votes[:, agent] if not np.isnan(v).any()]
            if rounds:
                tops = [arithmetic.top_candidates(v) for v in (rounds[0], rounds[-1])]
                opening, last = (t[0] if len(t) == 1 else None for t in tops)
                swings_list.append(Swing(name, opening, last))

        return tuple(swings_list)

    @property
    def moves(self) -> tuple[Move, ...]:
        """Return what each turn after an agent's first one changed."""
        moves = [measure_move(self.turns, turn, self.profile) for turn in self.turns]
        return tuple(move for move in moves if move is not None)

    @cached_property
    def voters(self) -> tuple[int, ...]:
        """Return the number of agents that gave scores in each round that ran; `convergence` is
        computed from their scores."""
        return tuple(arithmetic.voters(self.tensor.values).tolist())

    @property
    def coverage(self) -> float:
        """Return the share in [0, 1] of turns with scores, over the rounds that ran."""
        if not self.tensor.values.size:
            return 0.0
        return float(arithmetic.coverage(self.tensor.values))

    @property
    def usage(self) -> Usage:
        return sum((t.usage for t in self.turns), self.extra_usage)

    @property
    def seconds(self) -> float:
        """Return the sum of the seconds of all turns, also of concurrent ones; summaries are not
        included."""
        return sum(t.seconds for t in self.turns)

    @cached_property
    def feedback(self) -> tuple[Feedback, ...]:
        """Return for each candidate the agents' remarks in all turns: strengths, weaknesses and
        requested changes."""
        return tuple(map(self._feedback, range(len(self.case.candidates))))

    @property
    def result(self) -> tuple[EvaluationResult | Failure, ...]:
        """Return for each candidate, in the case's order, its result, or a failure with the
        reason."""
        return self._result

    @cached_property
    def _result(self) -> tuple[EvaluationResult | Failure, ...]:
        return tuple(
            replace(outcome, feedback=str(self.feedback[j]))
            if isinstance(outcome, EvaluationResult)
            else outcome
            for j, outcome in enumerate(self.outcomes)
        )

    @cached_property
    def outcomes(self) -> tuple[EvaluationResult | Failure, ...]:
        """Return the results without feedback, whose composition takes longer than the rest."""
        if not self.scored:
            failures = [turn.failure for turn in self.turns if turn.failure]
            if self.profile.aggregation in ("last-round", "moderator"):
                failures.reverse()  # those of the turns that decide come last
            failure = (
                self.failure
                or next(iter(failures), None)
                or Failure("failed", "no turn gave scores")
            )
            return (failure,) * max(1, len(self.case.candidates))

        shares = self.probabilities
        coverage = self.coverage

        return tuple(
            EvaluationResult(
                score=min(1.0, max(0.0, score)),
                passed=reaches(score, self.profile.threshold),
                metadata={
                    "s_norm": float(self.scores[j]),
                    "probability": float(shares[j]),
                    "components": dict(
                        zip(self.components, self._by_component[j].tolist(), strict=True)
                    ),
                    "coverage": coverage,
                },
            )
            for j, score in enumerate(self.unit_scores)
        )

    def rescore(self, **parameters: Any) -> DebateResult:
        """Score the same turns again with other `weights`, `temperature`, `aggregation`, `select`,
        `threshold`, `seed`, `convergence`, `convergence_mode` or `escalate_below`; any other
        parameter raises InputError. Rounds after the one that now ends the debate are left out;
        rounds that did not run cannot be added."""
        allowed = {
            "weights",
            "temperature",
            "aggregation",
            "select",
            "threshold",
            "seed",
            "convergence",
            "convergence_mode",
            "escalate_below",
        }
        for name in parameters:
            if name not in allowed:
                raise InputError(f"'{name}' changes the prompts, so it needs a new run")
        profile = override(self.profile, parameters)
        weights = np.array(profile.weight_list)
        cvs = arithmetic.disagreement(self.tensor.values, weights, profile.convergence_mode)
        broken: Stop | None = self.stopped if self.stopped in ("budget", "failed") else None
        last_round = len(cvs)
        stopped = broken or "rounds"
        rescored = replace(self, profile=profile)

        for r in range(len(cvs) - (broken is not None)):
            certainty = rescored.certainty
            if profile.aggregation == "moderator":
                certainty = measure_certainty(self.tensor.values[r], profile, self.nonce)
            if ending := end_early(profile, r, float(cvs[r]), certainty, self.voters[r]):
                last_round = r + 1
                stopped = ending
                break

        return replace(
            rescored,
            turns=tuple(t for t in self.turns if t.round < last_round),
            convergence=tuple(map(float, cvs[:last_round])),
            stopped=stopped,
        )

    def to_json(self) -> str:
        """Return the result as one line of JSON, with computed metrics; `from_json` reads it
        back."""
        return write_result(self)

    @staticmethod
    def from_json(text: str | bytes) -> DebateResult:
        """Read a result that `to_json` wrote.

        Raises:
            InputError: the text is not such a record.
        """
        return read_result(text)

    def _normalise(self, values: Array) -> Array:
        if not values.size:
            return np.full(len(self.case.candidates), np.nan)
        return arithmetic.normalise(values, self.weights, self.profile.aggregation)

    def _feedback(self, candidate: int) -> Feedback:
        kinds = ("strengths", "weaknesses", "instructions")
        # Each remark with its speakers: who says the same is named beside the first one.
        remarks: dict[str, dict[str, list[str]]] = {kind: {} for kind in kinds}
        for turn in sorted(self.turns, key=lambda t: (-t.round, t.agent)):
            for kind in kinds if turn.points else ():
                text = join_lines(str(getattr(turn.points[candidate], kind)))
                if text:
                    other_remarks = remarks[kind]
                    same = next(
                        (other for other in other_remarks if repeats(text, [other], SAME_REMARK)),
                        text,
                    )
                    other_remarks.setdefault(same, []).append(self.agents[turn.agent])

        lines = [
            tuple(
                f"{', '.join(dict.fromkeys(speakers))}: {text}"
                for text, speakers in remarks[kind].items()
            )
            for kind in kinds
        ]
        weakest = None

        if self.scored:
            means = self._by_component[candidate]
            weighted = np.where(self.weights > 0, means, np.inf)
            lowest = int(np.argmin(weighted))
            weakest = f"{self.components[lowest]} ({means[lowest]:.1f} of 10)"

        return Feedback(*lines, weakest_component=weakest)


FORMAT = 1
"""The version of the format of records. A record holds the fields of the result. Its `metrics` are
the values computed from them, for other programs; they are not read back."""


@cache
def _adapter() -> TypeAdapter[DebateResult]:
    return TypeAdapter(DebateResult)


def write_result(result: DebateResult, *, metrics: bool = True) -> str:
    """Write the result as one line of JSON. `metrics`: with the values computed from it."""
    more = {"format": FORMAT, "metrics": result_metrics(result) if metrics else {}}
    try:
        record = _adapter().dump_json(result).decode()
    except ValueError:  # half a surrogate pair, as in a memory that the user's code recalled
        record = mend_halves(json.dumps(_adapter().dump_python(result, mode="json")))

    return f"{record[:-1]},{to_json(more).decode()[1:]}"


def read_result(text: str | bytes) -> DebateResult:
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        raise InputError(f"not a debate's result: {explain(error)}") from None


def result_metrics(result: DebateResult) -> dict[str, Any]:
    """Return the computed values as JSON-ready data; a missing value is None."""
    usage = result.usage
    results = [r if isinstance(r, EvaluationResult) else None for r in result.outcomes]
    failures = [r for r in result.outcomes if isinstance(r, Failure)]
    failed_turns = [
        {
            "round": turn.round + 1,
            "agent": result.agents[turn.agent],
            "kind": turn.failure.kind,
            "reason": turn.failure.reason,
        }
        for turn in result.turns
        if turn.failure
    ]

    return {
        "status": failures[0].kind if failures else "scored",
        "best": result.best,
        "tied": list(result.tied),
        "s_norm": finite(result.scores.tolist()),
        "probabilities": finite(result.probabilities.tolist()),
        "scores": [r.score if r else None for r in results],
        "passed": [r.passed if r else None for r in results],
        "spread": finite(result.spread.tolist()) if result.tensor.values.size else [],
        "components": [dict(r.metadata["components"]) if r else None for r in results],
        "round_one": finite(result.round_one.tolist()),
        "coverage": result.coverage,
        "rounds": len(result.convergence),
        "voters": list(result.voters),
        "certainty": result.certainty,
        "winner_changes": sum(swing.changed for swing in result.swings),
        "failures": failed_turns,
        "tokens": usage.tokens,
        "calls": usage.calls,
        "cost": usage.cost,
        "seconds": round(result.seconds, 3),
    }


def finite(values: list[float]) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values]
