"""How much a study may use, before anything is spent: its own code is run against a model that
makes its answers up: once with short answers that agree, once with answers as long as allowed, and
several times with answers of typical lengths, for the expected use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

import numpy as np

from textevolve.errors import TextEvolveError
from textevolve.evaluation import Case, Usage
from textevolve.events import Event, StepFinished
from textevolve.images import image_facts
from textevolve.llm.batches.ledger import batch_price, is_free, takes_batches
from textevolve.llm.case_images import image_tokens, images_of
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.decisions import FIND_WIRE, Wire, dump_answers, dump_wire, load_questions
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Model, Request, Response, request_key
from textevolve.llm.prices import cost_of, price_of
from textevolve.llm.providers import resolve
from textevolve.llm.testing.answers import (
    TEXT,
    WORDS,
    Answer,
    completion,
    drawn_embedding,
    instance,
)
from textevolve.llm.wire import (
    CHAT,
    as_response,
    chat_body,
    dump_vector,
)
from textevolve.llm.wrappers import Journaled
from textevolve.report.wording import count
from textevolve.settings import Price, Settings
from textevolve.studies.driver import models_asked
from textevolve.studies.stored import StoredSpec, read_spec
from textevolve.studies.study import OUTLOOK, AnyStudy, Outlook
from textevolve.wiring import Mode, Setting, open_workbench

MOST_CASES = 24
"""Of more cases, so many are rehearsed, evenly spread, and stand for the others."""

DRAWS, CASES_DRAWN, DRAWS_OF_WHOLE = 9, 8, 5
"""How often answers of typical lengths are drawn, and for how many of the cases; and how often
where all cases are one piece of work."""

SENTENCE, TEXT_WRITTEN = 110, 900
"""Characters of a text in a structured answer, and of one without a form, as models write them."""

WORDINESS, UNEVENNESS = 0.35, 0.3
"""By how much models differ in length, and the answers of one model: standard deviations of the
logarithm."""

SELDOM = 0.03
"""Share of structured answers that have to be asked for again."""

DEFAULT_TOKENS = 1024
"""Of an answer whose length is left to the endpoint."""

DIMENSION = 384
"""Of embeddings by a model of which it is not known."""

SPOILED = "?"
"""An answer that cannot be read, so that it is asked for once more."""

SHARE = 0.9
"""Probability with which the range of what is expected is to hold what is used."""
FIGURES = ("calls", "tokens", "prompt_tokens", "completion_tokens", "cost")


@dataclass(frozen=True)
class Manner:
    """How the model of a rehearsal answers: at its shortest, at its longest, or (`draw`) in lengths
    that are drawn from a seed. `ratio`: characters that make a token."""

    longest: bool = False
    draw: int | None = None

    @property
    def mode(self) -> Mode:
        return "typical" if self.draw is not None else "longest" if self.longest else "shortest"

    @property
    def ratio(self) -> float:
        if self.draw is not None:
            return Random(self.draw).uniform(3.6, 4.8)
        return 3.0 if self.longest else 5.0

    def stretch(self, characters: float, rng: Random) -> int:
        """A length about that of what is typical."""
        model = Random(f"{self.draw} wordy").gauss(0, WORDINESS)
        return round(characters * math.exp(model + rng.gauss(0, UNEVENNESS)))


@dataclass
class Rehearsed:
    """The use of one rehearsal, and what the study said about its own limits."""

    usage: Usage = Usage()
    outlook: Outlook = field(default_factory=Outlook)


async def forecast(
    study: AnyStudy, stored: StoredSpec, cases: Sequence[Case], settings: Settings
) -> dict[str, Any]:
    """Estimate the calls, tokens and money of a study over these cases, as JSON-ready data.

    `least` and `most` are bounds, `expected` has a median and the ends of a range for each figure;
    a cost is null, and not expected, where a price is unknown, and nothing is expected where
    made-up answers lead a study nowhere. `parts` are further facts, each with its heading.

    Tokens are counted as characters / 3 to characters / 5, so they bound what tokenisers make of
    ordinary prose; code, and languages without spaces, can lie above. Of a call that is asked twice
    in the same words, the second is the journal's, which costs nothing.
    """
    spec = read_spec(study, stored)
    models = models_asked(study.asks(spec), stored)
    batches: dict[str, str] = {}
    if settings.batch:
        settings, batches = _at_batch_prices(settings, models), describe_batches(settings, models)

    async def scaled(manner: Manner, most_cases: int) -> Rehearsed:
        """The use of all cases, of which at most so many are rehearsed, evenly spread."""
        step = 1 if spec.whole else max(1, -(-len(cases) // most_cases))
        rehearsed = await rehearse(study, stored, cases[::step], settings, manner)
        share = len(cases) / len(cases[::step]) if cases else 1.0
        return replace(rehearsed, usage=_scale(rehearsed.usage, share))

    shortest = await scaled(Manner(), MOST_CASES)
    longest = await scaled(Manner(longest=True), MOST_CASES)
    least, most = shortest.usage, _within(longest.usage, longest.outlook)
    parts = {**longest.outlook.parts, **_describe_images(cases)}
    rehearsed = len(cases[:: max(1, -(-len(cases) // MOST_CASES))])
    if rehearsed < len(cases) and not spec.whole:
        parts["rehearsed"] = f"{rehearsed} cases, evenly spread; the figures are scaled to all"
    draws: list[Usage] = []
    try:
        for draw in range(DRAWS_OF_WHOLE if spec.whole else DRAWS):
            draws.append((await scaled(Manner(draw=draw), CASES_DRAWN)).usage)
    except (TextEvolveError, ValueError):  # made-up answers lead this study nowhere
        draws = []
    ends = {"least": least, "most": most}
    data: dict[str, Any] = {"cases": len(cases), "model": stored.model}
    data |= {n: {name: getattr(end, name) for name in FIGURES} for n, end in ends.items()}
    if any(usage.calls for usage in draws):
        data["expected"] = {"share": SHARE, **summarise_draws(draws, least, most)}
    if stored.prices:
        data["costs"] = "; ".join(stored.prices)
    parts |= batches
    return data | ({"parts": parts} if parts else {})


def summarise_draws(
    draws: Sequence[Usage], least: Usage, most: Usage
) -> dict[str, dict[str, float]]:
    """Return the middle and the ends of several rehearsals by figure, within the bounds."""
    figures: dict[str, dict[str, float]] = {}
    for name in FIGURES:
        values = [getattr(usage, name) for usage in draws]
        if None in values:
            continue
        low, middle, high = np.quantile(values, [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2])
        low = min(middle, max(low, getattr(least, name)))
        high = max(middle, min(high, getattr(most, name)))
        figures[name] = {"median": float(middle), "low": float(low), "high": float(high)}
    return figures


def _within(most: Usage, outlook: Outlook) -> Usage:
    """The most that a study uses which spends the whole of its own budget."""
    if outlook.calls is not None and most.calls:
        return _scale(most, max(1.0, outlook.calls / most.calls))
    if outlook.cost is not None and most.cost is not None:
        return replace(most, cost=outlook.cost)
    return most


def _describe_images(cases: Sequence[Case]) -> dict[str, str]:
    """How the images of cases are counted; nothing where there are none."""
    urls = [url for case in cases for url in images_of(case, range(len(case.candidates)))]
    if not urls:
        return {}
    tokens = sum(image_facts(url).tokens for url in urls)
    said = f"{count(len(urls), 'image')}, counted as {tokens:,} tokens each time that all are shown"
    return {"images": f"{said}: OpenAI's rule for high detail; other models count otherwise"}


def _at_batch_prices(settings: Settings, models: Sequence[str]) -> Settings:
    """The settings with what calls cost in batch jobs, where that is known."""
    ends = [resolve(name, settings, asks=False) for name in models]
    cut = {end.spec: batch_price(end) for end in ends if takes_batches(end)}
    known = {name: price for name, price in cut.items() if price is not None}
    return settings.model_copy(update={"prices": {**settings.prices, **known}})


def describe_batches(settings: Settings, models: Sequence[str]) -> dict[str, str]:
    """How long batch jobs take, and at what price."""
    prices: list[str] = []
    for name in models:
        end = resolve(name, settings, asks=False)
        if not takes_batches(end):
            prices.append(f"{name}: takes no batch jobs, asked at once at full price")
        elif not is_free(end):
            off = end.batch_discount
            prices.append(f"{name}: {'discount unknown' if off is None else f'{off:.0%} off'}")
    said = "in waves, one for each call that a case makes after another, each of up to"
    parts = {"batch jobs": f"{said} {count(settings.batches.window, 'hour')}"}
    return parts | ({"their price": "; ".join(prices)} if prices else {})


async def rehearse(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    manner: Manner,
) -> Rehearsed:
    """Run the study against a model that answers in this manner."""
    spec: Any = read_spec(study, stored)
    setting = Setting(
        default_model=stored.model,
        models=models_asked(study.asks(spec), stored),
        today=stored.today,
        described=stored.world,
        mode=manner.mode,
    )
    journal, rehearsed = _Memory(), Rehearsed()
    models: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in models:
            actor = _Actor(name, price_of(name, settings), rehearsed, manner)
            models[name] = Journaled(actor, journal, lambda _: None)
        return models[name]

    def hear(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == OUTLOOK:
            rehearsed.outlook = event.value

    async with (
        open_workbench(setting, settings, journal, listener=hear, models=model_of) as bench,
        aclosing(study.run(spec, cases, bench)) as records,
    ):
        async for _ in records:
            pass
    return rehearsed


def _scale(usage: Usage, share: float) -> Usage:
    return Usage(
        round(usage.calls * share),
        round(usage.prompt_tokens * share),
        0,
        round(usage.completion_tokens * share),
        None if usage.cost is None else usage.cost * share,
    )


class _Memory:
    """A journal for as long as a rehearsal."""

    def __init__(self) -> None:
        self._known: dict[str, Response] = {}

    async def find(self, key: str) -> Response | None:
        response = self._known.get(key)
        return None if response is None else replace(response, replayed=True)

    async def append(self, entry: JournalEntry) -> None:
        if entry.response is not None:
            self._known[entry.key] = entry.response


@dataclass(frozen=True)
class _Actor:
    """Stands where a model will be. In a long rehearsal each structured answer is spoiled once, in
    one of typical lengths some are."""

    name: str
    price: Price | None
    rehearsed: Rehearsed
    manner: Manner

    async def __call__(self, request: Request, /) -> Response:
        most = request.max_tokens or DEFAULT_TOKENS
        response = self._answer(request, most)
        characters = sum(len(message.text) for message in request.messages)
        characters += len(request.questions or "")
        if self.manner.mode != "shortest":  # not every endpoint puts the schema into the prompt
            characters += len(request.schema or "")
        prompt = round(characters / self.manner.ratio) + image_tokens(request)
        answered = min(most, max(1, int(len(response.text) / self.manner.ratio)))
        answered = most if self.manner.longest else answered
        if request.questions is not None and not self.manner.longest:
            answered = 0  # a decision model writes nothing
        cost = None if self.price is None else cost_of(self.price, prompt, 0, answered)
        usage = Usage(1, prompt, 0, answered, cost)
        if request.questions == FIND_WIRE and self.manner.mode == "shortest":
            usage = Usage()  # the endpoint's way to decide may be in the journal already
        self.rehearsed.usage += usage
        return replace(response, usage=usage, finish_reason="stop")

    def _answer(self, request: Request, most: int) -> Response:
        manner = self.manner
        varied = manner.mode != "shortest"
        seed = int(request_key(self.name, request)[:12], 16) if varied else 0
        seed = seed if manner.draw is None else hash((seed, manner.draw))
        rng = Random(seed)
        answer = Answer(yes=rng.random() if varied else 0.9)
        if request.embeds:
            entry = embedder_of(self.name)
            dimension = (entry and entry.dimension) or DIMENSION
            vector = drawn_embedding(request.messages[-1].text, dimension)
            answer = Answer(text=dump_vector(vector))
        elif request.questions is not None:
            wire = None if varied else "decisions"
            answer = Answer(text=_decided(request.questions, answer.yes or 0.0, wire))
        elif request.schema is not None:
            repairs = any(m.role == "assistant" and m.text == SPOILED for m in request.messages)
            spoils = manner.longest or (manner.draw is not None and rng.random() < SELDOM)
            spoiled = spoils and not repairs and _is_open(request.schema)
            answer = Answer(text=SPOILED if spoiled else self._structured(request, seed, most))
        elif varied and most > 1 and not request.forced:
            typical = min(4 * most, manner.stretch(TEXT_WRITTEN, rng))
            answer = Answer(text=_prose(3 * most if manner.longest else typical, seed))
        body = chat_body(self.name, request, "max_tokens")
        return as_response(CHAT.read(completion(body, seed, answer)), 0.0, None)

    def _structured(self, request: Request, seed: int, most: int) -> str:
        """An answer by the schema, with its freely drawn texts as long as the manner has them."""
        schema, manner, rng = json.loads(request.schema or "{}"), self.manner, Random(seed)
        texts: list[str] = []

        def stretch(text: str) -> str:
            return f"{_prose(manner.stretch(SENTENCE, rng), 0)} {text[-9:]}"

        def lengthen(text: str) -> str:
            length = 3 * most // max(1, len(texts))
            return f"{TEXT} " * (max(0, length - len(text)) // (len(TEXT) + 1)) + text

        if manner.draw is not None:
            return json.dumps(_change_texts(instance(schema, rng), stretch))
        bounded = _bound_lists(schema, longest=manner.longest)
        value = instance(bounded, rng if manner.longest else _Even(0))
        if manner.longest:
            _change_texts(value, lambda text: texts.append(text) or text)
            value = _change_texts(value, lengthen)
        return json.dumps(value)


@dataclass(frozen=True, slots=True)
class UsableEdits:
    """A model whose made-up answers can be used as edits of a text: what stands under `key` holds
    the text, is none of the edits before, and is not absurdly long."""

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
        made = str(answer[self.key])
        longest = max(900, len(self.text) + 100)
        edited = f"{self.text} {f'{made[-9:]} ' * longest}"[:longest]  # like no other edit
        return replace(response, text=json.dumps({**answer, self.key: edited}))


def _decided(questions: str, yes: float, wire: Wire | None) -> str:
    """Answers to typed questions. An endpoint of which nothing is known has this `wire`: one costs
    the least, and none the most."""
    if questions == FIND_WIRE:
        return dump_wire(wire)
    asked = load_questions(questions)
    rest = {one.name: len(one.options) - 1 for one in asked}
    return dump_answers(
        {name: [(1 - yes) / number] * number + [yes] for name, number in rest.items()}, {}
    )


def _is_open(schema: str) -> bool:
    """Whether a schema leaves anything to be said. What it gives word for word is asked for its
    log-probabilities, and never asked for again."""
    wanted = cast("Mapping[str, Any]", json.loads(schema))
    first, *others = (instance(wanted, Random(seed)) for seed in range(4))
    return any(other != first for other in others)


def _bound_lists(schema: Any, *, longest: bool) -> Any:
    """The schema with lists as long as they may be, or as short."""
    if isinstance(schema, list):
        return [_bound_lists(one, longest=longest) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    bounded = {name: _bound_lists(one, longest=longest) for name, one in given.items()}
    if bounded.get("type") == "array":
        least, most = bounded.get("minItems", 0), bounded.get("maxItems")
        if longest and most is not None:
            bounded["minItems"] = most
        elif not longest:
            bounded["maxItems"] = max(1, least)
    return bounded


class _Even(Random):
    """Draws the same each time, so that whoever is asked about the same things agrees."""

    def random(self) -> float:
        return 0.5


def _change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The value with its freely drawn texts changed, which the obliging answers end with a mark."""
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {name: _change_texts(part, change) for name, part in parts.items()}
    if isinstance(value, list):
        return [_change_texts(part, change) for part in cast("list[Any]", value)]
    return change(value) if isinstance(value, str) and value.endswith("].") else value


def _prose(length: int, seed: int) -> str:
    """So many characters of a text that another seed has otherwise, so that the journal does not
    answer a question about one text with what was said about another."""
    words = Random(seed).sample(WORDS, len(WORDS))
    return (f"{' '.join(words)} " * (length // len(TEXT) + 1))[:length]
