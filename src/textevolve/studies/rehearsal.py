"""What a study may use, before anything is spent: its own code is run against a model that makes
its answers up: once with short answers that agree, once with answers as long as allowed, and
several times with answers of typical lengths, for what is to be expected.

A study that needs an exact bound has a formula instead (`Study.estimate`). What earlier runs tell
of what is to be expected is in `earlier.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from textevolve.errors import TextEvolveError
from textevolve.estimates.debate import UsageRange
from textevolve.estimates.expected import Expected, Used, expect_again, expect_of_draws, keep_within
from textevolve.evaluation import Case, Usage
from textevolve.images import image_facts
from textevolve.llm.case_images import image_tokens, images_of
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.decisions import FIND_WIRE, Wire, dump_answers, dump_wire, load_questions
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Model, Request, Response, request_key
from textevolve.llm.prices import price_of
from textevolve.llm.reported_usage import cost_of
from textevolve.llm.testing.answers import TEXT, Answer, completion, drawn_embedding, instance
from textevolve.llm.wire import (
    CHAT,
    as_response,
    chat_body,
    dump_vector,
)
from textevolve.llm.wrappers import Journaled
from textevolve.report.wording import count
from textevolve.settings import Settings
from textevolve.studies.driver import models_asked
from textevolve.studies.stored import StoredSpec, read_spec
from textevolve.studies.study import AnyStudy
from textevolve.wiring import Mode, Setting, open_workbench

MOST_CASES = 50
"""Of more cases, so many are rehearsed, evenly spread, and stand for the others."""

DRAWS, CASES_DRAWN = 15, 8
"""How often, and with how many of the cases, answers of typical lengths are drawn."""

DRAWS_OF_WHOLE = 5
"""How often where all cases are rehearsed at once."""

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


SHORTEST, LONGEST = Manner(), Manner(longest=True)


async def forecast(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    earlier: Sequence[Used] = (),
) -> UsageRange:
    """The range of calls, tokens and money for a study over these cases, and what of it is to be
    expected: from `earlier` runs where there are any, else from rehearsals.

    Tokens are counted as characters / 3 to characters / 5, so they bound what tokenisers make of
    ordinary prose; code, and languages without spaces, can lie above. Of a call that is asked twice
    in the same words, the second is the journal's.
    """
    spec: Any = read_spec(study, stored)
    if study.estimate is not None:
        bound = study.estimate(spec, cases, stored.model, lambda name: price_of(name, settings))
        if bound is not None:
            bound = replace(bound, parts={**bound.parts, **_say_images(cases)})
            return _told(bound, await _expect(study, stored, cases, settings, earlier))
    step = max(1, -(-len(cases) // MOST_CASES))
    chosen = cases[::step]
    share = len(cases) / len(chosen) if chosen else 1.0
    least = await rehearse(study, stored, chosen, settings, SHORTEST)
    most = await rehearse(study, stored, chosen, settings, LONGEST)
    expected = await _expect(study, stored, cases, settings, earlier)
    bound = UsageRange(len(cases), _scale(least, share), _scale(most, share), _say_images(cases))
    return _told(bound, expected)


def _say_images(cases: Sequence[Case]) -> dict[str, str]:
    """How the images of cases are counted; nothing where there are none."""
    urls = [url for case in cases for url in images_of(case, range(len(case.candidates)))]
    if not urls:
        return {}
    tokens = sum(image_facts(url).tokens for url in urls)
    said = f"{count(len(urls), 'image')}, counted as {tokens:,} tokens each time that all are shown"
    return {"images": f"{said}: OpenAI's rule for high detail; other models count otherwise"}


def _told(bound: UsageRange, expected: Expected | None) -> UsageRange:
    if expected is None:
        return bound
    return replace(bound, expected=keep_within(expected, bound.least, bound.most))


async def _expect(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    earlier: Sequence[Used],
) -> Expected | None:
    """None where made-up answers lead a study nowhere, so that nothing can be expected of them."""
    if earlier:
        return expect_again(earlier, len(cases))
    step = 1 if study.whole else max(1, -(-len(cases) // CASES_DRAWN))
    chosen = cases[::step]
    share = len(cases) / len(chosen) if chosen else 1.0
    draws: list[Usage] = []
    for draw in range(DRAWS_OF_WHOLE if study.whole else DRAWS):
        try:
            used = await rehearse(study, stored, chosen, settings, Manner(draw=draw))
        except (TextEvolveError, ValueError):
            return None
        draws.append(_scale(used, share))
    return expect_of_draws(draws) if any(used.calls for used in draws) else None


async def rehearse(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    manner: Manner,
    around: Callable[[Model], Model] = lambda model: model,
) -> Usage:
    """What the study uses of a model that answers in this manner; `around`: put before it."""
    spec: Any = read_spec(study, stored)
    setting = Setting(
        model=stored.model,
        models=models_asked(study.asks(spec), stored),
        today=stored.today,
        described=stored.world,
        mode=manner.mode,
    )
    journal, spent = _Memory(), list[Usage]()
    models: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in models:
            actor = _Actor(name, settings, spent, manner)
            models[name] = Journaled(around(actor), journal, lambda _: None)
        return models[name]

    async with (
        open_workbench(setting, settings, journal, models=model_of) as bench,
        aclosing(study.run(spec, cases, bench)) as records,
    ):
        async for _ in records:
            pass
    return sum(spent, Usage())


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
        found = self._known.get(key)
        return None if found is None else replace(found, replayed=True)

    async def append(self, entry: JournalEntry) -> None:
        if entry.response is not None:
            self._known[entry.key] = entry.response


class _Actor:
    """Stands where a model will be. In a long rehearsal each structured answer is spoiled once, in
    one of typical lengths some are."""

    def __init__(self, name: str, settings: Settings, spent: list[Usage], manner: Manner) -> None:
        self.name = name
        self._price = price_of(name, settings)
        self._spent, self._manner, self._longest = spent, manner, manner.longest

    async def __call__(self, request: Request, /) -> Response:
        most = request.max_tokens or DEFAULT_TOKENS
        made = self._answer(request, most)
        characters = sum(len(message.text) for message in request.messages)
        characters += len(request.schema or "") + len(request.questions or "")
        prompt = round(characters / self._manner.ratio) + image_tokens(request)
        answered = most if self._longest else min(most, len(made.text) // 4 + 1)
        if request.questions is not None and not self._longest:
            answered = 0  # a decision model writes nothing
        cost = None if self._price is None else cost_of(self._price, prompt, 0, answered)
        usage = Usage(1, prompt, 0, answered, cost)
        self._spent.append(usage)
        return replace(made, usage=usage, finish_reason="stop")

    def _answer(self, request: Request, most: int) -> Response:
        varied = self._longest or self._manner.draw is not None
        seed = int(request_key(self.name, request)[:12], 16) if varied else 0
        if self._manner.draw is not None:
            seed = hash((seed, self._manner.draw))
        rng = Random(seed)
        answer = Answer(yes=rng.random() if varied else 0.9)
        if request.embeds:
            entry = embedder_of(self.name)
            dimension = (entry and entry.dimension) or DIMENSION
            vector = drawn_embedding(request.messages[-1].text, dimension)
            answer = Answer(text=dump_vector(vector))
        if request.questions is not None:
            wire = None if varied else "decisions"
            answer = Answer(text=_decided(request.questions, answer.yes or 0.0, wire))
        if request.schema is not None:
            repairs = any(m.role == "assistant" and m.text == SPOILED for m in request.messages)
            spoiled = self._spoils(rng) and not repairs and _is_open(request.schema)
            answer = Answer(text=SPOILED if spoiled else self._structured(request, seed, most))
        elif self._manner.draw is not None and most > 1 and not request.embeds:
            answer = Answer(text=_prose(min(4 * most, self._manner.stretch(TEXT_WRITTEN, rng))))
        body = chat_body(self.name, request, "max_tokens")
        return as_response(CHAT.read(completion(body, seed, answer)), 0.0, None)

    def _structured(self, request: Request, seed: int, most: int) -> str:
        schema = json.loads(request.schema or "{}")
        if self._manner.draw is not None:
            rng = Random(seed)
            return json.dumps(_write(instance(schema, rng), self._manner, rng))
        made = instance(
            _bound_lists(schema, longest=self._longest), Random(seed) if self._longest else _Even(0)
        )
        if self._longest:
            number = max(1, len(_texts(made)))
            made = _stretch(made, 3 * most // number)
        return json.dumps(made)

    def _spoils(self, rng: Random) -> bool:
        return self._longest or (self._manner.draw is not None and rng.random() < SELDOM)


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


def _texts(value: Any) -> list[str]:
    """All texts in a value that were drawn freely, which the obliging answers end with a mark."""
    if isinstance(value, dict):
        return [t for one in cast("dict[str, Any]", value).values() for t in _texts(one)]
    if isinstance(value, list):
        return [t for one in cast("list[Any]", value) for t in _texts(one)]
    return [value] if isinstance(value, str) and value.endswith("].") else []


def _write(value: Any, manner: Manner, rng: Random) -> Any:
    """The value with its freely drawn texts in lengths that are typical."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {name: _write(one, manner, rng) for name, one in given.items()}
    if isinstance(value, list):
        return [_write(one, manner, rng) for one in cast("list[Any]", value)]
    if not isinstance(value, str) or not value.endswith("]."):
        return value
    return f"{_prose(manner.stretch(SENTENCE, rng))} {value[-9:]}"


def _prose(length: int) -> str:
    """So many characters of a text."""
    return (f"{TEXT} " * (length // len(TEXT) + 1))[:length]


def _stretch(value: Any, length: int) -> Any:
    """The value with its freely drawn texts at least so long, in characters."""
    if isinstance(value, dict):
        return {k: _stretch(v, length) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_stretch(one, length) for one in cast("list[Any]", value)]
    if not isinstance(value, str) or not value.endswith("]."):
        return value
    return f"{TEXT} " * (max(0, length - len(value)) // (len(TEXT) + 1)) + value
