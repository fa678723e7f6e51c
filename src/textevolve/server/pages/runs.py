"""Pages about runs: the list of runs, two runs compared, and one run with its live matrix of
results, its cases, its calls and its report.

All pages wait for the disk, so the functions of the paths are not async, and run in threads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from markupsafe import Markup
from pydantic import BaseModel, Field, model_validator

from textevolve.errors import (
    InputError,
    MismatchError,
    NotFoundError,
    TextEvolveError,
    public_message,
)
from textevolve.json_texts import is_object
from textevolve.llm.model import Request as ModelRequest
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Diff,
    Matrix,
    MatrixRow,
    Note,
    Report,
    Section,
    draw_cell_difference,
)
from textevolve.report.html import draw_blocks
from textevolve.runs.report import (
    MOST_SHOWN,
    RunComparison,
    compare_stored,
    data_of,
    describe_run,
    draw_results,
    find_history,
    fold_table,
    list_studies,
    make_page,
    only_best,
    read_figures,
    read_history,
    report_comparison,
    state_verdict,
)
from textevolve.runs.stored import (
    STANDING,
    StudyRun,
    name_entries,
    read_records,
    show_alone,
    show_rows,
)
from textevolve.runs.study import AnyStudy
from textevolve.server.guard import root_of
from textevolve.server.identity import Caller, MayRead
from textevolve.server.pages.drawing import Page, draw, draw_stream
from textevolve.server.state import Server, ServerState
from textevolve.server.studies.reading import find_seen, visible_to
from textevolve.store import records, served
from textevolve.store.journal import StoredCall
from textevolve.store.records import By, RecordFilter, RecordOrder, Standing, StoredRecord
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, read_spending
from textevolve.store.served import RunSearch

ROWS = 50
"""The number of rows on one page."""
AT_ONCE = 1000
"""The most records of a run whose results are part of the page itself; the results of larger runs
are loaded after the page."""
CALLS = 20
MOST_DIFFERENCES = 5
"""The most outputs of a case that are compared word by word with the first output."""
MOST_SEARCHED_CALLS = 20_000
MOST_NAMED_CASES = 2_000
"""The number of cases, from the first one, that the page of calls can name as the origin of a
call."""
LEAST_INPUT = 8
"""The fewest characters of an input by which the calls of its case are found; shorter inputs occur
in many prompts."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run that a page shows.

    Attributes:
        namespace: The namespace of a client's run; None for other runs.
        standing: The progress so far: the number of records by status, and the scores by variant.
        study: The code of this kind of study; None if the records cannot be read.
        spec: The specification of the study; None if the records cannot be read.
        variants: The names of the compared variants.
        reason: Why the records cannot be read; otherwise empty.
    """

    run: RunRecord
    namespace: str | None
    standing: Standing
    of_study: StudyRun | None = None
    variants: Sequence[str] = ()
    reason: str = ""

    @property
    def study(self) -> AnyStudy | None:
        return None if self.of_study is None else self.of_study.study

    @property
    def name(self) -> str:
        return self.run.name or self.run.id

    @property
    def by(self) -> By:
        """Return whether a row of the page is a "case" or a single record ("key")."""
        return "case" if len(self.variants) > 1 else "key"


def open_run(server: ServerState, caller: Caller, run_ref: str) -> OpenedRun:
    """Open a run for its page.

    Raises:
        NotFoundError: the caller sees no such run.
    """
    seen = find_seen(server, caller, run_ref)
    run = seen.run
    namespace = seen.served and seen.served.namespace
    standing = server.store.read(records.count_standing, [run.id])[run.id]

    try:
        of_study = StudyRun(run)
        names = of_study.study.variants(of_study.spec, of_study.stored.model)
    except (MismatchError, InputError, ValueError) as error:
        return OpenedRun(run, namespace, standing, reason=str(error))

    variants = tuple(dict.fromkeys([*names, *standing.variants]))

    return OpenedRun(run, namespace, standing, of_study, variants)


def read_results(store: Store, opened: OpenedRun, root: str) -> Report:
    """Read the results of a run so far: the verdict and the figures below it. If the records of its
    kind are cells of a matrix, and there are several, the results are computed from columns of the
    store, otherwise from a report. The results are empty if there are no readable records. `root`:
    the path below which a proxy publishes the server."""
    run = opened.of_study
    total = opened.standing.total
    if run is None or not total:
        return Report("", "", ())
    study = run.study
    spec = run.spec
    if study.rows is not None and total > 1:
        figures = read_figures(store, run.record)
        results = draw_results(store, run, figures, f"{root}/runs/{run.id}/cases/")
        blocks = list(map(fold_table, results))
        return Report("", state_verdict(spec, figures), blocks)

    load_records = read_records(store, run)

    try:
        report = study.report(spec, study.summarise(spec, load_records()))
        blocks = [block for block in report.blocks if not isinstance(block, Matrix)]
    except (TextEvolveError, ValueError) as error:
        return Report("", "", [Note(f"No results yet: {public_message(error)}", "dim")])

    return Report("", wording.shorten_models(report.sentence), blocks)


class FormQuery(BaseModel):
    """The query of an address that a form made: its empty fields are left out."""

    page: int = Field(1, ge=1, lt=2**62)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value != ""}

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude_defaults=True)


class RowsQuery(FormQuery):
    """The query in the address of a run's page: which rows it shows, and in which order."""

    show: Literal["", "failed", "passed", "not-passed"] = ""
    below: float | None = None
    variant: str = ""
    sort: RecordOrder = "position"

    @property
    def wanted(self) -> RecordFilter:
        statuses = ("failed", "skipped") if self.show == "failed" else ()
        passed = {"passed": True, "not-passed": False}.get(self.show)
        return RecordFilter(statuses, self.below, variant=self.variant or None, passed=passed)


class RunsQuery(FormQuery):
    """The query in the address of the list of runs.

    Attributes:
        q: A text in a run's id, name, source or specification.
        data: A text in the name of a run's data.
        since, until: The first and the last day on which a run began, of the server's time zone.
        minutes, cost: The least minutes that a run took, and the least US dollars.
    """

    kind: str = ""
    status: str = ""
    q: str = ""
    data: str = ""
    since: date | None = Field(None, ge=date(1970, 1, 2))
    until: date | None = Field(None, ge=date(1970, 1, 2), lt=date(9999, 12, 31))
    minutes: float = Field(0.0, ge=0, allow_inf_nan=False)
    cost: float = Field(0.0, ge=0, allow_inf_nan=False)

    @property
    def search(self) -> RunSearch:
        part = self.data.strip().lower()
        # The last day belongs to the period.
        until = _start_of(self.until + timedelta(days=1)) if self.until else math.inf

        return RunSearch(
            self.kind,
            self.status,
            self.q.strip(),
            STANDING,
            since=_start_of(self.since) if self.since else 0.0,
            until=until,
            seconds=60 * self.minutes,
            cost=self.cost,
            accepts=(lambda run: part in data_of(run).lower()) if part else None,
        )


def _start_of(day: date) -> float:
    """Return the Unix time at which a day begins, in the time zone of this machine."""
    return datetime.combine(day, time()).timestamp()


def _show(opened: OpenedRun, stored: Sequence[StoredRecord]) -> list[MatrixRow]:
    if opened.of_study is None or not stored:  # they went away between two queries
        return []
    return show_rows(opened.of_study, opened.variants, stored)


def _fill(row: MatrixRow, columns: int) -> MatrixRow:
    return replace(row, entries=(*row.entries, *(None,) * (columns - len(row.entries))))


def _details(row: MatrixRow, heads: Sequence[str]) -> list[Block]:
    """Draw the details of a row, how its outputs differ from the first, and the details of each
    output."""
    blocks = list(row.details)
    for number in range(1, min(len(row.entries), MOST_DIFFERENCES + 1)):
        difference = draw_cell_difference(row, heads, (0, number))
        if difference is not None:
            blocks.append(difference)

    for name, entry in zip(heads, row.entries, strict=False):
        if entry and entry.details:
            blocks.append(Section(name, entry.details))

    return blocks


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A model call in a list of calls.

    Attributes:
        request: The request of the call.
        case: The id of the case whose input the prompt contains; empty if unknown.
        words: The first words of that input, or of the last message.
    """

    call: StoredCall
    request: ModelRequest
    case: str
    words: str


def read_calls(store: Store, run_id: str, after: int, inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Read the next calls of a run, or of one case: the calls whose prompts contain its input. If
    the input is too short to be distinctive, no prompt contains it, or the run has more than
    `MOST_SEARCHED_CALLS` calls, all calls of the run are listed. `after`: the id of the last call
    of the previous page.

    Returns:
        The variables of the template: the `calls`, whether they are `of_case` alone, and the id of
        the last one, `last_call`, if there is a next page.
    """
    texts = [text.strip() for text in inputs]
    long = bool(texts) and all(len(text) >= LEAST_INPUT for text in texts)
    of_case = store.find_calls(run_id, texts[0], MOST_SEARCHED_CALLS) if long else None
    calls = [call for call in of_case or store.page_calls(run_id, after) if call.id > after]
    cases = islice(store.iterate_cases(run_id), MOST_NAMED_CASES)
    inputs_of = {case.id: _telling_text(case.input) for case in cases}
    shown_calls = [_show_call(call, store.read_request(call), inputs_of) for call in calls[:CALLS]]
    last_call = calls[CALLS - 1].id if len(calls) > CALLS else None

    return {"calls": shown_calls, "of_case": bool(of_case), "last_call": last_call}


def _telling_text(text: str) -> str:
    """Return the text by which a case's calls are found: for an object, its longest value."""
    try:
        values = json.loads(text)
    except ValueError:
        return text.strip()

    texts = map(str, values.values()) if is_object(values) else [text]

    return max(texts, key=len, default="").strip()


def _sent_text(row: MatrixRow) -> str:
    """Return a text of a row that its prompts contain: its input, or its longest column."""
    return row.input or max(row.columns.values(), key=len, default="")


def _show_call(call: StoredCall, request: ModelRequest, inputs: Mapping[str, str]) -> ShownCall:
    sent = "\n".join(message.text for message in request.messages)
    matching = [name for name, text in inputs.items() if len(text) >= LEAST_INPUT and text in sent]
    case = max(matching, key=lambda name: len(inputs[name]), default="")
    last = request.messages[-1].text if request.messages else ""
    return ShownCall(call, request, case, inputs[case] if case else last)


RUNS = 25
"""The number of runs on one page."""
STATES = ("running", "finished", "interrupted", "failed")
MATRIX_SCRIPT = Markup(
    '<script src="{0}/static/report/matrix_elements.js"></script>'
    '<script src="{0}/static/report/matrix.js"></script>'
)
"""The scripts of a matrix; `{0}` is the path below which a proxy publishes the server."""

router = APIRouter()
WholeNumber = Annotated[int, Query(ge=0, lt=2**62)]


def _open(server: Server, run_ref: str, caller: MayRead) -> OpenedRun:
    return open_run(server, caller, run_ref)


Opened = Annotated[OpenedRun, Depends(_open)]
PageRows = Annotated[RowsQuery, Query()]


@router.get("/")
async def go_to_runs() -> RedirectResponse:
    return RedirectResponse("/runs")


@router.get("/runs")
def show_runs(
    request: Request,
    server: Server,
    caller: MayRead,
    query: Annotated[RunsQuery, Query()],
) -> Response:
    sees = visible_to(server, caller)
    start = (query.page - 1) * RUNS
    matches = server.store.read(served.search_runs, sees, query.search, start, RUNS)
    return draw(
        request,
        "runs.html",
        listed=list_studies(server.store, matches.runs, sees),
        page=Page(request, query.page, RUNS, matches.total),
        kinds=matches.kinds,
        query=query,
        states=STATES,
        shown=urlencode({"run": [run.id for run in matches.runs]}, doseq=True),
        spending={},
        waiting=True,
    )


@router.get("/runs/spending")
def show_spending(
    request: Request,
    server: Server,
    caller: MayRead,
    run: Annotated[tuple[str, ...], Query(max_length=RUNS)],
) -> Response:
    """Return the time and the cost of runs, as a part that the list of runs loads later, since
    adding up all calls takes a while."""
    ids = [find_seen(server, caller, run_ref).run.id for run_ref in run]
    spending = server.store.read(read_spending, ids)
    return draw(request, "run_spending.html", ids=ids, spending=spending)


@router.get("/runs/{run_ref}/row")
def show_row(request: Request, server: Server, run_ref: str, caller: MayRead) -> Response:
    """Draw a run's row in the list of runs. The list requests it repeatedly while the run works."""
    seen = find_seen(server, caller, run_ref)
    # The change since the previous run is drawn with the whole list.
    (row,) = list_studies(server.store, [seen.run], lambda _served: False)
    spending = server.store.read(read_spending, [seen.run.id])
    return draw(request, "run_row.html", one=row, spending=spending, waiting=False)


@router.get("/compare")
def show_comparison(
    request: Request,
    server: Server,
    caller: MayRead,
    run: Annotated[tuple[str, ...], Query()] = (),
    a: str = "",
    b: str = "",
) -> Response:
    """Compare the runs `a` and `b`. The form of the list sends them as two values of `run` instead,
    the newer one, `b`, first."""
    if run and len(run) != 2:
        raise InputError(f"choose two runs to compare; {len(run)} are chosen")
    if run:
        return RedirectResponse(f"/compare?{urlencode({'a': run[1], 'b': run[0]})}")
    if not a or not b:
        raise InputError("name two runs in the address: /compare?a=RUN&b=RUN")
    opened = [open_run(server, caller, run_ref) for run_ref in (a, b)]
    reason = next((side.reason for side in opened if side.study is None), "")
    report = None
    cases: Sequence[PairedCase] = ()
    try:
        if not reason:
            comparison = compare_stored(server.store, opened[0].run, opened[1].run)
            # The cases are drawn with their texts.
            report = report_comparison(comparison, [side.run for side in opened], most=0)
            cases = _pair_cases(server.store, opened, comparison)
    except InputError as error:
        reason = str(error)

    specs = [
        json.dumps(side.run.spec.get("spec", {}), indent=1, ensure_ascii=False) for side in opened
    ]
    differing = [Diff("What differs in the specification", *specs)] if specs[0] != specs[1] else []

    return draw(
        request,
        "compare.html",
        runs=opened,
        made=report,
        cases=cases,
        why=reason,
        differing=differing,
    )


@dataclass(frozen=True, slots=True)
class PairedCase:
    """A case that two runs scored differently.

    Attributes:
        row: The case with its entry in each run; its title names the variant, if there are several.
        numbers: The place of the case in each run, from 1.
    """

    row: MatrixRow
    numbers: Sequence[int]


def _pair_cases(
    store: Store, runs: Sequence[OpenedRun], comparison: RunComparison
) -> list[PairedCase]:
    """Read the texts of the cases on which two runs differ most."""
    pairs: list[PairedCase] = []
    for difference in comparison.differing[:MOST_SHOWN]:
        variant = difference.variant or None
        chosen = RecordFilter(("scored",), case=difference.case, variant=variant)
        rows: list[MatrixRow] = []
        numbers: list[int] = []

        for opened in runs:
            stored_records = store.read_records(opened.run.id, chosen, limit=1)
            numbers += [record.position + 1 for record in stored_records]
            rows += _show(opened, stored_records)[:1]

        if len(rows) == len(numbers) == len(runs):
            title = ", ".join(filter(None, (rows[1].name, difference.variant)))
            entries = [only_best(row).entries[0] for row in rows]
            pairs.append(PairedCase(replace(rows[1], entries=entries, title=title), numbers))

    return pairs


@router.get("/runs/{run_ref}")
def show_run(
    request: Request, server: Server, run_ref: str, opened: Opened, query: PageRows
) -> Response:
    """Show the run with its first rows, or with the rows that the address selects."""
    if opened.run.id != run_ref:
        return RedirectResponse(f"/runs/{opened.run.id}")
    return _draw_rows(request, server, "run.html", opened, query)


@router.get("/runs/{run_ref}/rows")
def show_matrix(request: Request, server: Server, opened: Opened, query: PageRows) -> Response:
    """Show the rows alone. A run's page requests them when there are new records."""
    return _draw_rows(request, server, "run_rows.html", opened, query)


def _draw_rows(
    request: Request, server: ServerState, template: str, opened: OpenedRun, query: RowsQuery
) -> Response:
    store = server.store
    run_id = opened.run.id
    selection = query.wanted
    total = store.read(records.count_rows, run_id, selection, opened.by)
    page = Page(request, query.page, ROWS, total)
    keys = store.read(records.find_rows, run_id, selection, opened.by, query.sort, page.start, ROWS)
    groups = store.read(records.read_rows, run_id, opened.by, keys).values()
    rows = [(group[0].position + 1, row) for group in groups for row in _show(opened, group)]
    heads = name_entries([row for _, row in rows], opened.variants)
    rows = [(number, _fill(row, len(heads))) for number, row in rows]
    results = None
    if template == "run.html" and 0 < opened.standing.total <= AT_ONCE:
        results = read_results(store, opened, root_of(request.scope))

    return draw(
        request,
        template,
        opened=opened,
        results=results,
        query=query,
        heads=heads,
        rows=rows,
        page=page,
        address=urlencode(query.fields),
    )


@router.get("/runs/{run_ref}/standing")
def show_standing(request: Request, opened: Opened, revision: str = "") -> Response:
    """Draw the progress of a run. `revision`: the latest change of the records that the page shows;
    if there are newer records, the page is asked to reload its rows."""
    response = draw(request, "run_standing.html", opened=opened)
    if str(opened.standing.revision) != revision:
        response.headers["HX-Trigger"] = "te-records"
    return response


@router.get("/runs/{run_ref}/results")
def show_results(request: Request, server: Server, opened: Opened) -> Response:
    """Draw the verdict and the figures below it. The page requests them if they take a while, and
    when new records arrive."""
    results = read_results(server.store, opened, root_of(request.scope))
    return draw(request, "run_results.html", results=results)


@router.get("/runs/{run_ref}/history")
def show_history(request: Request, server: Server, opened: Opened, caller: MayRead) -> Response:
    """Show the main figure of all visible runs of the same study."""
    runs = find_history(server.store, opened.run, visible_to(server, caller))
    plot = read_history(server.store, runs, opened.standing.scores, root_of(request.scope))
    return draw(request, "run_history.html", plot=plot)


@router.get("/runs/{run_ref}/totals")
def show_totals(request: Request, server: Server, opened: Opened) -> Response:
    """Show models, settings and cost; sums over all calls take a while if there are many."""
    facts: dict[str, str] = {}
    if opened.of_study is not None:
        facts = describe_run(server.store, opened.of_study)
    return draw(request, "run_totals.html", facts_of_run=facts)


@router.get("/runs/{run_ref}/cases/{number}")
def show_case(
    request: Request, server: Server, number: int, opened: Opened, after: WholeNumber = 0
) -> Response:
    """Show one case with all details. `number`: its place in the run, from 1.

    Raises:
        NotFoundError: the case has no record. StoreError: a record cannot be read.
    """
    store = server.store
    run = opened.run
    stored_records = store.read(records.read_place, run.id, number - 1, opened.by)
    if not stored_records or opened.of_study is None:
        reason = opened.reason or f"run {run.id} has no record of case {number}, or none yet"
        raise NotFoundError(reason)

    places = [entry.position for entry in stored_records]
    neighbours = store.read(records.find_neighbours, run.id, min(places), max(places))
    groups = [stored_records] if opened.by == "case" else [[entry] for entry in stored_records]
    rows = [row for group in groups for row in _show(opened, group)]
    heads = name_entries(rows, opened.variants)

    # Some studies have a drawing of their own for one case.
    blocks = show_alone(opened.of_study, stored_records)
    details = [blocks] if blocks else [_details(row, heads) for row in rows]

    return draw(
        request,
        "case.html",
        opened=opened,
        number=number,
        neighbours=[None if place is None else place + 1 for place in neighbours],
        records=stored_records,
        rows=rows,
        heads=heads,
        details=details,
        **read_calls(store, run.id, after, list(map(_sent_text, rows))),
    )


@router.get("/runs/{run_ref}/calls")
def show_calls(
    request: Request, server: Server, opened: Opened, after: WholeNumber = 0
) -> Response:
    """Show the calls of the run page by page, each with its request and its answer."""
    calls = read_calls(server.store, opened.run.id, after)
    return draw(request, "calls.html", opened=opened, **calls)


@router.get("/runs/{run_ref}/report")
def show_report(request: Request, server: Server, opened: Opened) -> Response:
    """Show the report of the run, sent block by block."""
    if opened.study is None:
        raise NotFoundError(opened.reason)
    pieces = _report(server.store, opened, root_of(request.scope))
    page = draw_stream(request, "report.html", opened=opened, pieces=pieces)
    return StreamingResponse(page, media_type="text/html; charset=utf-8")


@router.get("/runs/{run_name:path}")
def show_run_of_name(server: Server, caller: MayRead, run_name: str) -> Response:
    """Lead to the page of a run whose name has slashes."""
    if not run_name:
        return RedirectResponse("/runs")
    return RedirectResponse(f"/runs/{find_seen(server, caller, run_name).run.id}")


def _report(store: Store, opened: OpenedRun, root: str) -> Iterator[Markup]:
    """Draw the report. If an error occurs after the page has begun, its message is the last
    block."""
    run = opened.of_study
    assert run is not None
    try:
        report = make_page(store, run, read_records(store, run))
        yield Markup('<p class="sentence">{}</p>\n').format(report.sentence)
        yield from draw_blocks(report.blocks, script=MATRIX_SCRIPT.format(root))
    except (TextEvolveError, ValueError) as error:
        yield Markup('<p class="error">{}</p>\n').format(
            f"The report cannot be made: {public_message(error)}"
        )
