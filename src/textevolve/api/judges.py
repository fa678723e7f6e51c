"""Judges as Python objects with options, for example in `evaluate(..., judge=Debate(rounds=2))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textevolve.api.objects import JudgeOptions
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.studies.evaluate_spec import DebateParameters, WholeProfile, name_none


class Debate(JudgeOptions, DebateParameters):
    """A debate of agents as a judge. `profile`: the name of a shipped profile, a YAML file or a
    `Profile`, which sets agents and components. All other options override the profile. For
    `convergence`, `history_rounds`, `sampling_temperature`, `argument_words` and `decider` None is
    a value of its own, not the default."""

    profile: WholeProfile | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**name_none(options))

    @property
    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set}

    @property
    def text(self) -> str:
        options = self.fields
        profile, model = options.pop("profile", None), options.pop("model", None)
        if isinstance(profile, Profile) or any(isinstance(v, Mapping) for v in options.values()):
            raise InputError(
                "only evaluate takes a Profile object or weights; here name the YAML file of a"
                " profile"
            )
        head = "debate" if profile is None else f"debate:{profile}"
        parts = [f"{name}={value}" for name, value in options.items()]
        return "+".join([head, *parts]) + (f"@{model}" if model else "")
