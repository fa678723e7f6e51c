"""Compare quants: what a quantised model loses against its original, and what it gains.

Each model is asked the same: to write given texts, for the log-probabilities of their tokens, and,
with nothing else in flight, to read and to write against the clock. All figures are paired, by the
part of the text or the repeat.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from textevolve.engine.local import stream
from textevolve.errors import (
    AnswerError,
    BudgetError,
    CapabilityError,
    InputError,
)
from textevolve.evaluation import Case, Failure, attempt
from textevolve.events import RecordsExpected
from textevolve.llm.catalogue import PROVIDER, locate
from textevolve.llm.hardware import describe_machine
from textevolve.llm.model import Message, Model, Request, Response, text_hash
from textevolve.llm.providers import known_providers, resolve
from textevolve.reach import is_confined
from textevolve.report import wording
from textevolve.report.blocks import Cell, Column, Note, Report, Table
from textevolve.report.data import plain
from textevolve.rows import read_text
from textevolve.settings import Settings
from textevolve.spec import Several, option
from textevolve.statistics.clusters import cluster_mean
from textevolve.statistics.intervals import Interval, Statistic, bootstrap_interval, ratio
from textevolve.statistics.resampling import Array
from textevolve.studies.cells import estimate
from textevolve.studies.evaluate import TIME_IS_UP
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
from textevolve.wiring import Workbench

Measure = Literal["file", "reading", "writing", "perplexity"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that was measured of one model. `case`: the repeat, the part of the text.

    Of a file `bytes`. Of speeds `tokens` in `seconds`. Of a part of the text the nats that its
    `tokens` surprise by.
    """

    position: int
    model: str
    measure: Measure
    case: str
    bytes: int | None = None
    tokens: int = 0
    seconds: float | None = None
    surprise: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class QuantSummary:
    """The figures of one model, with 95 % intervals; those beside the original are NaN of itself.

    `perplexity`: for each token; `times`: it divided by the original's. `reading` and `writing`:
    tokens a second; the `..._times`: divided by the original's.
    """

    model: str
    bytes: int | None
    perplexity: Statistic
    times: Statistic
    reading: Statistic
    reading_times: Statistic
    writing: Statistic
    writing_times: Statistic


@dataclass(frozen=True, slots=True)
class QuantComparison:
    """All models, the original first. `failed`: how many measurements are missing, `reasons` why,
    the most common first."""

    models: tuple[QuantSummary, ...]
    failed: int
    reasons: tuple[str, ...]


def summarise_quants(
    models: Sequence[str], records: Iterable[Measurement], *, seed: int = 0
) -> QuantComparison:
    """`models`: the original first."""
    measured: dict[tuple[str, str], dict[str, Measurement]] = {}
    failures = Counter[str]()
    for record in records:
        if record.failure is not None:
            failures[record.failure.reason] += 1
        else:
            measured.setdefault((record.model, record.measure), {})[record.case] = record

    def summarise_model(model: str) -> QuantSummary:
        def speed(measure: Measure) -> tuple[Statistic, Statistic]:
            own, first = (measured.get((name, measure), {}) for name in (model, models[0]))
            shared = own.keys() & first.keys() if model != models[0] else ()
            ratios = [_log_rate(own[case]) - _log_rate(first[case]) for case in shared]
            return _geometric(list(map(_log_rate, own.values()))), _geometric(ratios)

        own, first = (measured.get((name, "perplexity"), {}) for name in (model, models[0]))
        shared = own.keys() & first.keys() if model != models[0] else ()
        file = next(iter(measured.get((model, "file"), {}).values()), None)
        nats = [(part.surprise or 0.0, part.tokens) for part in own.values()]
        more = [
            ((own[case].surprise or 0.0) - (first[case].surprise or 0.0), own[case].tokens)
            for case in own
            if case in shared
        ]
        return QuantSummary(
            model,
            file.bytes if file else None,
            _perplexity(nats, seed),
            _perplexity(more, seed),
            *speed("reading"),
            *speed("writing"),
        )

    return QuantComparison(
        tuple(map(summarise_model, models)),
        failures.total(),
        tuple(reason for reason, _ in failures.most_common(5)),
    )


def _perplexity(rows: Sequence[tuple[float, int]], seed: int) -> Statistic:
    """exp(nats / tokens) with its bootstrap interval over parts; of differences of nats it is the
    ratio of two perplexities."""
    if not rows:
        return Statistic()

    def figure(sums: Array) -> Array:
        return np.exp(ratio(sums[..., 0], sums[..., 1]))

    features = np.asarray(rows, dtype=np.float64)
    value = float(figure(features.sum(axis=0)))
    return Statistic(value, bootstrap_interval(features, figure, seed=seed))


def _log_rate(one: Measurement) -> float:
    return math.log(one.tokens / one.seconds) if one.seconds and one.tokens else math.nan


def _geometric(logarithms: Sequence[float]) -> Statistic:
    """The geometric mean, with Student's interval of the logarithms; NaN counts as missing."""
    mean = cluster_mean(logarithms)
    ends = mean.interval
    grown = Interval(math.exp(ends.low), math.exp(ends.high), ends.reason)
    return Statistic(math.exp(mean.value), grown)


COLUMNS = (
    ("perplexity", Column("perplexity", "number", 2)),
    ("times", Column("perplexity, times", "number", 3)),
    ("reading", Column("reads, tokens/s", "number", 1)),
    ("reading_times", Column("reads, times", "number", 2)),
    ("writing", Column("writes, tokens/s", "number", 1)),
    ("writing_times", Column("writes, times", "number", 2)),
)
"""The figures of a model, of which those are shown that any model has."""


def short_name(model: str) -> str:
    """Of a file its name, of another model its name without the provider."""
    return model.rpartition("/")[2].removesuffix(".gguf")


def report_quants(result: QuantComparison) -> Report:
    shown = [
        (name, column)
        for name, column in COLUMNS
        if any(math.isfinite(getattr(one, name).value) for one in result.models)
    ]
    rows: list[list[Cell]] = [
        [
            short_name(one.model),
            None if one.bytes is None else one.bytes / 1e6,
            *(estimate(getattr(one, name)) for name, _ in shown),
        ]
        for one in result.models
    ]
    columns = [Column("model"), Column("MB", "number", 0), *(column for _, column in shown)]
    note = (
        "Intervals of 95 %: resampled parts of the text, Student's of speeds. Comparisons with the"
        " original are paired."
    )
    blocks: list[Table | Note] = [Table("", columns, rows, note=note)]
    if result.failed:
        text = f"{wording.count(result.failed, 'measurement')} missing, and left out: "
        blocks.append(Note(text + "; ".join(result.reasons), "warning"))
    return Report(f"Quants of {short_name(result.models[0].model)}", _sentence(result), blocks)


def _sentence(result: QuantComparison) -> str:
    """The smallest of them compared with the original."""
    first, *others = result.models
    smallest = min(others, key=lambda one: one.bytes or math.inf)
    clauses = {
        "{:.0%} of the size": (smallest.bytes or math.nan) / (first.bytes or math.nan),
        "{:.2f} times the speed of writing": smallest.writing_times.value,
        "{:.3f} times the perplexity": smallest.times.value,
    }
    known = [text.format(value) for text, value in clauses.items() if math.isfinite(value)]
    if not known:
        return "Nothing was measured of both the original and another model."
    name, original = short_name(smallest.model), short_name(first.model)
    return f"Compared with {original}, {name} has {', '.join(known)}."


def data(spec: CompareQuantsSpec, result: QuantComparison) -> Mapping[str, Any]:
    parameters = spec.model_dump(mode="json")
    return {"parameters": parameters, "sentence": _sentence(result), **plain(result)}


def find_row(one: Measurement) -> Row:
    failure = one.failure
    return Row(
        key=f"{one.measure}/{one.case}/{one.model}",
        position=one.position,
        case=one.case,
        status=failure.kind if failure else "scored",
        reason=f"{short_name(one.model)}: {failure.reason}" if failure else "",
        variant=one.model,
    )


def flatten(one: Measurement) -> Iterator[dict[str, Any]]:
    yield {
        "model": one.model,
        "measure": one.measure,
        "case": one.case,
        "bytes": one.bytes,
        "tokens": one.tokens,
        "seconds": one.seconds,
        "surprise": one.surprise,
        "reason": one.failure.reason if one.failure else None,
    }


CONTINUE = "Continue this text. Write what comes next in it, word for word.\n\n"
TELL = "Part {number} of a log. Read it, then tell a long story about what is in it.\n\n"
LINE = "Line {number}: the ferry to the outer islands left at {hour}, with {seats} seats taken. "
LINES = 8
"""Of the text that a model reads against the clock; of about 20 tokens each."""


class CompareQuantsSpec(StudySpec):
    """Measure what quantisation costs: perplexity, speed and size.

    The first model is the original, such as a file of f16; the others are compared with it. All are
    held in memory together. Speeds are measured first, one model at a time, and are those of this
    machine as busy as it is.
    """

    kind: ClassVar[str] = "compare-quants"

    original: str = option(
        description="The model that the others were made of: a GGUF file, or a model's name.",
        argument=True,
    )
    quants: Several = option(
        description="The models to compare with it.", argument=True, min_length=1
    )
    text: str | None = option(
        None,
        "A text to measure the perplexity on, of the kind that the model will write.",
        group="Data",
        identity=False,
        reads=True,
    )
    chunks: int = option(
        24, "How many parts of the text are measured.", group="Data", identity=False, ge=2
    )
    words: int = option(
        60, "Words of each part; twice as many before it are shown.", group="Data", ge=5, le=400
    )
    repeats: int = option(
        5, "How often speeds are measured; 0: not at all.", group="Speed", ge=0, le=100
    )
    tokens: int = option(
        48, "Tokens that are written against the clock.", group="Speed", ge=2, le=4096
    )
    seed: int = option(0, "Seed of the bootstrap.", group="Statistics", ge=0)

    def salt(self, described: Mapping[str, Any]) -> str:
        """What was measured of other files, or in another company, is not what is wanted."""
        return json.dumps([models_of(self), described], sort_keys=True)

    @model_validator(mode="after")
    def _usable(self) -> CompareQuantsSpec:
        names = models_of(self)
        if len(set(names)) < len(names):
            raise InputError("a model is named twice; name the original once, then its quants")
        return self


def models_of(spec: CompareQuantsSpec) -> tuple[str, ...]:
    return (spec.original, *spec.quants)


def complete(spec: CompareQuantsSpec, settings: Settings) -> CompareQuantsSpec:
    """Files and names of local models as models are named everywhere."""
    if not (spec.text or spec.repeats):
        raise InputError("nothing is to be measured: give --text or --repeats")
    full = partial(_full_name, settings=settings)
    return spec.model_copy(
        update={"original": full(spec.original), "quants": tuple(map(full, spec.quants))}
    )


def _full_name(name: str, settings: Settings) -> str:
    if "://" in name or name.partition("/")[0] in known_providers(settings):
        return name
    path = Path(name).expanduser()
    # A server's client learns nothing of the server's files; it names models.
    if path.suffix == ".gguf" and not is_confined() and path.is_file():
        return f"{PROVIDER}/{path.absolute()}"
    return f"{PROVIDER}/{name}"


async def describe(
    spec: CompareQuantsSpec, settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    """The files, by size and hash, and the machine: with others all is asked anew."""
    files: dict[str, Any] = {}
    for model in models_of(spec):
        endpoint = resolve(model, settings, asks=False)
        if not endpoint.is_local:
            continue
        found = locate(endpoint.model, settings.weights_folder)
        if found.weights is not None:
            files[model] = {"bytes": found.weights.bytes, "sha256": found.weights.sha256}
        else:
            digest = await asyncio.to_thread(_hash, found.path)
            files[model] = {"bytes": found.path.stat().st_size, "sha256": digest}
    return {"files": files, "machine": describe_machine()}


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def ask(spec: CompareQuantsSpec) -> Asks:
    texts = {"continue": CONTINUE, "tell": TELL, "line": LINE}
    prompts = {name: text_hash(text)[:12] for name, text in texts.items()}
    return Asks((), models_of(spec), prompts=prompts)


def read_cases(spec: CompareQuantsSpec) -> Iterator[Case]:
    """Each repeat of the clock, each part of the text."""
    for number in range(spec.repeats + 1 if spec.repeats else 0):
        yield Case("", (), f"speed {number}", {"measure": "speed", "number": number})
    if spec.text is not None:
        parts = cut_parts(read_text(spec.text), spec.words, spec.chunks)
        for number, (before, part) in enumerate(parts, 1):
            yield Case(before, (part,), f"part {number}", {"measure": "perplexity"})


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that is compared, with a measurement to be filled in."""

    model: Model
    blank: Measurement


async def run(
    spec: CompareQuantsSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Measurement]:
    """The files; speeds, one call at a time, models in turn; then each model's other answers."""
    every = list(cases)
    timed = [case for case in every if case.parameters["measure"] == "speed"]
    rest = [case for case in every if case.parameters["measure"] != "speed"]
    models = [_open(bench, name) for name in models_of(spec)]
    per_model = 1 + 2 * max(0, len(timed) - 1) + len(rest)
    bench.listener(RecordsExpected(per_model * len(models)))
    async with aclosing(_measure_all(spec, bench, models, timed, rest)) as measurements:
        position = 0
        async for measurement in measurements:
            yield replace(measurement, position=position)
            position += 1


def _open(bench: Workbench, name: str) -> _Model:
    file: Mapping[str, Any] = bench.described.get("files", {}).get(name, {})
    return _Model(bench.model_of(name), Measurement(0, name, "file", "file", file.get("bytes")))


async def _measure_all(
    spec: CompareQuantsSpec,
    bench: Workbench,
    models: Sequence[_Model],
    timed: Sequence[Case],
    rest: Sequence[Case],
) -> AsyncGenerator[Measurement]:
    for one in models:
        yield one.blank
    for case, one in itertools.product(timed, models):
        for measurement in await _measure_speed(spec, bench, one, case):
            yield measurement
    pairs = [(one, case) for case in rest for one in models]
    work = partial(_measure, bench)
    async with aclosing(stream(pairs, work, bench.concurrency)) as parts:
        async for measurement in parts:
            yield measurement


async def _measure_speed(
    spec: CompareQuantsSpec, bench: Workbench, one: _Model, case: Case
) -> list[Measurement]:
    """Reading a text that the model has not seen, and writing behind it, as it is then cached. The
    first time is not counted: weights are read from the disk, and memory is taken."""
    number = int(case.parameters["number"])
    blank = replace(one.blank, case=case.id)
    reads, writes = replace(blank, measure="reading"), replace(blank, measure="writing")
    request = Request(
        messages=(Message("user", (TELL.format(number=number), _log(number))),),
        temperature=0.0,
        max_tokens=1,
        seed=0,
    )

    async def clock() -> tuple[Response, Response]:
        if bench.seconds_left == 0:
            raise BudgetError(TIME_IS_UP)
        read = await one.model(request)
        return read, await one.model(replace(request, max_tokens=spec.tokens))

    timed = await attempt(clock())
    if isinstance(timed, Failure):
        return [replace(m, failure=timed) for m in (reads, writes)] if number else []
    read, wrote = timed
    tokens = read.usage.prompt_tokens - read.usage.cached_tokens
    reads = replace(reads, tokens=tokens, seconds=read.seconds)
    writes = replace(writes, tokens=wrote.usage.completion_tokens, seconds=wrote.seconds)
    return [reads, writes] if number else []


def _log(number: int) -> str:
    lines = range(LINES * number, LINES * (number + 1))
    return "".join(
        LINE.format(number=n, hour=f"{n * 7 % 24:02}:{n * 13 % 60:02}", seats=n * 17 % 90)
        for n in lines
    )


async def _measure(bench: Workbench, pair: tuple[_Model, Case]) -> Measurement:
    one, case = pair
    blank = replace(one.blank, case=case.id, measure="perplexity")
    if bench.seconds_left == 0:
        return replace(blank, failure=Failure("skipped", TIME_IS_UP))
    measured = await attempt(_read_surprise(one, case, blank))
    return replace(blank, failure=measured) if isinstance(measured, Failure) else measured


async def _read_surprise(one: _Model, case: Case, blank: Measurement) -> Measurement:
    """How much the part of the text surprises."""
    (part,) = case.candidates
    response = await one.model(
        Request(
            messages=(Message("user", (CONTINUE, case.input)),),
            forced=part,
            temperature=0.0,
            max_tokens=len(part) // 3 + 1,
            seed=0,
            top_logprobs=1,
        )
    )
    if response.text != part:
        raise AnswerError("the answer is not the text that was to be written")
    if not response.logprobs:
        raise CapabilityError(
            f"{one.model.name}: perplexity needs an endpoint that forces tokens and tells their"
            " log-probabilities, as llama.cpp's server does: leave out --text"
        )
    tokens = response.logprobs
    return replace(
        blank,
        tokens=len(tokens),
        surprise=-sum(token.logprob for token in tokens),
    )


def summarise(spec: CompareQuantsSpec, records: Iterable[Measurement]) -> QuantComparison:
    return summarise_quants(models_of(spec), records, seed=spec.seed)


encode, decode = json_codec(Measurement)

STUDY = Study(
    spec=CompareQuantsSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=lambda _spec, found: report_quants(found),
    data=data,
    flat=flatten,
    complete=complete,
    describe=describe,
    variants=lambda spec, _model: models_of(spec),
    aggregates=False,
)


def cut_parts(text: str, words: int, most: int) -> Iterator[tuple[str, str]]:
    """At most so many parts of `words` words, each after the twice as many words before it: pairs
    of what is before, and the part. They are as the text has them, with its spaces and lines.

    Raises:
        InputError: the text is too short for two parts.
    """
    begins = [found.start() for found in re.finditer(r"\S+", text)]
    before = 2 * words
    room = (len(begins) - before) // words
    if room < 2:
        raise InputError(
            f"the text has {len(begins)} words, too few: two parts of {words} words, and"
            f" {before} words before them, need {before + 2 * words}"
        )
    begins.append(len(text))
    number = min(most, room)
    for index in range(number):
        first = before + (index * room // number) * words
        context = text[begins[first - before] : begins[first]]
        yield context.strip(), text[begins[first] : begins[first + words]].strip()
