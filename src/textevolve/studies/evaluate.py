"""Evaluate: cases before a debate, or before any other judge; a record for each case.

A debate is the profile's, with parameters laid over it; what is kept of a run holds that profile
whole, so that a run is gone on with as it was begun, whatever became of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from textevolve.debate import tensor as arithmetic
from textevolve.debate.context import memory_prompts, prompts_version
from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult, read_result, write_result
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, CallError, InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    empty_default,
    failure_of,
    mend_texts,
    refer_to_images,
)
from textevolve.evaluators import (
    parse_evaluator,
    read_profile,
    read_rubric,
    reads_decisions,
    say_limit,
    trace_judge,
    with_rubric,
)
from textevolve.judges.context import Options
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.judges.judged import JudgedCase
from textevolve.memory.cue import Recall, nothing
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
from textevolve.studies.evaluate_spec import DebateParameters, EvaluateSpec, given_parameters
from textevolve.studies.judged_report import (
    Judged,
    candidate_rows,
    count_decided,
    facts_of,
    plain_text,
    say_decided,
    say_verdict,
    show_case,
    whole_row,
    whole_rows,
    write_line,
)
from textevolve.studies.study import Asks, Row, Study, write_json
from textevolve.studies.targeted import answer_case, check_body, describe_targets
from textevolve.user_code import own_object
from textevolve.wiring import Workbench

IN_FULL = 1000
"""Of how many cases the texts and all that was said are shown."""


@dataclass
class Evaluations:
    """What is known of all cases together. `scores`: of the best candidate of each scored case;
    `decided`: how many of them each judge of a cascade decided; `chosen`: the first cases, which
    are shown."""

    total: int = 0
    scores: Aggregates = field(default_factory=Aggregates)
    usage: Usage = field(default_factory=Usage)
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
    """Whether the debate ended with another winner than its first round had."""
    winners = result.tied or (() if result.best is None else (result.best,))
    first = arithmetic.top_candidates(result.round_one)
    return bool(winners) and bool(first) and tuple(winners) != tuple(first)


def report_evaluations(found: Evaluations, facts: Mapping[str, str]) -> Report:
    """One case in full, or the aggregates of many, then their list, then those chosen in full."""
    if found.total == 1:
        (judged,) = found.chosen
        title = wording.shorten(str(judged.case.input), 90)
        return Report(title, say_verdict(judged), show_case(judged), {**facts_of(judged), **facts})
    more = {"Decided by": say_decided(found.decided)}
    if found.debates:
        share, failed = found.coverage / found.debates, wording.count(found.failed_turns, "turn")
        more["Coverage"] = f"{wording.percent(share, 1)}, {failed} failed"
        more["Debate"] = f"{wording.count(found.turned, 'winner')} not that of round 1"
    said = describe_scores(found.scores, "case")
    return Report("Results of a run", said, _show_many(found), {**facts, **more})


def _show_many(found: Evaluations) -> Iterator[Block]:
    if found.candidates > 1:
        said = "A case's score is that of its best candidate; it passed where a candidate did."
        yield Note(said, "dim")
    if found.total > len(found.chosen):
        shown = wording.count(len(found.chosen), "case")
        yield Note(f"Shown: the first {shown} of {found.total:,}; the figures cover all.", "dim")
    names = [wording.letter(j) for j in range(max(1, found.candidates))]
    yield Matrix("Cases", names, _rows(found, len(names)))


def _rows(found: Evaluations, columns: int) -> Iterator[MatrixRow]:
    for row in map(whole_row, found.chosen):
        missing = (None,) * (columns - len(row.entries))
        yield replace(row, entries=(*row.entries, *missing))


OF_ANY_JUDGE = ("seed", "threshold")
"""Parameters that judges have which do not debate."""

TIME_IS_UP = "the time limit is reached; resume the run to go on"


def debates(spec: EvaluateSpec) -> bool:
    """Whether the judge is a debate, of which all is kept."""
    return spec.judge is None or parse_evaluator(spec.judge).is_debate


def complete(spec: EvaluateSpec, settings: Settings) -> EvaluateSpec:
    """A debate's specification with the whole profile in it, parameters and rubric laid over it."""
    if spec.judge is not None and spec.profile is not None:
        raise InputError("judge and profile both say who judges: write --judge debate:PROFILE")
    given = given_parameters(spec)
    if not debates(spec):
        _refuse_debate_options(spec, given)
        read_rubric(parse_evaluator(spec.judge or ""), spec.rubric or "")
        return spec
    base, model, rubric = spec.profile, spec.model, spec.rubric or ""
    if spec.judge is not None:
        parsed = parse_evaluator(spec.judge)
        base = read_profile(parsed, read_rubric(parsed, rubric))
        model = parsed.model or model
    else:
        named = settings.profile if base is None else base
        base = with_rubric(named if isinstance(named, Profile) else load_profile(named), rubric)
    whole = override(base, given)
    if model is None and all(agent.model for agent in whole.agents):
        model = whole.agents[0].model
    cleared = dict.fromkeys((*DebateParameters.model_fields, "judge", "rubric"))
    return spec.model_copy(update={**cleared, "profile": whole, "model": model})


def _refuse_debate_options(spec: EvaluateSpec, given: Mapping[str, Any]) -> None:
    """Raises InputError where a parameter is given that such a judge cannot follow."""
    own = {name: given[name] for name in OF_ANY_JUDGE if name in given}
    others = [name for name in given if name not in own] + ["recall"] * (spec.recall is not None)
    if others:
        raise InputError(
            f"{others[0]} is an option of debates, and the judge '{spec.judge}' is none: leave it"
            " out; a judge's own options stand in its name, such as probe+rules"
        )
    Options().overridden(own)


def ask(spec: EvaluateSpec) -> Asks:
    if not debates(spec):
        prompts = prompts_version(decides=reads_decisions(spec.judge or ""))
        return Asks((spec.judge or "",), prompts=prompts | judge_prompts())
    profile = _profile_of(spec)
    own = spec.recall is not None
    return Asks(
        models=tuple(filter(None, profile.models(None))),
        writes=any(not agent.model for agent in profile.agents),
        prompts=prompts_version(decides=profile.readout == "decide")
        | (memory_prompts() if own else {}),
        collections=() if own else profile.collections,
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
    """The case that the arguments are, or the cases of the file that they name."""
    texts = spec.cases
    if len(texts) != 1 or not (texts[0] == "-" or names_rows(texts[0])):
        yield _read_case(spec)
        return
    columns = Columns()
    yield from read_cases(texts[0], columns, reading_of(spec))
    tell_columns(spec, columns)


def take_given(spec: EvaluateSpec, given: Iterable[CaseLike], _objects: object) -> Iterator[Case]:
    columns = Columns()
    yield from take_cases(given, columns, reading_of(spec))
    tell_columns(spec, columns)


def reading_of(spec: EvaluateSpec) -> RowReading:
    answered = spec.target is not None
    steps = spec.judge is not None and parse_evaluator(spec.judge).reads_trajectory
    return RowReading(spec.map, spec.each_reply, trajectory=steps, answered=answered)


def tell_columns(spec: EvaluateSpec, columns: Columns) -> None:
    """Say once, after the cases were read, what their columns were taken for."""
    columns.tell(reference=bool(spec.judge) and parse_evaluator(spec.judge or "").reads_reference)


def _read_case(spec: EvaluateSpec) -> Case:
    texts = spec.cases
    if spec.target is not None and len(texts) == 1:
        return Case(read_argument(texts[0]), (), "1")
    if len(texts) < 2:
        given = texts[0] if texts else ""
        raise InputError(
            "no candidates: give the input and one candidate or more, or a file of cases"
            f" ({', '.join(SUFFIXES)})" + (f"; '{given[:40]}' is neither" if given else "")
        )
    if Path(texts[0]).suffix.lower() in SUFFIXES and is_file(texts[0]):
        raise InputError(
            f"'{texts[0]}' is a file of cases, which stands alone, and '{texts[1][:40]}' is one"
            " argument too many; a text out of a file is written @FILE"
        )
    if texts.count("-") > 1:
        raise InputError("only one of the texts can come from standard input")
    input, *candidates = (read_argument(text) for text in texts)
    case = Case(input, tuple(candidates), "1")
    check_case(case)
    return case


def run(spec: EvaluateSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[Judged]:
    """Each case as soon as it is judged; one that cannot be judged fails alone."""
    judge = open_judge(spec, bench)
    own = {} if debates(spec) else given_parameters(spec)
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
        if own:
            case = replace(case, parameters={**own, **case.parameters})
        try:
            if bench.seconds_left == 0:
                raise BudgetError(TIME_IS_UP)
            if target is not None and callee is not None:
                case = await answer_case(callee, target, version, case)
            made = await judge(case)
        except (CallError, BudgetError, InputError) as error:
            return _missing(spec, case, index, failure_of(error))
        if isinstance(made, DebateResult):
            return replace(made, index=index)
        return JudgedCase(case, index, tuple(made.result), made.usage)

    return stream(enumerate(cases, bench.first), work, bench.concurrency, ordered=bench.ordered)


def open_judge(spec: EvaluateSpec, bench: Workbench) -> Evaluator:
    if not debates(spec):
        return bench.judge_of(spec.judge or "", spec.rubric or "")
    profile, recall = bench.fill(_profile_of(spec)), nothing
    if spec.recall is not None:
        recall = own_object(spec.recall, bench.objects)
    elif profile.collections:  # else its agents have nothing to recall from
        recall = bench.recall
    debate = Debate(
        profile=profile,
        model_of=lambda agent: bench.model_of(agent.model or bench.default_model),
        recall=cast(Recall, recall),
        listener=bench.listener,
        concurrency=bench.calls_per_case,
        today=bench.today,
    )
    return trace_judge("debate", debate)


def _missing(spec: EvaluateSpec, case: Case, index: int, failure: Failure) -> Judged:
    """The record of a case about which nothing could be asked."""
    if not debates(spec):
        return JudgedCase(case, index, (failure,) * max(1, len(case.candidates)))
    return unusable(case, index, _profile_of(spec), failure)


def unusable(case: Case, index: int, profile: Profile, failure: Failure) -> DebateResult:
    """The result of a case about which nothing could be asked."""
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
    place = str(judged.index), judged.index, plain_text(str(judged.case.id))
    if isinstance(judged, DebateResult):
        if judged.stopped == "budget":
            why = judged.failure.reason if judged.failure else say_limit(judged)
            return Row(*place, status="skipped", reason=why)
        if judged.scored:
            units, best = judged.unit_scores, judged.best
            score = max(units) if best is None else units[best]
            passed = max(units) >= judged.profile.threshold
            return Row(*place, min(1.0, max(0.0, score)), passed=passed)
        failures = [one for one in judged.result if isinstance(one, Failure)]
        return Row(*place, status=failures[0].kind, reason=reason(judged))
    if judged.failure is not None:
        return Row(*place, status=judged.failure.kind, reason=judged.failure.reason)
    results = [one for one in judged.result if isinstance(one, EvaluationResult)]
    score, passed = max(one.score for one in results), any(one.passed for one in results)
    return Row(*place, score, passed=passed)


_JUDGED = TypeAdapter(JudgedCase)
_OTHER = b'{"judged":'
"""How the record of a case begins that was not debated."""


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
    """The case as JSON can hold it: in one that fails, what should be a text may be none."""
    return replace(
        case,
        id=plain_text(str(case.id)),
        input=plain_text(str(case.input)),
        candidates=tuple(plain_text(str(text)) for text in case.candidates),
        reference=None if case.reference is None else plain_text(str(case.reference)),
        context=None if case.context is None else plain_text(str(case.context)),
        parameters=mend_texts(dict(case.parameters)),
    )


def summarise(_spec: EvaluateSpec, records: Iterable[Judged]) -> Evaluations:
    return summarise_all(records)


def summarise_all(records: Iterable[Judged]) -> Evaluations:
    found = Evaluations()
    for judged in records:
        found.add(judged, find_row(judged))
    return found


def report(spec: EvaluateSpec, found: Evaluations) -> Report:
    if spec.judge is not None:  # the run's settings have it
        return report_evaluations(found, {})
    profile = _profile_of(spec)
    facts = {
        "Profile": f"{profile.name}: at most {profile.rounds} rounds, {profile.protocol}",
        "Models of agents": ", ".join(
            f"{agent.name}: {agent.model}" for agent in profile.agents if agent.model
        ),
        "Scores decided by": profile.decider or "",
        "Seed": str(profile.seed),
    }
    return report_evaluations(found, facts)


def data(spec: EvaluateSpec, found: Evaluations) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json", exclude={"cases"}, exclude_none=True),
        "cases": found.total,
        **found.scores.counts,
        "coverage": found.coverage / found.debates if found.debates else None,
        "turned": found.turned,
        "failed_turns": found.failed_turns,
        "usage": found.usage,
    }


def _draw(judged: Judged) -> str:
    """What a notebook shows of one case."""
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
    independent=lambda _spec: True,
    complete=complete,
    describe=describe,
    line=write_line,
    rows=whole_rows,
    take=take_given,
)
