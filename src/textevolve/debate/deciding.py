"""The readouts: the ways to obtain scores from a model.

`verbalized` takes the numbers that the answer states. `logprob-weighted` computes the expectation
over the alternatives of each number's tokens. `after-argument` and `pointwise` ask a yes / no
question about each candidate and component, `after-argument` after the agent's argument, with all
that the agent has seen, and `pointwise` with one candidate and nothing else. Their scores are 10 x
P(yes) / (P(yes) + P(no)).

`decide` obtains all scores of a turn in one request of typed questions. For each candidate and
component, the question is which level of the component's rubric is reached, or the component's yes
/ no question if the rubric has fewer than two levels. The agent's model answers, or the profile's
`decider`, which may be a model that cannot argue. The text that it decides about has the input and
the candidates first, then the debate so far, and the judging agent last, so turns with the same
order of candidates share its beginning.

If an endpoint does not support a readout, a `CapabilityError` is raised; no readout ever replaces
another.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from textevolve.debate.context import Speech, load_prompt
from textevolve.debate.profile import Component
from textevolve.debate.result import DecidedBy, Points, Turn
from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError
from textevolve.events import StepStarted
from textevolve.llm.decisions import Answer, Question, decide, predicate, probability, score
from textevolve.llm.model import Message, Response, TokenLogprobs
from textevolve.llm.prompts import image_rules, images_of, user_message
from textevolve.llm.refusals import NO_LOGPROBS
from textevolve.llm.structured import find_object
from textevolve.llm.verdicts import expect_number, read_log_odds, word_request
from textevolve.protocol.contents import align_tokens
from textevolve.texts.numbers import take_decimal
from textevolve.texts.prose import cut_sentences, find_marked_words, join_lines

HIGHEST = 10
"""The highest score that an answer can state."""


def _plain_number(value: object) -> object:
    """Convert a text such as `8`, `8.5` or `8/10` to its number; other values stay unchanged."""
    if type(value) in (int, float):  # nearly always
        return value
    return take_decimal(_OF_TEN.sub("", value) if isinstance(value, str) else value)


_OF_TEN = re.compile(rf"(?<!\s)\s*/\s*{HIGHEST}\s*$", re.ASCII)
_Score = Annotated[
    float, Field(ge=0, le=HIGHEST, allow_inf_nan=False), BeforeValidator(_plain_number)
]
_WholeScore = Annotated[int, Field(ge=0, le=HIGHEST), BeforeValidator(_plain_number)]
_NUMBER = r'\s*:\s*"?([0-9]+(?:\.[0-9]+)?)(?![\w.])'


class _Bare(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class _Answer(_Bare):
    argument: str


class _Points(_Bare):
    strengths: str
    weaknesses: str
    instructions: str


CHARACTERS_A_WORD = 7
"""The number of characters that a word of an argument is assumed to have, for limits on its
length."""


def keep_words(text: str, most: int | None) -> str:
    """Cut a text to at most `most` words (None: no limit): after a full sentence, if one ends
    beyond the first third. A text as long as the limit in characters also loses its last word,
    which the server may have cut."""
    if most is None:
        return text
    words = find_marked_words(text)
    if len(words) <= most and len(text) < CHARACTERS_A_WORD * most:
        return text
    ends = [end for _, end in words[:-1]][:most] or [0]
    shortened = join_lines(text[: ends[-1]])
    # With a space behind it, a last sentence that is whole has an end, and what follows is empty.
    sentences = "".join(cut_sentences(f"{shortened} ")[:-1]).rstrip()

    return sentences if len(sentences) > len(shortened) // 3 else f"{shortened} …"


@lru_cache(maxsize=512)
def answer_type(
    labels: tuple[int, ...], components: tuple[str, ...], readout: str, words: int | None = None
) -> type[BaseModel]:
    """Return the pydantic type of a turn's answer: the argument first, unless only `remarks` are
    asked for in place of a readout, then an entry for each response under its label.

    If `words` limits the argument, there are no remarks on the responses, and entries hold only the
    scores.
    """
    points: type[BaseModel] = _Points
    base: type[BaseModel] = _Bare if readout == "remarks" else _Answer

    if words is not None:
        points = _Bare
        # For servers whose grammar keeps to it, as small models would not by themselves; a pattern
        # of so many words took llama.cpp minutes.
        longest: dict[str, Any] = {"maxLength": CHARACTERS_A_WORD * words}
        argument: Any = (str, Field(json_schema_extra=longest))
        base = create_model("Answer", __base__=_Answer, argument=argument)

    if readout in ("verbalized", "logprob-weighted"):
        kind: Any = _WholeScore if readout == "logprob-weighted" else _Score
        fields: dict[str, Any] = {
            f"c{k}": (kind, Field(alias=name)) for k, name in enumerate(components)
        }
        scores = create_model("Scores", __config__=ConfigDict(extra="forbid"), **fields)
        points = create_model("Points", __base__=points, scores=(scores, ...))

    responses: dict[str, Any] = {
        f"response_{n}": (points, Field(alias=f"Response {n}")) for n in labels
    }

    return create_model("Answer", __base__=base, **responses)


def read_points(answer: BaseModel, labels: tuple[int, ...]) -> tuple[Points, ...]:
    """Return the remarks on each candidate in the case's order; `labels` is in that order, too."""
    points = [getattr(answer, f"response_{n}") for n in labels]
    return tuple(Points(f.strengths, f.weaknesses, f.instructions) for f in points)


def read_verbalized(answer: BaseModel, labels: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """Return the stated scores, j x k, in the case's order, whatever the order of the fields in the
    answer."""
    answer_scores: list[BaseModel] = [getattr(answer, f"response_{n}").scores for n in labels]
    return tuple(tuple(map(float, vars(scores).values())) for scores in answer_scores)


def read_weighted(
    response: Response,
    labels: tuple[int, ...],
    shown_places: tuple[int, ...],
    components: tuple[str, ...],
) -> tuple[tuple[float, ...], ...]:
    """Compute each score as the expectation over the tokens of its number; return j x k scores in
    the case's order.

    `shown`: the labels in the order of the answer. An alternative first digit counts as the whole
    number, except that "1" shares its probability with "10" if the answer continued with a 0.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the numbers cannot be located in the tokens.
    """
    if not response.logprobs:
        raise CapabilityError(
            f"{NO_LOGPROBS}, which the readout 'logprob-weighted' needs; use a model that has them"
        )

    # Tokens of half characters do not join to the text, so they are all searched.
    tokens = align_tokens(response.logprobs, response.text) or response.logprobs
    starts: list[int] = []
    text = ""
    for token in tokens:
        starts.append(len(text))
        text += token.token
    scores: dict[int, tuple[float, ...]] = {}
    start = find_object(text) or 0  # a label may also stand in thoughts and prose before it

    for n in shown_places:
        place = re.compile(rf'"Response {n}"\s*:').search(text, start)
        begin = text.find('"scores"', place.end()) if place else -1
        end = text.find("}", begin)
        if begin < 0 or end < 0:
            raise AnswerError(f"the scores of Response {n} are not found among the tokens")
        scores[n] = tuple(
            _expected_number(text, name, begin, end, starts, tokens) for name in components
        )

    return tuple(scores[n] for n in labels)


def _expected_number(
    text: str,
    name: str,
    begin: int,
    end: int,
    starts: list[int],
    tokens: tuple[TokenLogprobs, ...],
) -> float:
    key = re.escape(json.dumps(name, ensure_ascii=False))
    match = re.compile(key + _NUMBER).search(text, begin, end)
    if match is None:
        raise AnswerError(f"no number for {name} is found among the tokens")
    place = bisect_right(starts, match.start(1)) - 1
    number = expect_number(tokens, place, HIGHEST)
    if number is None:
        raise AnswerError(
            f"the alternatives to the number for {name} are mostly no numbers, so it has no"
            " expected value"
        )

    return number


def probe_score(log_odds: float) -> float:
    """Convert log-odds of yes to a score in [0, 10]: 10 x P(yes) / (P(yes) + P(no))."""
    return HIGHEST * probability(log_odds)


async def probe_after(speech: Speech, turn: Turn, spoken: tuple[Message, ...]) -> Turn:
    """Ask the yes / no questions after an argument, and return the turn with the log-odds of yes
    and the scores. `spoken`: the messages that asked for the argument, and the argument.

    All questions share these messages as their prefix. Each question repeats its response, because
    small models confuse responses otherwise; the questions about one response follow each other, so
    that they share the repetition, too.
    """
    context = speech.context

    def messages(candidate: int, component: Component) -> tuple[Message, ...]:
        question = load_prompt("probe").render(
            label=f"Response {context.labels[candidate]}",
            response=context.quoted(candidate),
            agent=speech.speaker.name,
            question=component.probe,
        )
        return (*spoken, Message("user", (question,)))

    return await _ask_all(speech, turn, 0, messages)


async def probe_alone(speech: Speech, turn: Turn, remembered: str) -> Turn:
    """Ask the yes / no questions about one quoted candidate at a time, and return the turn with the
    log-odds of yes and the scores. All agents share input and candidate as their prefix;
    `remembered` (the agent's memories), persona and question come last."""
    context = speech.context
    speaker = speech.speaker
    between = (remembered,) if remembered else ()
    rules = load_prompt("alone_rules").render(rules=context.profile.rules)
    system = Message("system", (rules, *image_rules(context.case)))
    input = context.quoted()
    texts = [
        load_prompt("alone").render(input=input, response=context.quoted(j))
        for j in range(len(context.candidates))
    ]

    def messages(candidate: int, component: Component) -> tuple[Message, ...]:
        question = load_prompt("alone_question").render(
            agent=speaker.name, persona=speaker.persona, question=component.probe
        )
        parts = (texts[candidate], *between, question)
        return (system, user_message(context.case, parts, (candidate,)))

    return await _ask_all(speech, turn, speech.sample, messages)


async def _ask_all(
    speech: Speech,
    turn: Turn,
    sample: int,
    messages: Callable[[int, Component], tuple[Message, ...]],
) -> Turn:
    context = speech.context
    components = speech.context.profile.components
    cells = list(product(range(len(context.labels)), components))
    done = 0

    async def ask(candidate: int, component: Component) -> float:
        nonlocal done
        request = word_request(messages(candidate, component), context.profile.seed, sample)
        response = await speech.model(request)
        done += 1
        details = {
            "round": turn.round,
            "agent": speech.speaker.name,
            "done": done,
            "total": len(cells),
        }
        context.listener(StepStarted(context.case.id, "probe", details))

        return read_log_odds(response)

    # A server's prefix cache has the candidate that was asked about last, so the next agent begins
    # with it.
    step = -1 if turn.agent % 2 else 1
    odds = await gather_bounded(
        [partial(ask, *cell) for cell in cells[::step]], context.concurrency
    )
    odds = odds[::step]
    width = len(components)
    rows = tuple(tuple(odds[at : at + width]) for at in range(0, len(odds), width))
    scores = tuple(tuple(map(probe_score, row)) for row in rows)

    return replace(turn, scores=scores, log_odds=rows)


async def decide_scores(
    speech: Speech, turn: Turn, heard: Sequence[str], memories: tuple[str, ...]
) -> Turn:
    """Ask the deciding model for all scores of a turn, and return the turn with them. `heard`: the
    messages so far, this turn's argument last; empty if agents do not argue. Memories and all other
    texts that the model decides about are between marks.

    Raises:
        AnswerError: a question has no answer. ModelError: the call failed.
    """
    context = speech.context
    profile = speech.context.profile
    speaker = speech.speaker

    # What differs between agents comes last, so that their calls share a prefix in the cache.
    ending = load_prompt("decide").render(
        memories=memories, agent=speaker.name, persona=speaker.persona, today=context.today
    )
    rules = load_prompt("decide_rules").render(rules=profile.rules)
    state = (
        rules + "".join(image_rules(context.case)),
        context.opening(turn.order),
        *heard,
        ending,
    )

    # Questions follow the order in which this agent reads the responses.
    cells = [(j, component) for j in turn.order for component in profile.components]
    questions = {(j, c.name): ask_cell(f"Response {context.labels[j]}", c) for j, c in cells}
    decision = await decide(
        speech.decider,
        state,
        list(questions.values()),
        seed=profile.seed,
        sample=speech.sample,
        images=images_of(context.case, context.listed),
    )

    # The turn stores its scores in the order of the case.
    answers = {cell: decision.answer(question.name) for cell, question in questions.items()}
    rows = [
        [(c, answers[j, c.name]) for c in profile.components] for j in range(len(context.labels))
    ]
    scores = tuple(tuple(read_score(*cell) for cell in row) for row in rows)

    log_odds = None
    if all(question.kind == "predicate" for question in questions.values()):
        log_odds = tuple(tuple(answer.log_odds for _, answer in row) for row in rows)

    decided_by = DecidedBy(speech.decider.name, decision.emulated, decision.cut)
    return replace(turn, scores=scores, log_odds=log_odds, decided_by=decided_by)


def ask_cell(label: str, component: Component) -> Question:
    """Make the question about one candidate, named by its label, and one component."""
    name = f"{label}: {component.name}"
    if len(component.rubric) < 2:
        return predicate(name, f"{label}: {component.probe}")
    wording = f"{label}: {component.name}, that is, {component.meaning}. Which level is reached?"
    return score(name, wording, [component.rubric[points] for points in sorted(component.rubric)])


def read_score(component: Component, answer: Answer) -> float:
    """Convert an answer to a score in [0, 10]: 10 x P(yes), or the expected points of the levels.
    For equally spaced levels from 0 to 10 that is 10 x `Answer.share`."""
    if len(component.rubric) < 2:
        return HIGHEST * answer.share
    points = sorted(component.rubric)
    expected = sum(n * p for n, p in zip(points, answer.probabilities, strict=True))
    return min(max(expected, 0.0), float(HIGHEST))
