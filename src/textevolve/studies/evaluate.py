"""The `evaluate` study: it judges cases by a debate, or by any other judge, and has a record for
each case.

The settings of a debate come from a profile, which parameters override. A stored run holds the
complete profile, so that it is resumed unchanged even if the profile's file has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from textevolve.debate import tensor as arithmetic
from textevolve.debate.context import debate_prompts, memory_prompts
from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.result import DebateResult, read_result, write_result
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, CallError, InputError
from textevolve.evaluation import (
    SPAN_IDS,
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Result,
    Usage,
    check_case,
    empty_default,
    failure_of,
    mend_text,
    refer_to_images,
    select_failure,
)
from textevolve.judges.context import Options, judge_prompts
from textevolve.judges.debates import DebateJudge, with_rubric
from textevolve.judges.judged import JudgedCase
from textevolve.judges.opening import describe_limit, trace_judge
from textevolve.mappings import pick, read_fields
from textevolve.reach import is_file
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Matrix,
    MatrixRow,
    Note,
    Report,
)
from textevolve.report.html import html_fragment
from textevolve.rows import SUFFIXES, names_rows, read_argument
from textevolve.rows.cases import CaseLike, RowReading, read_cases, take_cases
from textevolve.rows.columns import Columns
from textevolve.runs.aggregates import Aggregates, describe_scores
from textevolve.runs.study import Asks, Row, Study, write_json
from textevolve.settings import Settings
from textevolve.showing import show_as
from textevolve.spans import span
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
from textevolve.studies.rows import PARAMETERS, RowNames, answer_case, check_body, describe_targets
from textevolve.wiring import Workbench

IN_FULL = 1000
"""The number of cases that the report shows with all texts and arguments."""


@dataclass
class Evaluations(Result):
    """The figures of all cases, summed up case by case.

    Attributes:
        total: The number of cases.
        scores: The aggregated scores of the best candidate of each case.
        coverage: The sum, over all debates, of the share of turns that have scores.
        debates: The number of cases that a debate judged.
        turned: The number of debates whose winner changed after the first round.
        failed_turns: The number of turns of agents that failed.
        candidates: The largest number of candidates of a case.
        decided: The number of cases that each judge of a cascade decided.
        chosen: The first 1,000 cases, which the report shows.
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
    chosen: list[Judged] = empty_default(list)

    def add(self, judged: Judged, row: Row) -> None:
        self.total += 1
        self.scores.add(row)
        self.candidates = max(self.candidates, len(judged.case.candidates))
        self.usage += judged.usage
        self.decided += count_decided(judged)

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
    if evaluations.total == 1:
        (judged,) = evaluations.chosen
        title = wording.shorten(str(judged.case.input), 90)
        return Report(
            title, describe_verdict(judged), show_case(judged), {**facts_of(judged), **facts}
        )

    more = {"Decided by": describe_deciders(evaluations.decided)}

    if evaluations.debates:
        share = evaluations.coverage / evaluations.debates
        failed = wording.count(evaluations.failed_turns, "turn")
        more["Coverage"] = f"{wording.percent(share, 1)}, {failed} failed"
        more["Debate"] = f"{wording.count(evaluations.turned, 'winner')} not that of round 1"

    sentence = describe_scores(evaluations.scores, "case")

    return Report("Results of a run", sentence, _show_many(evaluations), {**facts, **more})


def _show_many(evaluations: Evaluations) -> Iterator[Block]:
    if evaluations.candidates > 1:
        yield Note(
            "A case has the score of its best candidate, and passed if any candidate passed.", "dim"
        )

    if evaluations.total > len(evaluations.chosen):
        visible_count = wording.count(len(evaluations.chosen), "case")
        yield Note(
            f"Shown: the first {visible_count} of {evaluations.total:,}; the figures cover all.",
            "dim",
        )

    names = [wording.letter(j) for j in range(max(1, evaluations.candidates))]
    yield Matrix("Cases", names, _rows(evaluations, len(names)))


def _rows(evaluations: Evaluations, columns: int) -> Iterator[MatrixRow]:
    for row in map(case_matrix_row, evaluations.chosen):
        missing = (None,) * (columns - len(row.entries))
        yield replace(row, entries=(*row.entries, *missing))


OF_ANY_JUDGE = ("seed", "threshold")
"""The parameters of debates that judges of other kinds have, too."""


def complete(spec: EvaluateSpec, settings: Settings) -> EvaluateSpec:
    """Return the specification with the complete profile of its debate, overridden by the
    parameters and the rubric. If another judge is named, return it unchanged; raise InputError if
    its options do not fit."""
    if spec.judge is not None and spec.profile is not None:
        raise InputError("--judge and --profile exclude each other: write --judge debate:PROFILE")
    parameters = explicit_parameters(spec)
    model = spec.model
    rubric = spec.rubric or ""

    if spec.judge is None:
        source = settings.profile if spec.profile is None else spec.profile
        base = with_rubric(source if isinstance(source, Profile) else load_profile(source), rubric)
    else:
        judge = spec.judge
        judge.check()
        if not isinstance(judge, DebateJudge):
            _reject_debate_options(spec, parameters)
        rubric = judge.find_rubric(rubric)
        if not isinstance(judge, DebateJudge):
            return spec
        base = judge.load(rubric)
        model = judge.model or model

    profile = override(base, parameters)
    if model is None and all(agent.model for agent in profile.agents):
        model = profile.agents[0].model
    cleared = dict.fromkeys((*DebateParameters.model_fields, "judge", "rubric"))

    return spec.model_copy(update={**cleared, "profile": profile, "model": model})


def _reject_debate_options(spec: EvaluateSpec, parameters: Mapping[str, Any]) -> None:
    """Raise InputError for a parameter that a judge other than a debate does not have."""
    judge_options = pick(parameters, OF_ANY_JUDGE)
    debate_options = [name for name in parameters if name not in judge_options]
    if spec.recall is not None:
        debate_options.append("recall")
    if debate_options:
        raise InputError(
            f"{debate_options[0]} is an option of debates, and the judge '{spec.judge}' is not a"
            " debate: leave it out; options of this judge are written in its name, such as"
            " probe+rules"
        )

    Options().overridden(judge_options)


def ask(spec: EvaluateSpec) -> Asks:
    if spec.judge is not None:
        prompts = debate_prompts(decides=spec.judge.decides)
        return Asks((spec.judge,), prompts=prompts | judge_prompts())
    profile = _profile_of(spec)
    recalls = spec.recall is not None
    return Asks(
        models=tuple(filter(None, profile.models(None))),
        writes=any(not agent.model for agent in profile.agents),
        prompts=debate_prompts(decides=profile.readout == "decide")
        | (memory_prompts() if recalls else {}),
        collections=() if recalls else profile.collections,
        agents=profile.stored_agents,
    )


async def describe(
    spec: EvaluateSpec, _settings: Settings, objects: dict[str, object]
) -> Mapping[str, Any]:
    if spec.target is not None:
        check_body(spec.target, ["input"])
    targets = [] if spec.target is None else [spec.target]
    return describe_targets(targets, spec.target_version, objects)


def _profile_of(spec: EvaluateSpec) -> Profile:
    """Return the profile of a completed specification without another judge."""
    assert isinstance(spec.profile, Profile)
    return spec.profile


def read_given(spec: EvaluateSpec) -> Iterator[Case]:
    """Yield the case that the arguments contain, or the cases of the file that they name."""
    texts = spec.cases
    if len(texts) != 1 or not (texts[0] == "-" or names_rows(texts[0])):
        yield _read_case(spec)
        return
    columns = Columns()
    yield from RowNames().separate(read_cases(texts[0], columns, reading_of(spec)))
    report_columns(spec, columns)


def take_given(spec: EvaluateSpec, rows: Iterable[CaseLike], _objects: object) -> Iterator[Case]:
    columns = Columns()
    yield from RowNames().separate(take_cases(rows, columns, reading_of(spec)))
    report_columns(spec, columns)


def reading_of(spec: EvaluateSpec) -> RowReading:
    return RowReading(
        spec.map,
        spec.each_reply,
        parameters=(*PARAMETERS, *SPAN_IDS),
        trajectory=spec.judge is not None and spec.judge.reads_trajectory,
        answered=spec.target is not None,
    )


def report_columns(spec: EvaluateSpec, columns: Columns) -> None:
    """Log once, after the cases were read, which columns of the file were used for what."""
    columns.tell(reference=spec.judge is not None and spec.judge.reads_reference)


def _read_case(spec: EvaluateSpec) -> Case:
    texts = spec.cases
    if spec.target is not None and len(texts) == 1:
        return Case(read_argument(texts[0]), (), "1")
    if len(texts) < 2:
        first_text = texts[0] if texts else ""
        raise InputError(
            "no candidates: give the input and one or more candidates, or a file of cases"
            f" ({', '.join(SUFFIXES)})"
            + (f"; '{first_text[:40]}' is neither" if first_text else "")
        )

    if Path(texts[0]).suffix.lower() in SUFFIXES and is_file(texts[0]):
        raise InputError(
            f"'{texts[0]}' is a file of cases, which must be the only argument; '{texts[1][:40]}'"
            " is one too many. To read a text from a file write @FILE"
        )

    if texts.count("-") > 1:
        raise InputError("only one of the texts can come from standard input")
    input, *candidates = (read_argument(text) for text in texts)
    case = Case(input, tuple(candidates), "1")
    check_case(case)

    return case


def run(spec: EvaluateSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Judged]:
    """Judge the cases, and yield each judged case. If a case cannot be judged, the others are not
    affected."""
    judge = open_judge(spec, bench)
    judge_parameters = {} if spec.judge is None else explicit_parameters(spec)
    answer = None
    if spec.target is not None:
        callee = bench.target_of(spec.target)
        answer = partial(answer_case, callee, spec.target, spec.target_version)

    async def work(numbered: tuple[int, Case]) -> Judged:
        index, case = numbered
        with span("case", f"case {case.id or index + 1}", input=case.input) as here:
            judged = await judge_case(index, case)
            here.note(output="\n\n".join(judged.case.candidates))
            for outcome in judged.result:
                here.note(failure=outcome if isinstance(outcome, Failure) else None)
            return judged

    async def judge_case(index: int, case: Case) -> Judged:
        if judge_parameters:
            case = replace(case, parameters={**judge_parameters, **case.parameters})
        try:
            bench.require_time()
            if answer is not None:
                case = await answer(case)
            outcome = await judge(case)
        except (CallError, BudgetError, InputError) as error:
            failure = failure_of(error)
            if spec.judge is None:
                return unusable(case, index, _profile_of(spec), failure)
            return JudgedCase(case, index, (failure,) * max(1, len(case.candidates)))

        if isinstance(outcome, DebateResult):
            return replace(outcome, index=index)

        return JudgedCase(case, index, tuple(outcome.result), outcome.usage)

    return stream(enumerate(cases, bench.first), work, bench.concurrency, ordered=bench.ordered)


def open_judge(spec: EvaluateSpec, bench: Workbench) -> Evaluator:
    if spec.judge is not None:
        return bench.judge_of(spec.judge, spec.rubric or "")
    return trace_judge("debate", bench.debate_of(_profile_of(spec), spec.recall))


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


def find_row(judged: Judged) -> Row:
    place = str(judged.index), judged.index, mend_text(str(judged.case.id))
    failure = select_failure(judged.result)
    best = None
    if isinstance(judged, DebateResult):
        best = judged.best
        if judged.stopped == "budget":
            failure = Failure("skipped", describe_limit(judged))

    if failure is not None:
        return Row(*place, status=failure.kind, reason=failure.reason)
    results = [outcome for outcome in judged.result if isinstance(outcome, EvaluationResult)]
    score = max(result.score for result in results) if best is None else results[best].score

    return Row(*place, score, passed=any(result.passed for result in results))


_JUDGED = TypeAdapter(JudgedCase)
_OTHER = b'{"judged":'
"""The beginning of the stored record of a case that another judge than a debate has judged."""


def encode(judged: Judged) -> bytes:
    judged = replace(judged, case=refer_to_images(_storable(judged.case)))
    if isinstance(judged, DebateResult):
        return write_result(judged, metrics=False).encode()
    return _OTHER + write_json(judged) + b"}"


def decode(body: bytes) -> Judged:
    if body.startswith(_OTHER):
        return _JUDGED.validate_json(body[len(_OTHER) : -1])
    return read_result(body)


def _storable(case: Case) -> Case:
    """Return the case with texts alone: those of an invalid case may be anything."""
    return replace(
        case,
        id=str(case.id),
        input=str(case.input),
        candidates=tuple(map(str, case.candidates)),
        reference=None if case.reference is None else str(case.reference),
        context=None if case.context is None else str(case.context),
    )


def summarise(_spec: EvaluateSpec | None, records: Iterable[Judged]) -> Evaluations:
    evaluations = Evaluations()
    for judged in records:
        evaluations.add(judged, find_row(judged))
    return evaluations


def report(spec: EvaluateSpec, evaluations: Evaluations) -> Report:
    if spec.judge is not None:  # the run's settings have it
        return report_evaluations(evaluations, {})
    profile = _profile_of(spec)
    facts = {
        "Profile": f"{profile.name}: at most {wording.count(profile.rounds, 'round')},"
        f" {profile.protocol}",
        "Models of agents": ", ".join(
            f"{agent.name}: {agent.model}" for agent in profile.agents if agent.model
        ),
        "Scores decided by": profile.decider or "",
        "Seed": str(profile.seed),
    }

    return report_evaluations(evaluations, facts)


def data(spec: EvaluateSpec, evaluations: Evaluations) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json", exclude={"cases"}, exclude_none=True),
        "cases": evaluations.total,
        **evaluations.scores.counts,
        "coverage": evaluations.coverage / evaluations.debates if evaluations.debates else None,
        **read_fields(evaluations, "turned", "failed_turns", "usage"),
    }


def _draw(judged: Judged) -> str:
    """Return the HTML of a judged case for notebooks."""
    return html_fragment(report_evaluations(summarise(None, [judged]), {}))


for _kind in (DebateResult, JudgedCase):
    show_as(_kind, _draw, candidate_rows)

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
    streams=True,
    independent=True,
    complete=complete,
    describe=describe,
    line=write_line,
    rows=lambda judged_cases, _variants: map(case_matrix_row, judged_cases),
    take=take_given,
)
