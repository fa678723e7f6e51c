"""What a judge's text such as `pairwise+rules` says: every judge there is, by one name.

    NAME[:PROFILE][+OPTION...][@MODEL]

    debate:general                the profile's agents, as the profile says
    jury:general                  the same agents, each blind and alone, one round
    single                        one neutral agent that states its scores once
    escalation:general            a jury; a debate only where it leaves the winner in doubt
    pairwise, probe, checklist    see `textevolve.judges`
    decide                        typed questions, a criterion of the rubric each, in one request;
                                  decide+pairwise: which of two candidates is better;
                                  decide+choice: which of all candidates is the right one
    instruction-likelihood        how well a response tells its instruction
    reference                     a probe beside the case's reference, or the judge's own answer
    faithfulness, answer-relevance, context-recall, context-precision
                                  a text taken apart: see `textevolve.judges.statements`
    embedding@MODEL               how near a text's embedding comes to that of the reference
    metric:NAME                   a metric of `textevolve.metrics`, which asks no model; all that
                                  follows the colon is its name
    cascade:BELOW:FIRST,SECOND    two judges, the second where the first is not sure:
                                  see `textevolve.judges.cascade`
    look:length                   the length of a text; see `textevolve.judges.looks`
    FILE.judge                    judges fitted to labels, see `textevolve.judges.fitted_file`; all
                                  of the text is the file's path

The options of each judge are in `KINDS`. `rubric=FILE` is one of each that takes a rubric: what to
judge by instead of the shipped question, criteria or components. `NAME=VALUE` sets a parameter of
the profile (`rounds=1`, `readout=decide`, `decider=local/julia-1`), or `decider=MODEL` of checklist
and of those that take a text apart: the model that judges what the judge's own model wrote down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from textevolve.debate.profile import Agent, Component, Profile, load_profile, override, suggest
from textevolve.errors import InputError
from textevolve.evaluation import Evaluator
from textevolve.judges.cascade import CASCADE, read_cascade
from textevolve.judges.context import Options
from textevolve.judges.criteria import ask_criteria, read_criteria
from textevolve.judges.decide import Decide
from textevolve.judges.embedding import EmbeddingSimilarity
from textevolve.judges.fitted_file import is_fitted, load_fitted
from textevolve.judges.instruction_likelihood import InstructionLikelihood
from textevolve.judges.looks import LOOK, check_look
from textevolve.judges.pairwise import Pairwise
from textevolve.judges.probe import Checklist, Probe
from textevolve.judges.shipped_rubrics import expand_rubric, is_rubric_name
from textevolve.judges.statements import CHECKS, StatementJudge
from textevolve.loops.rules import load_rules
from textevolve.metrics.label_metrics import describe_metric, needs_label, open_metric
from textevolve.reach import is_file
from textevolve.rows import read_text
from textevolve.user_code import OWN

DEBATES: Mapping[str, Mapping[str, Any]] = {
    "debate": {},
    "jury": {"protocol": "independent", "rounds": 1},
    "single": {"protocol": "independent", "rounds": 1},
    "escalation": {"protocol": "escalation"},
}

DECIDE = "decide"

ALIASES = {"few-shot": "examples", "reference-guided": "reference"}
"""The field's terms for options."""

METRIC = "metric"
"""The judge that is any metric without a model."""

FITTED = "fitted"
"""The name in the specification of a judge that is a file."""

UNASKING = (METRIC, LOOK)
"""Judges that ask no model."""

RUBRIC, DECIDER = "rubric", "decider"

LONE_JUDGE = Agent(
    name="Judge",
    persona="You judge alone, fairly and exactly, by what each response does for the input.",
)


M = TypeVar("M", str, str | None)


@dataclass(frozen=True, slots=True)
class JudgeKind:
    """A judge that does not debate. `make` takes a `model`, `options`, and a `decider` where the
    judge `has_decider`: one model writes down what is to be judged, and another one may judge it.
    `options`: what may follow its name. `needs`: the fields of a case without which there is no
    score."""

    make: Callable[..., Evaluator]
    options: tuple[str, ...] = ()
    takes_rubric: bool = True
    has_decider: bool = False
    needs: tuple[str, ...] = ()
    reads_reference: bool = False


ON_TEXTS = ("rules", "reference", "examples")

KINDS: Mapping[str, JudgeKind] = {
    "pairwise": JudgeKind(Pairwise, ("rules", "reference")),
    "probe": JudgeKind(Probe, ON_TEXTS),
    "checklist": JudgeKind(Checklist, ("rules", "reference"), has_decider=True),
    "reference": JudgeKind(Probe, ON_TEXTS, reads_reference=True),
    DECIDE: JudgeKind(Decide, (*ON_TEXTS, "pairwise", "choice")),
    "instruction-likelihood": JudgeKind(InstructionLikelihood, takes_rubric=False),
    "embedding": JudgeKind(
        EmbeddingSimilarity, takes_rubric=False, needs=("reference",), reads_reference=True
    ),
    **{
        name: JudgeKind(
            partial(StatementJudge, check=check),
            takes_rubric=False,
            has_decider=True,
            needs=check.needs,
            reads_reference=check.answer != "response",
        )
        for name, check in CHECKS.items()
    },
}

NAMES = (*DEBATES, *KINDS)


def options_of(name: str) -> tuple[str, ...]:
    """The options that may follow a judge's name."""
    return KINDS[name].options if name in KINDS else ("rules",) if name in DEBATES else ()


@dataclass(frozen=True, slots=True)
class EvaluatorSpec:
    """A judge, read from its text. `model` is None where the run's model is to judge. Of `metric`,
    `profile` is the metric, of `look` the look, of a cascade BELOW, of a fitted judge its file; the
    judges that the latter two ask are their `parts`."""

    name: str
    profile: str | None = None
    options: frozenset[str] = frozenset()
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def is_debate(self) -> bool:
        return self.name in DEBATES

    @property
    def is_relative(self) -> bool:
        """Whether its scores only compare candidates of one case with each other."""
        return self.name == "pairwise" or not self.options.isdisjoint(("pairwise", "choice"))

    @property
    def decider(self) -> str | None:
        """The model that judges what another one wrote down."""
        has_decider = self.name in KINDS and KINDS[self.name].has_decider
        return self.parameters.get(DECIDER) if has_decider else None

    @property
    def reads_reference(self) -> bool:
        """Whether the case's own reference is looked at."""
        if self.parts:
            return any(spec.reads_reference for part in self.parts for spec in judges_in(part))
        by_kind = self.name in KINDS and KINDS[self.name].reads_reference
        return by_kind or "reference" in self.options or self.name == METRIC

    @property
    def needs(self) -> tuple[str, ...]:
        """Which of `context` and `reference` a case must have, so that there is a score at all."""
        if self.parts:
            needs = (need for part in self.parts for spec in judges_in(part) for need in spec.needs)
            return tuple(dict.fromkeys(needs))
        if self.name == METRIC:
            return ("reference",) if needs_label(self.profile or "") else ()
        return KINDS[self.name].needs if self.name in KINDS else ()


def parse_evaluator(text: str) -> EvaluatorSpec:
    """
    Raises:
        InputError: no such judge or option, or a value that cannot be used; says which there are.
    """
    kind, _, argument = text.strip().partition(":")
    if kind == METRIC:
        if not argument:
            raise InputError(f"judge '{text}': write metric:NAME, such as metric:exact")
        open_metric(argument)
        return EvaluatorSpec(METRIC, argument)
    if kind == CASCADE:
        below, *parts = read_cascade(text.strip(), _begins_judge)
        for part in parts:
            judges_in(part)
        return EvaluatorSpec(CASCADE, below, parts=tuple(parts))
    if kind == LOOK:
        check_look(argument)
        return EvaluatorSpec(LOOK, argument)
    if is_fitted(text):
        return read_fitted(text.strip())
    judge, _, model = text.strip().partition("@")
    head, *options = judge.split("+")
    name, _, profile = head.partition(":")
    if name not in NAMES:
        raise InputError(
            f"judge '{text}': no judge '{name}'{suggest(name, [*NAMES, *UNASKING, CASCADE])}"
        )
    if profile and name not in DEBATES:
        raise InputError(f"judge '{text}': '{name}' takes no profile")
    flags = {ALIASES.get(option, option) for option in options if "=" not in option}
    known = sorted(options_of(name))
    if unknown := sorted(flags.difference(known)):
        others = f"{suggest(unknown[0], known)} (or NAME=VALUE)" if known else ": it has none"
        raise InputError(f"judge '{text}': no option '{unknown[0]}'{others}")
    parameters = dict(option.split("=", 1) for option in options if "=" in option)
    if len(parameters) < sum("=" in option for option in options):
        raise InputError(f"judge '{text}': a parameter is set twice")
    spec = EvaluatorSpec(name, profile or None, frozenset(flags), parameters, model or None)
    if not spec.is_debate:
        read_options(spec)
    return spec


def _begins_judge(text: str) -> bool:
    """Whether a text begins as a judge's text does: by a judge's name, or with a fitted judge."""
    name = re.split("[:+@,]", text, maxsplit=1)[0]
    known = (*NAMES, *UNASKING, CASCADE, "rules", "hybrid", OWN.rstrip(":"))
    return name in known or re.fullmatch(r"[^,@]+\.judge(@.+)?", text) is not None


def read_fitted(path: str) -> EvaluatorSpec:
    """A fitted judge; its parts are its signals, each with the model that it was fitted with.

    Raises:
        InputError: the file, or a signal in it, cannot be used.
    """
    signals = load_fitted(path).signals
    parts = tuple(with_model(signal.judge, signal.model) for signal in signals)
    for part in parts:
        judges_in(part)
    return EvaluatorSpec(FITTED, path, parts=parts)


def judges_in(text: str) -> tuple[EvaluatorSpec, ...]:
    """Every judge in a judge's text that stands for itself: both of a cascade, the signals of a
    fitted one, that of a hybrid, none of rules and of the user's own objects.

    Raises:
        InputError: one of them cannot be read.
    """
    _, judge = split_rules(text)
    if judge is None:
        return ()
    spec = parse_evaluator(judge)
    return tuple(one for part in spec.parts for one in judges_in(part)) if spec.parts else (spec,)


def read_rubric(spec: EvaluatorSpec, given: str = "") -> str:
    """What a judge is to judge by instead of its own questions: the text that was given beside its
    spec, or that of the file in it, each of which may be the name of a shipped rubric; empty where
    there is neither.

    Raises:
        InputError: the file cannot be read, both are there, the judge has no use for one, or levels
            in it cannot be used.
    """
    if spec.name == CASCADE:
        parts = (judge for part in spec.parts for judge in judges_in(part))
        asked = [judge for judge in parts if judge.name not in UNASKING]
        if given and not asked:
            raise InputError("neither judge of the cascade takes a rubric: none is asked anything")
        return [read_rubric(judge, given) for judge in asked][-1] if given else ""
    file = spec.parameters.get(RUBRIC)
    if not given and file is None:
        return ""
    if not spec.is_debate and not (spec.name in KINDS and KINDS[spec.name].takes_rubric):
        raise InputError(f"judge {spec.name} takes no rubric: it asks no question to replace")
    if given and file is not None:
        raise InputError("the rubric is there twice: in the judge's name, and beside it")
    if file and is_rubric_name(file) and not is_file(file):
        given = file
    rubric = expand_rubric(given or read_text(file or ""))
    if spec.name in (DECIDE, "checklist"):
        ask_criteria(read_criteria(rubric))
    return rubric


def with_rubric(profile: Profile, rubric: str) -> Profile:
    """The profile with the rubric as its one component, so that scores are about nothing else."""
    if not rubric:
        return profile
    component = Component(
        name=RUBRIC,
        meaning=f"how far it does what this rubric asks: {rubric}",
        question=f"does it do all that this rubric asks? {rubric}",
    )
    return override(profile, {"components": (component,)})


def read_options(spec: EvaluatorSpec, concurrency: int = 64) -> Options:
    """The options of a judge that does not debate."""
    known = {"seed", RUBRIC, DECIDER} if KINDS[spec.name].has_decider else {"seed", RUBRIC}
    if unknown := sorted(spec.parameters.keys() - known):
        raise InputError(f"judge {spec.name}: no parameter '{unknown[0]}'")
    if "choice" in spec.options and not spec.options <= {"choice", "rules"}:
        raise InputError(
            f"judge {spec.name}: of its options choice only goes with rules and rubric"
        )
    if {"pairwise", "examples"} <= spec.options:
        raise InputError(f"judge {spec.name}: examples are of single texts, and pairs are compared")
    if not spec.parameters.get(DECIDER, "none").strip():
        raise InputError(f"judge {spec.name}: name a model, as in {DECIDER}=local/laya")
    seed = spec.parameters.get("seed", "0")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", seed):
        raise InputError(f"seed must be a whole number, not '{seed}'")
    return Options(
        rules="rules" in spec.options,
        reference="reference" in spec.options or spec.name == "reference",
        examples="examples" in spec.options,
        seed=int(seed),
        concurrency=concurrency,
    )


def read_profile(spec: EvaluatorSpec, rubric: str = "") -> Profile:
    """The profile of a debate, a jury or a single judge, with the spec's parameters laid over it.

    Raises:
        InputError: there is no such profile, or a parameter cannot be used.
    """
    profile = load_profile(spec.profile or "general")
    fixed = dict(DEBATES[spec.name])
    if spec.name == "single":
        fixed["agents"] = (LONE_JUDGE,)
    if "rules" in spec.options:
        fixed["rules"] = True
    parameters = {name: value for name, value in spec.parameters.items() if name != RUBRIC}
    return override(with_rubric(profile, read_rubric(spec, rubric)), {**fixed, **parameters})


def models_of(spec: EvaluatorSpec, model: M) -> tuple[str | M, ...]:
    """Every model that a judge asks, each once."""
    if spec.name in UNASKING:
        return ()
    if spec.parts:
        asked = (name for part in spec.parts for name in judge_models(part, model))
        return tuple(dict.fromkeys(asked))
    asked = spec.model or model
    if not spec.is_debate:
        return tuple(dict.fromkeys((asked, spec.decider or asked)))
    return read_profile(spec).models(asked)


def split_rules(text: str) -> tuple[str | None, str | None]:
    """The rules file and the judge in a judge's text, each None where there is none.

    Raises:
        InputError: it begins like one with rules, and names no file or no judge.
    """
    if text.startswith(OWN):
        return None, None
    kind, _, rest = text.partition(":")
    if kind not in ("rules", "hybrid"):
        return None, text
    file, _, judge = (rest, "", None) if kind == "rules" else rest.partition(":")
    if not file or judge == "":
        form = "rules:FILE.yaml" if kind == "rules" else "hybrid:FILE.yaml:JUDGE"
        raise InputError(f"judge '{text}': write {form}")
    return file, judge


def with_model(text: str, model: str | None) -> str:
    """The judge with `model` in its text, where it asks one and names none."""
    _, judge = split_rules(text)
    if model is None or judge is None or not judge_models(text, model):
        return text
    spec = parse_evaluator(judge)
    if spec.name == FITTED:
        return text
    if spec.parts:
        named = ",".join(with_model(part, model) for part in spec.parts)
        return f"{text.removesuffix(judge)}{CASCADE}:{spec.profile}:{named}"
    return text if spec.model is not None else f"{text}@{model}"


def judge_models(text: str, model: M) -> tuple[str | M, ...]:
    """The models that a judge asks, each once; `model` stands where it names none."""
    _, judge = split_rules(text)
    return () if judge is None else models_of(parse_evaluator(judge), model)


def is_swayed(text: str) -> bool:
    """Tell whether the order of candidates may sway a judge. Judges that do not debate see one
    candidate at a time, or ask about each pair in both orders, unless they choose among all."""
    swayed = any("choice" in spec.options or spec.is_debate for spec in judges_in(text))
    return text.startswith(OWN) or swayed


def takes_rubric(text: str) -> bool:
    """Whether a judge within a cascade is handed the rubric: rules and metrics judge by their own
    measure."""
    return any(spec.name not in UNASKING for spec in judges_in(text))


def reads_decisions(text: str) -> bool:
    """Whether a judge's text names a debate with the readout `decide`."""
    _, judge = split_rules(text)
    spec = None if judge is None else parse_evaluator(judge)
    return spec is not None and spec.is_debate and read_profile(spec).readout == "decide"


def _profiles_in(text: str) -> list[Profile]:
    return [read_profile(spec) for spec in judges_in(text) if spec.is_debate]


def collections_of(text: str) -> tuple[str, ...]:
    """The collections of memories that the debaters of a judge recall from, each once."""
    return tuple(dict.fromkeys(name for one in _profiles_in(text) for name in one.collections))


def agents_of(text: str) -> tuple[str, ...]:
    """The stored agents that the profile of a judge names."""
    return tuple(name for one in _profiles_in(text) for name in one.stored_agents)


def check_absolute(text: str) -> None:
    """Raises InputError where a judge only compares candidates of one case with each other."""
    if any(spec.is_relative for spec in judges_in(text)):
        raise InputError(
            f"judge '{text}' compares candidates of one case with each other, so its scores of two"
            " cases cannot be compared; take another judge, such as probe+rules"
        )


def describe_judge(text: str) -> Mapping[str, Any]:
    """The files behind a judge's text, as JSON. They make a run what it is, too."""
    rules, judge = split_rules(text)
    found: dict[str, Any] = {}
    if rules is not None:
        found["rules"] = load_rules(rules).file.model_dump(mode="json", by_alias=True)
    if judge is None:
        return found
    spec = parse_evaluator(judge)
    if spec.parts:
        said = {part: describe_judge(part) for part in spec.parts}
        found |= {part: about for part, about in said.items() if about}
        if spec.name == FITTED:
            found[FITTED] = load_fitted(spec.profile or "").model_dump(mode="json")
    elif spec.is_debate:
        found["profile"] = read_profile(spec).model_dump(mode="json")
    elif spec.name == METRIC:
        found[METRIC] = describe_metric(spec.profile or "")
    elif rubric := read_rubric(spec):
        found[RUBRIC] = rubric
    return found
