"""The models and judges that the server offers, by their names and within limits.

Only models and judges named by the operator are served: a request must not make this machine call
another model, or read a file.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    FatalModelError,
    InputError,
    SettingsError,
    StoreError,
    TextEvolveError,
)
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    empty_default,
    failure_of,
)
from textevolve.events import CallFinished, Event
from textevolve.json_texts import CONTAINERS, is_mapping, parse_text
from textevolve.judges.judge import Judge
from textevolve.judges.opening import Judges, keep_whole
from textevolve.judges.rubric import is_rubric_name
from textevolve.llm.decisions import Answer, Decision, Question, decide, log_odds, softmax
from textevolve.llm.model import JournalEntry, Model, Response
from textevolve.mappings import omit
from textevolve.protocol.decisions import state_text
from textevolve.rows.chats import ASSISTANT, Chat, read_chat, read_texts, write_chat
from textevolve.rows.columns import find_roles, join_passages
from textevolve.runs.stored import open_standing_run
from textevolve.server.errors import ApiError, as_api_error, log
from textevolve.server.options import ServerOptions, check_aliases
from textevolve.settings import Settings, today
from textevolve.texts.prose import join_lines
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

# Answer decision questions about a state (a text or JSON) with a model or with a judge.
#
# A judge scores texts in [0, 1]. If the state has an input and an output, the judge scores the
# output; it judges any other state as a whole. The question becomes the judge's rubric, if the
# judge takes one.

WRAPPER = "test_case"
"""The field in which DeepEval's client sends a case."""
TURNS = ("turns",)
"""The field names of a conversation in addition to those of `find_roles`; DeepEval uses this
one."""


def read_state(state: object) -> Case:
    """Read a state as a case with one candidate, the text to judge; the input is empty if it is
    unknown. Fields of the state that are none of a case are part of the input, each under its name.
    A state without a single output is judged whole."""
    value = parse_text(state, CONTAINERS)  # some clients send their states so
    case = None
    if (chat := read_chat(value)) is not None:
        case = _read_chat(chat) or Case("", (write_chat(chat),))
    elif is_mapping(value):
        case = _read_fields(value)

    return case or Case("", (state_text(state),))


def _read_chat(chat: Chat) -> Case | None:
    """Read the assistant's reply at the end of a chat as the candidate, and the messages before it
    as the input; None if the chat does not end with a reply to other messages: it is judged whole,
    since an answer over HTTP has no place to name the turns that would be left out."""
    if len(chat) < 2 or chat[-1].speaker != ASSISTANT:
        return None
    return Case(write_chat(chat[:-1]), (write_chat((chat[-1],)),))


def _read_fields(fields: Mapping[str, Any]) -> Case | None:
    """Read a case from its fields; None if they have neither a single output nor a chat that ends
    with a reply."""
    inner = fields.get(WRAPPER)
    if is_mapping(inner):
        outer = omit(fields, [WRAPPER])
        fields = {**inner, **outer}
    roles = find_roles(tuple(fields))
    filled = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    inputs = [name for name in (*roles.inputs, *roles.chats, *TURNS) if name in filled]

    if len(roles.outputs) == 1 and fields.get(roles.outputs[0]) is not None:
        output = _text(fields[roles.outputs[0]])
        asking = dict.fromkeys((roles.instruction, *inputs[:1]))
        texts = [_text(filled[name]) for name in asking if name in filled]
        used = {*asking, roles.outputs[0]}
    else:
        chats = {name: chat for name in inputs if (chat := read_chat(filled[name])) is not None}
        name = next(iter(chats), "")
        exchange = _read_chat(chats[name]) if chats else None
        if exchange is None:
            return None
        (output,) = exchange.candidates
        texts = [exchange.input]
        used = {name}

    reference = next((n for n in roles.references if n in filled and n not in used), "")
    context = next((n for n in roles.contexts if join_passages(filled.get(n))), "")
    used_names = {*used, reference, context, *roles.ids}
    texts += [f"{name}: {_text(value)}" for name, value in filled.items() if name not in used_names]

    return Case(
        "\n\n".join(filter(None, texts)),
        (output,),
        reference=_text(filled[reference]) if reference else None,
        context=join_passages(filled[context]) if context else None,
    )


def _text(value: object) -> str:
    """Return a field as text: a chat as its messages, a list of texts as passages, anything else as
    JSON."""
    if isinstance(value, str):
        return value
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    return join_passages(read_texts(value)) or state_text(value)


@dataclass
class RequestSpending:
    """The cost of one request.

    Attributes:
        usage: The tokens and cost of new model calls.
        replayed: The number of calls that the journal answered for free.
        causes: The errors that left questions unanswered.
        note: Is called with the tokens of each call, also of those that end after the request, such
            as what an agent learns from a chat.
    """

    usage: Usage = Usage()
    replayed: int = 0
    causes: list[Exception] = empty_default(list)
    note: Callable[[int], None] = lambda _tokens: None


_current: ContextVar[RequestSpending | None] = ContextVar("spending", default=None)


@contextmanager
def spending(note: Callable[[int], None]) -> Generator[RequestSpending]:
    """Sum up the usage within the block; `note` is called with the tokens of each call."""
    spent = RequestSpending(note=note)
    before = _current.set(spent)
    try:
        yield spent
    finally:
        _current.reset(before)


def note_event(event: Event) -> None:
    """Add the event of a call to the usage of the current request."""
    spent = _current.get()
    if spent is None or not isinstance(event, CallFinished):
        return
    if event.replayed:
        spent.replayed += 1
    else:
        spent.usage += event.usage
        spent.note(event.usage.tokens)

    if event.cause is not None:
        spent.causes.append(event.cause)


QUESTIONS_AT_ONCE = 8
"""The number of questions of one request that a judge answers at a time."""


@dataclass(frozen=True, slots=True)
class DecidingModel:
    """A model as a decider: it answers the questions by `decide`, all in one request."""

    model: Model

    async def __call__(self, state: object, questions: Sequence[Question], /) -> Decision:
        return await decide(self.model, state_text(state), questions)


@dataclass(frozen=True, slots=True)
class DecidingJudge:
    """A judge as a decider: its scores become the probabilities of answers.

    A predicate is answered with the judge's score as P(yes). A score question is answered with the
    judge's score, spread over the two nearest levels so that the expected level equals the score. A
    choice is answered by judging the options as candidates, always by the judge's own rubric: the
    probabilities are the softmax of their log-odds.

    Attributes:
        open: Returns the judge for a rubric; an empty text means the judge's own rubric.
        takes_rubric: Whether the judge can use the question as its rubric.
        needs: The fields, `context` or `reference`, that a case must have.
    """

    open: Callable[[str], Evaluator]
    takes_rubric: bool
    needs: tuple[str, ...] = ()

    async def __call__(self, state: object, questions: Sequence[Question], /) -> Decision:
        """Answer questions about a state.

        Raises:
            FatalModelError: no call can succeed. StoreError: the store cannot be written.
        """

        async def attempt(question: Question) -> Answer | Failure:
            try:
                return await self._answer(state, question)
            except (FatalModelError, StoreError):
                raise
            except TextEvolveError as error:
                if (spent := _current.get()) is not None:  # no call has reported it
                    spent.causes.append(error)
                return failure_of(error)

        answers = await gather_bounded(
            [lambda each=each: attempt(each) for each in questions], QUESTIONS_AT_ONCE
        )

        return Decision({q.name: answer for q, answer in zip(questions, answers, strict=True)})

    async def _answer(self, state: object, question: Question) -> Answer | Failure:
        if question.kind == "choice":
            text = f"{state_text(state)}\n\n{question.instructions}"
            options = tuple(option.text for option in question.options)
            return share_out((await self.open("")(Case(text, options))).result)

        rubric = describe_question(question)
        case = read_state(state)
        case = replace(case, input=case.input or question.instructions)

        for name in self.needs:
            if getattr(case, name) is None:
                raise InputError(
                    f"the judge needs the field {name} in the state, and it is missing"
                )

        judge = self.open(rubric if self.takes_rubric else "")
        (result,) = (await judge(case)).result
        if isinstance(result, Failure):
            return result

        return spread(result.score, len(question.options))


Decider: TypeAlias = DecidingModel | DecidingJudge
"""An object that answers typed questions about a state."""


def describe_question(question: Question) -> str:
    """Format a question with the descriptions of its options as a rubric: in one line, since some
    judges read each line as a criterion, with the levels of a score question in brackets, separated
    by |."""
    text = join_lines(question.instructions)
    if is_rubric_name(text):  # which would stand for a shipped rubric
        text = f"This holds: {text}"
    descriptions = {option.value: join_lines(option.description) for option in question.options}
    if question.kind == "score":
        levels = [re.sub(r"[\[\]|]", "/", level) for level in descriptions.values()]
        several = all(levels) and len(set(levels)) == len(levels)
        return f"{text} [{' | '.join(levels)}]" if several else f"{text} ({'; '.join(levels)})"

    means = [
        f"{name.capitalize()} means: {descriptions[name]}"
        for name in ("yes", "no")
        if descriptions[name]
    ]

    return " ".join([*means, text])


def spread(score: float, options: int) -> Answer:
    """Convert a score in [0, 1] into probabilities of the levels 0 to `options` - 1. The two
    nearest levels share the probability, so the expected level is `score` times the highest level.
    With two levels, P(yes) is the score."""
    place = min(max(score, 0.0), 1.0) * (options - 1)
    below = min(int(place), options - 2)
    above = round(place - below, 12)  # 0.592 and not 0.5920000000000001
    shares = {below: round(1.0 - above, 12), below + 1: above}
    return Answer(tuple(shares.get(n, 0.0) for n in range(options)))


def share_out(results: Sequence[EvaluationResult | Failure]) -> Answer | Failure:
    """Return probabilities of candidates: the softmax of their log-odds, or of the log-odds of
    their scores if a judge gives none. If one candidate has no score, there is no answer."""
    odds: list[float] = []
    for result in results:
        if isinstance(result, Failure):
            return result
        value = result.metadata.get("log_odds")
        odds.append(value if isinstance(value, float) else log_odds(result.score))

    return Answer(tuple(round(share, 12) for share in softmax(odds)))


JUDGE = "judge/"
"""The prefix of a judge's name as clients see it."""
DEFAULT_ALIAS = "jev-latest"
"""The model name that clients of System One request by default; the first served model or judge
answers to it."""
MOST_IN_FLIGHT = 256
"""The most requests that are answered at a time; the next one is answered with 429."""
RUBRICS_KEPT = 256
"""The most rubrics (questions) for each of which one served judge stays open."""


@dataclass
class Serving:
    """The models and judges of a running server.

    Attributes:
        bench: The opened models and judges, with their store.
        deciders: The models and judges by their served names.
        aliases: Further names, each with the served name that it stands for.
        began: When the server started.
        in_flight: The number of requests that are being answered.
    """

    options: ServerOptions
    bench: Workbench
    deciders: dict[str, Decider]
    aliases: Mapping[str, str]
    began: datetime.datetime = field(default_factory=datetime.datetime.now)
    in_flight: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that a client may use, aliases last."""
        return (*self.deciders, *self.aliases)

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """Limit the time of the block to the time limit of one request.

        Raises:
            ApiError: 504, the block took longer than the time limit of a request.
        """
        limit = asyncio.timeout(self.options.time_limit)

        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise ApiError(
                504,
                "timeout",
                f"not answered within the time limit of {self.options.time_limit:g} s",
            ) from None

    def find(self, name: str) -> Decider | None:
        """Return the model or the judge that is served by this name or alias; None if there is
        none."""
        return self.deciders.get(self.aliases.get(name, name))

    @contextmanager
    def place(self) -> Generator[None]:
        """Count a request as in flight within the block.

        Raises:
            ApiError: 429, the most requests are in flight.
        """
        if self.in_flight >= MOST_IN_FLIGHT:
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"{MOST_IN_FLIGHT} requests are being answered already",
                retry_after=1,
            )

        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def failure_error(failure: Failure, spent: RequestSpending) -> ApiError:
    """Return the error for a request whose answers all failed: that of the first failed call if one
    is known, otherwise that of `failure`, the first answer."""
    if spent.causes:
        return as_api_error(spent.causes[0])
    if failure.kind == "skipped":
        return ApiError(429, "insufficient_quota", failure.reason)
    return ApiError(502, "upstream_error", failure.reason)


@asynccontextmanager
async def open_serving(options: ServerOptions, settings: Settings) -> AsyncGenerator[Serving]:
    """Open the models and judges to serve. Their calls are stored as a run of their own, and calls
    that the journal already has are not repeated.

    Raises:
        InputError: a judge or an alias cannot be used.
        SettingsError: a model is not available.
    """
    if not options.serves:
        nothing = Setting("", (), today())
        async with open_workbench(nothing, settings, _NoJournal(), models=_reject_model) as bench:
            yield _lay_out(options, bench, {})
        return

    setting, models = await _choose_models(options, settings)
    opened = open_standing_run(
        "server",
        {
            "judges": [judge.text for judge in options.judge],
            "models": list(setting.models),
            "model": setting.default_model,
            "today": setting.today,
        },
        setting,
        settings,
        source="HTTP",
        limits=Limits(options.max_cost, options.max_tokens, options.max_calls),
        listener=note_event,
    )
    async with opened as bench:
        yield _lay_out(options, bench, models)


def _reject_model(name: str) -> Model:
    raise ApiError(
        404,
        "model_not_found",
        f"{name}: this server calls no models; start `textevolve serve` for that",
    )


class _NoJournal:
    """The journal of a server without models: it stores and finds nothing."""

    async def find(self, key: str) -> Response | None:
        return None

    async def has_answer(self, model: str) -> bool:
        return False

    async def append(self, entry: JournalEntry) -> None:
        return None


async def _choose_models(
    options: ServerOptions, settings: Settings
) -> tuple[Setting, Mapping[str, str]]:
    """Return the setting of the judges' run, with the default model for judges that name none, and
    the full spec of each served model by its name."""
    models = {name: (await choose_model(settings, name))[0] for name in options.model}
    for judge in options.judge:
        judge.check()
        judge.describe()  # reads its files, so that errors in them are reported now
    judged = [name for judge in options.judge for name in judge.models(None)]
    default = next(iter(models.values()), "")
    needed = None in judged

    if not default and (needed or not options.judge):
        try:
            default, _ = await choose_model(settings, None)
            models = models or ({} if options.judge else {default: default})
        except SettingsError as error:
            if needed:
                raise
            log.warning("no model is served: %s", error)  # pages and agents can do without

    names = tuple(dict.fromkeys([*models.values(), *(name or default for name in judged)]))

    return Setting(default, names, today()), models


def _lay_out(options: ServerOptions, bench: Workbench, models: Mapping[str, str]) -> Serving:
    judges = Judges(
        bench.default_model,
        bench.model_of,
        note_event,
        bench.calls_per_case,
        bench.today,
        recall=bench.recall,
        fill=bench.fill,
    )
    deciders: dict[str, Decider] = {
        f"{JUDGE}{judge}": open_judge(judge, judges) for judge in options.judge
    }
    for name, spec in models.items():
        deciders[name] = deciders[spec] = DecidingModel(bench.model_of(spec))
    check_aliases(options.alias, deciders)
    default = next(iter(deciders), None)
    aliases = {**({DEFAULT_ALIAS: default} if default else {}), **options.alias}

    return Serving(options, bench, deciders, aliases)


def open_judge(judge: Judge, judges: Judges) -> DecidingJudge:
    """Return a judge as a decider.

    Raises:
        InputError: the judge cannot be opened.
    """

    @lru_cache(maxsize=RUBRICS_KEPT)
    def open_once(rubric: str, _files: str, _agents: tuple[str, ...]) -> Evaluator:
        return keep_whole(judges.open(judge, rubric))

    def open(rubric: str) -> Evaluator:
        # A file of the judge, or an agent that debates, may have changed since the last request.
        stored = [profile for profile in judge.profiles if profile.stored_agents]
        profiles = tuple(judges.fill(profile).model_dump_json() for profile in stored)
        return open_once(rubric, json.dumps(judge.describe()), profiles)

    open("")

    return DecidingJudge(open, judge.takes_rubric, judge.needs)
