"""Conversations in a comparison, in which a user's messages alternate with a variant's answers: the
simulated user of a row, the grades of each turn, and the figures by turn.

`compare_cells` holds and grades conversations; `agents.simulated_user` defines simulated users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from statistics import fmean
from typing import Any

from textevolve.agents.simulated_user import SimulatedUser
from textevolve.errors import InputError
from textevolve.evaluation import Failure, check_text, empty_default
from textevolve.ledger import log
from textevolve.llm.model import Message
from textevolve.mappings import omit
from textevolve.rows import Placed
from textevolve.rows.chats import read_texts
from textevolve.runs.chains import chains_among
from textevolve.runs.study import Row
from textevolve.studies.compare_spec import CompareSpec
from textevolve.trajectory import Trajectory

TURNS = "turns"
"""The column with the list of messages that the user of a conversation sends, one for each turn."""
TURN_COLUMNS = ("messages", "message")
"""The columns that a called application receives at each turn: all messages so far, and the text of
the last."""
SESSION = "session"
"""The column with the id of the conversation that the application named in its last answer."""
USER_COLUMNS = (TURNS, "goal", "persona", "stop")
"""The columns that describe the user of a conversation."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of an output by one metric or judge. `score`: in [0, 1]; None if it is missing,
    with the reason in `failure`. `passed`: the verdict, if there is one."""

    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    failure: Failure | None = None

    def as_row(self, case: str, cluster: str) -> Row:
        return Row("", case=case, score=self.score, passed=self.passed, cluster=cluster)


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One turn of a conversation: the `user`'s message, the `answer`, and the answer's `grades` by
    the name of each metric and judge that grades turns."""

    user: str
    answer: str
    grades: Mapping[str, Grade] = empty_default(dict)


def user_of(spec: CompareSpec, row: Mapping[str, Any]) -> SimulatedUser | tuple[str, ...]:
    """Return the simulated user of a row's conversation, or the list of its messages; empty if the
    row is no conversation."""
    script = read_texts(row.get(TURNS))
    if script and not any(prompt.placeholders((TURNS,)) for prompt in spec.prompts):
        return script
    goal, persona, stop = (str(row.get(name) or "").strip() for name in ("goal", "persona", "stop"))
    if spec.user_model is None or not goal:
        return ()

    return SimulatedUser(
        spec.user_model, goal, persona, stop, spec.max_turns, spec.temperature, spec.seed
    )


def check_conversations(spec: CompareSpec, placed: Sequence[Placed]) -> bool:
    """Check that either all rows or none are conversations, and return whether they are.

    Raises:
        InputError: only some rows are conversations, or options do not fit.
    """
    users = [(where, row, user_of(spec, row)) for where, row in placed]
    needs = f"a column '{TURNS}' with a list of the user's messages, or 'goal' with --user-model"
    if not any(user for _, _, user in users):
        if spec.user_model is not None or (spec.each_turn and not spec.outputs):
            raise InputError(f"no row is a conversation, which needs {needs}")
        return False

    if chains := chains_among(*spec.models):
        raise InputError(
            f"{chains[0]}: a chain takes the columns of a row and cannot hold a conversation"
        )

    for prompt in spec.prompts:
        if prompt.messages and prompt.messages[-1].role == "user":
            raise InputError(
                f"prompt {prompt.name}: ends with a message of the user, but the rows have the"
                " user's messages: end it with the system or the assistant"
            )

        if spec.system and not prompt.messages:
            raise InputError(
                f"prompt {prompt.name}: becomes the system message of the conversation: leave out"
                " --system"
            )

    for where, row, user in users:
        if not user:
            raise InputError(f"{where}: is not a conversation, as other rows are: give it {needs}")
        script = user if isinstance(user, tuple) else ()
        for number, text in enumerate(script, 1):
            check_text(f"{where}: turn {number}", text)
        labels = read_texts(row.get(spec.label or "")) if spec.each_turn else ()
        if script and labels and len(labels) != len(script):
            raise InputError(
                f"{where}: the label '{spec.label}' has {len(labels)} texts for {len(script)} turns"
            )

    return True


def turn_row(
    row: Mapping[str, Any], messages: Sequence[Message], *, all_columns: bool
) -> dict[str, Any]:
    """Return the row that an application receives at a turn. `all_columns`: the application's
    request template selects no columns, so it receives all except the columns about the user."""
    left_out = USER_COLUMNS if all_columns else ()
    columns = omit(row, left_out)
    chat = [{"role": message.role, "content": message.text} for message in messages]
    return {**columns, **dict(zip(TURN_COLUMNS, (chat, messages[-1].text), strict=True))}


def join_trajectories(turns: Sequence[Trajectory | None]) -> Trajectory | None:
    """Join the trajectories of a conversation's answers. The tool calls and the number of steps are
    None (unknown) if one of the answers does not report its own. Without any trajectory the result
    is None."""
    if not any(turns):
        return None

    trajectories = [trajectory or Trajectory() for trajectory in turns]
    contexts = chain.from_iterable(trajectory.contexts for trajectory in trajectories)
    errors = chain.from_iterable(trajectory.errors for trajectory in trajectories)
    calls = [trajectory.tool_calls for trajectory in trajectories]
    joined_calls = chain.from_iterable(turn_calls or () for turn_calls in calls)

    return Trajectory(
        # A passage that several answers retrieved is listed once.
        tuple(dict.fromkeys(contexts)),
        None if None in calls else tuple(joined_calls),
        steps=_sum_steps(trajectories),
        errors=tuple(errors),
    )


def check_calls(turns: Sequence[Trajectory | None], application: str) -> None:
    """Warn if each answer of a conversation seems to report the calls of those before it again."""
    calls = [turn.tool_calls or () for turn in turns if turn]
    repeats = (later[: len(earlier)] == earlier for earlier, later in pairwise(calls))
    if any(calls[:-1]) and all(repeats):
        _warn_of_repeats(application)


@lru_cache
def _warn_of_repeats(application: str) -> None:
    """Warn once for each application."""
    log.warning(
        "%s: each answer of a conversation begins with the tool calls of the answers before it, and"
        " they count again; an answer should report its own calls alone",
        application,
    )


def _sum_steps(trajectories: Sequence[Trajectory]) -> int | None:
    """Return the steps of all turns. A turn that reports its tool calls alone has a step for each,
    as metrics count them; None if a turn reports neither, or no turn reports steps."""
    if all(trajectory.steps is None for trajectory in trajectories):
        return None
    total = 0
    for trajectory in trajectories:
        if trajectory.steps is not None:
            total += trajectory.steps
        elif trajectory.tool_calls is not None:
            total += len(trajectory.tool_calls)
        else:
            return None

    return total


def join_grades(grades: Sequence[Grade]) -> Grade:
    """Return the mean grade of a conversation's turns, which passes if all turns pass; it has no
    score if one of the turns has none."""
    missing = [(n, grade.failure) for n, grade in enumerate(grades, 1) if grade.failure is not None]
    if missing:
        number, failure = min(missing, key=lambda each: each[1].kind != "skipped")
        return Grade(failure=replace(failure, reason=f"turn {number}: {failure.reason}"))
    scores = [grade.score or 0.0 for grade in grades]
    worst = scores.index(min(scores))
    reason = f"turn {worst + 1}: {grades[worst].reason}" if grades[worst].reason else ""

    return Grade(fmean(scores), all(grade.passed for grade in grades), reason)
