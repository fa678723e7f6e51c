"""What makes a run what it is. A change of any of it makes another run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from textevolve.debate.profile import Profile, explain
from textevolve.debate.stage import prompts_version
from textevolve.errors import InputError, MismatchError
from textevolve.evaluation import Case
from textevolve.evaluators import models_of, parse_evaluator, read_profile
from textevolve.judges.exam import prompts_version as judge_prompts
from textevolve.memory.recall import Recall, nothing
from textevolve.settings import today as this_day
from textevolve.store.runs import RunRecord


class RunSpec(BaseModel):
    """`model` serves every agent that names none. `recall` names what the agents recall with. `why`
    and `today` are kept, but are no part of the run's identity: the same command on another day
    finds the same run."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    profile: Profile
    model: str
    prompts: Mapping[str, str] = Field(default_factory=prompts_version)
    recall: str = ""
    why: str = ""
    today: str = Field(default_factory=this_day)

    @property
    def identity(self) -> dict[str, Any]:
        return self.model_dump(mode="json", include={"profile", "model", "prompts", "recall"})

    @property
    def models(self) -> tuple[str, ...]:
        """Every model the run asks, each once, in the agents' order."""
        return tuple(dict.fromkeys(agent.model or self.model for agent in self.profile.agents))


class MeasurementSpec(BaseModel):
    """`kind`: the command that makes it, such as "agreement". `judges`: their specs as text.

    `model` serves judges that name none; `profiles` are those of the debates among them, as they
    were read. `today` stands in the debates' prompts and is, like `why`,
    no part of the identity.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    judges: tuple[str, ...]
    model: str
    parameters: Mapping[str, Any] = {}
    profiles: Mapping[str, Any] = {}
    prompts: Mapping[str, str] = Field(default_factory=lambda: _all_prompts())
    why: str = ""
    today: str = Field(default_factory=this_day)

    @property
    def identity(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"why", "today"})

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that is asked, each once."""
        named = [m for text in self.judges for m in models_of(parse_evaluator(text), self.model)]
        return tuple(dict.fromkeys(named))


def read_measurement(run: RunRecord) -> MeasurementSpec:
    """The specification that a measurement was begun with.

    Raises:
        MismatchError: it is not one that this version wrote.
    """
    try:
        return MeasurementSpec.model_validate(run.spec)
    except ValidationError as error:
        raise MismatchError(
            f"run {run.id}: was made by another version of TextEvolve ({explain(error)});"
            " start a new run instead"
        ) from None


def specify_measurement(
    kind: str,
    judges: Sequence[str],
    model: str,
    parameters: Mapping[str, Any] | None = None,
    why: str = "",
    prompts: Mapping[str, str] | None = None,
) -> MeasurementSpec:
    """`prompts`: versions of further prompts that are asked, such as those of a loop.

    Raises:
        InputError: a judge is named that does not exist, or twice, or cannot be set up as asked.
    """
    parsed = {text: parse_evaluator(text) for text in judges}
    if len(parsed) < len(judges):
        raise InputError("a judge is named twice; to compare a judge with itself give it two seeds")
    profiles = {text: read_profile(spec) for text, spec in parsed.items() if spec.is_debate}
    return MeasurementSpec(
        kind=kind,
        judges=tuple(parsed),
        model=model,
        parameters=parameters or {},
        profiles={text: profile.model_dump(mode="json") for text, profile in profiles.items()},
        prompts={**_all_prompts(), **(prompts or {})},
        why=why,
    )


def _all_prompts() -> dict[str, str]:
    judges = {f"judges.{name}": version for name, version in judge_prompts().items()}
    return {**prompts_version(), **judges}


class Fingerprint:
    """SHA-256 over the identity of a specification and the cases, which are added one by one."""

    def __init__(self, identity: Mapping[str, Any]) -> None:
        self._digest = hashlib.sha256(_canonical(identity))

    def add(self, case: Case) -> None:
        row = [case.id, case.input, case.candidates, dict(case.parameters)]
        if case.reference is not None:
            row.append(case.reference)
        self._digest.update(b"\n" + _canonical(row))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()


def name_recall(recall: Recall) -> str:
    """The name of a recall, such as `notes.recall`; empty for agents without memories."""
    if recall is nothing:
        return ""
    return name_callable(recall)


def name_callable(given: object) -> str:
    """The module and name of a function, or of the class of any other object."""
    named: Any = given if hasattr(given, "__qualname__") else type(given)
    return f"{named.__module__}.{named.__qualname__}"


def refuse_mismatch(run_id: str, kept: RunSpec, wanted: RunSpec, what: str = "resumed") -> None:
    """Raises MismatchError, naming what differs, where a run cannot be gone on with as `wanted`."""
    differences = list(_differences(kept.identity, wanted.identity, ""))
    if differences:
        shown = "; ".join(differences[:3]) + ("; ..." if len(differences) > 3 else "")
        raise MismatchError(f"run {run_id} cannot be {what}: {shown}; start a new run instead")


def _differences(kept: object, wanted: object, path: str) -> Iterator[str]:
    if isinstance(kept, dict) and isinstance(wanted, dict):
        one, other = cast(dict[str, object], kept), cast(dict[str, object], wanted)
        for name in sorted({*one, *other}):
            place = f"{path}.{name}" if path else name
            yield from _differences(one.get(name), other.get(name), place)
    elif kept != wanted:
        yield f"{path} was {_shorten(cast(Any, kept))} and is now {_shorten(wanted)}"


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
