"""Read verdicts out of the tokens of an answer: the log-probabilities of given words, and the
expected value of a number.

An endpoint may list more tokens than those of the answer, such as a thought, and a model may write
a line break or a mark before its first word. So the tokens are aligned with the answer's text
first, and marks at its beginning are passed over. Then the probabilities of all alternatives are
summed by their words. If the options have too little of the probability, there is no verdict.

The calling code defines the question, and what the verdict means for a score. Models that answer
typed questions about a text with probabilities (`Deciding`) do so by the decision protocol (wire)
of their endpoint, which the settings of its provider name, or by chat calls that are read here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_uppercase, digits

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError, InputError, SettingsError
from textevolve.evaluation import sum_usage
from textevolve.json_texts import write_text
from textevolve.llm.decisions import Question, Wire, dump_answers, load_questions, softmax
from textevolve.llm.model import Message, Model, Request, Response, TokenLogprobs
from textevolve.llm.prompts import Template, load_template
from textevolve.llm.providers import Endpoint, resolve
from textevolve.llm.refusals import NO_LOGPROBS
from textevolve.llm.structured import describe_fault
from textevolve.protocol.contents import align_tokens
from textevolve.settings import Settings
from textevolve.texts.prose import excerpt

TOP_LOGPROBS = 20
"""The number of alternatives that are requested for each token."""

LEAST_MASS = 0.5
"""The least share of the probability that the options must have together. From a half on, what the
model says is more likely an option than anything else, and the rest cannot turn a verdict on which
all of the options' probability agrees."""

MOST_UNLISTED = 0.02
"""The highest probability that the options may have that an endpoint does not list. An endpoint
that lists only the chosen token does not report the others, which may have all of the rest."""

LARGEST_EXCESS = 0.02
"""The largest amount by which rounding may raise the sum of all probabilities above 1."""

UNLIKELY = 1e-3
"""The highest probability that is assumed for an option which is not listed."""

LEAST = 1e-12
"""The lowest probability of an option, so that its logarithm is finite."""

BESIDE = 12
"""The number of characters after an option within which another one makes the answer unclear."""

_MARKS = " \t\r\n\ufeff.,:;!?\"'“”‘’`*_#()[]{}▁Ġ"
"""The characters around a word that do not belong to it: punctuation, Markdown, and the marks by
which some tokenisers write a space."""


def word_request(messages: tuple[Message, ...], seed: int | None, sample: int = 0) -> Request:
    """Return the request for an answer of one word, whose alternatives are read."""
    return Request(
        messages=messages,
        temperature=0.0,
        max_tokens=1,
        seed=seed,
        sample=sample,
        top_logprobs=TOP_LOGPROBS,
    )


def read_log_odds(response: Response, label: str = "yes", other: str = "no") -> float:
    """Return the log-odds of `label` against `other` in an answer that is one of the two words.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is no verdict; says why.
    """
    log_probability, other_log_probability = read_labels(response, (label, other))
    return log_probability - other_log_probability


def read_labels(response: Response, labels: Sequence[str]) -> list[float]:
    """Return the log-probability of each label in an answer that is one of them.

    Spellings ("Yes", " yes", "YES.") are added up. A label that is not among the alternatives is
    given the lowest probability listed, at most `UNLIKELY`, which bounds it from above. The result
    is in the order of `labels` and not normalised.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is empty, failed or refused, the labels have less than `LEAST_MASS`
            of the probability, or labels that are not listed may have more than `MOST_UNLISTED`.
    """
    token = _find_word(response, labels)
    alternatives = list_alternatives(token)
    shares = dict.fromkeys((label.lower() for label in labels), 0.0)
    for text, share in alternatives:
        word = text.strip(_MARKS).lower()
        if word in shares:
            shares[word] += share

    mass = sum(shares.values())
    if mass < LEAST_MASS:
        raise AnswerError(f"{_describe_other(token.token, labels)}{_describe_mass(mass)}")
    least = min(share for _, share in alternatives)
    _require_listed(shares, alternatives, mass, least)
    _require_one_option(response.text, token.token.strip(_MARKS), labels)

    return [math.log(max(share, min(least, UNLIKELY), LEAST)) for share in shares.values()]


def _find_word(response: Response, labels: Sequence[str]) -> TokenLogprobs:
    """Return the first token of an answer's text that is a word."""
    # An answer of one token always ends at its limit, so it may be cut.
    subject = "the answer to a question with given options"
    if fault := describe_fault(response, subject, may_be_cut=True):
        raise AnswerError(fault)
    if not response.logprobs:
        raise CapabilityError(
            f"{NO_LOGPROBS}, which the reading of a choice needs; use a model that has them"
        )

    tokens = align_tokens(response.logprobs, response.text)
    if not tokens:
        raise AnswerError(
            f"the verdict cannot be read: the model answered {response.text[:40]!r}, and the"
            f" endpoint lists tokens of another text, such as {response.logprobs[0].token!r}"
        )

    words = (token for token in tokens if token.token.strip(_MARKS))
    word = next(words, None)
    if word is None:
        raise AnswerError(_describe_other(response.text[:40], labels))

    return word


def _require_listed(
    shares: Mapping[str, float],
    alternatives: Sequence[tuple[str, float]],
    mass: float,
    least: float,
) -> None:
    """Raise AnswerError if labels that the endpoint does not list could change the verdict. They
    have at most the probability that no alternative has, and each at most that of the least
    likely alternative."""
    missing = [label for label, share in shares.items() if not share]
    unlisted_share = max(0.0, 1 - sum(share for _, share in alternatives))
    possible = min(unlisted_share, len(missing) * least)
    if possible > MOST_UNLISTED * (mass + possible):
        raise AnswerError(
            f"the verdict cannot be read: the endpoint lists {len(alternatives)} of the likely"
            f" words, without {' and '.join(missing[:3])}, which may have {possible:.0%} of the"
            " probability; use a model whose endpoint lists more"
        )


def _require_one_option(text: str, word: str, labels: Sequence[str]) -> None:
    """Raise AnswerError if an answer begins with several options, as in "Yes or No? No". They count
    only if they are written like the first one, since "Yes, no doubt" is an answer."""
    place = text.find(word)
    following = text[place + len(word) : place + len(word) + BESIDE]
    other_labels = {label.lower() for label in labels} - {word.lower()}

    for other in re.findall(r"\w+", following):
        if other.lower() in other_labels and other.istitle() == word.istitle():
            raise AnswerError(
                f"the verdict cannot be read: the model answered {text[:40]!r}, which begins with"
                " several of the options"
            )


def _describe_other(answer: str, labels: Sequence[str]) -> str:
    options = "none of the given options"
    if len(labels) == 2:
        options = f"neither {labels[0]} nor {labels[1]}"
    return f"the model answered {answer!r}, which is {options}"


def _describe_mass(mass: float) -> str:
    if not mass:
        return ""
    return (
        f": they have only {mass:.2g} of the probability, and at least {LEAST_MASS:g} is needed for"
        " a verdict"
    )


def list_alternatives(token: TokenLogprobs) -> list[tuple[str, float]]:
    """Return the texts that a token could have been, itself included, each with its probability.

    Different tokens may have the same text, so a text may occur more than once. A server that
    lists the chosen token a second time is recognised by a sum above 1.

    Raises:
        AnswerError: the probabilities are no distribution.
    """
    alternatives = list(token.top)
    if token.token not in dict(alternatives):
        alternatives.append((token.token, token.logprob))
    if _sum(alternatives) > 1 + LARGEST_EXCESS:
        alternatives = list(dict.fromkeys(alternatives))
    if _sum(alternatives) > 1 + LARGEST_EXCESS:
        raise AnswerError(
            f"the verdict cannot be read: the probabilities of the token {token.token!r} and its"
            f" alternatives add up to {_sum(alternatives):.2f}, so they are no distribution"
        )

    return [(text, math.exp(logprob)) for text, logprob in alternatives]


def _sum(alternatives: Sequence[tuple[str, float]]) -> float:
    # A number above 0 is no log-probability, however large.
    return math.fsum(math.exp(min(logprob, 1.0)) for _, logprob in alternatives)


_NUMBER = re.compile(r"[0-9]+")


def expect_number(tokens: Sequence[TokenLogprobs], place: int, highest: int) -> float | None:
    """Return the expected value of the whole number that begins at a token, in [0, highest].

    An alternative first digit counts as the whole number, except that "1" shares its probability
    with "10" if the answer continued with a 0. None if numbers have less than `LEAST_MASS` of the
    probability.

    Raises:
        AnswerError: the probabilities are no distribution.
    """
    numbers = _weigh_numbers(tokens[place], highest)

    if "1" in numbers and tokens[place].token.strip(_MARKS) == "1" and highest >= 10:
        following = tokens[place + 1 : place + 2]
        tenth = sum(_weigh_numbers(token, highest).get("0", 0.0) for token in following)
        tenth = min(1.0, tenth)
        numbers["10"] = numbers.get("10", 0.0) + numbers["1"] * tenth
        numbers["1"] *= 1.0 - tenth

    total = sum(numbers.values())
    if total < LEAST_MASS:
        return None

    return min(float(highest), sum(float(n) * p for n, p in numbers.items()) / total)


def _weigh_numbers(token: TokenLogprobs, highest: int) -> dict[str, float]:
    """Return the probability of each whole number up to `highest` that the token could have
    been."""
    numbers: dict[str, float] = {}
    for text, share in list_alternatives(token):
        digits = text.strip(_MARKS)
        if _NUMBER.fullmatch(digits) and int(digits) <= highest:
            numbers[digits] = numbers.get(digits, 0.0) + share

    return numbers


CHARACTERS_PER_TOKEN = 3
"""The characters that are assumed for a token when a state is shortened to fit. English texts have
more, so the shortened state does fit."""


def most_characters(endpoint: Endpoint) -> int | None:
    """Return how many characters a state and a question may have together; None if unknown."""
    return None if endpoint.context is None else CHARACTERS_PER_TOKEN * endpoint.context


MOST_OPTIONS = TOP_LOGPROBS
"""The most options of a question that a chat model can answer: the number of alternative tokens
that endpoints list."""

SHORTEST_STATE = 100
"""The fewest characters that a shortened state keeps, however long the questions are."""

CONCURRENCY = 16
"""The number of questions about one state that are asked at a time, after the first one has filled
the endpoint's prompt cache."""


def _prompt(name: str) -> Template:
    return load_template("textevolve.llm", name)


class Deciding:
    """A model that also answers typed questions: by its endpoint's decision protocol (`wire`), or
    by chat calls if `wire` is None. It is the wrapper outside of the journal. `most_characters`:
    the most characters of a state and its longest question together; the middle of a longer state
    is left out; None: no limit."""

    def __init__(
        self, model: Model, wire: Wire | None = None, most_characters: int | None = None
    ) -> None:
        self.model = model
        self.name = model.name
        self.wire: Wire | None = wire
        self._most = most_characters

    async def __call__(self, request: Request, /) -> Response:
        if request.questions is None:
            return await self.model(request)
        shortened, cut = _cut_state(request, self._most)
        if self.wire is None:
            response = await emulate(self.model, shortened)
        else:
            response = await self.model(shortened)

        if not cut:
            return response
        marked = {**json.loads(response.text), "cut": cut}

        return replace(response, text=write_text(marked))


def wire_of(model: object) -> Wire | None:
    """Return the decision protocol of a model, which may be wrapped; None if decisions are emulated
    by chat calls."""
    while model is not None and not isinstance(model, Deciding):
        model = getattr(model, "model", None)
    return None if model is None else model.wire


def let_decide(model_of: Callable[[str], Model], settings: Settings) -> Callable[[str], Model]:
    """Return a function from a spec to a model that answers decision questions, too: by its
    endpoint's protocol, or by chat calls."""

    @cache
    def deciding(spec: str) -> Model:
        try:
            endpoint = resolve(spec, settings, asks=False)
        except SettingsError:  # reported when the model is opened, unless it is an object's name
            return Deciding(model_of(spec))

        return Deciding(model_of(spec), endpoint.decisions, most_characters(endpoint))

    return deciding


def _cut_state(request: Request, most: int | None) -> tuple[Request, int]:
    """Return the request with a state that fits into `most` characters together with the longest
    question, and the number of characters left out of its middle. At least `SHORTEST_STATE`
    characters stay."""
    (state,) = request.messages
    if most is None:
        return request, 0
    questions = json.loads(request.questions or "[]")
    longest = max((len(write_text(question)) for question in questions), default=0)
    most = max(most - longest, SHORTEST_STATE)
    if len(state.text) <= most:
        return request, 0
    shortened = Message(state.role, (excerpt(state.text, most),), state.images)

    return replace(request, messages=(shortened,)), len(state.text) - 2 * (most // 2)


@dataclass(frozen=True, slots=True)
class Showing:
    """One way to show a question to a chat model.

    Attributes:
        labels: The one-token label of each option, in the question's order.
        listed: The labels in the order of the prompt.
        lines: The lines of the prompt that describe the options.
    """

    question: Question
    labels: tuple[str, ...]
    listed: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        unit = {"predicate": "word", "score": "number" if self.listed[0].isdigit() else "letter"}
        return _prompt("decide").render(
            instructions=self.question.instructions,
            options=self.lines,
            unit=unit.get(self.question.kind, "letter"),
            answers=f"{', '.join(self.listed[:-1])} or {self.listed[-1]}",
        )


async def emulate(model: Model, request: Request) -> Response:
    """Answer a request with questions by chat calls. A question has a failure instead of an answer
    if the answer to any of its showings is unreadable.

    Each way of showing a question is a call: answers to several questions in one object were tried,
    and a small model's answers copied each other ("2", "2", "2", ...).

    Raises:
        InputError: a question has too many options.
        CapabilityError: the endpoint returns no log-probabilities.
        ModelError: a call failed.
    """
    questions = load_questions(request.questions or "[]")
    calls = [showing for question in questions for showing in show(question)]

    async def ask(showing: Showing) -> Response:
        return await model(_chat(request, showing))

    # The first one alone, so that the others find the state in the server's cache.
    first_response = await ask(calls[0])
    other_responses = await gather_bounded(
        [lambda call=call: ask(call) for call in calls[1:]], CONCURRENCY
    )
    responses = [first_response, *other_responses]
    shares: dict[str, list[list[float]]] = {}
    failed: dict[str, str] = {}

    for showing, response in zip(calls, responses, strict=True):
        name = showing.question.name
        try:
            shares.setdefault(name, []).append(read_labels(response, showing.labels))
        except AnswerError as error:
            failed[name] = str(error)

    answers = {name: _average(rows) for name, rows in shares.items() if name not in failed}

    return Response(
        text=dump_answers(answers, failed, emulated=True),
        finish_reason="stop",
        usage=sum_usage(responses),
        seconds=sum(response.seconds for response in responses),
        replayed=all(response.replayed for response in responses),
    )


def _average(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the normalised geometric mean of distributions, given as logarithms."""
    logs = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    return softmax(logs)


def show(question: Question) -> tuple[Showing, ...]:
    """Return the ways to show a question: one way for a predicate; two for listed options, in both
    orders."""
    if question.kind == "predicate":
        no, yes = question.options
        labelled = [("Yes", yes.description), ("No", no.description)]
        lines = tuple(f"{label}: {text}" for label, text in labelled if text)
        return (Showing(question, ("No", "Yes"), ("Yes", "No"), lines),)

    count = len(question.options)

    if count > MOST_OPTIONS:
        raise InputError(
            f"question '{question.name}': a chat model can choose among at most {MOST_OPTIONS}"
            f" options, not {count}; use a decision model"
        )

    scored = question.kind == "score"
    labels = tuple((digits if scored and count <= len(digits) else ascii_uppercase)[:count])
    lines = [option.description if scored else option.text for option in question.options]
    # Letters of a choice belong to places, and numbers of levels to the levels.
    backwards = labels if scored else labels[::-1]

    def describe(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{label}: {line}" for label, line in zip(names, lines, strict=True))

    return (
        Showing(question, labels, labels, describe(labels)),
        Showing(question, backwards, backwards[::-1], describe(backwards)[::-1]),
    )


def _chat(request: Request, showing: Showing) -> Request:
    (state,) = request.messages
    gap = "" if state.text.endswith("\n") else "\n\n"
    messages = (
        Message("system", (_prompt("decide_rules").render(),)),
        Message("user", (*state.parts, gap + showing.text), state.images),
    )

    return word_request(messages, request.seed, request.sample)
