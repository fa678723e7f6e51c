"""The study that fits a judge: it combines several judges (signals) with weights chosen so that the
result agrees with people's labels.

`textevolve.bench.fitting` computes the weights and their figures, and
`textevolve.judges.fitted` defines the file of a fitted judge.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.bench.fitting import (
    SAME_LABEL,
    Fit,
    describe_guarantee,
    file_of,
    fit_signals,
    format_points,
    gather_signals,
    require_enough,
)
from textevolve.bench.items import Item, items_of
from textevolve.bench.verdicts import Verdict
from textevolve.errors import InputError
from textevolve.evaluation import Case, Result
from textevolve.judges.fitted import ENDING, FittedFile, digest_judge, save_fitted
from textevolve.judges.judge import parse_judge
from textevolve.judges.plain import LENGTH, LOOK
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Note, Report, Table, cell_text
from textevolve.rows.writing import plain
from textevolve.runs.aggregates import estimate
from textevolve.runs.study import Asks, Row, Study, json_decoder
from textevolve.spec import option
from textevolve.studies.labels import base
from textevolve.studies.labels.base import (
    ItemVerdict,
    OrdersSpec,
    ask_judges,
    count_items,
    describe_right,
    draw_calibrations,
    item_of,
)
from textevolve.user_code import OWN
from textevolve.wiring import Workbench


def fit_sentence(fit: Fit) -> str:
    """Return the agreement of the fit, compared with that of its best single signal."""
    agreement = cell_text(estimate(fit.agreement), Column("", "percent", 1))
    best = next(signal.alone.value for signal in fit.signals if signal.name == fit.best)
    does = describe_right(is_single=fit.are_single)
    return (
        f"Cross-validated, the fit {does} in {agreement} of the items; its best single signal,"
        f" {fit.best}, in"
        f" {wording.percent(best, 1)}: {format_points(fit.difference)}."
    )


def fit_facts(fit: Fit) -> dict[str, str]:
    missing = ", ".join(f"{name} on {number}" for name, number in fit.missing.items() if number)
    left_out = f"{wording.count(fit.left_out, 'item')} that lack a signal ({missing})"
    return {
        "Items": f"{count_items(fit.items, fit.questions)}, labelled by {fit.labels}",
        "Left out": left_out if fit.left_out else "",
        "Threshold": describe_guarantee(fit),
        "Penalty": f"ridge {fit.ridge:g}, chosen by nested cross-validation",
    }


def draw_fit(fit: Fit) -> Iterator[Block]:
    for warning in fit.warnings:
        yield Note(warning, "warning")

    yield Table(
        "Signals",
        ("signal", Column("weight", "number")),
        [(signal.name, signal.weight) for signal in fit.signals],
        note="Weight: on the standardised signal, so that weights can be compared. All signals"
        f" together take the cross-validated log-loss from {fit.loss_of_nothing:.3f} to"
        f" {fit.loss:.3f}.",
    )

    rows = [("the fit", estimate(fit.agreement))]
    rows += [(f"{signal.name} alone", estimate(signal.alone)) for signal in fit.signals]
    rows += [(name, estimate(figure)) for name, figure in fit.blind]
    alone = (
        "a judge alone is used as it is, a property of the text in the direction that the labels of"
        " the other folds show"
    )
    blind = "three"
    event = "the first of two texts is the better one"
    if fit.are_single:
        alone = "so is each signal alone"
        blind = "two"
        event = "a text is good"

    yield Table(
        "Agreement with people",
        ("judge", Column("agreement", "percent", 1)),
        rows,
        note="Brackets: 95 % intervals, drawn by question. The fit is cross-validated by question;"
        f" {alone}. The last {blind} read nothing.",
    )
    yield from draw_calibrations(
        {"the fit": fit.calibration}, event, "All figures are out of fold."
    )


# The signals that are fitted to pairs by default.
DEFAULT_SIGNALS = "probe,instruction-likelihood,pairwise,length"
# The signals that are fitted to single responses by default; none of them compares texts.
SINGLE_SIGNALS = "probe,instruction-likelihood,length"


class FitSpec(OrdersSpec):
    """Fit a judge to people's labels: weight several judges so that they agree with people.

    Every signal scores every item. All figures are cross-validated by question; -o NAME.judge
    writes the judge, which is used like any other: --judge NAME.judge.
    """

    kind: ClassVar[str] = "fit"
    measures_judges: ClassVar[bool] = True

    signals: str = option(
        "",
        "The signals to combine, separated by commas: judges such as probe or pairwise+rules,"
        f" and length.  [default: {DEFAULT_SIGNALS}]",
        group="Judging",
    )
    precision: float = option(
        0.9,
        "The share of cases, from 0 to 1, in which the judge must be right from its threshold on.",
        group="Statistics",
        gt=0,
        lt=1,
    )
    confidence: float = option(
        0.95,
        "The probability with which that share must hold for new items, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )
    seed: int = option(
        0,
        "The seed of the folds of cross-validation and of the bootstrap.",
        group="Statistics",
        ge=0,
    )

    @model_validator(mode="after")
    def _usable(self) -> FitSpec:
        names = names_of(self)
        for name in names:
            if name.startswith(OWN) or ENDING in name:
                raise InputError(
                    f"signal '{name}': cannot be stored in a file; name a shipped judge"
                )

            parse_judge(name).check()

        if len(set(names)) < len(names):
            raise InputError("a signal is named twice; name each signal once")

        return self


def names_of(spec: FitSpec, items: Iterable[Item] = ()) -> tuple[str, ...]:
    """Return the judges that are the signals of a fit: the requested ones, or defaults for pairs or
    for single responses. The name `length` becomes `look:length`."""
    default = SINGLE_SIGNALS if any(item.is_single for item in items) else DEFAULT_SIGNALS
    names = map(str.strip, (spec.signals or default).split(","))
    return tuple(f"{LOOK}:{name}" if name == LENGTH else name for name in names if name)


@dataclass(frozen=True, slots=True)
class SignalVerdict:
    """The verdict of one signal, a judge whose scores the fit combines, on one labelled item.

    Attributes:
        found: The verdict with its item.
        model: The model that judged if the signal names none of its own.
        date: The date of the run, as prompts state it.
        content: The digest of the files that the signal reads; empty if it reads none.
    """

    found: ItemVerdict
    model: str | None
    date: str
    content: str = ""


@dataclass(frozen=True)
class FittedSignals(Result):
    """The result of a fit.

    Attributes:
        labelled: The number of labelled items.
        fit: The weights of the signals and their figures; None if nothing was fitted.
        file: The fitted judge, which can be saved; None if nothing was fitted.
        reason: The reason why nothing was fitted.
    """

    labelled: int
    fit: Fit | None = None
    file: FittedFile | None = None
    reason: str = ""

    def require(self) -> FittedFile:
        """Return the fitted judge.

        Raises:
            InputError: nothing was fitted; has the reason.
        """
        if self.file is None:
            raise InputError(self.reason)
        return self.file

    def save(self, path: str) -> None:
        """Write the judge to a file whose name ends in .judge.

        Raises:
            InputError: nothing was fitted, or the file cannot be written.
        """
        save_fitted(self.require(), path)


def read_cases(spec: FitSpec) -> list[Case]:
    """Read the labelled items.

    Raises:
        InputError: the items cannot be read, are too few for a fit, or have one label alone.
    """
    return _check_enough(list(base.read_labelled_items(spec)))


def take_labelled(spec: FitSpec, rows: Iterable[Mapping[str, Any]], _objects: object) -> list[Case]:
    """Convert rows of a Python program to labelled items."""
    items = items_of(rows, spec.good)[: spec.limit]
    return _check_enough(list(map(base.as_case, items)))


def _check_enough(cases: list[Case]) -> list[Case]:
    labelled = [item for item in map(item_of, cases) if item.labelled]
    require_enough(len(labelled), len({item.group for item in labelled}))
    if labelled[0].is_single and len({item.human for item in labelled}) == 1:
        raise InputError(SAME_LABEL)
    return cases


async def run(
    spec: FitSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[SignalVerdict]:
    cases = list(cases)
    names = names_of(spec, map(item_of, cases))
    model = bench.default_model
    judges = list(map(parse_judge, names))
    sources = {
        j.text: (model if j.with_model(model) != j else None, digest_judge(j)) for j in judges
    }
    async with aclosing(ask_judges(cases, judges, bench, orders=spec.orders)) as verdicts:
        async for verdict in verdicts:
            asked_model, content = sources[verdict.verdict.judge]
            yield SignalVerdict(verdict, asked_model, bench.today, content)


def find_row(record: SignalVerdict) -> Row:
    return base.find_row(record.found)


def summarise(spec: FitSpec, records: Iterable[SignalVerdict]) -> FittedSignals:
    items: dict[str, Item] = {}
    sources: dict[str, tuple[str | None, str]] = {}
    verdicts: list[Verdict] = []
    date = ""
    for record in records:
        verdict = record.found.verdict
        items.setdefault(verdict.item, record.found.item)
        sources[verdict.judge] = record.model, record.content
        verdicts.append(verdict)
        date = date or record.date

    labelled_items = tuple(items.values())
    signals = gather_signals(labelled_items, verdicts, names_of(spec, labelled_items))
    labelled = len(signals.items) + signals.left_out
    try:
        fit = fit_signals(
            signals, precision=spec.precision, confidence=spec.confidence, seed=spec.seed
        )
    except InputError as error:
        missing = [f"{name} is missing on {n}" for name, n in signals.missing.items() if n]
        return FittedSignals(labelled, reason="; ".join([str(error), *missing]))

    file = file_of(fit, sources, spec.orders, datetime.date.fromisoformat(date))

    return FittedSignals(labelled, fit, file)


def report(_spec: FitSpec, result: FittedSignals) -> Report:
    title = "A judge fitted to labels"
    if result.fit is None:
        return Report(title, f"No judge was fitted: {result.reason}.", [])
    return Report(title, fit_sentence(result.fit), draw_fit(result.fit), fit_facts(result.fit))


def data(spec: FitSpec, result: FittedSignals) -> Mapping[str, Any]:
    fit = result.fit
    return {
        "parameters": spec.model_dump(mode="json"),
        **base.list_source(spec),
        **read_fields(result, "labelled", "reason"),
        "guarantee": None if fit is None else describe_guarantee(fit),
        "fit": plain(fit),
        "judge": None if result.file is None else result.file.model_dump(mode="json"),
    }


def flatten(record: SignalVerdict) -> Iterator[Mapping[str, Any]]:
    for row in base.flatten(record.found):
        yield {**row, "model": record.model}


STUDY = Study(
    spec=FitSpec,
    cases=read_cases,
    take=take_labelled,
    asks=lambda spec: Asks(tuple(map(parse_judge, names_of(spec)))),
    run=run,
    row=find_row,
    decode=json_decoder(SignalVerdict),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    texts={ENDING: lambda _spec, result: result.file.text if result.file else ""},
    variants=lambda spec, _model: names_of(spec),
)
