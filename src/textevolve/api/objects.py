"""The program's own functions and evaluators in a study, and judges that are objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from textevolve.spec import Frozen
from textevolve.user_code import name_object


class JudgeOptions(Frozen):
    """A judge with its options, instead of its name. `model` is the one that it asks; None: that of
    the verb, the client or the settings."""

    model: str | None = None
    rubric: str | None = None

    @property
    @abstractmethod
    def text(self) -> str:
        """The judge as a text such as `probe+rules@MODEL`."""

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of `EvaluateSpec` that it sets."""


@dataclass
class Objects:
    """The program's own objects, each with the name that stands for it in a specification."""

    by_name: dict[str, object] = field(default_factory=dict[str, object])

    def name(self, value: Any) -> Any:
        """Return the name of an object; a text, the fields of a target and None stand for
        themselves."""
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
