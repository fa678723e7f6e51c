"""Cost estimates before a run. The study's own code runs several times (rehearsals) with a model
that makes up answers of typical lengths; the usage of these runs is the estimate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import Case, Usage
from textevolve.json_texts import is_array, is_object
from textevolve.llm.batches.ledger import batch_price, takes_batches
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.decisions import dump_answers, load_questions
from textevolve.llm.model import JournalEntry, Model, Request, Response, request_key
from textevolve.llm.prices import cost_of, price_of
from textevolve.llm.prompts import count_utf8, image_tokens
from textevolve.llm.providers import resolve
from textevolve.llm.structured import is_lost
from textevolve.llm.targets import JOURNALED
from textevolve.llm.testing.answers import (
    TEXT,
    WORDS,
    Answer,
    completion,
    drawn_embedding,
    instance,
)
from textevolve.llm.wire import as_response, chat_body, dump_vector
from textevolve.llm.wrappers import Journaled
from textevolve.mappings import drop_none
from textevolve.metrics.label_metrics import Grader
from textevolve.protocol.chat import read_completion
from textevolve.runs.stored import StoredSpec, models_asked, read_spec
from textevolve.runs.study import AnyStudy, StudySpec
from textevolve.settings import Price, Settings
from textevolve.store.repository import open_store
from textevolve.wiring import Setting, Workbench, open_workbench

DRAWS = 5
MOST_CASES = 24
"""The number of rehearsals, and the largest number of cases in one; these are spread evenly over
all cases and stand for them."""

SENTENCE = 110
TEXT_WRITTEN = 900
"""The typical number of characters of a text field in a structured answer, and of a free answer."""

WORDINESS = 0.35
UNEVENNESS = 0.3
"""The standard deviation of the logarithm of answer lengths: between models, and between the
answers of one model."""

DEFAULT_TOKENS = 1024
"""The largest number of tokens of an answer if the request leaves it to the endpoint."""

DIMENSION = 384
"""The dimension of embeddings by a model that is not in the catalogue."""

# The figures of an estimate.
FIGURES = ("calls", "tokens", "prompt_tokens", "completion_tokens", "cost")


async def forecast(
    study: AnyStudy, stored: StoredSpec, cases: Sequence[Case], settings: Settings
) -> dict[str, Any]:
    """Estimate the calls, tokens and cost of a study over these cases, as JSON-ready data. The
    rehearsals run at most 24 of the cases, and are scaled up to all, unless the study needs all
    cases together. `models` has the median calls of each model, if there are several.

    `expected` has for each figure the median, the lowest and the highest value of several
    rehearsals; the cost is left out if a price is unknown. An equal request counts only once, and
    one that the journal can answer not at all. `answers_learned` is the number of free answers in
    the journal to these cases, whose lengths are expected of all answers of their models.
    `most_calls` is there if the specification limits the calls.

    Raises:
        InputError: the study fails on made-up answers, so it cannot be estimated.
    """
    spec = read_spec(study, stored)
    setting = Setting(
        default_model=stored.model,
        models=models_asked(study.asks(spec), stored),
        today=stored.today,
        described=stored.world,
        mode="rehearsed",
    )
    if settings.batch:
        settings = _at_batch_prices(settings, setting.models)
    step = 1 if spec.indivisible else max(1, -(-len(cases) // MOST_CASES))
    chosen = cases[::step]
    share = len(cases) / len(chosen) if chosen else 1.0
    draws: list[Usage] = []

    with _open_answers(settings) as answers:
        for draw in range(DRAWS):
            try:
                usage = await rehearse(
                    study, spec, replace(setting, draw=draw), chosen, settings, answers
                )
            except ValueError as error:
                raise InputError(
                    "the cost of this run cannot be estimated, since it fails on made-up answers:"
                    f" {error}"
                ) from error

            draws.append(_scale(usage, share))

    longest = max(draws, key=lambda usage: usage.calls)
    if spec.most_calls is not None and longest.calls:
        # Made-up scores seldom confirm a gain, after which a search takes all that is left.
        draws.append(_scale(longest, spec.most_calls / longest.calls))

    data: dict[str, Any] = {
        "cases": len(cases),
        "model": stored.model,
        "expected": summarise_draws(draws),
        "answers_learned": sum(map(len, answers.lengths.values())),
    }
    more = {"most_calls": spec.most_calls, "costs": "; ".join(stored.prices) or None}

    return data | _calls_by_model(draws) | drop_none(more)


def _calls_by_model(draws: Sequence[Usage]) -> dict[str, Any]:
    """Return the median calls of each model as `models`; empty if there is a single model."""
    names = dict.fromkeys(name for usage in draws for name in usage.models)
    calls = {name: round(median(usage.models.get(name, 0) for usage in draws)) for name in names}
    return {"models": calls} if len(calls) > 1 else {}


def summarise_draws(draws: Sequence[Usage]) -> dict[str, dict[str, float]]:
    """Return the median, the lowest and the highest value of each figure over several
    rehearsals."""
    figures: dict[str, dict[str, float]] = {}
    for name in FIGURES:
        values = [getattr(usage, name) for usage in draws]
        if None not in values:
            figures[name] = {"median": median(values), "low": min(values), "high": max(values)}

    return figures


def _at_batch_prices(settings: Settings, models: Sequence[str]) -> Settings:
    """Return the settings in which models that run batch jobs have their lower batch prices."""
    ends = [resolve(name, settings, asks=False) for name in models]
    cut = {end.spec: batch_price(end) for end in ends if takes_batches(end)}
    prices = drop_none(cut)
    return settings.model_copy(update={"prices": {**settings.prices, **prices}})


@dataclass(frozen=True)
class KnownAnswers:
    """The free answers in the journal. `find`: looks one up by its key. `lengths`: the numbers of
    characters and of billed tokens of those found so far, by model and key. The tokens of a
    reasoning model are many times those of the text."""

    find: Callable[[str], Response | None]
    lengths: dict[str, dict[str, tuple[int, int]]]


@contextmanager
def _open_answers(settings: Settings) -> Generator[KnownAnswers]:
    if isinstance(settings.store, Path) and not settings.store.exists():
        yield KnownAnswers(lambda _key: None, {})
        return
    with open_store(settings.store) as store:
        yield KnownAnswers(store.find_answer, {})


async def rehearse(
    study: AnyStudy,
    spec: StudySpec,
    setting: Setting,
    cases: Sequence[Case],
    settings: Settings,
    answers: KnownAnswers,
) -> Usage:
    """Run the study once with a model that makes up answers, and return the usage. The number of
    the rehearsal (`draw` of the setting) seeds the lengths of answers."""
    journal = _Memory()
    calls: list[Usage] = []
    models: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in models:
            price = None if name.startswith(JOURNALED) else price_of(name, settings)
            actor = _Actor(name, price, calls, setting.draw, answers)
            models[name] = Journaled(actor, journal, lambda _: None)
        return models[name]

    async with (
        open_workbench(setting, settings, journal, models=model_of) as bench,
        aclosing(study.run(spec, cases, bench)) as records,
    ):
        async for _ in records:
            pass

    return sum(calls, Usage())


def _scale(usage: Usage, share: float) -> Usage:
    return Usage(
        round(usage.calls * share),
        round(usage.prompt_tokens * share),
        0,
        round(usage.completion_tokens * share),
        None if usage.cost is None else usage.cost * share,
        models={name: round(calls * share) for name, calls in usage.models.items()},
    )


class _Memory:
    """A journal of answers in memory, for one rehearsal."""

    def __init__(self) -> None:
        self._known: dict[str, Response] = {}

    async def find(self, key: str) -> Response | None:
        response = self._known.get(key)
        return None if response is None else replace(response, replayed=True)

    async def has_answer(self, model: str) -> bool:
        return False

    async def append(self, entry: JournalEntry) -> None:
        if entry.response is not None:
            self._known[entry.key] = entry.response


@dataclass(frozen=True)
class _Actor:
    """A model that makes up answers and adds their usage to `calls`. The random lengths of answers
    are seeded with `draw`, the number of the rehearsal."""

    name: str
    price: Price | None
    calls: list[Usage]
    draw: int
    answers: KnownAnswers

    async def __call__(self, request: Request, /) -> Response:
        most = request.max_tokens or DEFAULT_TOKENS
        response, tokens = self._answer(request, most)
        if response.replayed:
            return response
        ratio = Random(self.draw).uniform(3.6, 4.8)  # bytes that make a token
        texts = [message.text for message in request.messages]
        size = sum(map(count_utf8, (*texts, request.questions or "", request.schema or "")))
        prompt = round(size / ratio) + image_tokens(request)
        answered = max(tokens, min(most, max(1, int(count_utf8(response.text) / ratio))))
        if request.questions is not None:
            answered = 0  # a decision model writes nothing
        cost = None if self.price is None else cost_of(self.price, prompt, 0, answered)
        usage = Usage(1, prompt, 0, answered, cost, models={self.name: 1})
        if self.name.startswith(JOURNALED):
            usage = Usage(1)  # the user's application has no tokens, and is no model
        self.calls.append(usage)

        return replace(response, usage=usage, finish_reason="stop")

    def _answer(self, request: Request, most: int) -> tuple[Response, int]:
        """Return the answer of the journal, or a made-up one with its tokens if an answer of the
        same length was billed, otherwise 0."""
        key = request_key(self.name, request)
        stored = self.answers.find(key)
        seed = hash((int(key[:12], 16), self.draw))
        rng = Random(seed)
        yes = rng.random()
        text = None
        tokens = 0

        if request.embeds:
            entry = embedder_of(self.name)
            dimension = (entry and entry.dimension) or DIMENSION
            text = dump_vector(drawn_embedding(request.messages[-1].text, dimension))
        elif request.questions is not None:
            shares: dict[str, list[float]] = {}
            for question in load_questions(request.questions):
                number = len(question.options) - 1
                shares[question.name] = [(1 - yes) / number] * number + [yes]
            text = dump_answers(shares, {})
        elif request.schema is not None:
            value = instance(json.loads(request.schema), rng)
            text = json.dumps(_change_texts(value, lambda text: self._stretch(text, rng)))
        elif most > 1 and not request.forced:
            lengths = self.answers.lengths.setdefault(self.name, {})
            if stored is not None:
                lengths[key] = max(1, len(stored.text)), stored.usage.completion_tokens
            known = [*lengths.values()]
            length, tokens = rng.choice(known) if known else (self._length(TEXT_WRITTEN, rng), 0)
            text = _prose(min(4 * most, length), seed)

        if stored is not None and not is_lost(stored):
            return replace(stored, replayed=True), 0
        answer = Answer(yes=yes) if text is None else Answer(text=text)
        body = chat_body(self.name, request, "max_tokens")

        return as_response(read_completion(completion(body, seed, answer)), 0.0, None), tokens

    def _stretch(self, text: str, rng: Random) -> str:
        return f"{_prose(self._length(SENTENCE, rng), 0)} {text[-9:]}"

    def _length(self, characters: float, rng: Random) -> int:
        """Draw a length near the typical length."""
        model = Random(f"{self.draw} wordy").gauss(0, WORDINESS)
        return round(characters * math.exp(model + rng.gauss(0, UNEVENNESS)))


def open_metric_of(bench: Workbench, name: str) -> Grader:
    """Return a metric by its name; in an estimate of the cost one that makes up scores. The share
    of right outputs differs between rehearsals, and is 0 in the first, since a search ends at
    another place if it finds nothing or if nothing is left to find."""
    if not bench.is_rehearsal:
        return bench.metric_of(name)

    def score(output: str, _label: Any) -> float:
        return float(Random(output).random() < bench.draw / DRAWS)

    return Grader(score)


def open_editor(bench: Workbench, model: Model, key: str, text: str) -> Model:
    """Return the model as one that edits a text, in the field `key` of its answers. In an estimate
    of the cost its made-up answers are usable edits, so that the search goes on."""
    return UsableEdits(model, key, text) if bench.is_rehearsal else model


@dataclass(frozen=True, slots=True)
class UsableEdits:
    """A model for estimates of searches that edit a text: in its made-up answers the field `key` is
    a usable edit of `text`, which contains the text, differs from all earlier edits, and is not
    much longer."""

    model: Model
    key: str
    text: str

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        response = await self.model(request)
        answer: dict[str, Any] = json.loads(response.text) if response.text[:1] == "{" else {}
        if self.key not in answer:  # another answer, or one that is asked for again
            return response
        answer_text = str(answer[self.key])
        longest = max(900, len(self.text) + 100)
        edited = f"{self.text} {f'{answer_text[-9:]} ' * longest}"[:longest]  # like no other edit
        return replace(response, text=json.dumps({**answer, self.key: edited}))


def _change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with a function applied to its made-up texts, which are recognised by the
    mark at their end."""
    if is_object(value):
        return {name: _change_texts(part, change) for name, part in value.items()}
    if is_array(value):
        return [_change_texts(part, change) for part in value]
    return change(value) if isinstance(value, str) and value.endswith("].") else value


def _prose(length: int, seed: int) -> str:
    """Write a text of `length` characters that depends on the seed, so that requests about
    different made-up texts have different keys in the journal."""
    words = Random(seed).sample(WORDS, len(WORDS))
    return (f"{' '.join(words)} " * (length // len(TEXT) + 1))[:length]
