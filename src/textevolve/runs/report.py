"""The results at the beginning of every report and page of a run: the verdict in a sentence, the
variants with their intervals, the rows to look at first, and two outputs that differ most.

Figures come from the columns of the records in the store. The records' bodies are read only for the
few that are shown, so that a run of any size opens at once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import PurePath
from typing import IO, Any, cast

from textevolve.bench.variants import describe_differences
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.json_texts import as_object, is_mapping, is_sequence
from textevolve.ledger import BEGINNING
from textevolve.mappings import drop_empty, omit
from textevolve.reach import is_confined
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Column,
    Estimate,
    Matrix,
    MatrixRow,
    Note,
    Plot,
    Report,
    Section,
    Table,
    Tree,
    draw_cell_difference,
    draw_first,
    main_score,
)
from textevolve.report.html import html_fragment, write_html
from textevolve.report.markdown import write_markdown
from textevolve.rows.formats import WRITERS, choose_writer, write_rows
from textevolve.rows.writing import plain
from textevolve.runs.aggregates import (
    Aggregates,
    aggregate,
    aggregates_data,
    collect_figures,
    compare_figures,
    describe_judges,
    describe_variants,
    draw_aggregates,
    draw_histogram,
    join_clusters,
)
from textevolve.runs.gates import UNGATED, Gated, draw_gates
from textevolve.runs.identity import require_same_cases, require_same_ruler
from textevolve.runs.stored import Records, StudyRun, name_entries, show_rows
from textevolve.runs.study import KINDS, AnyStudy, Row, StudySpec, find_study
from textevolve.statistics.comparisons import PairedDifference, compare_pairs
from textevolve.store import records, served
from textevolve.store.records import RecordFilter, Standing, StoredRecord, VariantScore
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.store.served import Sees

PASS_THRESHOLD = "pass_threshold"
"""The field of a stored run with the threshold of the last command that ended it, by which lists of
runs count what passes. It is no part of a specification: another threshold is no other run."""
FIRST = 5
"""The number of shown records without a score, and of those with the lowest scores."""


def read_figures(store: Store, run: RunRecord) -> dict[str, Aggregates]:
    """Aggregate the records of a run by variant. Their own verdicts count, unless the last command
    that ended the run set a threshold."""
    return aggregate(store.read(records.read_columns, run.id), run.spec.get(PASS_THRESHOLD))


def judge_anew(study: AnyStudy, records: Records, threshold: float) -> Records:
    """Return the records with the verdicts that the threshold of a command gives them, so that the
    headline, rows, tables and gates say the same."""
    change = study.at_threshold
    if change is None:
        return records
    return lambda: (change(record, threshold) for record in records())


def state_verdict(spec: StudySpec, figures: Mapping[str, Aggregates]) -> str:
    """Describe the result in a sentence: which variant is best and by how much, or the pass
    rate."""
    if spec.variants_are_judges and len(figures) > 1:
        return describe_judges(figures)
    baseline = baseline_name(spec, figures)
    differences = compare_figures(figures, baseline, getattr(spec, "seed", 0))
    return wording.shorten_models(describe_variants(figures, differences, baseline))


def baseline_name(spec: StudySpec, variants: Mapping[str, object]) -> str:
    """Return the variant that the others are compared with: the one that the specification names,
    or else the first."""
    return getattr(spec, "baseline", None) or next(iter(variants), "")


def find_threshold(run: StudyRun) -> float | None:
    """Return the score from which records pass: that of the specification, of the debate, or of the
    judge that decides; None if a metric decides, or if the judge's file is missing."""
    spec = run.spec
    threshold = getattr(spec, "threshold", None)
    profile = getattr(spec, "profile", None)
    if isinstance(threshold, tuple):  # a limit of a number in a node's state each
        return None
    if threshold is not None:
        return threshold
    if isinstance(profile, Profile):
        return profile.threshold
    try:
        judges = run.asks.judges
        by_metric = getattr(spec, "metric", None) or getattr(spec, "score_by", None)
        thresholds = {judge.threshold for judge in judges}
        return thresholds.pop() if len(thresholds) == 1 and not by_metric else None
    except InputError:
        return None


def draw_results(
    store: Store,
    run: StudyRun,
    figures: Mapping[str, Aggregates],
    place: str = "",
) -> list[Block]:
    """Return the variants with their intervals, the records to look at first, and the outputs of
    the case on which the baseline and the best other variant differ most. There is nothing to draw
    for a single record. `place`: the address of the pages of cases, to which links append a case's
    number; if it is empty, links lead to rows of the matrix in the same report."""
    are_judges = run.spec.variants_are_judges
    blocks = draw_aggregates(figures, find_threshold(run), are_judges=are_judges)
    if not blocks:
        return []
    blocks += draw_histogram(figures)
    variants = tuple(filter(None, figures))
    has_cells = run.study.rows is not None
    rows: list[MatrixRow] = []
    links: list[str] = []
    for record in _find_first(store, run.id):
        matrix_rows = show_rows(run, variants, [record])
        rows += matrix_rows if variants else [only_best(row) for row in matrix_rows]
        links += [str(record.position + 1) if place else row.id * has_cells for row in matrix_rows]

    if rows:
        heads = name_entries(rows, variants)
        blocks.append(draw_first(rows, heads, links, place or "#row-"))
    if has_cells and len(variants) > 1 and not are_judges:
        blocks += _draw_difference(store, run, figures)

    return blocks


def _find_first(store: Store, run_id: str) -> Iterable[StoredRecord]:
    """Return the records to look at first: at most five that failed, then at most five with the
    lowest scores below 1."""
    failed = RecordFilter(statuses=("failed",))
    first_records = store.read_records(run_id, failed, limit=FIRST)
    first_records += store.read_records(run_id, RecordFilter(below=1.0), "score", limit=FIRST)
    return {record.key: record for record in first_records}.values()


def only_best(row: MatrixRow) -> MatrixRow:
    """Return the row with its best entry alone, whose score is the record's score."""
    entries = row.present
    return replace(row, entries=[max(entries, key=lambda entry: main_score(entry) or 0.0)])


def _draw_difference(
    store: Store, run: StudyRun, figures: Mapping[str, Aggregates]
) -> Sequence[Block]:
    base = baseline_name(run.spec, figures)
    means = {name: aggregates.mean.value for name, aggregates in figures.items() if name != base}
    best = max(means, key=lambda name: means[name] or 0.0)
    if base not in figures:
        return []

    # The case with the largest gap says most about where two variants differ.
    before = figures[base].case_means()
    after = figures[best].case_means()
    gaps = {case: abs(after[case] - before[case]) for case in before if case in after}
    case = max(gaps, key=lambda name: gaps[name], default=None)
    if case is None:
        return []

    variants: Sequence[str] = tuple(figures)
    stored_records = store.read_records(run.id, RecordFilter(case=case))
    pair = variants.index(base), variants.index(best)
    for row in show_rows(run, variants, stored_records):
        block = draw_cell_difference(row, variants, pair)
        if block is not None:
            return [block]

    return []


# The list of runs: each with its data set, its subject (what was measured), its main figure, and
# the change since the previous run of the same study.
#
# Runs belong to the same study if their kind, data set and judges are the same; prompts, models
# and rows may have changed.

ROWS_FROM = ("data", "cases", "items", "labelled", "documents", "trace", "source")
"""The fields of specifications that name files of rows."""
# The fields of specifications that name what a run measures.
SUBJECTS = (
    "prompts",
    "outputs",
    "targets",
    "models",
    "system",
    "agent",
    "program",
    "template",
    "quants",
)
# The fields of specifications that name metrics and judges.
JUDGES = ("metric", "judge", "judges", "profile")
SHOWN = 60
HISTORY = 12
"""The number of runs in the history of a study."""
STUDY_PAGE = 200
"""The number of runs that are searched at once for the previous run of a study."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run with its main figures, for a list.

    Attributes:
        standing: The counts and mean scores of its records so far.
        data: The names of its files of rows.
        subject: The measured prompts, models or agents, and the judges.
        result: The pass rate of the best variant, or its mean score if records have no verdicts; of
            several judges the figure of each, or of the one that decides.
        results: The same figure of each variant.
        change: The change of the best variant's figure since the earlier run.
        earlier: The id of the previous finished run of the same study; empty if there is none.
        tags: The labels that users gave the run.
    """

    run: RunRecord
    standing: Standing
    data: str
    subject: str
    result: str
    results: str
    change: str
    earlier: str
    tags: Sequence[str]


def list_studies(
    store: Store, shown_runs: Sequence[RunRecord], sees: Sees | None = None
) -> list[ListedRun]:
    """Describe the shown runs, each compared with the previous finished run of its study. `sees`:
    returns whether the run of a server's row is visible; None: all runs are."""
    earlier = _find_earlier(store, shown_runs, sees)
    ids = {run.id for run in (*shown_runs, *earlier.values())}
    standings = store.read(records.count_standing, sorted(ids))

    return [_describe(run, earlier.get(run.id), standings) for run in shown_runs]


def _find_earlier(
    store: Store, shown_runs: Sequence[RunRecord], sees: Sees | None
) -> dict[str, RunRecord]:
    """Return the previous finished run of the study of each run, by the id of the latter. Runs are
    read from the newest on, only until all are found."""
    keys = {run.id: key for run in shown_runs if (key := study_key(run))}
    waiting = {run.id: run for run in shown_runs if run.id in keys}
    earlier: dict[str, RunRecord] = {}

    for run in _read_study(store, tuple(waiting.values()), sees):
        key = study_key(run)
        for later in [*waiting.values()]:
            if keys[later.id] == key and run.created < later.created:
                earlier[later.id] = run
                del waiting[later.id]
        if not waiting:
            break

    return earlier


def _read_study(
    store: Store, of_runs: Sequence[RunRecord], sees: Sees | None
) -> Iterator[RunRecord]:
    """Yield the finished runs with the data of some of these runs, the newest first."""
    names = {name for run in of_runs for name in data_names(run)[:1]}
    ids = store.read(served.finished_ids, sees) if names else []
    for start in range(0, len(ids), STUDY_PAGE):
        yield from store.read(served.read_mentioning, ids[start : start + STUDY_PAGE], names)


def _describe(
    run: RunRecord, earlier: RunRecord | None, standings: Mapping[str, Standing]
) -> ListedRun:
    standing = standings[run.id]
    tags = cast(Sequence[str], run.spec.get("tags", ()))
    scores = {name: score for name, score in standing.scores.items() if score.mean is not None}
    best = max(scores, key=lambda name: _key(scores[name]), default="")
    are_judges = len(scores) > 1 and _has_judges_as_variants(run)
    if are_judges:  # none of them is better for a higher score
        decisive = _spec(run).get("score_by")
        best = decisive if decisive in scores else ""
    figures = {
        name: f"{wording.shorten(wording.shorten_models(name).partition(' at ')[0], 20)}"
        f" {_format_figure(score)}".lstrip()
        for name, score in scores.items()
    }
    change = ""
    if best in scores and earlier and (before := standings[earlier.id].scores.get(best)):
        change = _format_change(scores[best], before)
    data = wording.shorten(PurePath(data_of(run)).name or data_of(run), SHOWN)
    subject = wording.shorten(wording.shorten_models(subject_of(run)), SHOWN)
    results = "; ".join(figures.values())
    result = figures.get(best, results if are_judges else "")
    before_id = earlier.id if earlier else ""

    return ListedRun(run, standing, data, subject, result, results, change, before_id, tags)


def _has_judges_as_variants(run: RunRecord) -> bool:
    kind = str(run.spec.get("kind"))
    return kind in KINDS and find_study(kind).spec.variants_are_judges


def _key(score: VariantScore) -> tuple[float, float]:
    return (-1.0 if score.passed is None else score.passed, score.mean or 0.0)


def _format_figure(score: VariantScore) -> str:
    if score.passed is not None:
        return wording.percent(score.passed, 1)
    return f"mean {wording.number(score.mean, 3)}"


def _format_change(now: VariantScore, before: VariantScore) -> str:
    if now.passed is not None and before.passed is not None:
        return f"{100 * (now.passed - before.passed):+.1f} points"
    if now.passed is None and before.mean is not None and now.mean is not None:
        return f"{now.mean - before.mean:+.3f}"
    return ""


def find_history(store: Store, run: RunRecord, sees: Sees | None = None) -> list[RunRecord]:
    """Return the newest finished runs of the study of this run, which may be one of them, at most
    `HISTORY`; none for a run without a data set. `sees`: as in `list_studies`."""
    key = study_key(run)
    same = (other for other in _read_study(store, [run], sees) if key and study_key(other) == key)
    return list(islice(same, HISTORY))


def read_history(
    store: Store, runs: Sequence[RunRecord], variants: Iterable[str], root: str
) -> Plot:
    """Return a plot of the pass rate of each variant, or of its mean score if records have no
    verdicts, over at most the newest 12 of these runs (`HISTORY`), oldest first. `runs`: newest
    first. `root`: the address of the pages, to which marks lead."""
    figures = {run.id: read_figures(store, run) for run in runs[:HISTORY][::-1]}
    judged = all(
        aggregates.verdicts
        for by_variant in figures.values()
        for aggregates in by_variant.values()
        if aggregates.scored
    )
    lines: dict[str, Sequence[Estimate]] = {}
    for name in variants:
        aggregates = [by_variant.get(name, Aggregates()) for by_variant in figures.values()]
        line = [each.pass_rate if judged else each.mean for each in aggregates]
        lines[wording.shorten_models(name)] = line

    figure = "Pass rate" if judged else "Mean score"
    title = f"{figure} in the last {len(figures)} runs of this study"
    links = [f"{root}/runs/{run}" for run in figures]
    column = Column("", "percent" if judged else "number")

    return Plot(title, "", list(figures), lines, column, links=links)


def study_key(run: RunRecord) -> tuple[str, ...]:
    """Return the key that all runs of a study share; empty for a run without a data set."""
    spec = _spec(run)
    profile = omit(as_object(spec.get("profile")), ["seed"])
    judges = [str(spec.get(name)) for name in (*JUDGES[:-1], "score_by", "threshold", "rubric")]
    judges += [str(profile), str(run.spec.get("judges")), str(run.spec.get("code"))]
    return (str(run.spec.get("kind")), data, *judges) if (data := data_of(run)) else ()


def data_of(run: RunRecord) -> str:
    """Describe the data of a run: the names of its files of rows, or the input of a run with a
    single case; empty if there is neither."""
    return ", ".join(data_names(run))


def data_names(run: RunRecord) -> Sequence[str]:
    """Return the names of the files of rows of a run, or the input of its single case."""
    for name in ROWS_FROM:
        if names := field_names(_spec(run).get(name)):
            return names if name != "cases" else names[:1]
    return ()


def subject_of(run: RunRecord) -> str:
    spec = _spec(run)
    names = {name: ", ".join(field_names(spec.get(name))) for name in (*SUBJECTS, *JUDGES)}
    if profile := as_object(spec.get("profile")):
        names["profile"] = _name_judge(profile)
    subject = next((names[name] for name in SUBJECTS if names[name]), "")
    judges = ", ".join(names[name] for name in JUDGES if names[name])
    return " by ".join(filter(None, (subject, judges)))


def _name_judge(profile: Mapping[str, Any]) -> str:
    """Return the name of the judge that has this profile of a debate: agents that do not hear each
    other are a jury, and one agent alone is a single judge."""
    name = str(profile.get("name"))
    protocol = profile.get("protocol")
    if protocol == "escalation":
        return f"escalation:{name}"
    if protocol != "independent":
        return f"debate:{name}"
    return f"jury:{name}" if len(profile.get("agents", ())) > 1 else f"single:{name}"


def _spec(run: RunRecord) -> Mapping[str, Any]:
    return as_object(run.spec.get("spec"))


def field_names(value: Any) -> list[str]:
    """Return the names in a field's value: the text itself, its `name`, or those of its members if
    it is a list."""
    if is_mapping(value):
        return field_names(value.get("name") or value.get("target"))
    if is_sequence(value):
        return [name for member in value for name in field_names(member)]
    return [value] if isinstance(value, str) and value else []


# Reports on stored runs: for readers, as data for programs, and as output files.
#
# `driver.py` makes and stores the records.


@dataclass
class _CountedRecords:
    """An iterable of records that reads them anew in each iteration, so that they are never in
    memory all at once. After an iteration `number` is their number, and `sums` are their aggregates
    by variant."""

    study: AnyStudy
    records: Records
    threshold: float | None
    number: int = 0
    sums: dict[str, Aggregates] = empty_default(dict)

    def __iter__(self) -> Iterator[Any]:
        sums = defaultdict[str, Aggregates](lambda: Aggregates(self.threshold))
        for number, record in enumerate(self.records(), 1):
            row = self.study.row(record)
            sums[row.variant].add(row)
            self.number = number
            yield record

        self.sums = {variant: figures for variant, figures in sums.items() if figures.records}


@dataclass(frozen=True)
class _ReportParts:
    """The report of a study, with what every report of a run has besides: the outcomes of gates,
    the results, and the facts of the run."""

    report: Report
    gates: Sequence[Block]
    results: Sequence[Block]
    facts: Mapping[str, str]


def _collect_parts(store: Store, run: StudyRun, records: Records, gated: Gated) -> _ReportParts:
    study = run.study
    counted = _CountedRecords(study, records, gated.gates.pass_threshold)
    study_report = study.report(run.spec, study.summarise(run.spec, counted))
    results: list[Block] = []
    if study.aggregates or study.rows is not None:
        results = draw_results(store, run, counted.sums)
    facts = drop_empty({**study_report.facts, **describe_run(store, run)})
    sentence = wording.shorten_models(study_report.sentence)

    return _ReportParts(
        replace(study_report, sentence=sentence, facts={}),
        draw_gates(gated.outcomes),
        results,
        facts,
    )


def make_report(store: Store, run: StudyRun, records: Records, gated: Gated = UNGATED) -> Report:
    """Return the report of a run for a terminal or a text file: the verdict in a sentence, gates,
    results, the study's own blocks, and the facts of the run. The facts precede the matrix, which
    may be long."""
    parts = _collect_parts(store, run, records, gated)
    about = [Section("About this run", (), parts.facts)] if parts.facts else []

    def order() -> Iterator[Block]:
        yield from (*parts.gates, *parts.results)
        waiting = about
        for block in parts.report.blocks:
            if isinstance(block, Matrix):
                yield from waiting
                waiting = []
            yield block
        yield from waiting

    return replace(parts.report, blocks=order())


def make_page(store: Store, run: StudyRun, records: Records, gated: Gated = UNGATED) -> Report:
    """Return the report of a run for a page: the verdict, gates, the matrix, or a tree with which
    the study begins, plots, then the tables of figures, folded, and the facts of the run. Another
    report has the order of `make_report`."""
    parts = _collect_parts(store, run, records, gated)
    blocks = list(parts.report.blocks)
    about = [Section("About this run", (), parts.facts)] if parts.facts else []
    matrices = [block for block in blocks if isinstance(block, Matrix)]
    matrices = matrices or [block for block in blocks[:1] if isinstance(block, Tree)]
    if not matrices:
        return replace(parts.report, blocks=[*parts.gates, *parts.results, *blocks, *about])

    figures = [block for block in (*parts.results, *blocks) if block not in matrices]
    figures.sort(key=lambda block: not isinstance(block, Plot))

    return replace(
        parts.report, blocks=[*parts.gates, *matrices, *map(fold_table, figures), *about]
    )


def draw_plots(run: StudyRun, records: Records) -> str:
    """Return the plots of a run alone as an HTML fragment: scores, curves, waterfalls of nodes."""
    counted = _CountedRecords(run.study, records, None)
    study_report = run.study.report(run.spec, run.study.summarise(run.spec, counted))
    blocks = [*study_report.blocks, *draw_histogram(counted.sums)]
    plots = [block for block in blocks if isinstance(block, Plot | Tree)]
    nothing = Note("Nothing to plot: a histogram needs ten records with scores that differ.")

    return html_fragment(replace(study_report, blocks=plots or [nothing], facts={}))


def fold_table(block: Block) -> Block:
    """Return a table with a title as a folded one; other blocks stay as they are."""
    if not isinstance(block, Table) or not block.title:
        return block
    return replace(block, folded=True)


def describe_run(store: Store, run: StudyRun) -> dict[str, str]:
    """Return facts about a run: its models, settings, cost and store. Some may be empty."""
    stored = run.stored
    totals = store.run_totals(run.id)
    spent = replace(totals.spent, **stored.answers)
    reused = totals.reused.calls
    main_model = stored.model
    models = [f"{main_model} ({stored.why})" if stored.why else main_model]
    with suppress(InputError):  # a judge's file is missing
        same = (main_model, main_model.partition("/")[0])
        models += [model for model in run.models if model not in same]

    return {
        "Model": wording.shorten_models(", ".join(filter(None, models))),
        "Other models": wording.shorten_models(wording.other_models(spent)),
        "Settings": wording.shorten_models(_describe_settings(run.spec)),
        "Left out": "; ".join(line.removeprefix(BEGINNING) for line in stored.left_out),
        "Spent": wording.spent(spent),
        "Cut prompts": wording.cut_prompts(spent),
        "Costs": "; ".join(stored.prices),
        "Reused answers": f"{reused:,}" if reused else "",
        "Run": run.id if is_confined() else f"{run.id} in {store.place}",
    }


def _describe_settings(spec: StudySpec) -> str:
    """Describe the options that differ from their defaults, except models, which are separate
    facts."""
    options = spec.model_dump(mode="json", exclude_defaults=True, exclude={"model", "models"})
    parts: list[str] = []
    for name, value in options.items():
        text = str(value) if isinstance(value, int | float) else ", ".join(field_names(value))
        if text:
            parts.append(f"{name.replace('_', ' ')} {wording.shorten(text, 80)}")

    return "; ".join(parts)


def make_data(run: StudyRun, records: Records, gated: Gated = UNGATED) -> dict[str, Any]:
    """Return the report as JSON-ready data for programs."""
    study = run.study
    stored = run.stored
    counted = _CountedRecords(study, records, gated.gates.pass_threshold)
    data = study.data(run.spec, study.summarise(run.spec, counted))
    content = {"kind": stored.kind, "run": run.id, "model": stored.model, **data}
    content |= {"costs": "; ".join(stored.prices)} if stored.prices else {}
    content |= {"answers": dict(stored.answers)} if stored.answers else {}
    content |= {"left_out": list(stored.left_out)} if stored.left_out else {}
    sums = aggregates_data(counted.sums) if study.aggregates else {}
    content["aggregates"] = dict(
        collect_figures(plain({"records": counted.number, **sums, **data}))
    )

    return content | ({"gates": gated.outcomes} if gated.outcomes else {})


ROWS = (".jsonl", ".csv", ".parquet")
WHOLE = (".json", ".html", ".md")
"""The endings of output formats: those in `ROWS` are written row by row, those in `WHOLE` as one
document."""


def check_format(ending: str) -> None:
    """Raise SettingsError if the package that writes a format is missing."""
    if ending in WRITERS:
        choose_writer(ending)


def write_output(
    store: Store,
    run: StudyRun,
    records: Records,
    ending: str,
    target: IO[bytes],
    *,
    gated: Gated = UNGATED,
) -> None:
    """Write the result in the format of an ending, one of `ROWS` and `WHOLE`."""
    if ending in ROWS:
        write_records(run.study, records, target, ending)
    elif ending == ".html":
        write_html(make_page(store, run, records, gated), target)
    elif ending == ".md":
        write_markdown(make_report(store, run, records, gated), target)
    else:
        target.write(json_line(make_data(run, records, gated)))


def write_records(study: AnyStudy, records: Records, target: IO[bytes], ending: str) -> None:
    """Write the records as lines of JSON, or as the rows of a table."""
    if ending == ".jsonl" and study.line is not None:
        for record in records():
            target.write((study.line(record) + "\n").encode())
    else:
        write_rows(lambda: study.table(records()), target, ending)


def json_line(data: Any) -> bytes:
    """Return data as one line of JSON in UTF-8; a missing figure is null."""
    text = json.dumps(plain(data), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


# The comparison of two runs of the same kind over the same cases, by the scores of their records.

MOST_SHOWN = 20
"""The number of cases with the largest differences that the report shows."""


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """The scores of a case in the first run and in the second; `variant` is empty if each run has
    only one."""

    case: str
    variant: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The difference between two runs.

    Attributes:
        scores: For each variant, the second run's scores compared with the first run's, over the
            cases that both scored. Mind the order: `PairedDifference.first` is the second run. The
            variant is named "" if each run has only one.
        cases: The two scores of each case by variant, the first run's first.
        left_out: The number of scores that only one of the runs has.
    """

    scores: Mapping[str, PairedDifference]
    cases: Mapping[str, Mapping[str, tuple[float, float]]]
    left_out: int

    @property
    def differing(self) -> list[CaseDifference]:
        """Return the cases with unlike scores, the largest difference first."""
        differences = [
            CaseDifference(case, variant, before, after)
            for variant, cases in self.cases.items()
            for case, (before, after) in cases.items()
            if before != after
        ]
        return sorted(differences, key=lambda each: -abs(each.after - each.before))

    @property
    def data(self) -> dict[str, Any]:
        """The comparison as JSON-ready data, in which `first` and `second` are the first and second
        run."""
        scores = {
            variant: {
                **paired.data,
                "first": paired.second,
                "second": paired.first,
            }
            for variant, paired in self.scores.items()
        }
        if list(scores) == [""]:
            return {"scores": scores[""], "cases": self.cases[""], "left_out": self.left_out}

        return {"variants": scores, "cases": self.cases, "left_out": self.left_out}


def compare_runs(
    before_rows: Iterable[Row | StoredRecord], after_rows: Iterable[Row | StoredRecord]
) -> RunComparison:
    """Compare the variants of the same name in two runs, or the only variant of each. If a run has
    several records of a case and variant, their mean is compared.

    Raises:
        InputError: the runs share no case of a variant that both scored.
    """
    sums = [aggregate(rows) for rows in (before_rows, after_rows)]
    clusters = join_clusters(chain.from_iterable(by_variant.values() for by_variant in sums))
    runs: list[dict[str, Mapping[str, float]]] = []
    for by_variant in sums:
        means = {variant: figures.case_means() for variant, figures in by_variant.items()}
        runs.append(drop_empty(means))

    # The only variants of two runs are compared whatever their names.
    several = any(len(variants) > 1 for variants in runs)
    before, after = (
        {
            (variant if several else "", case): mean
            for variant, means in variants.items()
            for case, mean in means.items()
        }
        for variants in runs
    )
    shared: dict[str, dict[str, tuple[float, float]]] = {}
    for (variant, case), mean in before.items():
        if (variant, case) in after:
            shared.setdefault(variant, {})[case] = mean, after[variant, case]

    if not shared:
        missing = "no case of a variant of one name" if several else "no case"
        raise InputError(f"the runs cannot be compared: they share {missing} with a score")

    sides = [tuple(zip(*cases.values(), strict=True)) for cases in shared.values()]
    pairs = [(after_scores, before_scores) for before_scores, after_scores in sides]
    groups = [[clusters[case] for case in cases] for cases in shared.values()]
    scores = dict(zip(shared, compare_pairs(pairs, groups), strict=True))

    return RunComparison(scores, shared, len(before.keys() ^ after.keys()))


def report_comparison(
    comparison: RunComparison, runs: Sequence[RunRecord], *, most: int = MOST_SHOWN
) -> Report:
    """Return the report of a comparison of two runs. `most`: the number of cases with the largest
    differences that it lists."""
    first_name, second_name = (run.name or run.id for run in runs)
    columns = (
        "",
        Column("cases", "count"),
        Column(first_name, "number", 3),
        Column(second_name, "number", 3),
        Column("difference", "number", 3),
        Column("p (Holm)" if len(comparison.scores) > 1 else "p", "p_value"),
    )
    rows = [
        (
            variant or "mean score",
            paired.items,
            paired.second,
            paired.first,
            Estimate(paired.difference, paired.low, paired.high),
            paired.p,
        )
        for variant, paired in comparison.scores.items()
    ]
    tables = [Table("Both runs", columns, rows, note=_note(comparison))]

    differing: list[tuple[str, float, float, float]] = []
    for each in comparison.differing[:most]:
        name = ", ".join(filter(None, (each.case, each.variant)))
        differing.append((name, each.before, each.after, each.after - each.before))
    if differing:
        numbers = [Column(name, "number", 3) for name in (first_name, second_name, "difference")]
        tables.append(Table("Cases that differ most", ("case", *numbers), differing))

    sides: dict[str, PairedDifference] = {}
    for variant, paired in comparison.scores.items():
        sides[f"{variant} in {second_name}" if variant else second_name] = paired
    sentence = describe_differences(sides, first_name)

    return Report(f"{second_name} compared with {first_name}", sentence, tables)


def _note(comparison: RunComparison) -> str:
    omitted = wording.count(comparison.left_out, "case")
    skipped = f" {omitted} with a score in one run alone left out." if comparison.left_out else ""
    return f"By sign flips over cases, with 95 % intervals.{skipped}"


def compare_stored(store: Store, run: RunRecord, other: RunRecord) -> RunComparison:
    """Compare two stored runs.

    Raises:
        InputError: the runs were scored in different ways, a case has different inputs in them, or
            they share no case with a score.
    """
    first_run = StudyRun(run)
    second_run = StudyRun(other)
    require_same_ruler(first_run, second_run)
    require_same_cases(store, first_run, second_run)

    before, after = (store.read(records.read_columns, record.id) for record in (run, other))
    return compare_runs(before, after)
