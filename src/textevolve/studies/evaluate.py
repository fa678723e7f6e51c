"""The `evaluate` study: it judges cases by a debate, or by any other judge, and has a record for
each case.

The settings of a debate come from a profile, which parameters override. A stored run holds the
complete profile, so that it is resumed unchanged even if the profile's file has changed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from textevolve.debate import tensor as arithmetic
from textevolve.debate.context import debate_prompts, memory_prompts
from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.result import DebateResult, read_result, write_result
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, CallError, InputError
from textevolve.evaluation import (
    CHECKS,
    GROUP,
    LABEL,
    ROW,
    SPAN_IDS,
    TITLE,
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Result,
    Usage,
    check_case,
    cluster_of,
    empty_default,
    failure_of,
    mend_text,
    reaches,
    refer_to_images,
    select_failure,
    select_scored,
)
from textevolve.judges.context import CaseOptions
from textevolve.judges.debates import DebateJudge, with_rubric
from textevolve.judges.opening import JudgedCase, NamedJudgement, describe_limit, trace_judge
from textevolve.judges.plain import MetricJudge
from textevolve.ledger import log
from textevolve.llm.target_calls import describe_targets
from textevolve.loops.rules import columns_of_checks, describe_checks, list_reads, take_checks
from textevolve.mappings import drop_none, omit, pick, read_fields
from textevolve.metrics.plain import NO_NUMBER, require_one_mark
from textevolve.reach import is_file
from textevolve.report import wording
from textevolve.report.blocks import Block, Entry, Matrix, MatrixRow, Note, Report
from textevolve.report.html import html_fragment
from textevolve.rows import SUFFIXES, is_row_file, names_rows, read_argument
from textevolve.rows.cases import CaseLike, RowReading, read_cases, take_cases
from textevolve.rows.columns import CHECKS as CHECK_COLUMNS
from textevolve.rows.columns import UNAPPLIED, Columns, fold_name
from textevolve.rows.writing import frame_rows
from textevolve.runs.aggregates import Aggregates, describe_judges, describe_scores
from textevolve.runs.study import Asks, Row, Study, remember_row, write_json
from textevolve.settings import Settings
from textevolve.showing import TableRows, show_as
from textevolve.spans import NO_SPAN, span
from textevolve.studies.evaluate_spec import DebateParameters, EvaluateSpec, explicit_parameters
from textevolve.studies.judged_report import (
    Judged,
    candidate_rows,
    case_matrix_row,
    count_decided,
    describe_deciders,
    describe_verdict,
    facts_of,
    show_case,
    winners_of,
    write_line,
)
from textevolve.studies.rows import (
    PARAMETERS,
    PROFILE,
    EqualRows,
    RowNames,
    answer_case,
    check_body,
    fits_parameter,
    with_profile,
)
from textevolve.wiring import Workbench

IN_FULL = 1000
"""The number of cases that the report shows with all texts and arguments."""


@dataclass
class Evaluations(Result):
    """The figures of all cases, summed up case by case.

    Attributes:
        total: The number of cases, each of which several judges may have judged.
        scores: The aggregated scores of the best candidate of each case.
        coverage: The sum, over all debates, of the share of turns that have scores.
        debates: The number of cases that a debate judged.
        turned: The number of debates whose winner changed after the first round.
        failed_turns: The number of turns of agents that failed.
        candidates: The largest number of candidates of a case.
        decided: The number of cases that each judge of a cascade decided.
        no_number: The number of candidates in which `numeric` found no number.
        chosen: The first 1,000 cases, which the report shows.
        by_judge: If several judges judged each case, the scores by each of them.
        last_index: The position of the case that was added last; -1 before the first.
    """

    total: int = 0
    scores: Aggregates = field(default_factory=Aggregates)
    usage: Usage = Usage()
    coverage: float = 0.0
    debates: int = 0
    turned: int = 0
    failed_turns: int = 0
    candidates: int = 0
    decided: Counter[str] = empty_default(Counter)
    no_number: int = 0
    chosen: list[Judged] = empty_default(list)
    by_judge: dict[str, Aggregates] = empty_default(dict)
    last_index: int = -1

    def add(self, judged: Judged, row: Row) -> None:
        self.total += judged.index != self.last_index  # the judgements of a case come together
        self.last_index = judged.index
        self.scores.add(row)
        if row.variant:
            self.by_judge.setdefault(row.variant, Aggregates()).add(row)
        self.candidates = max(self.candidates, len(judged.case.candidates))
        self.usage += judged.usage
        self.decided += count_decided(judged)
        # That of a debate says nothing of numbers, and is composed only if somebody reads it.
        for content in judged.outcomes:
            if not isinstance(content, Failure):
                self.no_number += content.feedback.startswith(NO_NUMBER)

        if isinstance(judged, DebateResult):
            self.debates += 1
            self.coverage += judged.coverage
            self.failed_turns += sum(turn.failure is not None for turn in judged.turns)
            winners = winners_of(judged)
            opening = arithmetic.top_candidates(judged.round_one)
            self.turned += bool(winners and opening) and winners != opening

        if self.total <= IN_FULL:
            self.chosen.append(judged)


def report_evaluations(evaluations: Evaluations, facts: Mapping[str, str]) -> Report:
    """Return the report: of one case in full, or of many cases with their aggregates and a
    matrix."""
    if evaluations.total == 1 and not evaluations.by_judge:
        (judged,) = evaluations.chosen
        title = wording.shorten(str(judged.case.input), 90)
        return Report(
            title, describe_verdict(judged), show_case(judged), {**facts_of(judged), **facts}
        )

    more: dict[str, str] = {}
    if evaluations.decided:
        more["Decided by"] = describe_deciders(evaluations.decided)

    if evaluations.debates:
        share = evaluations.coverage / evaluations.debates
        failed = wording.count(evaluations.failed_turns, "turn")
        more["Coverage"] = f"{wording.percent(share, 1)}, {failed} failed"
        more["Debate"] = f"{wording.count(evaluations.turned, 'winner')} not that of round 1"

    if evaluations.no_number:
        # Wrong answers, but most often because of the form that the prompt asks for.
        more["Without a number"] = wording.count(evaluations.no_number, "candidate")

    if evaluations.by_judge:
        sentence = describe_judges(evaluations.by_judge)
    else:
        sentence = describe_scores(evaluations.scores, "case")

    return Report("Results of a run", sentence, _show_many(evaluations), {**facts, **more})


def _show_many(evaluations: Evaluations) -> Iterator[Block]:
    if evaluations.candidates > 1:
        yield Note(
            "A case has the score of its best candidate, and passed if any candidate passed.", "dim"
        )

    if evaluations.total > IN_FULL:
        visible_count = wording.count(IN_FULL, "case")
        yield Note(
            f"Shown: the first {visible_count} of {evaluations.total:,}; the figures cover all.",
            "dim",
        )

    names = list(evaluations.by_judge)
    rows = matrix_rows(evaluations.chosen, names)
    if not names:
        names = list(map(wording.letter, range(max(1, evaluations.candidates))))
        rows = _rows(evaluations, len(names))
    yield Matrix("Cases", names, rows, number=min(evaluations.total, IN_FULL))


def _rows(evaluations: Evaluations, columns: int) -> Iterator[MatrixRow]:
    for row in map(case_matrix_row, evaluations.chosen):
        missing = (None,) * (columns - len(row.entries))
        yield replace(row, entries=(*row.entries, *missing))


def matrix_rows(judgements: Iterable[Judged], judges: Sequence[str]) -> Iterator[MatrixRow]:
    """Yield the matrix rows of cases, with an entry for each candidate, or with one for each judge:
    that of its best candidate. The judgements of a case follow each other."""
    if not judges:
        yield from map(case_matrix_row, judgements)
        return
    for _, of_case in itertools.groupby(judgements, lambda judged: judged.index):
        rows = {_judge_of(judged): case_matrix_row(judged) for judged in of_case}
        first_row = next(iter(rows.values()))
        details = [detail for row in rows.values() for detail in row.details]
        entries = [_find_best(rows.get(judge)) for judge in judges]
        yield replace(first_row, entries=entries, details=details)


def _find_best(row: MatrixRow | None) -> Entry | None:
    """Return the entry of a case's best candidate by one judge; None without a judgement."""
    entries = [entry for entry in (row.entries if row else ()) if entry is not None]
    return max(entries, key=lambda entry: entry.scores.get("score") or 0.0, default=None)


def _judge_of(judged: Judged) -> str:
    """Return the judge of a record if several judged the case; otherwise an empty text."""
    return judged.judge if isinstance(judged, NamedJudgement) else ""


def join_rows(judgements: Iterable[Judged]) -> Iterator[Mapping[str, Any]]:
    """Yield the table rows of judgements: one for each candidate of a case. If several judges
    judged it, the row has a column for each judge in place of each column of the judgement."""
    for _, of_case in itertools.groupby(judgements, lambda judged: judged.index):
        group = list(of_case)
        tables = {_judge_of(judged): list(candidate_rows(judged)) for judged in group}
        if not all(tables):
            yield from itertools.chain.from_iterable(tables.values())
            continue
        for rows in zip(*tables.values(), strict=True):
            shared = {name: value for name, value in rows[0].items() if name in OF_TEXTS}
            columns = dict.fromkeys(name for row in rows for name in row if name not in shared)
            by_judge = dict(zip(tables, rows, strict=True))
            yield shared | {
                name: {judge: row.get(name) for judge, row in by_judge.items()} for name in columns
            }


OF_TEXTS = (
    *("index", "id", "candidate", "text", "images", "candidate_images"),
    *("contexts", "tool_calls", "steps", "expected_tools", GROUP),
)
"""The columns of a candidate's table row that are the same for all judges."""
OF_ANY_JUDGE = ("seed", "threshold")
"""The parameters of debates that judges of other kinds have, too."""


def complete(spec: EvaluateSpec, settings: Settings) -> EvaluateSpec:
    """Return the specification with the complete profile of its debate, overridden by the
    parameters and the rubric. If another judge is named, return it unchanged; raise InputError if
    its options do not fit."""
    if spec.judge and spec.profile is not None:
        raise InputError("--judge and --profile exclude each other: write --judge debate:PROFILE")
    parameters = explicit_parameters(spec)
    model = spec.model
    rubric = spec.rubric or ""
    if spec.score_by is not None and spec.score_by not in map(str, spec.judge):
        raise InputError(
            f"--score-by: no judge of this study is '{spec.score_by}'; there are:"
            f" {', '.join(map(str, spec.judge)) or 'none'}"
        )

    if len(spec.judge) > 1:
        for judge in spec.judge:
            judge.check()
            judge.find_rubric(rubric)
        _reject_debate_options(spec, parameters)
        return spec

    if not spec.judge:
        source = settings.profile if spec.profile is None else spec.profile
        base = with_rubric(source if isinstance(source, Profile) else load_profile(source), rubric)
    else:
        (judge,) = spec.judge
        judge.check()
        if not isinstance(judge, DebateJudge):
            _reject_debate_options(spec, parameters)
        rubric = judge.find_rubric(rubric)
        if not isinstance(judge, DebateJudge):
            return spec
        base = judge.load(rubric)
        model = judge.model or model

    DebateJudge().note_levels(rubric)
    profile = override(base, parameters)
    if model is None and all(agent.model for agent in profile.agents):
        model = profile.agents[0].model
    cleared = dict.fromkeys((*DebateParameters.model_fields, "rubric"))
    changes = {**cleared, "judge": (), "score_by": None, "profile": profile, "model": model}

    return spec.model_copy(update=changes)


def _reject_debate_options(spec: EvaluateSpec, parameters: Mapping[str, Any]) -> None:
    """Raise InputError for a parameter that a judge other than a debate does not have."""
    judge_options = pick(parameters, OF_ANY_JUDGE)
    debate_options = [name for name in parameters if name not in judge_options]
    if spec.recall is not None:
        debate_options.append("recall")
    if debate_options:
        judge, *other_judges = spec.judge
        if other_judges:
            raise InputError(
                f"{debate_options[0]} is an option of debates; among several judges write it in the"
                " name of the debate that it is for, such as debate:general+rounds=1"
            )
        raise InputError(
            f"{debate_options[0]} is an option of debates, and the judge '{judge}' is not a"
            " debate: leave it out; options of this judge are written in its name, such as"
            " probe+rules"
        )

    CaseOptions(**judge_options)


def ask(spec: EvaluateSpec) -> Asks:
    if spec.judge:
        return Asks(spec.judge, had_all_prompts=True, rubric=spec.rubric or "")

    profile = _profile_of(spec)
    prompts = debate_prompts([profile])
    collections = profile.collections
    # A function of the user that recalls memories replaces the collections of the profile.
    if spec.recall is not None:
        prompts = prompts | memory_prompts()
        collections = ()

    return Asks(
        models=tuple(filter(None, profile.models(None))),
        writes=any(not agent.model for agent in profile.agents),
        prompts=prompts,
        collections=collections,
        agents=profile.stored_agents,
    )


async def describe(
    spec: EvaluateSpec, _settings: Settings, objects: dict[str, object]
) -> Mapping[str, Any]:
    described = describe_checks(spec.check) if spec.check else {}
    if spec.target is None:
        return described
    check_body(spec.target, ["input"])
    return described | describe_targets([spec.target], spec.target_version, objects)


def _profile_of(spec: EvaluateSpec) -> Profile:
    """Return the profile of a completed specification without another judge."""
    assert isinstance(spec.profile, Profile)
    return spec.profile


def read_given(spec: EvaluateSpec) -> Iterator[Case]:
    """Yield the case that the arguments contain, or the cases of the file that they name."""
    texts = spec.cases
    # To a target a text is an input, so that a file of rows needs its ending. Without one a text
    # alone cannot be judged, and Excel's "Unicode text" ends in .txt.
    if len(texts) != 1 or not (
        texts[0] == "-" or names_rows(texts[0]) or (spec.target is None and is_file(texts[0]))
    ):
        yield _read_case(spec)
        return
    columns = Columns()
    cases = read_cases(texts[0], columns, reading_of(spec))
    yield from _complete_cases(spec, cases, columns)


def take_given(spec: EvaluateSpec, rows: Iterable[CaseLike], _objects: object) -> Iterator[Case]:
    columns = Columns()
    cases = take_cases(rows, columns, reading_of(spec))
    yield from _complete_cases(spec, cases, columns)


def _complete_cases(spec: EvaluateSpec, cases: Iterable[Case], columns: Columns) -> Iterator[Case]:
    """Yield cases with unique ids, the profiles that they name, and the cases that they equal. At
    the end log which columns were used for what."""
    cases = RowNames().separate(cases, columns.has_repeats)
    cases = EqualRows().mark(cases)
    leaves = itertools.chain.from_iterable(judge.leaves() for judge in spec.judge)
    metrics = [judge.metric for judge in leaves if isinstance(judge, MetricJudge)]
    if metrics:
        cases = require_one_mark(metrics, cases)

    takes_checks = applies_checks(spec)
    reads: set[str] = set()
    for case in cases:
        if PROFILE in case.parameters:
            case = with_profile(case)
        if takes_checks:
            case = _with_checks(spec, case)
            reads |= list_reads(case.parameters.get(CHECKS, {}))
        yield case

    for name in columns.unread:
        if fold_name(name) in CHECK_COLUMNS:
            log.warning(UNAPPLIED, name)
    # A judge by checks reads what the checks of the rows read.
    judges = [judge for judge in spec.judge if not judge.reads_checks]
    columns.tell(
        reference="reference" in reads or any(judge.reads_reference for judge in judges),
        context="context" in reads or any(judge.reads_context for judge in judges),
    )


def reading_of(spec: EvaluateSpec) -> RowReading:
    leaves = itertools.chain.from_iterable(judge.leaves() for judge in spec.judge)
    # To a judge that is no debate, a column such as `order` is one like any other.
    parameters = OF_ANY_JUDGE
    if not spec.judge or any(judge.is_debate for judge in leaves):
        parameters = (*PARAMETERS, PROFILE)

    return RowReading(
        spec.map,
        spec.each_reply,
        parameters=(*parameters, *SPAN_IDS),
        fits=fits_parameter,
        whole=any(judge.reads_row for judge in spec.judge),
        trajectory=any(judge.reads_trajectory for judge in spec.judge),
        answered=spec.target is not None,
        compared=True,
        checks=partial(take_checks, spec.check) if applies_checks(spec) else None,
        columns_of_checks=partial(columns_of_checks, spec.check),
    )


def applies_checks(spec: EvaluateSpec) -> bool:
    """Return whether a judge applies the checks of rows."""
    return any(judge.reads_checks for judge in spec.judge)


def _read_case(spec: EvaluateSpec) -> Case:
    texts = spec.cases
    if spec.target is not None and len(texts) == 1:
        case = Case(read_argument(texts[0]), (), "1")
        return _with_checks(spec, case) if applies_checks(spec) else case
    if len(texts) < 2:
        first_text = texts[0] if texts else ""
        raise InputError(
            "no candidates: give the input and one or more candidates, or a file of cases"
            f" ({', '.join(SUFFIXES)})"
            + (f"; '{first_text[:40]}' is neither" if first_text else "")
        )

    if is_row_file(texts[0]) and is_file(texts[0]):
        raise InputError(
            f"'{texts[0]}' is a file of cases, which must be the only argument; '{texts[1][:40]}'"
            " is one too many. To read a text from a file write @FILE"
        )

    if texts.count("-") > 1:
        raise InputError("only one of the texts can come from standard input")
    input, *candidates = map(read_argument, texts)
    case = Case(input, tuple(candidates), "1")
    check_case(case)

    return _with_checks(spec, case) if applies_checks(spec) else case


def _with_checks(spec: EvaluateSpec, case: Case) -> Case:
    """Return a case that is no row with the checks of the study."""
    if CHECKS in case.parameters:
        return case
    checks = take_checks(spec.check, None, {"input": case.input}, f"case {case.id}")
    added = {} if checks is None else {CHECKS: checks}
    return replace(case, parameters={**case.parameters, **added})


async def run(
    spec: EvaluateSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Judged]:
    """Judge the cases, and yield each judged case, once for each judge. If a case cannot be judged,
    the others are not affected."""
    rubric = spec.rubric or ""
    judges: dict[str, Evaluator]
    if not spec.judge:
        debate = bench.debate_of(_profile_of(spec), spec.recall)
        judges = {"": trace_judge("debate", debate)}
    elif len(spec.judge) == 1:  # its records need no name
        judges = {"": bench.judge_of(spec.judge[0], rubric)}
    else:
        judges = {judge.text: bench.whole_judge_of(judge, rubric) for judge in spec.judge}

    judge_parameters = explicit_parameters(spec) if spec.judge else {}
    answer = None
    if spec.target is not None:
        callee = bench.target_of(spec.target)
        answer = partial(answer_case, callee, spec.target, spec.target_version)

    async def work(numbered: tuple[int, Case]) -> Sequence[Judged]:
        index, case = numbered
        if judge_parameters:
            case = replace(case, parameters={**judge_parameters, **case.parameters})

        with span("case", f"case {case.id or index + 1}", input=case.input) as here:
            judgements: list[Judged]
            try:
                bench.require_time()
                if answer is not None:
                    case = await answer(case)  # once, whatever the number of judges
            except (CallError, BudgetError, InputError) as error:
                failure = failure_of(error)
                judgements = [_fail(spec, case, index, failure, judge) for judge in judges]
            else:
                judgements = await asyncio.gather(
                    *(ask_judge(index, case, name, judge) for name, judge in judges.items())
                )

            # Nobody listens to most runs, and the texts of a case may be long.
            if here is NO_SPAN:
                return judgements

            here.note(output="\n\n".join(judgements[0].case.candidates))
            for judged in judgements:
                for outcome in judged.result:
                    if isinstance(outcome, Failure):
                        here.note(failure=outcome)

            return judgements

    async def ask_judge(index: int, case: Case, name: str, judge: Evaluator) -> Judged:
        try:
            outcome = await judge(case)
        except (CallError, BudgetError, InputError) as error:
            return _fail(spec, case, index, failure_of(error), name)
        if isinstance(outcome, DebateResult) and not name:
            return replace(outcome, index=index)

        judged = JudgedCase(case, index, outcome.result, outcome.usage)
        return _name_judgement(spec, judged, name) if name else judged

    groups = stream(enumerate(cases, bench.first), work, bench.concurrency, ordered=bench.ordered)
    async with aclosing(groups):
        async for judgements in groups:
            for judged in judgements:
                yield judged


def _fail(spec: EvaluateSpec, case: Case, index: int, failure: Failure, judge: str) -> Judged:
    """Return the record of a case that could not be judged. `judge`: the judge if there are
    several."""
    if not spec.judge:
        return unusable(case, index, _profile_of(spec), failure)
    judged = JudgedCase(case, index, (failure,) * max(1, len(case.candidates)))
    return _name_judgement(spec, judged, judge) if judge else judged


def _name_judgement(spec: EvaluateSpec, judged: JudgedCase, judge: str) -> NamedJudgement:
    """Return a judgement under the name of its judge, which is one of several."""
    names = [each.text for each in spec.judge]
    position = judged.index * len(names) + names.index(judge)
    return NamedJudgement(
        judged.case, judged.index, judged.result, judged.usage, judge=judge, position=position
    )


def unusable(case: Case, index: int, profile: Profile, failure: Failure) -> DebateResult:
    """Return the result of a case that could not be debated."""
    return DebateResult(
        case=case,
        profile=profile,
        turns=(),
        convergence=(),
        stopped="budget" if failure.kind == "skipped" else "failed",
        labels=(),
        nonce="",
        index=index,
        failure=failure,
    )


@remember_row
def find_row(judged: Judged) -> Row:
    judge = ""
    key = str(judged.index)
    position = judged.index
    if isinstance(judged, NamedJudgement):
        judge = judged.judge
        key = f"{judged.index}|{judge}"
        position = judged.position

    case = mend_text(str(judged.case.id))
    cluster = mend_text(cluster_of(judged.case.parameters))
    failure = select_failure(judged.outcomes)
    best = None
    if isinstance(judged, DebateResult):
        best = judged.best
        if judged.stopped == "budget":
            failure = Failure("skipped", describe_limit(judged))

    if failure is not None:
        title = judged.case.parameters.get(TITLE, "")
        kind = failure.kind
        return Row(
            key, position, case, None, kind, failure.reason, judge, None, cluster, title=title
        )
    results = select_scored(judged.outcomes)
    score = max(result.score for result in results) if best is None else results[best].score

    passed = any(result.passed for result in results)
    return Row(key, position, case, score, variant=judge, passed=passed, cluster=cluster)


def at_threshold(judged: Judged, threshold: float) -> Judged:
    """Return a judgement in which each candidate passes from a score of `threshold` on."""
    return replace(
        judged,
        result=tuple(
            replace(outcome, passed=reaches(outcome.score, threshold))
            if isinstance(outcome, EvaluationResult)
            else outcome
            for outcome in judged.result
        ),
    )


_JUDGED = TypeAdapter(JudgedCase)
_NAMED = TypeAdapter(NamedJudgement)
_OTHER = b'{"judged":'
"""The beginning of the stored record of a case that another judge than a debate has judged."""
_BY_ONE = b'{"judged_by":'
"""The same for one of several judges."""


def encode(judged: Judged) -> bytes:
    """Write a judgement as its stored record, in which images are references. The row itself is
    left out, since the run has it once already."""
    case = refer_to_images(judged.case)
    case = replace(
        case,
        parameters=omit(case.parameters, (ROW, LABEL)),
        # Texts alone: those of an invalid case may be anything.
        id=str(case.id),
        input=str(case.input),
        candidates=tuple(map(str, case.candidates)),
        reference=None if case.reference is None else str(case.reference),
        context=None if case.context is None else str(case.context),
    )
    judged = replace(judged, case=case)
    if isinstance(judged, DebateResult):
        return write_result(judged, metrics=False).encode()
    beginning = _BY_ONE if isinstance(judged, NamedJudgement) else _OTHER
    return beginning + write_json(judged) + b"}"


def decode(body: bytes) -> Judged:
    if body.startswith(_OTHER):
        return _JUDGED.validate_json(body[len(_OTHER) : -1])
    if body.startswith(_BY_ONE):
        return _NAMED.validate_json(body[len(_BY_ONE) : -1])
    return read_result(body)


def summarise(_spec: EvaluateSpec | None, records: Iterable[Judged]) -> Evaluations:
    evaluations = Evaluations()
    for judged in records:
        evaluations.add(judged, find_row(judged))
    return evaluations


def report(spec: EvaluateSpec, evaluations: Evaluations) -> Report:
    if spec.judge:  # the run's settings have it
        return report_evaluations(evaluations, {})

    profile = _profile_of(spec)
    # A debate settles what `auto` stands for, by the models of its agents.
    debated = [j.profile for j in evaluations.chosen if isinstance(j, DebateResult)] or [profile]
    protocols = ", ".join(dict.fromkeys(settled.protocol for settled in debated))
    readouts = ", ".join(dict.fromkeys(settled.readout for settled in debated))
    models = [f"{agent.name}: {agent.model}" for agent in profile.agents if agent.model]
    facts = {
        "Profile": f"{profile.name}: at most {wording.count(profile.rounds, 'round')},"
        f" {protocols}; scores by {readouts}",
        "Models of agents": ", ".join(models),
        "Scores decided by": profile.decider or "",
        "Seed": str(profile.seed),
    }

    return report_evaluations(evaluations, facts)


def data(spec: EvaluateSpec, evaluations: Evaluations) -> Mapping[str, Any]:
    return {
        "parameters": drop_none(spec.model_dump(mode="json", exclude={"cases"}, exclude_none=True)),
        "cases": evaluations.total,
        **evaluations.scores.counts,
        "coverage": evaluations.coverage / evaluations.debates if evaluations.debates else None,
        **read_fields(evaluations, "turned", "failed_turns", "usage"),
    }


def _draw(judged: Judged) -> str:
    """Return the HTML of a judged case for notebooks."""
    return html_fragment(report_evaluations(summarise(None, [judged]), {}))


def _read_rows(judged: Judged) -> TableRows:
    return frame_rows(candidate_rows(judged))


for _kind in (DebateResult, JudgedCase):
    show_as(_kind, _draw, _read_rows)

STUDY = Study(
    aggregates=True,
    spec=EvaluateSpec,
    cases=read_given,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=candidate_rows,
    at_threshold=at_threshold,
    streams=True,
    independent=True,
    complete=complete,
    describe=describe,
    line=write_line,
    rows=matrix_rows,
    join=join_rows,
    variants=lambda spec, _model: [j.text for j in spec.judge] if len(spec.judge) > 1 else [],
    take=take_given,
)
