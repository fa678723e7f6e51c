"""The registry of judges: parse the text of a judge, and open the `Evaluator` that it names.

    NAME[:PROFILE][+OPTION...][@MODEL]

    debate:general                a debate of the profile's agents
    jury:general                  the same agents judge independently, in one round
    single                        one neutral agent states its scores once
    escalation:general            a jury; then a debate, if the jury's winner is uncertain
    pairwise                      which of two candidates is better, asked in both orders
    probe                         the probability of yes to questions about a candidate
    checklist                     yes / no questions that a model writes for the input
    decide                        typed questions, one for each criterion, in one request;
                                  decide+pairwise: which of two candidates is better;
                                  decide+choice: which of all candidates is the right one
    instruction-likelihood        the likelihood of the instruction given the response
    reference                     `probe` with the case's reference answer, or the judge's own
    faithfulness                  the share of a text's statements that the context supports
    answer-relevance              the share of a text's statements that help to answer
    context-recall                the share of the reference's statements that are in the context
    context-precision             whether the passages of use for the answer stand first in the
                                  context (average precision)
    trajectory                    a checklist over an agent's steps and its answer as a whole
    embedding@MODEL               similarity of a text's embedding to the reference's
    metric:NAME                   a metric of `textevolve.metrics`, which calls no model; the text
                                  after the colon is its name
    look:length                   the number of words, a baseline for other judges
    rules:FILE                    rules of a file, such as lengths and patterns; no model is called
    hybrid:FILE:JUDGE             rules first, then a judge
    cascade:BELOW:FIRST,SECOND    two judges: the second judges if the first fails, or if its
                                  certainty is less than BELOW
    python:NAME                   an evaluator of the user's program
    FILE.judge                    a weighted mix of judges, fitted to labels by people; the whole
                                  text is the file's path

Each judge is an entry of `KINDS`. The option `rubric=FILE` replaces the shipped question, criteria
or components of a judge that takes a rubric. `NAME=VALUE` sets a parameter of the profile
(`rounds=1`, `readout=decide`, `decider=local/julia-1`). For checklist and the judges of statements,
`decider=MODEL` is the model that judges the criteria or statements that the main model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from textevolve.debate.profile import Agent, Component, Profile, load_profile, override, suggest
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult
from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Case, Evaluation, Evaluator, empty_default, select_skipped
from textevolve.events import Listener, silence
from textevolve.judges.cascade import CASCADE, Cascade, read_cascade
from textevolve.judges.context import Options
from textevolve.judges.decide import Decide, DecideChoice, Pairwise, choose_between
from textevolve.judges.fitted import FittedJudge, is_fitted, load_fitted
from textevolve.judges.instruction_likelihood import InstructionLikelihood
from textevolve.judges.measures import LOOK, EmbeddingSimilarity, LookJudge, MetricJudge
from textevolve.judges.probe import TRAJECTORY, Checklist, Probe, TrajectoryJudge
from textevolve.judges.rubric import (
    ask_criteria,
    expand_rubric,
    is_rubric_name,
    load_rubric,
    read_criteria,
)
from textevolve.judges.statements import CHECKS, StatementJudge
from textevolve.llm.model import Model
from textevolve.loops.attempt import as_evaluator
from textevolve.loops.rules import Hybrid, load_rules
from textevolve.memory.cue import Recall, nothing
from textevolve.metrics.label_metrics import describe_metric, needs_label, reads_trajectory
from textevolve.reach import is_file
from textevolve.rows import read_text
from textevolve.settings import today as this_day
from textevolve.spans import NO_SPAN, Span, span
from textevolve.user_code import OWN, load_user_object

DEBATES: Mapping[str, Mapping[str, Any]] = {
    "debate": {},
    "jury": {"protocol": "independent", "rounds": 1},
    "single": {"protocol": "independent", "rounds": 1},
    "escalation": {"protocol": "escalation"},
}
"""The judges that hold a debate, with the parameters of the profile that each of them sets."""

ALIASES = {"few-shot": "examples", "reference-guided": "reference"}
"""Terms of the literature for options, with the names of the options here."""

DECIDE = "decide"
METRIC = "metric"
RULES = "rules"
HYBRID = "hybrid"
FITTED = "fitted"
PYTHON = OWN.rstrip(":")

RUBRIC = "rubric"
DECIDER = "decider"

LONE_JUDGE = Agent(
    name="Judge",
    persona="You judge alone, fairly and exactly, by what each response does for the input.",
)
"""The agent that replaces the profile's agents for the judge `single`."""


M = TypeVar("M", str, str | None)


@dataclass(frozen=True, slots=True)
class EvaluatorSpec:
    """A judge as parsed from its text. `name`: the name at the beginning. `profile`: the argument
    after the colon: a profile, a metric, a property such as `length`, the limit of a cascade, or a
    file; empty without one. `options`: those after a plus sign; `parameters`: those with a value.
    `model`: the model after the @; empty: the run's model judges. `parts`: the texts of the judges
    that this judge calls."""

    name: str
    profile: str = ""
    options: frozenset[str] = frozenset()
    parameters: Mapping[str, str] = empty_default(dict)
    model: str = ""
    parts: tuple[str, ...] = ()

    @property
    def kind(self) -> JudgeKind:
        return KINDS[self.name]

    @property
    def judges(self) -> tuple[EvaluatorSpec, ...]:
        return tuple(map(parse_evaluator, self.parts))

    @property
    def is_debate(self) -> bool:
        return self.name in DEBATES

    @property
    def is_relative(self) -> bool:
        """Return whether the scores only compare the candidates of one case with each other."""
        return self.name == "pairwise" or not self.options.isdisjoint(("pairwise", "choice"))

    @property
    def reads_reference(self) -> bool:
        """Return whether the judge reads the reference of a case."""
        reads = self.kind.reads_reference or "reference" in self.options
        return reads or any(judge.reads_reference for judge in self.judges)

    @property
    def reads_trajectory(self) -> bool:
        """Return whether the judge reads the steps of an agent, and not only its output."""
        reads = self.name == METRIC and reads_trajectory(self.profile)
        return reads or self.name == TRAJECTORY or any(j.reads_trajectory for j in self.judges)

    @property
    def takes_rubric(self) -> bool:
        """Return whether a rubric of the run can replace the judge's own questions."""
        takes = RUBRIC in self.kind.options and RUBRIC not in self.parameters
        return takes and (not self.parts or any(judge.takes_rubric for judge in self.judges))

    @property
    def needs(self) -> tuple[str, ...]:
        """Return which of `context` and `reference` a case must have so that the judge can score
        it."""
        if self.name == METRIC:
            return ("reference",) if needs_label(self.profile) else ()
        of_parts = (need for judge in self.judges for need in judge.needs)
        return tuple(dict.fromkeys((*self.kind.needs, *of_parts)))


def parse_evaluator(text: str) -> EvaluatorSpec:
    """Parse the text of a judge, such as `probe+rules@MODEL`.

    Raises:
        InputError: there is no such judge or option, or a value cannot be used; lists the choices.
    """
    text = text.strip()
    name = FITTED if is_fitted(text) else re.split("[:+@]", text, maxsplit=1)[0]

    if name not in KINDS:
        raise InputError(
            f"judge '{text}': '{name}' is not the name of a judge"
            + (f"; your function is metric:{text}" if ".py:" in text else suggest(name, NAMES))
        )

    spec = KINDS[name].read(text)
    _ = spec.judges  # a part that cannot be read is refused now

    return spec


def read_plain(text: str) -> EvaluatorSpec:
    """Parse a judge of the form NAME:PROFILE+OPTION@MODEL."""
    judge, _, model = text.partition("@")
    head, *options = judge.split("+")
    name, _, profile = head.partition(":")
    if profile and name not in DEBATES:
        raise InputError(f"judge '{text}': '{name}' takes no profile")
    flags = {ALIASES.get(option, option) for option in options if "=" not in option}
    names = sorted({*KINDS[name].options} - {RUBRIC, DECIDER})
    if unknown := sorted(flags.difference(names)):
        hint = f"{suggest(unknown[0], names)} (or NAME=VALUE)" if names else ": it has none"
        raise InputError(f"judge '{text}': no option '{unknown[0]}'{hint}")
    pairs = [option.split("=", 1) for option in options if "=" in option]
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise InputError(f"judge '{text}': a parameter is set twice; set each once")
    spec = EvaluatorSpec(name, profile, frozenset(flags), parameters, model)
    if not spec.is_debate:
        read_options(spec)

    return spec


def _read_argument(form: str, check: Callable[[str], object], text: str) -> EvaluatorSpec:
    """Parse a judge whose argument is the complete text after the colon. `form`: the correct form,
    for messages. `check`: a function that raises an error if the argument cannot be used."""
    name, _, argument = text.partition(":")
    if not argument:
        raise InputError(f"judge '{text}': its text after the colon is missing; write {form}")
    check(argument)
    return EvaluatorSpec(name, argument)


def _read_hybrid(text: str) -> EvaluatorSpec:
    file, _, judge = text.partition(":")[2].partition(":")
    if not file or not judge:
        raise InputError(
            f"judge '{text}': its file or its judge is missing; write hybrid:FILE.yaml:JUDGE"
        )

    return EvaluatorSpec(HYBRID, file, parts=(judge,))


def _read_cascade(text: str) -> EvaluatorSpec:
    below, *parts = read_cascade(text, _begins_judge)
    return EvaluatorSpec(CASCADE, below, parts=tuple(parts))


def _begins_judge(text: str) -> bool:
    """Return whether a text begins with the name of a judge or with the file of a fitted judge."""
    name = re.split("[:+@,]", text, maxsplit=1)[0]
    return name in KINDS or re.fullmatch(r"[^,@]+\.judge(@.+)?", text) is not None


def _read_fitted(path: str) -> EvaluatorSpec:
    """Read the file of a fitted judge. Its `parts` are its signals, each with the model of the
    fit."""
    parts = tuple(with_model(signal.judge, signal.model) for signal in load_fitted(path).signals)
    return EvaluatorSpec(FITTED, path, parts=parts)


def read_rubric(spec: EvaluatorSpec, rubric_text: str = "") -> str:
    """Return the rubric that replaces a judge's own questions: `rubric_text`, or the file or
    shipped rubric that the judge's text names; empty if there is none. A judge made of other judges
    checks the rubric with each of its parts that takes one.

    Raises:
        InputError: the file cannot be read, both rubrics are given, the judge takes no rubric, or
            its levels cannot be used.
    """
    file = spec.parameters.get(RUBRIC)
    if not rubric_text and file is None:
        return ""
    if rubric_text and file is not None:
        raise InputError(
            "the rubric is set twice, in the judge's name and as an option of its own; set it once"
        )

    if rubric_text and not spec.takes_rubric:
        raise InputError(
            f"judge {spec.name} takes no rubric: it asks no question that a rubric could replace"
        )

    for judge in spec.judges:
        read_rubric(judge, rubric_text if judge.takes_rubric else "")
    if spec.parts:
        return rubric_text
    if file and is_rubric_name(file) and not is_file(file):
        rubric_text = file
    rubric = expand_rubric(rubric_text or read_text(file or ""))
    if spec.name in (DECIDE, "checklist", TRAJECTORY):
        ask_criteria(read_criteria(rubric))

    return rubric


def with_rubric(profile: Profile, rubric: str) -> Profile:
    """Return the profile with the rubric as its only component; unchanged if the rubric is
    empty."""
    if not rubric:
        return profile
    component = Component(
        name=RUBRIC,
        meaning=f"how far it does what this rubric asks: {rubric}",
        question=f"does it do all that this rubric asks? {rubric}",
    )

    return override(profile, {"components": (component,)})


def read_options(spec: EvaluatorSpec, rubric: str = "", concurrency: int = 64) -> Options:
    """Return the options of a judge that is no debate.

    Raises:
        InputError: there is no such parameter, or options exclude each other.
    """
    names = {"seed", *spec.kind.options}
    if unknown := sorted(spec.parameters.keys() - names):
        raise InputError(f"judge {spec.name}: no parameter '{unknown[0]}'")
    if "choice" in spec.options and not spec.options <= {"choice", "rules"}:
        raise InputError(
            f"judge {spec.name}: the option choice can be combined only with rules and rubric"
        )

    if {"pairwise", "examples"} <= spec.options:
        raise InputError(
            f"judge {spec.name} takes no examples: they show single texts, and this judge"
            " compares pairs"
        )

    if not spec.parameters.get(DECIDER, "none").strip():
        raise InputError(
            f"judge {spec.name}: no model is named; name one, as in {DECIDER}=local/laya"
        )

    flags = dict.fromkeys(spec.options & {"rules", "examples"}, True)
    seed: Any = spec.parameters.get("seed", 0)

    return Options(
        **flags,
        reference="reference" in (spec.name, *spec.options),
        seed=seed,
        rubric=rubric,
        concurrency=concurrency,
    )


def read_profile(spec: EvaluatorSpec, rubric: str = "") -> Profile:
    """Return the profile of a debate, a jury or a single judge, overridden by the parameters in the
    judge's text. `rubric`: the result of `read_rubric`, which becomes the only component.

    Raises:
        InputError: there is no such profile, or a parameter cannot be used.
    """
    fixed = dict(DEBATES[spec.name])
    if spec.name == "single":
        fixed["agents"] = (LONE_JUDGE,)
    if "rules" in spec.options:
        fixed["rules"] = True
    parameters = {name: value for name, value in spec.parameters.items() if name != RUBRIC}
    profile = with_rubric(load_profile(spec.profile or "general"), rubric)

    return override(profile, {**fixed, **parameters})


def judges_in(text: str) -> tuple[EvaluatorSpec, ...]:
    """Return the judges in a judge's text that call no other judge: its innermost parts, or itself.

    Raises:
        InputError: one of them cannot be parsed.
    """
    spec = parse_evaluator(text)

    return (
        tuple(judge for part in spec.parts for judge in judges_in(part)) if spec.parts else (spec,)
    )


def with_model(text: str, model: str | None) -> str:
    """Return a judge's text with `model` added to each judge that calls a model but names none."""
    spec = parse_evaluator(text)
    if model is None or not spec.kind.asks:
        return text
    if spec.parts:
        parts = ",".join(with_model(part, model) for part in spec.parts)
        return f"{spec.name}:{spec.profile}:{parts}"
    return text if spec.model else f"{text}@{model}"


def judge_models(text: str, model: M) -> tuple[str | M, ...]:
    """Return the models that a judge calls, without repetition. `model` is used where a judge names
    none."""
    names: dict[str | M, None] = {}
    for spec in judges_in(text):
        chosen = spec.model or model
        if spec.is_debate:
            names |= dict.fromkeys(read_profile(spec).models(chosen))
        elif spec.kind.asks:
            names |= dict.fromkeys((chosen, spec.parameters.get(DECIDER, chosen)))

    return tuple(names)


def pass_threshold(text: str) -> float | None:
    """Return the score from which a judge passes a text. None if its verdict does not depend on a
    threshold, as with a metric, or if its parts have different thresholds."""
    thresholds = {
        read_profile(judge).threshold
        if judge.is_debate
        else Options().threshold
        if judge.kind.asks
        else None
        for judge in judges_in(text)
    }

    return thresholds.pop() if len(thresholds) == 1 else None


def is_swayed(text: str) -> bool:
    """Return whether the order of the candidates may influence a judge. Most judges see one
    candidate at a time, or each pair in both orders; debates, `choice` and the user's own judges do
    not."""
    return any("choice" in s.options or s.is_debate or s.name == PYTHON for s in judges_in(text))


def reads_decisions(text: str) -> bool:
    """Return whether a judge's text names a debate with the readout `decide`, in which a model
    scores by answering a typed question about each candidate and component."""
    spec = parse_evaluator(text)
    spec = spec.judges[0] if spec.name == HYBRID else spec
    return spec.is_debate and read_profile(spec).readout == "decide"


def _profiles_in(text: str) -> list[Profile]:
    return [read_profile(spec) for spec in judges_in(text) if spec.is_debate]


def collections_of(text: str) -> tuple[str, ...]:
    """Return the memory collections that the debaters of a judge recall from, without
    repetition."""
    return tuple(
        dict.fromkeys(name for profile in _profiles_in(text) for name in profile.collections)
    )


def agents_of(text: str) -> tuple[str, ...]:
    """Return the names of the stored agents in the profiles of a judge."""
    return tuple(name for profile in _profiles_in(text) for name in profile.stored_agents)


def check_absolute(text: str) -> None:
    """Raise InputError if a judge only compares the candidates of one case with each other."""
    if any(spec.is_relative for spec in judges_in(text)):
        raise InputError(
            f"judge '{text}' compares the candidates of one case with each other, so its scores"
            " of two cases cannot be compared; use another judge, such as probe+rules"
        )


def describe_judge(text: str) -> Mapping[str, Any]:
    """Return what a judge's text refers to (its profile, rubric, rules, metric or fit, also of the
    judges that it calls), as a JSON-ready mapping; empty if it refers to nothing. It is part of the
    identity of a run."""
    spec = parse_evaluator(text)
    return spec.kind.describe(spec)


def _describe_rubric(spec: EvaluatorSpec) -> Mapping[str, Any]:
    rubric = read_rubric(spec)
    return {RUBRIC: rubric} if rubric else {}


def _describe_trajectory(spec: EvaluatorSpec) -> Mapping[str, Any]:
    return {RUBRIC: read_rubric(spec) or load_rubric(TRAJECTORY).text}


def _describe_debate(spec: EvaluatorSpec) -> Mapping[str, Any]:
    return {"profile": read_profile(spec, read_rubric(spec)).model_dump(mode="json")}


def _describe_metric(spec: EvaluatorSpec) -> Mapping[str, Any]:
    return {METRIC: describe_metric(spec.profile)}


def _describe_rules(spec: EvaluatorSpec) -> Mapping[str, Any]:
    file = load_rules(spec.profile).file
    about: dict[str, Any] = {RULES: file.model_dump(mode="json", by_alias=True)}
    for part in spec.parts:
        about |= describe_judge(part)
    return about


def _describe_parts(spec: EvaluatorSpec) -> dict[str, Any]:
    return {part: about for part in spec.parts if (about := describe_judge(part))}


def _describe_fitted(spec: EvaluatorSpec) -> Mapping[str, Any]:
    file = load_fitted(spec.profile).model_dump(mode="json")
    return {**_describe_parts(spec), FITTED: file}


@dataclass(frozen=True, slots=True)
class Judges:
    """Opens the judges of one run. `model`: the model of judges that name none. `objects`: the
    user's own evaluators by name. `today`: the date in the prompts of debates, as YYYY-MM-DD; None:
    the current date. `recall`: recalls memories for debaters. `fill`: puts stored agents into a
    profile. `tracing`: the root of spans."""

    model: str
    model_of: Callable[[str], Model]
    listener: Listener = silence
    concurrency: int = 64
    today: str | None = None
    objects: Mapping[str, object] = empty_default(dict)
    recall: Recall = nothing
    fill: Callable[[Profile], Profile] = lambda profile: profile
    tracing: Span = NO_SPAN

    def open(self, text: str, rubric: str = "") -> Evaluator:
        """Open the judge that a text names. `rubric`: text that replaces the judge's own questions;
        empty: none.

        Raises:
            InputError: there is no such judge, file or profile, or an option cannot be used.
        """
        spec = parse_evaluator(text)
        judge = spec.kind.open(self, spec, read_rubric(spec, rubric))

        return trace_judge(text, judge, self.tracing)

    def open_parts(self, spec: EvaluatorSpec, rubric: str) -> list[Evaluator]:
        """Open the judges that a judge calls, and pass the rubric to each that takes one."""
        return [
            keep_whole(self.open(part, rubric if parse_evaluator(part).takes_rubric else ""))
            for part in spec.parts
        ]


def _open_debate(judges: Judges, spec: EvaluatorSpec, rubric: str) -> Evaluator:
    return Debate(
        profile=judges.fill(read_profile(spec, rubric)),
        model_of=lambda agent: judges.model_of(agent.model or spec.model or judges.model),
        listener=judges.listener,
        concurrency=judges.concurrency,
        today=judges.today or this_day(),
        recall=judges.recall,
    )


def _open_asking(
    make: Callable[..., Evaluator], judges: Judges, spec: EvaluatorSpec, rubric: str
) -> Evaluator:
    if DECIDER in spec.parameters:
        make = partial(make, decider=judges.model_of(spec.parameters[DECIDER]))
    options = read_options(spec, rubric, judges.concurrency)
    return make(model=judges.model_of(spec.model or judges.model), options=options)


def _open_decide(judges: Judges, spec: EvaluatorSpec, rubric: str) -> Evaluator:
    makes = {"choice": DecideChoice, "pairwise": partial(Pairwise, ask=choose_between)}
    make = next((makes[option] for option in makes if option in spec.options), Decide)
    return _open_asking(make, judges, spec, rubric)


def _open_argument(
    make: Callable[[str], Evaluator], _: Judges, spec: EvaluatorSpec, _rubric: str
) -> Evaluator:
    return make(spec.profile)


def _open_hybrid(judges: Judges, spec: EvaluatorSpec, rubric: str) -> Evaluator:
    rules = load_rules(spec.profile)
    return Hybrid(rules, *judges.open_parts(spec, rubric), rules_weight=rules.file.share)


def _open_cascade(judges: Judges, spec: EvaluatorSpec, rubric: str) -> Evaluator:
    cheap, strong = judges.open_parts(spec, rubric)
    return Cascade(cheap, strong, float(spec.profile), (spec.parts[0], spec.parts[1]))


def _open_python(judges: Judges, spec: EvaluatorSpec, _rubric: str) -> Evaluator:
    judge = load_user_object(f"{OWN}{spec.profile}", judges.objects)
    return as_evaluator(cast("Callable[[Case], Any]", judge))


def _open_fitted(judges: Judges, spec: EvaluatorSpec, rubric: str) -> Evaluator:
    file = load_fitted(spec.profile)
    names = [signal.judge for signal in file.signals]
    parts = dict(zip(names, judges.open_parts(spec, rubric), strict=True))
    ordered = frozenset(filter(is_swayed, names))
    return FittedJudge(file, parts, ordered, judges.concurrency, spec.profile)


def trace_judge(name: str, judge: Evaluator, root: Span = NO_SPAN) -> Evaluator:
    """Wrap a judge so that each call is traced as a span with an event for each judgement. `root`:
    the parent span if no span is open."""

    async def judge_traced(case: Case, /) -> Evaluation:
        with span("judge", name, root, input=case.input) as here:
            evaluation = await judge(case)
            for outcome in evaluation.result:
                here.judge(name, outcome)
            if len(evaluation.result) == 1:
                here.note(outcome=evaluation.result[0])
            return evaluation

    return judge_traced


def keep_whole(judge: Evaluator) -> Evaluator:
    """Wrap a judge so that a debate that a limit cut short raises BudgetError instead of returning
    preliminary scores: a resumed run completes the debate."""

    async def judge_whole(case: Case, /) -> Evaluation:
        evaluation = await judge(case)
        if isinstance(evaluation, DebateResult) and evaluation.stopped == "budget":
            raise BudgetError(describe_limit(evaluation))
        return evaluation

    return judge_whole


def describe_limit(result: DebateResult) -> str:
    """Return the reason why a limit forbade a debate, or else its first turn that was forbidden; a
    general sentence if neither has a reason."""
    skipped = result.failure or select_skipped(turn.failure for turn in result.turns)
    return skipped.reason if skipped else "a limit was reached within the debate"


Open: TypeAlias = Callable[[Judges, EvaluatorSpec, str], Evaluator]
"""A function that opens a judge from the run's judges, the parsed text and the rubric."""


@dataclass(frozen=True, slots=True)
class JudgeKind:
    """An entry of the registry of judges. `open` makes the evaluator from the run's judges, the
    parsed text and the rubric. `options`: the options that may follow the name; `rubric` and
    `decider` take a value, and `decider` is the model that judges what the main model wrote. `read`
    parses the text. `describe` returns the content of its files. `needs`: the fields that a case
    must have for a score. `asks`: whether the judge calls a model that the run chooses."""

    open: Open
    options: tuple[str, ...] = ()
    read: Callable[[str], EvaluatorSpec] = read_plain
    describe: Callable[[EvaluatorSpec], Mapping[str, Any]] = _describe_rubric
    needs: tuple[str, ...] = ()
    reads_reference: bool = False
    asks: bool = True


ON_PAIRS = ("rules", "reference", RUBRIC)
ON_TEXTS = (*ON_PAIRS, "examples")
"""The options of judges that compare pairs of candidates, and of judges that see one candidate at a
time."""

KINDS: Mapping[str, JudgeKind] = {
    **dict.fromkeys(DEBATES, JudgeKind(_open_debate, ("rules", RUBRIC), describe=_describe_debate)),
    "pairwise": JudgeKind(partial(_open_asking, Pairwise), ON_PAIRS),
    "probe": JudgeKind(partial(_open_asking, Probe), ON_TEXTS),
    "checklist": JudgeKind(partial(_open_asking, Checklist), (*ON_PAIRS, DECIDER)),
    TRAJECTORY: JudgeKind(
        partial(_open_asking, TrajectoryJudge), ON_PAIRS, describe=_describe_trajectory
    ),
    "reference": JudgeKind(partial(_open_asking, Probe), ON_TEXTS, reads_reference=True),
    DECIDE: JudgeKind(_open_decide, (*ON_TEXTS, "pairwise", "choice")),
    "instruction-likelihood": JudgeKind(partial(_open_asking, InstructionLikelihood)),
    "embedding": JudgeKind(
        partial(_open_asking, EmbeddingSimilarity), needs=("reference",), reads_reference=True
    ),
    **{
        name: JudgeKind(
            partial(_open_asking, partial(StatementJudge, check=check)),
            (DECIDER,),
            needs=check.needs,
            reads_reference=check.answer != "response",
        )
        for name, check in CHECKS.items()
    },
    METRIC: JudgeKind(
        partial(_open_argument, MetricJudge),
        read=partial(_read_argument, "metric:NAME, such as metric:exact", MetricJudge),
        describe=_describe_metric,
        reads_reference=True,
        asks=False,
    ),
    LOOK: JudgeKind(
        partial(_open_argument, LookJudge),
        read=partial(_read_argument, "look:length", LookJudge),
        asks=False,
    ),
    RULES: JudgeKind(
        partial(_open_argument, load_rules),
        read=partial(_read_argument, "rules:FILE.yaml", str),
        describe=_describe_rules,
        asks=False,
    ),
    HYBRID: JudgeKind(_open_hybrid, (RUBRIC,), _read_hybrid, _describe_rules),
    CASCADE: JudgeKind(_open_cascade, (RUBRIC,), _read_cascade, _describe_parts),
    PYTHON: JudgeKind(
        _open_python,
        read=partial(_read_argument, f"{OWN}NAME", str),
        reads_reference=True,
        asks=False,
    ),
    FITTED: JudgeKind(_open_fitted, (), _read_fitted, _describe_fitted, asks=False),
}
"""The registry: each judge by the name with which its text begins."""

NAMES = tuple(name for name in KINDS if name not in (PYTHON, FITTED))
"""The names with which a judge's text can begin on the command line."""
