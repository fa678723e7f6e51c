"""What makes a run what it is. A change of any of it makes another run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from textevolve.debate.stage import prompts_version
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.evaluators import models_of, parse_evaluator, read_profile
from textevolve.judges.exam import prompts_version as judge_prompts
from textevolve.memory.recall import Recall, nothing
from textevolve.settings import today as this_day


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
    today: str = Field(default_factory=lambda: this_day())

    @property
    def identity(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"why", "today"})

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that is asked, each once."""
        named = [m for text in self.judges for m in models_of(parse_evaluator(text), self.model)]
        return tuple(dict.fromkeys(named))


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
