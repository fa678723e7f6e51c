"""The specification of `evaluate`, which `evaluate.py` runs.

It has a module of its own, so that importing the Python function `evaluate` loads only what its
signature needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, cast

from pydantic import (
    BeforeValidator,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from textevolve.debate.modes import Aggregation, CandidateOrder, ConvergenceMode, Selection
from textevolve.debate.profile import Profile, Protocol, Readout
from textevolve.errors import InputError
from textevolve.json_texts import is_sequence
from textevolve.judges.judge import Judge, SeveralJudges
from textevolve.judges.rubric import expand_rubric
from textevolve.llm.targets import FORMS, VERSION_HELP, NamedTarget
from textevolve.mappings import drop_none, read_fields
from textevolve.spec import Frozen, Several, option
from textevolve.studies.rows import CheckList, MappedSpec, check_option, with_checks_judge
from textevolve.texts.numbers import read_number, reject_odd_number

GROUP = "Debate"
NONE = "none"
"""The text that stands for None as a value of a parameter, whereas None means that the parameter is
not set."""

N = TypeVar("N", int, float)
Plain: TypeAlias = Annotated[N, BeforeValidator(reject_odd_number)]


def _as_text(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() == NONE:
        return NONE
    return str(reject_odd_number(value))


# A number as text, or NONE.
NumberOrNone: TypeAlias = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": NONE}]}),
]


def _read_weights(source: object) -> object:
    """Parse the weights of components, such as `accuracy=1,relevance=0.5`, as a mapping; numbers
    alone are a list in the order of the components."""
    if not isinstance(source, str):
        return source
    weights: dict[str, float] = {}
    if "=" not in source and not source.strip(" ,.0123456789"):
        return source.split(",")

    for part in source.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in weights:
            raise InputError(f"weights: '{name}' is given twice; give each component one weight")
        try:
            weights[name] = read_number(value)
        except ValueError:
            raise InputError(
                f"weights: '{part}' is not of the form NAME=NUMBER, such as accuracy=1"
            ) from None

    return weights


WeightsOption: TypeAlias = Annotated[
    dict[str, float] | list[float],
    BeforeValidator(_read_weights, json_schema_input_type=str | dict[str, float] | list[float]),
]


def _join_names(names: object) -> object:
    several = is_sequence(names)
    return ",".join(map(str, names)) if several else names


AgentNames: TypeAlias = Annotated[
    str, BeforeValidator(_join_names, json_schema_input_type=str | tuple[str, ...])
]
"""The names of stored agents, separated by commas; Python may pass them as a list."""


class DebateParameters(Frozen):
    """The parameters of a debate's profile that a run may override; None if not overridden."""

    agents: AgentNames | None = option(
        None,
        "Stored agents that debate instead of the profile's: acme/guide,acme/critic.",
        group=GROUP,
        identity=False,  # they are part of the profile, which identifies the run
        metavar="NAME,...",
    )
    rounds: Plain[int] | None = option(
        None, "The most rounds of the debate; default: the profile's.", group=GROUP
    )
    convergence: NumberOrNone | None = option(
        None,
        "End the debate early if the agents' scores have at most this coefficient of variation;"
        " default: the profile's.",
        group="Advanced",
        metavar="NUMBER|none",
    )
    convergence_mode: ConvergenceMode | None = option(
        None,
        "Compute that coefficient of variation between agents, or over all scores of a round.",
        hidden=True,
    )
    history_rounds: NumberOrNone | None = option(
        None,
        "The number of past rounds that an agent sees; 'none': all.",
        metavar="INTEGER|none",
        hidden=True,
    )
    protocol: Protocol | None = option(
        None,
        "The order in which agents speak: sequential, blind-first, escalation, rebuttal,"
        " simultaneous, simultaneous-summary or independent; default: auto.",
        group=GROUP,
        metavar="NAME",
    )
    escalate_below: Plain[float] | None = option(
        None,
        "The certainty from 0 to 1 below which the agents debate, with --protocol escalation;"
        " default: the profile's.",
        group="Advanced",
    )
    readout: Readout | None = option(
        None,
        "The way in which scores are read: pointwise or after-argument (P(yes)), verbalized (as"
        " stated), logprob-weighted, decide (typed questions), or auto.",
        group=GROUP,
        metavar="NAME",
    )
    decider: str | None = option(
        None,
        "The model that scores with --readout decide; none: the agent's own.",
        group="Advanced",
        metavar="MODEL|none",
    )
    argue: bool | None = option(
        None, "Whether the agents argue before they score.", group="Advanced"
    )
    argument_words: NumberOrNone | None = option(
        None,
        "The most words of an agent's argument, which then has no remarks on each response;"
        " 'none': no limit.",
        metavar="INTEGER|none",
        hidden=True,
    )
    rules: bool | None = option(
        None,
        "Add rules to the prompts: follow the input, be precise, give no credit for length.",
        group="Advanced",
    )
    order: CandidateOrder | None = option(
        None,
        "The order in which agents see candidates: fixed, balanced (every position equally"
        " often) or swap (each turn in both orders).",
        group="Advanced",
        metavar="NAME",
    )
    weights: WeightsOption | None = option(
        None,
        "The weights of the components of scores, such as accuracy=1,relevance=0.5.",
        group="Advanced",
        metavar="NAME=NUMBER",
    )
    aggregation: Aggregation | None = option(
        None,
        "How the agents' scores are combined: mean, median, trimmed (mean), last-round (its mean)"
        " or moderator (the last agent's scores).",
        group="Advanced",
        metavar="NAME",
    )
    select: Selection | None = option(
        None,
        "How the winner is chosen: argmax (the highest score) or sample (at random by scores).",
        group="Advanced",
        metavar="NAME",
    )
    temperature: Plain[float] | None = option(
        None,
        "The temperature of the softmax over the candidates' scores; default: the profile's.",
        group="Advanced",
    )
    sampling_temperature: NumberOrNone | None = option(
        None,
        "The temperature of the model, from 0 to 2; 'none': the model's default.",
        metavar="NUMBER|none",
        hidden=True,
    )
    max_answer_tokens: Plain[int] | None = option(
        None, "The most tokens of an agent's answer, 32 or more.", hidden=True
    )
    threshold: Plain[float] | None = option(
        None,
        "The score from 0 to 1 from which a candidate passes; default: the profile's.",
        group=GROUP,
    )
    seed: Plain[int] | None = option(
        None, "The seed of the model's answers; another seed makes another run.", group=GROUP
    )


CAN_BE_NONE = (
    "convergence",
    "history_rounds",
    "sampling_temperature",
    "argument_words",
    "decider",
)
"""The parameters that may have None as their value."""


def explicit_parameters(parameters: DebateParameters) -> dict[str, Any]:
    """Return the parameters that are set, as a profile reads them: the text `none` stands for
    None."""
    every = read_fields(parameters, *DebateParameters.model_fields)
    return drop_none(every)


def name_none(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments of a Python program to fields of a specification. For a parameter
    in `CAN_BE_NONE` None is a value and becomes NONE; another parameter that is None is not set."""
    return {
        name: NONE if value is None and name in CAN_BE_NONE else value
        for name, value in keywords.items()
    }


def _take_profile(profile: object) -> object:
    if not isinstance(profile, str | Path | Profile | Mapping):
        raise InputError(
            f"a profile is a name, a YAML file's path or a Profile, not {profile!r:.40}"
        )

    return str(profile) if isinstance(profile, Path) else cast(object, profile)


def _expand(rubric: str | None) -> str | None:
    """Replace the name of a shipped rubric by its text, so that a resumed run uses the same
    text."""
    return None if rubric is None else expand_rubric(rubric)


# A complete profile, or the name or file of one.
WholeProfile: TypeAlias = Annotated[
    str | Profile,
    BeforeValidator(_take_profile),
    WithJsonSchema({"type": ["string", "object"]}),
]


class EvaluateSpec(DebateParameters, MappedSpec):
    """Judge candidate texts by a debate of agents, or by any other judge.

    Exit codes: 0 done; 1 a model or the store failed; 2 bad input; 3 some cases have no score; 4 a
    gate fails; 130 interrupted.
    """

    kind: ClassVar[str] = "evaluate"
    of_spans: ClassVar[bool] = True
    variants_are_judges: ClassVar[bool] = True

    cases: Several = option(
        (),
        "The input, then its candidate texts (@FILE reads one, - standard input); or one file of"
        " cases (.jsonl, .json, .csv, .tsv, .parquet), a folder or pattern of such files, or a"
        " data set of the hub, hf:OWNER/NAME.",
        argument=True,
        identity=False,
        reads=True,
        metavar="INPUT CANDIDATE... | CASES",
    )
    target: NamedTarget | None = option(
        None,
        f"Your application, whose answers to the inputs are judged: {FORMS}.",
        group="Data",
        identity=False,  # `describe` has it
        metavar="TARGET",
    )
    target_version: str = option("", VERSION_HELP, group="Advanced", identity=False)
    each_reply: bool = option(
        False,
        "Judge each reply of a chat, not only the last one.",
        group="Advanced",
        identity=False,
    )
    profile: WholeProfile | None = option(
        None,
        "The profile of the debate: a shipped one, or a YAML file.",
        short="-p",
        group="Judging",
    )
    judge: SeveralJudges = option(
        (),
        "A judge instead of the profile's debate, such as probe+rules; `textevolve judges list`"
        " has all. Repeatable.",
        short="-j",
        group="Judging",
    )
    check: CheckList = check_option()
    score_by: str | None = option(
        None,
        "With several judges, the one whose scores the gates check; default: each.",
        group="Advanced",
        identity=False,
        metavar="JUDGE",
    )
    rubric: str | None = option(
        None,
        "The rubric that judges apply: a text, @FILE, or a shipped one (`textevolve judges"
        " rubrics list`); default: each judge's own questions.",
        group="Judging",
        text="argument",
    )
    _expanded = field_validator("rubric")(_expand)

    @field_validator("judge", mode="before")
    @classmethod
    def _take_judges(cls, value: Any) -> Any:
        return () if value is None else value

    @model_validator(mode="after")
    def _judge_by_checks(self) -> Self:
        if self.check:
            object.__setattr__(self, "judge", with_checks_judge(self.judge))
        return self

    @field_serializer("judge")
    def _write_judges(self, judges: tuple[Judge, ...]) -> str | list[str] | None:
        """Write a single judge as its text, as runs have it that were stored when there was only
        one; otherwise the same study would be another run."""
        if len(judges) > 1:
            return [judge.text for judge in judges]
        return judges[0].text if judges else None

    recall: str | None = option(
        None, "The memories that the agents recall from, in Python.", hidden=True
    )
