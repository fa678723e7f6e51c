"""What a study may use, before anything is spent: its own code is run against a model that makes
its answers up, once with short answers that agree, and once with answers as long as allowed.

A study that needs an exact bound has a formula instead (`Study.estimate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any, cast

from textevolve.estimates.debate import UsageRange
from textevolve.evaluation import Case, Usage
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Model, Request, Response, request_key
from textevolve.llm.testing.answers import Answer, completion
from textevolve.llm.testing.schema import TEXT, instance
from textevolve.llm.wire import as_response, chat_body, read_completion
from textevolve.llm.wrappers import Journaled
from textevolve.settings import Settings
from textevolve.studies.driver import StoredSpec, models_asked, read_spec
from textevolve.studies.study import AnyStudy
from textevolve.wiring import Setting, open_workbench, price_of

MOST_CASES = 50
"""Of more cases, so many are rehearsed, evenly spread, and stand for the others."""

DEFAULT_TOKENS = 1024
"""Of an answer whose length is left to the endpoint."""

SPOILED = "?"
"""An answer that cannot be read, so that it is asked for once more."""


async def forecast(
    study: AnyStudy, stored: StoredSpec, cases: Sequence[Case], settings: Settings
) -> UsageRange:
    """The range of calls, tokens and money for a study over these cases.

    Tokens are counted as characters / 3 to characters / 5, so they bound what tokenisers make of
    ordinary prose; code, and languages without spaces, can lie above. Of a call that is asked twice
    in the same words, the second is the journal's.
    """
    spec: Any = read_spec(study, stored)
    if study.estimate is not None:
        bound = study.estimate(spec, cases, stored.model, lambda name: price_of(name, settings))
        if bound is not None:
            return bound
    step = max(1, -(-len(cases) // MOST_CASES))
    chosen = cases[::step]
    share = len(cases) / len(chosen) if chosen else 1.0
    least = await _rehearse(study, stored, chosen, settings, longest=False)
    most = await _rehearse(study, stored, chosen, settings, longest=True)
    return UsageRange(len(cases), _scale(least, share), _scale(most, share))


async def _rehearse(
    study: AnyStudy,
    stored: StoredSpec,
    cases: Sequence[Case],
    settings: Settings,
    *,
    longest: bool,
) -> Usage:
    spec: Any = read_spec(study, stored)
    setting = Setting(
        model=stored.model,
        models=models_asked(study.asks(spec), stored),
        today=stored.today,
        described=stored.described,
        mode="longest" if longest else "shortest",
    )
    journal, spent = _Memory(), list[Usage]()
    models: dict[str, Model] = {}

    def model_of(name: str) -> Model:
        if name not in models:
            actor = _Actor(name, settings, spent, longest=longest)
            models[name] = Journaled(actor, journal, lambda _: None)
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
    """Stands where a model will be. In a long rehearsal each structured answer is spoiled once."""

    def __init__(self, name: str, settings: Settings, spent: list[Usage], *, longest: bool) -> None:
        self.name = name
        self._price = price_of(name, settings)
        self._spent, self._longest = spent, longest

    async def __call__(self, request: Request, /) -> Response:
        most = request.max_tokens or DEFAULT_TOKENS
        made = self._answer(request, most)
        characters = sum(len(message.text) for message in request.messages)
        characters += len(request.schema or "")
        prompt = round(characters / (3 if self._longest else 5))
        answered = most if self._longest else min(most, len(made.text) // 4 + 1)
        price = self._price
        cost = None if price is None else (prompt * price.input + answered * price.output) / 1e6
        usage = Usage(1, prompt, 0, answered, cost)
        self._spent.append(usage)
        return replace(made, usage=usage, finish_reason="stop")

    def _answer(self, request: Request, most: int) -> Response:
        seed = int(request_key(self.name, request)[:12], 16) if self._longest else 0
        answer = Answer(yes=Random(seed).random() if self._longest else 0.9)
        if request.embeds:
            answer = Answer(text='{"embedding": [1.0]}')
        if request.schema is not None:
            repairs = any(m.role == "assistant" and m.text == SPOILED for m in request.messages)
            spoiled = self._longest and not repairs and _is_open(request.schema)
            answer = Answer(text=SPOILED if spoiled else self._structured(request, seed, most))
        body = chat_body(self.name, request, "max_tokens")
        return as_response(read_completion(completion(body, seed, answer)), 0.0, None)

    def _structured(self, request: Request, seed: int, most: int) -> str:
        schema = _bound_lists(json.loads(request.schema or "{}"), longest=self._longest)
        made = instance(schema, Random(seed) if self._longest else _Even(0))
        if self._longest:
            number = max(1, len(_texts(made)))
            made = _stretch(made, 3 * most // number)
        return json.dumps(made)


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


def _stretch(value: Any, length: int) -> Any:
    """The value with its freely drawn texts at least so long, in characters."""
    if isinstance(value, dict):
        return {k: _stretch(v, length) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_stretch(one, length) for one in cast("list[Any]", value)]
    if not isinstance(value, str) or not value.endswith("]."):
        return value
    return f"{TEXT} " * (max(0, length - len(value)) // (len(TEXT) + 1)) + value
