"""What makes a run what it is. A change of any of it makes another run."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from textevolve.debate.profile import Profile
from textevolve.debate.turn import prompts_version
from textevolve.errors import MismatchError
from textevolve.evaluation import Case
from textevolve.memory.recall import Recall, nothing


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
    today: str = Field(default_factory=lambda: datetime.date.today().isoformat())

    @property
    def identity(self) -> dict[str, Any]:
        return self.model_dump(mode="json", include={"profile", "model", "prompts", "recall"})

    @property
    def models(self) -> tuple[str, ...]:
        """Every model the run asks, each once, in the agents' order."""
        return tuple(dict.fromkeys(agent.model or self.model for agent in self.profile.agents))


class Fingerprint:
    """SHA-256 over a specification and the cases, which are added one by one."""

    def __init__(self, spec: RunSpec) -> None:
        self._digest = hashlib.sha256(_canonical(spec.identity))

    def add(self, case: Case) -> None:
        row = [case.id, case.input, case.candidates, dict(case.parameters)]
        self._digest.update(b"\n" + _canonical(row))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()


def name_recall(recall: Recall) -> str:
    """The name of a recall, such as `notes.recall`; empty for agents without memories."""
    if recall is nothing:
        return ""
    named: Any = recall if hasattr(recall, "__qualname__") else type(recall)
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
