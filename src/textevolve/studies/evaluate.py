"""The `evaluate` study: it judges cases by a debate, or by any other judge, and has a record for
each case.

The settings of a debate come from a profile, which parameters override. A stored run holds the
complete profile, so that it is resumed unchanged even if the profile's file has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from textevolve.debate import tensor as arithmetic
from textevolve.debate.context import memory_prompts, prompts_version
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
)
from textevolve.evaluators import (
    describe_limit,
    parse_evaluator,
    read_profile,
    read_rubric,
    reads_decisions,
    trace_judge,
    with_rubric,
)
from textevolve.judges.context import Options
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.judges.judged import JudgedCase
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
from textevolve.rows.cases import CaseLike, RowReading
from textevolve.rows.columns import Columns
from textevolve.settings import Settings
from textevolve.showing import show_as
from textevolve.spans import span
from textevolve.studies.aggregates import Aggregates, describe_scores
from textevolve.studies.case_rows import read_cases, take_cases
from textevolve.studies.debate_words import reason
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
    write_line,
)
from textevolve.studies.study import Asks, Row, Study, write_json
from textevolve.studies.targeted import answer_case, check_body, describe_targets
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
            self.turned += _is_turned(judged)
        if self.total <= IN_FULL:
            self.chosen.append(judged)


def _is_turned(result: DebateResult) -> bool:
    """Tell whether the debate ended with another winner than that of its first round."""
    winners = result.tied or (() if result.best is None else (result.best,))
    first_winners = arithmetic.top_candidates(result.round_one)
    return bool(winners) and bool(first_winners) and tuple(winners) != tuple(first_winners)


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
        share, failed = (
            evaluations.coverage / evaluations.debates,
            wording.count(evaluations.failed_turns, "turn"),
        )
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


def debates(spec: EvaluateSpec) -> bool:
    """Tell whether the judge of a specification is a debate, whose complete result is stored."""
    return spec.judge is None or parse_evaluator(spec.judge).is_debate


def complete(spec: EvaluateSpec, settings: Settings) -> EvaluateSpec:
    """Return the specification with the complete profile of its debate, overridden by the
    parameters and the rubric. If another judge is named, return it unchanged; raise InputError if
    its options do not fit."""
    if spec.judge is not None and spec.profile is not None:
        raise InputError("--judge and --profile exclude each other: write --judge debate:PROFILE")
    parameters = explicit_parameters(spec)
    if not debates(spec):
        _reject_debate_options(spec, parameters)
        read_rubric(parse_evaluator(spec.judge or ""), spec.rubric or "")
        return spec
    base, model, rubric = spec.profile, spec.model, spec.rubric or ""
    if spec.judge is not None:
        parsed = parse_evaluator(spec.judge)
        base = read_profile(parsed, read_rubric(parsed, rubric))
        model = parsed.model or model
    else:
        source = settings.profile if base is None else base
        base = with_rubric(source if isinstance(source, Profile) else load_profile(source), rubric)
    profile = override(base, parameters)
    if model is None and all(agent.model for agent in profile.agents):
        model = profile.agents[0].model
    cleared = dict.fromkeys((*DebateParameters.model_fields, "judge", "rubric"))
    return spec.model_copy(update={**cleared, "profile": profile, "model": model})


def _reject_debate_options(spec: EvaluateSpec, parameters: Mapping[str, Any]) -> None:
    """Raise InputError for a parameter that a judge other than a debate does not have."""
    judge_options = {name: parameters[name] for name in OF_ANY_JUDGE if name in parameters}
    debate_options = [name for name in parameters if name not in judge_options] + ["recall"] * (
        spec.recall is not None
    )
    if debate_options:
        raise InputError(
            f"{debate_options[0]} is an option of debates, and the judge '{spec.judge}' is not a"
            " debate: leave it out; options of this judge are written in its name, such as"
            " probe+rules"
        )
    Options().overridden(judge_options)


def ask(spec: EvaluateSpec) -> Asks:
    if not debates(spec):
        prompts = prompts_version(decides=reads_decisions(spec.judge or ""))
        return Asks((spec.judge or "",), prompts=prompts | judge_prompts())
    profile = _profile_of(spec)
    recalls = spec.recall is not None
    return Asks(
        models=tuple(filter(None, profile.models(None))),
        writes=any(not agent.model for agent in profile.agents),
        prompts=prompts_version(decides=profile.readout == "decide")
        | (memory_prompts() if recalls else {}),
        collections=() if recalls else profile.collections,
        agents=profile.stored_agents,
    )


async def describe(
    spec: EvaluateSpec, _settings: Settings, _objects: dict[str, object]
) -> Mapping[str, Any]:
    return describe_targets([] if spec.target is None else [spec.target], spec.target_version)


def _profile_of(spec: EvaluateSpec) -> Profile:
    if isinstance(spec.profile, Profile):
        return spec.profile
    raise InputError("the specification of a debate has to be completed first")


def read_given(spec: EvaluateSpec) -> Iterator[Case]:
    """Yield the case that the arguments contain, or the cases of the file that they name."""
    texts = spec.cases
    if len(texts) != 1 or not (texts[0] == "-" or names_rows(texts[0])):
        yield _read_case(spec)
        return
    columns = Columns()
    yield from read_cases(texts[0], columns, reading_of(spec))
    report_columns(spec, columns)


def take_given(spec: EvaluateSpec, rows: Iterable[CaseLike], _objects: object) -> Iterator[Case]:
    columns = Columns()
    yield from take_cases(rows, columns, reading_of(spec))
    report_columns(spec, columns)


def reading_of(spec: EvaluateSpec) -> RowReading:
    answered = spec.target is not None
    steps = spec.judge is not None and parse_evaluator(spec.judge).reads_trajectory
    return RowReading(
        spec.map, spec.each_reply, parameters=SPAN_IDS, trajectory=steps, answered=answered
    )


def report_columns(spec: EvaluateSpec, columns: Columns) -> None:
    """Log once, after the cases were read, which columns of the file were used for what."""
    columns.tell(reference=bool(spec.judge) and parse_evaluator(spec.judge or "").reads_reference)


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
    judge_parameters = {} if debates(spec) else explicit_parameters(spec)
    target, version = spec.target, spec.target_version
    callee = None if target is None else bench.target_of(target)
    if target is not None:
        check_body(target, ["input"])

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
            if target is not None and callee is not None:
                case = await answer_case(callee, target, version, case)
            outcome = await judge(case)
        except (CallError, BudgetError, InputError) as error:
            return _missing(spec, case, index, failure_of(error))
        if isinstance(outcome, DebateResult):
            return replace(outcome, index=index)
        return JudgedCase(case, index, tuple(outcome.result), outcome.usage)

    return stream(enumerate(cases, bench.first), work, bench.concurrency, ordered=bench.ordered)


def open_judge(spec: EvaluateSpec, bench: Workbench) -> Evaluator:
    if not debates(spec):
        return bench.judge_of(spec.judge or "", spec.rubric or "")
    return trace_judge("debate", bench.debate_of(_profile_of(spec), spec.recall))


def _missing(spec: EvaluateSpec, case: Case, index: int, failure: Failure) -> Judged:
    """Return the record of a case that could not be judged."""
    if not debates(spec):
        return JudgedCase(case, index, (failure,) * max(1, len(case.candidates)))
    return unusable(case, index, _profile_of(spec), failure)


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
    if isinstance(judged, DebateResult):
        if judged.stopped == "budget":
            limit = judged.failure.reason if judged.failure else describe_limit(judged)
            return Row(*place, status="skipped", reason=limit)
        if judged.scored:
            units, best = judged.unit_scores, judged.best
            score = max(units) if best is None else units[best]
            passed = max(units) >= judged.profile.threshold
            return Row(*place, min(1.0, max(0.0, score)), passed=passed)
        failures = [outcome for outcome in judged.result if isinstance(outcome, Failure)]
        return Row(*place, status=failures[0].kind, reason=reason(judged))
    if judged.failure is not None:
        return Row(*place, status=judged.failure.kind, reason=judged.failure.reason)
    results = [outcome for outcome in judged.result if isinstance(outcome, EvaluationResult)]
    score, passed = (
        max(outcome.score for outcome in results),
        any(outcome.passed for outcome in results),
    )
    return Row(*place, score, passed=passed)


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


def summarise(_spec: EvaluateSpec, records: Iterable[Judged]) -> Evaluations:
    return summarise_all(records)


def summarise_all(records: Iterable[Judged]) -> Evaluations:
    evaluations = Evaluations()
    for judged in records:
        evaluations.add(judged, find_row(judged))
    return evaluations


def report(spec: EvaluateSpec, evaluations: Evaluations) -> Report:
    if spec.judge is not None:  # the run's settings have it
        return report_evaluations(evaluations, {})
    profile = _profile_of(spec)
    facts = {
        "Profile": f"{profile.name}: at most {profile.rounds} rounds, {profile.protocol}",
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
        "turned": evaluations.turned,
        "failed_turns": evaluations.failed_turns,
        "usage": evaluations.usage,
    }


def _draw(judged: Judged) -> str:
    """Return the HTML of a judged case for notebooks."""
    return html_fragment(report_evaluations(summarise_all([judged]), {}))


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
