"""What the store keeps of a study, and reading it again; running it is in `driver.py`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from textevolve.errors import MismatchError
from textevolve.spec import identity_of
from textevolve.studies.identity import refuse_differences
from textevolve.studies.kinds import KINDS, find_study
from textevolve.studies.standing import STANDING
from textevolve.studies.study import AnyStudy, Study, StudySpec

if TYPE_CHECKING:
    from textevolve.store.runs import RunRecord

VERSION = 2
"""Of what a run's specification looks like in the store; what has none is from before studies."""

S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
T = TypeVar("T")


class StoredSpec(BaseModel):
    """What the store keeps of a study: all that is needed to go on with it.

    `model` is the one that was named or found, and `why` says how; `judges` holds what was read
    from the files behind the judges' names; `described` what the study found of the world;
    `prices` where its costs come from; `answers` what its calls found beside the answers, as
    `Usage` has it (`estimated`, `models`); `fresh` sets a run apart from one that is the same
    otherwise, so that everything is asked anew.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    kind: str
    spec: dict[str, Any]
    model: str
    why: str = ""
    today: str = ""
    judges: Mapping[str, Any] = {}
    prompts: Mapping[str, str] = {}
    described: Mapping[str, Any] = {}
    prices: tuple[str, ...] = ()
    answers: Mapping[str, Any] = {}
    fresh: str = ""

    @property
    def world(self) -> dict[str, Any]:
        """What was described. Collections that are not among those here are not pinned, and so are
        not read."""
        return {"collections": {}, **self.described}

    def identity(self, study: AnyStudy) -> dict[str, Any]:
        """What makes the run what it is. The date in its prompts does not: the same command on
        another day finds the same run."""
        whole = self.model_dump(mode="json", include={"kind", "model", "judges", "prompts"})
        whole |= {"described": dict(self.described)} if self.described else {}
        whole |= {"fresh": self.fresh} if self.fresh else {}
        aside = study.spec.model_validate(self.spec)
        return {**whole, "spec": identity_of(aside)}


def read_stored(run: RunRecord) -> StoredSpec:
    """What a run was begun with.

    Raises:
        MismatchError: it was written by a version that had no studies, or by a later one, or is
            damaged.
    """
    if run.spec == {"kind": "damaged"}:
        raise MismatchError(f"{run.source}; remove it with: textevolve runs delete {run.id}")
    try:
        stored = StoredSpec.model_validate(run.spec)
    except ValidationError:
        if (kind := run.spec.get("kind")) in STANDING:
            raise MismatchError(
                f"run {run.id}: holds what a {kind} asked, and no results of its own; what is asked"
                " again finds its answers there"
            ) from None
        day = run.spec.get("today") or time.strftime("%Y-%m-%d", time.localtime(run.created))
        raise MismatchError(
            f"run {run.id}: was made by an earlier version of TextEvolve, which kept no records,"
            " but its calls are kept; give its command again with the date that its prompts name:"
            f" TEXTEVOLVE_TODAY={day} textevolve {_command(run)} ...; what has the same prompts as"
            " then is not asked again"
        ) from None
    if stored.version > VERSION:
        raise MismatchError(f"run {run.id}: was made by a later version of TextEvolve; update it")
    return stored


def _command(run: RunRecord) -> str:
    """The command that made a run before there were studies."""
    kind = str(run.spec.get("kind", "evaluate"))
    own = (*KINDS, "optimize", "innovate", "guide", "memory-eval", "nodes")
    names = {"profile": "profile generate"} | {name: name for name in own}
    return names.get(kind, f"bench {kind}")


def refuse_other(run: RunRecord, wanted: StoredSpec) -> None:
    """Raises MismatchError, naming what differs, where a run was not begun as `wanted`."""
    stored = read_stored(run)
    if stored.kind != wanted.kind:
        raise MismatchError(f"run {run.id} cannot be resumed: it is of the kind '{stored.kind}'")
    study = find_study(stored.kind)
    refuse_differences(run.id, stored.identity(study), wanted.identity(study))


def read_spec(study: Study[S, R, T], stored: StoredSpec) -> S:
    return study.spec.model_validate(stored.spec)
