"""What may be asked of `evaluate`; how it is done is in `evaluate.py`.

Apart from that, so that whoever imports the verb alone loads no more than its signature needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast

from pydantic import BeforeValidator, WithJsonSchema, field_validator

from textevolve.debate.candidate_order import CandidateOrder
from textevolve.debate.modes import Aggregation, ConvergenceMode
from textevolve.debate.profile import Profile, Protocol, Readout, Selection
from textevolve.errors import InputError
from textevolve.judges.shipped_rubrics import expand_rubric
from textevolve.spec import Frozen, Several, option
from textevolve.studies.case_rows import ImagesSpec
from textevolve.texts.numbers import read_number, refuse_odd_number

GROUP = "Debate"
NONE = "none"
"""Stands for None where that is a value, and not a parameter that is not given."""

N = TypeVar("N", int, float)
Plain: TypeAlias = Annotated[N, BeforeValidator(refuse_odd_number)]


def _as_text(given: object) -> object:
    if isinstance(given, str) and given.strip().lower() == NONE:
        return NONE
    return str(refuse_odd_number(given))


NumberOrNone: TypeAlias = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": NONE}]}),
]


def _read_weights(given: object) -> object:
    """`accuracy=1,relevance=0.5` as a mapping."""
    if not isinstance(given, str):
        return given
    weights: dict[str, float] = {}
    for part in given.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in weights:
            raise InputError(f"weights: '{name}' is there twice; give each component one weight")
        try:
            weights[name] = read_number(value)
        except ValueError:
            raise InputError(
                f"weights: '{part}' is not of the form NAME=NUMBER, such as accuracy=1"
            ) from None
    return weights


WeightsOption: TypeAlias = Annotated[dict[str, float], BeforeValidator(_read_weights)]


class DebateParameters(Frozen):
    """Those of a profile's parameters that a run may set anew."""

    rounds: Plain[int] | None = option(
        None, "The most rounds of the debate, 1 or more.", group=GROUP
    )
    convergence: NumberOrNone | None = option(
        None,
        "End the debate once the agents' scores differ by no more than this coefficient of"
        " variation, from 0 to 1; 'none': never early.",
        group=GROUP,
        metavar="NUMBER|none",
    )
    convergence_mode: ConvergenceMode | None = option(
        None,
        "Measure that difference between agents, or over all of a round's scores.",
        group=GROUP,
    )
    history_rounds: NumberOrNone | None = option(
        None,
        "How many past rounds a turn sees; 'none': all.",
        group=GROUP,
        metavar="INTEGER|none",
    )
    protocol: Protocol | None = option(
        None, "Who speaks when, and what each agent has then heard.", group=GROUP
    )
    escalate_below: Plain[float] | None = option(
        None,
        "With the protocol escalation: debate only where the first round is less certain than this,"
        " from 0 to 1.",
        group=GROUP,
    )
    readout: Readout | None = option(
        None,
        "How scores are read from the model: by P(yes) of each candidate by itself (pointwise) or"
        " after the argument, as stated, weighted by token probabilities, or by typed questions in"
        " one request (decide); auto fits the model.",
        group=GROUP,
    )
    decider: str | None = option(
        None,
        "With the readout decide: the model that fills the scores, such as a decision model;"
        " 'none': the one that argues.",
        group=GROUP,
        metavar="MODEL|none",
    )
    argue: bool | None = option(
        None,
        "Have the agents argue; without arguments there is no feedback, and the readout has to be"
        " pointwise or decide.",
        group=GROUP,
    )
    argument_words: NumberOrNone | None = option(
        None,
        "Have an agent say one argument of at most so many words, without remarks on each response;"
        " 'none': in full.",
        group=GROUP,
        metavar="INTEGER|none",
    )
    rules: bool | None = option(None, "Give the agents explicit rules on what counts.", group=GROUP)
    order: CandidateOrder | None = option(
        None,
        "The order in which candidates are shown: balanced over the turns, fixed, or each turn in"
        " both orders.",
        group=GROUP,
    )
    weights: WeightsOption | None = option(
        None,
        "Weights of the components from 0 to 1, such as accuracy=1,relevance=0.5; those left out"
        " are 0.",
        group=GROUP,
        metavar="NAME=NUMBER,...",
    )
    aggregation: Aggregation | None = option(
        None, "How the agents' scores become one.", group=GROUP
    )
    select: Selection | None = option(
        None, "Choose the best candidate, or draw one by its probability.", group=GROUP
    )
    temperature: Plain[float] | None = option(
        None, "Of the softmax over the candidates' scores, above 0.", group=GROUP
    )
    sampling_temperature: NumberOrNone | None = option(
        None,
        "Temperature of the model, from 0 to 2; 'none': its own default.",
        group=GROUP,
        metavar="NUMBER|none",
    )
    max_answer_tokens: Plain[int] | None = option(
        None, "The most tokens of an agent's answer, 32 or more.", group=GROUP
    )
    threshold: Plain[float] | None = option(
        None, "The score from 0 to 1 from which a candidate passes.", group=GROUP
    )
    seed: Plain[int] | None = option(
        None, "Another seed gives other names and other samples, and is another run.", group=GROUP
    )


CAN_BE_NONE = (
    "convergence",
    "history_rounds",
    "sampling_temperature",
    "argument_words",
    "decider",
)
"""Parameters of which None is a value."""


def given_parameters(parameters: DebateParameters) -> dict[str, Any]:
    """Those that were given, as a profile takes them."""
    every = {name: getattr(parameters, name) for name in DebateParameters.model_fields}
    return {name: value for name, value in every.items() if value is not None}


def name_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a program, where None is a value of some parameters, as a specification's."""
    return {
        name: NONE if value is None and name in CAN_BE_NONE else value
        for name, value in given.items()
    }


def _take_profile(given: object) -> object:
    if not isinstance(given, str | Path | Profile | Mapping):
        raise InputError(f"a profile is a name, a YAML file's path or a Profile, not {given!r:.40}")
    return str(given) if isinstance(given, Path) else cast(object, given)


def _expand(rubric: str | None) -> str | None:
    """A shipped rubric's text in place of its name: a run is gone on with as it was begun."""
    return None if rubric is None else expand_rubric(rubric)


WholeProfile: TypeAlias = Annotated[
    str | Profile,
    BeforeValidator(_take_profile),
    WithJsonSchema({"type": ["string", "object"]}),
]


class EvaluateSpec(DebateParameters, ImagesSpec):
    """Judge candidate texts by a debate of agents, or by any other judge.

    Exit codes: 0 all scored; 1 a model or the store failed; 2 bad input; 3 some cases have no
    score; 4 a gate fails; 130 interrupted (the run can be resumed).
    """

    kind: ClassVar[str] = "evaluate"

    cases: Several = option(
        (),
        "The input, then the candidate texts; @FILE reads a text from a file, - from standard"
        " input. Or one file of cases: .jsonl, .json, .csv, .tsv or .parquet; a folder or a pattern"
        " of such files; hf:OWNER/NAME[/CONFIG][:SPLIT], a data set of the Hugging Face hub; -"
        " alone is JSON lines from standard input.",
        argument=True,
        identity=False,
        reads=True,
        metavar="INPUT CANDIDATE... | CASES",
    )
    candidate_images: Several = option(
        (),
        "The column with images that are the candidates, or belong to them: one column with a list"
        " has one for each candidate, of several columns each has those of one. Repeatable.",
        group="Data",
        identity=False,
        metavar="COLUMN",
    )
    each_reply: bool = option(
        False,
        "Of a chat, judge each reply of the assistant as a case of its own, not the last alone.",
        group="Data",
        identity=False,
    )
    profile: WholeProfile | None = option(
        None,
        "Who debates, about what and how: a shipped profile, or a YAML file.",
        short="-p",
        group="Judging",
    )
    judge: str | None = option(
        None,
        "Any judge in place of the profile's debate: probe+rules, pairwise+rules, jury:general,"
        " rules:FILE.yaml, hybrid:FILE.yaml:probe, cascade:0.9:probe,debate, ...",
        short="-j",
        group="Judging",
    )
    rubric: str | None = option(
        None,
        "What to judge by, in place of the judge's own components or questions: a text, @FILE, or a"
        " shipped rubric (`textevolve judges rubrics list`). Each line is a criterion of a"
        " checklist.",
        group="Judging",
        text="argument",
    )
    _expanded = field_validator("rubric")(_expand)

    recall: str | None = option(
        None, "What the agents recall with; for programs, which put it in.", group="Debate"
    )
