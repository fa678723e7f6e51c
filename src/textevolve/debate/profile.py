"""Profiles: who debates, about which components, for how long; shipped ones and a user's YAML.

A profile is everything of a debate that is not the case itself, so a run's parameters and a case's
own parameters are laid over it with `override`. Nothing here calls a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from textevolve.debate.candidate_order import CandidateOrder
from textevolve.debate.modes import Aggregation, ConvergenceMode
from textevolve.errors import InputError
from textevolve.memory.recall_settings import TRUSTED_IN_DEBATES, RecallSettings
from textevolve.reach import allowed_path, is_there
from textevolve.spec import explain, suggest
from textevolve.texts.numbers import reject_odd_number
from textevolve.texts.yaml_lines import line_of, parse_yaml

Protocol = Literal[
    "sequential",
    "blind-first",
    "escalation",
    "simultaneous",
    "simultaneous-summary",
    "independent",
]
STORED_READOUTS = {
    "verbalized": "stated",
    "logprob-weighted": "expected",
    "after-argument": "probe",
    "pointwise": "alone",
    "decide": "decide",
}
"""How each readout is called in records, in what makes a run what it is, and in prompts, which are
to stay equal over versions; these names are understood wherever one may be given, too."""
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
Selection = Literal["argmax", "sample"]
Name = Annotated[
    str, Field(min_length=1, max_length=60, pattern=r"^[^\s\[\]{}\"\\][^\n\r\[\]{}\"\\]*$")
]


_Plain = BeforeValidator(reject_odd_number)


def reject_list(weights: Any) -> Any:
    """Reject weights in a list, which cannot say which component each belongs to.

    Raises:
        ValueError: the weights are a list, which cannot say which component each is of.
    """
    if isinstance(weights, list | tuple):
        raise ValueError("name the component of each, as accuracy=1,relevance=0.5, not a list")
    return weights


M = TypeVar("M", str, str | None)


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False
    )


class Component(_Frozen):
    """A component of the score, from 0 to 10: its meaning, what the ends and the middle mean, and
    the yes / no question that the `after-argument` readout asks about one response. The readout
    `decide` asks for the level of the rubric that it reaches, or that question where the rubric has
    no two."""

    name: Name
    meaning: str = Field(min_length=1)
    rubric: dict[Annotated[int, _Plain, Field(ge=0, le=10)], str] = {}
    question: str = ""

    @property
    def probe(self) -> str:
        return self.question or f"does it deserve a high score for {self.name} ({self.meaning})?"


class Agent(_Frozen):
    """A debater. `model` is a spec, the run's model where it is None. `memory`: from which
    collections it recalls in each turn, and how; `collections`: the same with their names alone.
    `stored`: the agent of the store that debates, as NAMESPACE/NAME or NAME. A run looks it up when
    it begins, and takes its persona, model and memories as they are then."""

    name: Name
    persona: str = ""
    model: str | None = None
    collections: tuple[str, ...] = ()
    memory: RecallSettings | None = None
    stored: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _stored_by_name(cls, value: Any) -> Any:
        """A text in place of an agent is the name of a stored one."""
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
            raise ValueError("memory: name the collections to recall from, in memory.collections")
        return self

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Profiles without memories and stored agents stay in records what they were before there
        were any."""
        data: dict[str, Any] = write(self)
        return {n: v for n, v in data.items() if v is not None or n not in ("memory", "stored")}

    @property
    def recall_settings(self) -> RecallSettings | None:
        """Return how the agent recalls memories; None if it has none."""
        settings = self.memory or RecallSettings()
        collections = settings.collections or self.collections
        if not collections:
            return None
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


LEAST_WEIGHT = 1e-6
"""Below it scores are too near to each other, and to 0, to be told apart."""


class Profile(_Frozen):
    """A debate's agents, components and parameters; `evaluate.md` symbols in brackets.

    `weights` (w): for each component a number in [0, 1]; none given: all 1; a component left out of
    given weights has weight 0, and is scored all the same. `rounds` (r) >= 1. `convergence` (c) in
    [0, 1]; None: no early stop. `history_rounds` (l): past rounds that a turn sees; None: all.
    `escalate_below`: with the protocol `escalation`, the certainty in [0, 1] of the first round
    below which the debate goes on.
    `decider`: the model that fills the scores of the readout `decide`; None: the agent's own.
    `argue`: False leaves out the arguments, and with them the feedback; for the readouts
    `pointwise` and `decide`, which do not need them. `argument_words`: an answer is one argument of
    at most so many words, without remarks on each response, and so without feedback; None: in full.
    `rules`: the agents are given explicit rules on following the input, on precision, and on
    length.
    `temperature` (T) is the softmax's; `sampling_temperature` is the model's, None: its default.
    """

    name: Name = "custom"
    description: str = ""
    agents: tuple[Agent, ...] = Field(min_length=1)
    components: tuple[Component, ...] = Field(default=COMPONENTS, min_length=1)
    weights: Annotated[
        dict[str, Annotated[float, _Plain, Field(ge=0, le=1)]], BeforeValidator(reject_list)
    ] = {}
    rounds: int = Field(default=2, ge=1, le=100)
    convergence: float | None = Field(default=0.05, ge=0, le=1)
    convergence_mode: ConvergenceMode = "agents"
    escalate_below: float = Field(default=0.9, ge=0, le=1)
    history_rounds: int | None = Field(default=None, ge=0)
    protocol: Protocol = "sequential"
    rules: bool = False
    readout: Readout = "auto"
    decider: str | None = Field(default=None, min_length=1)
    argue: bool = True
    argument_words: int | None = Field(default=None, ge=5, le=500)
    order: CandidateOrder = "balanced"
    aggregation: Aggregation = "mean"
    select: Selection = "argmax"
    temperature: float = Field(default=1.0, gt=0)
    sampling_temperature: float | None = Field(default=0.0, ge=0, le=2)
    max_answer_tokens: int = Field(default=1200, ge=32)
    threshold: float = Field(default=0.5, ge=0, le=1)
    seed: int = 0

    @field_validator(
        "rounds",
        "convergence",
        "escalate_below",
        "history_rounds",
        "temperature",
        "sampling_temperature",
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

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        for kind, names in (
            ("agents", [a.name for a in self.agents]),
            ("components", [c.name for c in self.components]),
        ):
            double = sorted({n for n in names if [m.lower() for m in names].count(n.lower()) > 1})
            if double:
                raise ValueError(f"two {kind} have the name '{double[0]}'; names must differ")
        if not self.argue and self.readout not in ("pointwise", "decide"):
            raise ValueError(
                "argue: only the readouts 'pointwise' and 'decide' do without arguments"
            )
        if self.decider is not None and self.readout != "decide":
            raise ValueError(
                f"decider: only the readout 'decide' asks one, and the readout is '{self.readout}'"
            )
        component_names = [c.name for c in self.components]
        for name in self.weights:
            if name not in component_names:
                raise ValueError(
                    f"weights: unknown component '{name}'{suggest(name, component_names)}"
                )
        if self.weights and not any(self.weights.values()):
            raise ValueError("weights: all are 0; at least one must be above 0")
        for name, weight in self.weights.items():
            if 0 < weight < LEAST_WEIGHT:
                raise ValueError(
                    f"weights: {name} must be 0 or at least {LEAST_WEIGHT:g}, not {weight:g}"
                )
        return self

    @property
    def repeats(self) -> bool:
        """Tell whether a later round would ask the same again: prompts show no arguments and no
        memories recalled by them, and the candidates' positions are not balanced over the turns."""
        blind = self.readout == "decide" and not self.argue
        same = self.readout == "pointwise" or (blind and self.order != "balanced")
        return same and not self.collections

    def models(self, model: M) -> tuple[str | M, ...]:
        """Return all models that the debates ask, without duplicates; `model` is that of agents
        that name none."""
        decider = () if self.decider is None else (self.decider,)
        return tuple(dict.fromkeys([*(agent.model or model for agent in self.agents), *decider]))

    @property
    def collections(self) -> tuple[str, ...]:
        """Return all collections that the agents recall from, without duplicates."""
        settings = [agent.recall_settings for agent in self.agents]
        return tuple(
            dict.fromkeys(name for setting in settings if setting for name in setting.collections)
        )

    @property
    def stored_agents(self) -> tuple[str, ...]:
        """Return the names of the store's agents that debate, as the profile has them."""
        return tuple(agent.stored for agent in self.agents if agent.stored is not None)

    @property
    def weight_list(self) -> tuple[float, ...]:
        """Return the weights w in the order of the components."""
        if not self.weights:
            return (1.0,) * len(self.components)
        return tuple(self.weights.get(c.name, 0.0) for c in self.components)


def override(profile: Profile, parameters: Mapping[str, Any]) -> Profile:
    """Return the profile with some of its fields replaced.

    Raises:
        InputError: an unknown parameter, or a value out of range.
    """
    if not parameters:
        return profile
    fields = list(Profile.model_fields)
    for name in parameters:
        if name not in fields:
            raise InputError(f"unknown parameter '{name}'{suggest(name, fields)}")
    data = {name: getattr(profile, name) for name in fields}
    if "components" in parameters and "weights" not in parameters:
        data["weights"] = {}
    try:
        return Profile.model_validate({**data, **parameters})
    except ValidationError as error:
        raise InputError(explain(error, Profile)) from None


def shipped_profiles() -> tuple[str, ...]:
    folder = resources.files("textevolve.debate") / "profiles"
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir()))


def load_profile(name: str | Path) -> Profile:
    """Load a shipped profile by its name, or a profile from a YAML file.

    Raises:
        InputError: no such profile, or the file is wrong; names file, line and reason.
    """
    if str(name) in shipped_profiles():
        resource = resources.files("textevolve.debate") / "profiles" / f"{name}.yaml"
        return parse_profile(resource.read_text(encoding="utf-8"), str(name))
    if not isinstance(name, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"a profile is a name, a YAML file's path or a Profile, not {name!r:.40}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not is_there(name):
        raise InputError(
            f"profile '{name}'{suggest(str(name), list(shipped_profiles()))}"
            " (or give the path of a YAML file)"
        )
    try:
        text = Path(allowed_path(path)).read_text(encoding="utf-8")
        return parse_profile(text, str(path), path.stem)
    except OSError as error:
        raise InputError(f"profile {path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"profile {path}: cannot be read (not UTF-8 text)") from error
    except ValueError as error:  # a NUL in it
        raise InputError(f"profile {name!r}: not the name of a file") from error


def parse_profile(text: str, source: str, name: str = "custom") -> Profile:
    """Parse a profile from YAML text; `source` names the text in errors."""
    node, data = parse_yaml(text, f"profile {source}")
    if not isinstance(data, dict):
        raise InputError(f"profile {source}:1: must be a mapping with at least 'agents'")
    try:
        return Profile.model_validate({"name": name, **data})
    except ValidationError as error:
        line = line_of(node, error.errors()[0]["loc"])
        raise InputError(f"profile {source}:{line}: {explain(error, Profile)}") from None
