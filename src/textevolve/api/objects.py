"""Python objects of the user's program as arguments of verbs: functions, evaluators and judges.

A study's specification is data, so it contains a name instead of the object; `Objects` maps the
names to the objects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from textevolve.spec import Frozen
from textevolve.user_code import name_object


class JudgeOptions(Frozen):
    """The base class of judges that are written as objects, such as `Debate(rounds=2)`. `model`:
    the spec of the model that the judge calls; None: the model of the verb, the client or the
    settings. `rubric`: what the judge pays attention to; None: the judge's own rubric."""

    model: str | None = None
    rubric: str | None = None

    @property
    @abstractmethod
    def text(self) -> str:
        """The judge's spec as a text, such as `probe+rules@MODEL`."""

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of `EvaluateSpec` that this judge sets."""


@dataclass
class Objects:
    """The user's Python objects. `by_name`: each object by the name that represents it in a
    specification."""

    by_name: dict[str, object] = field(default_factory=dict[str, object])

    def name(self, value: Any) -> Any:
        """Register an object, and return its name for specifications. A text, a mapping (the fields
        of a target) and None are returned unchanged; a judge such as `Debate(rounds=2)` becomes its
        spec as a text."""
        if value is None or isinstance(value, str | Mapping):
            return cast("Any", value)
        if isinstance(value, JudgeOptions):
            return value.text
        first = name = name_object(value)
        number = 1
        while self.by_name.get(name, value) is not value:  # as of two lambdas side by side
            number += 1
            name = f"{first}#{number}"
        self.by_name[name] = value
        return name
