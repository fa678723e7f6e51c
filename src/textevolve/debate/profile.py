"""Profiles of debates: the agents, the components of the score, and the parameters, from the
shipped YAML files or a user's own.

A profile has all settings of a debate except the case. The parameters of a run and of a case
replace its fields (`override`). Nothing here calls a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PositiveFloat,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from textevolve.debate.modes import Aggregation, CandidateOrder, ConvergenceMode, Selection
from textevolve.errors import InputError
from textevolve.json_texts import as_array
from textevolve.mappings import read_fields
from textevolve.memory.recall_settings import TRUSTED_IN_DEBATES, RecallSettings
from textevolve.reach import is_there
from textevolve.rows import read_text
from textevolve.spec import NonEmpty, Share, explain, suggest
from textevolve.texts.numbers import reject_odd_number
from textevolve.texts.prose import fold_case
from textevolve.texts.shipped import list_shipped, read_shipped
from textevolve.texts.yaml_lines import line_of, parse_yaml

Protocol = Literal[
    "auto",
    "sequential",
    "blind-first",
    "escalation",
    "rebuttal",
    "simultaneous",
    "simultaneous-summary",
    "independent",
]
"""The protocol of a debate. An agent's turn sees all earlier turns (`sequential`), none in round 1
and then all earlier ones (`blind-first`, and `escalation`, which ends after round 1 if its winner
is certain), none in round 1 and then the strongest argument against the agent's own favourite
(`rebuttal`), the completed rounds (`simultaneous`), a summary of them (`simultaneous-summary`), or
no other turn (`independent`). Turns that do not see each other run concurrently, except those of a
`rebuttal`. `auto` selects `rebuttal` if all models are local, otherwise `sequential`."""
STORED_READOUTS = {
    "verbalized": "stated",
    "logprob-weighted": "expected",
    "after-argument": "probe",
    "pointwise": "alone",
    "decide": "decide",
}
"""The name of each readout in records, in the identity of runs and in prompts, which must not
change between versions. Users may write these names, too."""
_READOUTS = {stored: name for name, stored in STORED_READOUTS.items()}


def _read_readout(value: object) -> object:
    return _READOUTS.get(value, value) if isinstance(value, str) else value


def _store_readout(readout: str) -> str:
    return STORED_READOUTS.get(readout, readout)


Readout = Annotated[
    Literal["auto", "pointwise", "verbalized", "logprob-weighted", "after-argument", "decide"],
    BeforeValidator(_read_readout),
    PlainSerializer(_store_readout, return_type=str, when_used="json"),
]
"""The way to obtain scores from a model, as `debate.deciding` explains. `auto` selects `pointwise`
if all models are local, otherwise `verbalized`."""
STATED = ("verbalized", "logprob-weighted")
"""The readouts whose scores stand in the answer with the argument, so that both are one JSON
object. With the others the argument is plain text."""
Name = Annotated[
    str, Field(min_length=1, max_length=60, pattern=r"^[^\s\[\]{}\"\\][^\n\r\[\]{}\"\\]*$")
]
"""The type of names of agents and components, without characters that prompts and answers use as
marks."""


_Plain = BeforeValidator(reject_odd_number)


M = TypeVar("M", str, str | None)


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False
    )


class Component(_Frozen):
    """A component of the score, from 0 to 10. `meaning`: what it measures. `rubric`: the meaning of
    some scores, such as the ends and the middle. `question`: the yes / no question about one
    response, for the readouts that ask such questions. The readout `decide` asks which level of the
    rubric is reached, and asks the yes / no question if the rubric has fewer than two levels."""

    name: Name
    meaning: NonEmpty
    rubric: dict[Annotated[int, _Plain, Field(ge=0, le=10)], str] = {}
    question: str = ""

    @property
    def probe(self) -> str:
        return self.question or f"does it deserve a high score for {self.name} ({self.meaning})?"


def _is_none(value: object) -> bool:
    return value is None


class Agent(_Frozen):
    """A debater. `persona`: its description in prompts. `model`: the spec of its model; None: the
    run's model. `memory`: how it recalls memories in each turn, and from which collections;
    `collections`: only their names, with default settings. `stored`: the stored agent that debates,
    as NAMESPACE/NAME or NAME; a run reads its persona, model and memories when it begins."""

    name: Name
    persona: str = ""
    model: str | None = None
    collections: tuple[str, ...] = ()
    # Left out of records without them, which stay the same as those of versions that had neither.
    memory: RecallSettings | None = Field(default=None, exclude_if=_is_none)
    stored: str | None = Field(default=None, min_length=1, exclude_if=_is_none)

    @model_validator(mode="before")
    @classmethod
    def _stored_by_name(cls, value: Any) -> Any:
        """Convert a text, which is the name of a stored agent, to an agent."""
        if not isinstance(value, str):
            return value
        return {"name": value.rpartition("/")[2].strip(), "stored": value.strip()}

    @field_validator("memory", mode="wrap")
    @classmethod
    def _told(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except InputError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _usable(self) -> Agent:
        if not self.persona and self.stored is None:
            raise ValueError("persona: missing")
        if self.memory is not None and bool(self.memory.collections) == bool(self.collections):
            raise ValueError(
                "memory: no collection is named; name the collections to recall from in"
                " memory.collections"
            )

        return self

    @property
    def recall_settings(self) -> RecallSettings | None:
        """Return how the agent recalls memories; None if it has none."""
        if self.memory is None and not self.collections:
            return None
        settings = self.memory or RecallSettings()
        collections = settings.collections or self.collections
        trust = TRUSTED_IN_DEBATES if settings.min_trust is None else settings.min_trust
        return settings.model_copy(update={"collections": collections, "min_trust": trust})


CONFIDENCE = Component(
    name="confidence",
    meaning="how sure you are that this response is the one to use",
    rubric={
        0: "sure that it should not be used",
        5: "undecided",
        10: "sure that it should be used",
    },
    question="would the person who wrote the input be satisfied with this response?",
)
RELEVANCE = Component(
    name="relevance",
    meaning="how directly it addresses what the input asks",
    rubric={
        0: "about something else",
        5: "on the topic, but drifts",
        10: "to the point throughout",
    },
    question="does the response do the task that the input sets, and no other?",
)
ACCURACY = Component(
    name="accuracy",
    meaning="how correct its statements, steps and conclusions are",
    rubric={0: "wrong in what matters", 5: "right in part", 10: "free of errors"},
    question="is everything that it says correct?",
)
COMPLETENESS = Component(
    name="completeness",
    meaning="how much of what the input needs is there",
    rubric={0: "nearly all is missing", 5: "the main part is there", 10: "nothing is missing"},
    question="does the response do exactly what the input asks, correctly and completely?",
)
TIMELINESS = Component(
    name="timeliness",
    meaning="how well it fits the time of asking: current facts, nothing outdated",
    rubric={0: "outdated", 5: "partly current", 10: "current, or not bound to any time"},
    question="is it up to date, or independent of any date?",
)
COMPONENTS = (CONFIDENCE, RELEVANCE, ACCURACY, COMPLETENESS, TIMELINESS)
"""The components of a profile that names none."""


class Profile(_Frozen):
    """The agents, components and parameters of a debate; the symbols of `evaluate.md` are in
    brackets.

    `weights` (w): a number in [0, 1] for each component, by name or as a list in the order of the
    components. Without weights all are 1; a component
    that is left out of the weights is scored, too, with the weight 0. `rounds` (r): the maximum
    number of rounds. `convergence` (c): the disagreement in [0, 1] at which the debate ends early;
    None: it does not. `history_rounds` (l): the number of past rounds that a turn sees; None: all.
    `escalate_below`: with the protocol `escalation`, the debate continues if the certainty of the
    first round, in [0, 1], is less.

    `readout`: the way of obtaining scores from answers; see `debate.deciding`. `decider`: the model
    that fills the scores of the readout `decide`; None: the agent's own. `argue`: whether agents
    argue; False, which the readouts `pointwise` and `decide` allow, leaves out the feedback, too.
    `argument_words`: limits an answer to one argument of so many words, without remarks on each
    response, and therefore without feedback; None: no limit. `rules`: whether prompts have explicit
    rules: follow the input, be precise, give no credit for length. `order`: the positions of the
    candidates in each turn; see `place_candidates`.

    `aggregation`: how scores of turns are combined. `select`: whether the best candidate is chosen,
    or one is drawn by the probabilities. `temperature` (T): of the softmax that computes the
    probabilities. `sampling_temperature`: of the models; None: their default.
    `argument_temperature`: of arguments that are asked for apart from the scores; at 0 agents write
    the same. `threshold`: the score in [0, 1] from which a candidate passes.
    """

    name: Name = "custom"
    description: str = ""
    agents: tuple[Agent, ...] = Field(min_length=1)
    components: tuple[Component, ...] = Field(default=COMPONENTS, min_length=1)
    weights: dict[str, Annotated[float, _Plain, Field(ge=0, le=1)]] = {}
    rounds: int = Field(default=2, ge=1, le=100)
    convergence: float | None = Field(default=0.05, ge=0, le=1)
    convergence_mode: ConvergenceMode = "agents"
    escalate_below: Share = 0.9
    history_rounds: int | None = Field(default=None, ge=0)
    protocol: Protocol = "auto"
    rules: bool = False
    readout: Readout = "auto"
    decider: str | None = Field(default=None, min_length=1)
    argue: bool = True
    argument_words: int | None = Field(default=None, ge=5, le=500)
    order: CandidateOrder = "balanced"
    aggregation: Aggregation = "mean"
    select: Selection = "argmax"
    temperature: PositiveFloat = 1.0
    sampling_temperature: float | None = Field(default=0.0, ge=0, le=2)
    argument_temperature: float | None = Field(default=0.7, ge=0, le=2)
    max_answer_tokens: int = Field(default=1200, ge=32)
    threshold: Share = 0.5
    seed: int = 0

    @field_validator(
        "rounds",
        "convergence",
        "escalate_below",
        "history_rounds",
        "temperature",
        "sampling_temperature",
        "argument_temperature",
        "max_answer_tokens",
        "argument_words",
        "threshold",
        "seed",
        mode="before",
    )
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return reject_odd_number(value)

    @field_validator(
        "convergence",
        "history_rounds",
        "sampling_temperature",
        "argument_temperature",
        "argument_words",
        "decider",
        mode="before",
    )
    @classmethod
    def _none_by_name(cls, value: Any) -> Any:
        return None if isinstance(value, str) and value.strip().lower() == "none" else value

    @field_validator("agents", mode="before")
    @classmethod
    def _stored_by_names(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("components", mode="before")
    @classmethod
    def _known_by_name(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        components = {c.name: c for c in COMPONENTS}
        listed: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        for item in listed:
            if isinstance(item, str) and item not in components:
                raise ValueError(f"'{item}' is not a shipped component; give its name and meaning")
        return [components[item] if isinstance(item, str) else item for item in listed]

    @field_validator("weights", mode="before")
    @classmethod
    def _weights_by_order(cls, value: Any, info: ValidationInfo) -> Any:
        """Name the component of each weight in a list, which is in the components' order."""
        weights = as_array(value)
        if not weights:
            return value
        names = [component.name for component in info.data.get("components", COMPONENTS)]
        if len(weights) != len(names):
            raise ValueError(
                f"a list has one number for each of the {len(names)} components, in their order"
                f" ({', '.join(names)}), not {len(weights)}"
            )

        return dict(zip(names, weights, strict=True))

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        for kind, parts in (("agents", self.agents), ("components", self.components)):
            counts = Counter(fold_case(part.name) for part in parts)
            double = sorted(part.name for part in parts if counts[fold_case(part.name)] > 1)
            if double:
                raise ValueError(f"two {kind} have the name '{double[0]}'; names must differ")

        if not self.argue and self.readout not in ("pointwise", "decide"):
            raise ValueError("argue: can be false only with the readout 'pointwise' or 'decide'")
        if self.decider is not None and self.readout != "decide":
            raise ValueError(
                "decider: only the readout 'decide' uses a decider, and the readout is"
                f" '{self.readout}'"
            )

        component_names = [c.name for c in self.components]

        for name in self.weights:
            if name not in component_names:
                raise ValueError(
                    f"weights: unknown component '{name}'{suggest(name, component_names)}"
                )

        if self.weights and not any(self.weights.values()):
            raise ValueError("weights: all are 0; at least one must be above 0")

        return self

    @property
    def repeats(self) -> bool:
        """Return whether a later round would ask the same questions again: prompts show neither
        arguments nor memories that depend on them, and the candidates' positions do not change."""
        blind = self.readout == "decide" and not self.argue
        same = self.readout == "pointwise" or (blind and self.order != "balanced")
        return same and not self.collections

    def models(self, model: M) -> tuple[str | M, ...]:
        """Return all models that the debates call, without duplicates; `model` is that of agents
        that name none."""
        models = [agent.model or model for agent in self.agents]
        if self.decider is not None:
            models.append(self.decider)

        return tuple(dict.fromkeys(models))

    @property
    def collections(self) -> tuple[str, ...]:
        """Return all collections that the agents recall from, without duplicates."""
        settings = [agent.recall_settings for agent in self.agents]
        return tuple(
            dict.fromkeys(name for setting in settings if setting for name in setting.collections)
        )

    @property
    def stored_agents(self) -> tuple[str, ...]:
        """Return the names of the stored agents that debate, as the profile has them."""
        return tuple(agent.stored for agent in self.agents if agent.stored is not None)

    @property
    def weight_list(self) -> tuple[float, ...]:
        """Return the weights w in the order of the components."""
        if not self.weights:
            return (1.0,) * len(self.components)
        return tuple(self.weights.get(c.name, 0.0) for c in self.components)


def override(profile: Profile, parameters: Mapping[str, Any]) -> Profile:
    """Return the profile with some of its fields replaced. New components without new weights also
    drop the old weights.

    Raises:
        InputError: an unknown parameter, or a value out of range.
    """
    if not parameters:
        return profile
    fields = list(Profile.model_fields)
    for name in parameters:
        if name not in fields:
            raise InputError(f"unknown parameter '{name}'{suggest(name, fields)}")
    data = read_fields(profile, *fields)
    if "components" in parameters and "weights" not in parameters:
        data["weights"] = {}

    return build_profile({**data, **parameters})


def build_profile(fields: Mapping[str, Any]) -> Profile:
    """Return the profile with these fields.

    Raises:
        InputError: a field is unknown, or its value cannot be used.
    """
    try:
        return Profile.model_validate(fields)
    except ValidationError as error:
        raise InputError(explain(error, Profile)) from None


def shipped_profiles() -> tuple[str, ...]:
    return list_shipped("textevolve.debate", "profiles", ".yaml")


def load_profile(name: str | Path) -> Profile:
    """Load a shipped profile by its name, or a profile from a YAML file.

    Raises:
        InputError: no such profile, or the file is wrong; names file, line and reason.
    """
    if str(name) in shipped_profiles():
        text = read_shipped("textevolve.debate", f"profiles/{name}.yaml")
        return parse_profile(text, str(name))
    if not isinstance(name, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"a profile is a name, a YAML file's path or a Profile, not {name!r:.40}")
    path = Path(name)

    if path.suffix not in (".yaml", ".yml") and not is_there(name):
        raise InputError(
            f"no profile '{name}'{suggest(str(name), list(shipped_profiles()))} (or give the path"
            " of a YAML file)"
        )

    return parse_profile(read_text(str(path)), str(path), path.stem)


def parse_profile(text: str, source: str, name: str = "custom") -> Profile:
    """Parse a profile from YAML text. `source` names the text in errors; `name` is the profile's
    name if the text has none."""
    node, data = parse_yaml(text, f"profile {source}")
    if not isinstance(data, dict):
        raise InputError(f"profile {source}:1: must be a mapping with at least 'agents'")
    try:
        return Profile.model_validate({"name": name, **data})
    except ValidationError as error:
        line = line_of(node, error.errors()[0]["loc"])
        raise InputError(f"profile {source}:{line}: {explain(error, Profile)}") from None
