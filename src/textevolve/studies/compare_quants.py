"""Compare quants: what a quantised model loses against its original, and what it gains.

Each model is asked the same: to write given texts, for the log-probabilities of their tokens; to
judge rows; and, with nothing else in flight, to read and to write against the clock. What that
comes to is found in `quant_figures` and shown in `quant_report`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.bench.items import read_items
from textevolve.engine.local import stream
from textevolve.errors import (
    AnswerError,
    BudgetError,
    CapabilityError,
    FatalModelError,
    InputError,
    ModelError,
)
from textevolve.evaluation import Case, Evaluator, Failure, failure_of
from textevolve.events import RecordsExpected
from textevolve.judges.judged import has_log_odds, ranks_of
from textevolve.llm.catalogue import PROVIDER, locate
from textevolve.llm.choice_logprobs import log_odds
from textevolve.llm.hardware import describe_machine, load_per_core
from textevolve.llm.model import Message, Model, Request, text_hash
from textevolve.llm.providers import known_providers, resolve
from textevolve.reach import is_confined
from textevolve.rows import read_text
from textevolve.settings import Settings
from textevolve.spec import Several, option
from textevolve.studies import labelled_items
from textevolve.studies.evaluate import TIME_IS_UP
from textevolve.studies.quant_figures import Measurement, QuantComparison, summarise_quants
from textevolve.studies.quant_report import find_row, flatten, quant_data, report_quants
from textevolve.studies.study import Asks, Study, StudySpec, json_codec
from textevolve.texts.parts import cut_parts
from textevolve.wiring import Workbench

CONTINUE = "Continue this text. Write what comes next in it, word for word.\n\n"
TELL = "Part {number} of a log. Read it, then tell a long story about what is in it.\n\n"
LINE = "Line {number}: the ferry to the outer islands left at {hour}, with {seats} seats taken. "
AT_ONCE = 2
"""For each call in flight, so many parts or rows are asked of one model before the next one's turn:
one at a time has the machine, and what is stopped early has measured all models alike."""
LINES = 8
"""Of the text that a model reads against the clock; of about 20 tokens each."""


class CompareQuantsSpec(StudySpec):
    """Measure what quantisation costs: perplexity, agreement of judgements, speed and size.

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
    data: Several = option(
        (),
        "Rows to judge, labelled by people or not, as JSONL, JSON, CSV or Parquet. Repeatable.",
        group="Data",
        identity=False,
        reads=True,
    )
    judge: str = option(
        "probe", "The judge whose judgements are compared.", short="-j", group="Judging"
    )
    limit: int | None = option(
        None, "Judge only the first so many rows.", group="Data", identity=False, ge=1
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

    @model_validator(mode="after")
    def _usable(self) -> CompareQuantsSpec:
        names = models_of(self)
        if len(set(names)) < len(names):
            raise InputError("a model is named twice; name the original once, then its quants")
        if "@" in self.judge:
            raise InputError("the judge asks the models that are compared: leave out its @MODEL")
        return self


def models_of(spec: CompareQuantsSpec) -> tuple[str, ...]:
    return (spec.original, *spec.quants)


def judge_with(spec: CompareQuantsSpec, model: str) -> str:
    return f"{spec.judge}@{model}"


def complete(spec: CompareQuantsSpec, settings: Settings) -> CompareQuantsSpec:
    """Files and names of local models as models are named everywhere."""
    if not (spec.text or spec.data or spec.repeats):
        raise InputError("nothing is to be measured: give --text, --data or --repeats")
    full = partial(_full_name, settings=settings)
    original, quants = full(spec.original), tuple(map(full, spec.quants))
    local = any(name.startswith(f"{PROVIDER}/") for name in (original, *quants))
    if local and spec.repeats and settings.local.threads is None:
        logging.getLogger("textevolve").warning(
            "local.threads is not set, so each model may start with another number of threads: for"
            " speeds that compare, set it in the settings"
        )
    return spec.model_copy(update={"original": original, "quants": quants})


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


def salt(spec: CompareQuantsSpec, described: Mapping[str, Any]) -> str:
    """What was measured of other files, or in another company, is not what is wanted."""
    return json.dumps([models_of(spec), described], sort_keys=True)


def ask(spec: CompareQuantsSpec) -> Asks:
    models = models_of(spec)
    judges = tuple(judge_with(spec, model) for model in models) if spec.data else ()
    asked = {"continue": CONTINUE, "tell": TELL, "line": LINE}
    prompts = {name: text_hash(text)[:12] for name, text in asked.items()}
    return Asks(judges, models, prompts=prompts)


def read_cases(spec: CompareQuantsSpec) -> Iterator[Case]:
    """Each repeat of the clock, each part of the text, each row."""
    for number in range(spec.repeats + 1 if spec.repeats else 0):
        yield Case("", (), f"speed {number}", {"measure": "speed", "number": number})
    if spec.text is not None:
        parts = cut_parts(read_text(spec.text), spec.words, spec.chunks)
        for number, (before, part) in enumerate(parts, 1):
            yield Case(before, (part,), f"part {number}", {"measure": "perplexity"})
    if spec.data:
        for item in read_items(spec.data, limit=spec.limit, unlabelled=True):
            case = labelled_items.as_case(item)
            yield replace(case, parameters={"measure": "judgement", **case.parameters})


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model that is compared, by its name, with its place among all and its judge."""

    model: Model
    place: int
    judge: Evaluator | None
    blank: Measurement


async def run(
    spec: CompareQuantsSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Measurement]:
    """The files; speeds, one call at a time, models in turn; then each model's other answers."""
    read, models = list(cases), models_of(spec)
    timed = [case for case in read if case.parameters["measure"] == "speed"]
    rest = [case for case in read if case.parameters["measure"] != "speed"]
    per_model = 1 + 2 * max(0, len(timed) - 1) + len(rest)
    bench.listener(RecordsExpected(per_model * len(models)))
    asked = [_open(spec, bench, place, per_model) for place in range(len(models))]
    for one in asked:
        yield replace(one.blank, measure="file", case="file")
    for case, one in itertools.product(timed, asked):
        for made in await _measure_speed(spec, bench, one, case):
            yield made
    begin = 1 + 2 * max(0, len(timed) - 1)
    size = AT_ONCE * bench.concurrency
    for first, one in itertools.product(range(0, len(rest), size), asked):
        placed = enumerate(rest[first : first + size], one.blank.position + begin + first)
        work = partial(_measure, bench, one)
        async with aclosing(stream(placed, work, bench.concurrency)) as found:
            async for made in found:
                yield made


def _open(spec: CompareQuantsSpec, bench: Workbench, place: int, per_model: int) -> _Asked:
    name = models_of(spec)[place]
    facts: Mapping[str, Any] = bench.described.get("files", {}).get(name, {})
    blank = Measurement(
        place * per_model,
        *(name, "file", "file"),
        bytes=facts.get("bytes"),
        sha256=facts.get("sha256", ""),
        machine=bench.described.get("machine", ""),
    )
    judge = bench.whole_judge_of(judge_with(spec, name)) if spec.data else None
    return _Asked(bench.model_of(name), place, judge, blank)


async def _measure_speed(
    spec: CompareQuantsSpec, bench: Workbench, one: _Asked, case: Case
) -> list[Measurement]:
    """Reading a text that the model has not seen, and writing behind it, as it is then cached. The
    first time is not counted: weights are read from the disk, and memory is taken."""
    number = int(case.parameters["number"])
    blank = replace(one.blank, case=case.id, position=one.blank.position + 2 * number - 1)
    reads = replace(blank, measure="reading")
    writes = replace(blank, measure="writing", position=blank.position + 1)
    request = Request(
        messages=(Message("user", (TELL.format(number=number), _log(number))),),
        temperature=0.0,
        max_tokens=1,
        seed=0,
    )
    try:
        if bench.seconds_left == 0:
            raise BudgetError(TIME_IS_UP)
        read = await one.model(request)
        load = None if read.replayed else load_per_core()
        wrote = await one.model(replace(request, max_tokens=spec.tokens))
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        why = failure_of(error)
        return [replace(m, failure=why) for m in (reads, writes)] if number else []
    tokens = read.usage.prompt_tokens - read.usage.cached_tokens
    made = [
        replace(reads, tokens=tokens, seconds=read.seconds, load=load),
        replace(writes, tokens=wrote.usage.completion_tokens, seconds=wrote.seconds, load=load),
    ]
    return made if number else []


def _log(number: int) -> str:
    lines = range(LINES * number, LINES * (number + 1))
    return "".join(
        LINE.format(number=n, hour=f"{n * 7 % 24:02}:{n * 13 % 60:02}", seats=n * 17 % 90)
        for n in lines
    )


async def _measure(bench: Workbench, one: _Asked, placed: tuple[int, Case]) -> Measurement:
    position, case = placed
    blank = replace(one.blank, case=case.id, position=position)
    judged = case.parameters["measure"] == "judgement"
    measure: Callable[[_Asked, Case, Measurement], Awaitable[Measurement]]
    measure = _judge if judged else _read_surprise
    blank = replace(blank, measure="judgement" if judged else "perplexity")
    if bench.seconds_left == 0:
        return replace(blank, failure=Failure("skipped", TIME_IS_UP))
    try:
        return await measure(one, case, blank)
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return replace(blank, failure=failure_of(error))


async def _read_surprise(one: _Asked, case: Case, blank: Measurement) -> Measurement:
    """How much the part of the text surprises, and what the model would have written instead."""
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
        choices=tuple(token.top[0][0] for token in tokens if token.top),
    )


async def _judge(one: _Asked, case: Case, blank: Measurement) -> Measurement:
    """The log-odds of each candidate, or of its score where the judge has none."""
    assert one.judge is not None
    about = {name: value for name, value in case.parameters.items() if name != "measure"}
    item = labelled_items.item_of(replace(case, parameters=about))
    shown = Case(item.input, item.candidates, item.id, {}, item.reference, item.context)
    results = (await one.judge(shown)).result
    failed = next((found for found in results if isinstance(found, Failure)), None)
    if failed is not None:
        return replace(blank, failure=failed)
    ranks = [rank for rank in ranks_of(results) if rank is not None]
    odds = ranks if has_log_odds(results) else [log_odds(rank) for rank in ranks]
    human = item.human if item.labelled else ()
    return replace(blank, odds=tuple(odds), human=human)


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
    report=lambda spec, found: report_quants(found, spec.judge),
    data=lambda spec, found: quant_data(found, spec.model_dump(mode="json")),
    flat=flatten,
    complete=complete,
    describe=describe,
    salt=salt,
    variants=lambda spec, _model: models_of(spec),
    aggregates=False,
)
