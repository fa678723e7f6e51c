"""Which values are there at which step of a chain: checked once, when the chain is made."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel

from textevolve.errors import InputError
from textevolve.llm.chains.callables import Callee
from textevolve.llm.chains.steps import (
    BranchStep,
    CallStep,
    ChainStep,
    EachStep,
    ModelStep,
    ParallelStep,
)
from textevolve.spec import suggest


def check_names(
    steps: Iterable[ChainStep], inputs: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs with their types, and all values that there are at the end with theirs, None for a
    type that is not known. `inputs`: None: whatever the steps use and do not make.

    Raises:
        InputError: a step uses a value that is not there, or makes one that is.
    """
    for name in inputs or ():
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"an input has a name such as 'question', not {name!r:.40}")
    told = dict[str, Any](inputs or {})
    names = _Names(told, dict(told), finds=inputs is None)
    names.follow(steps)
    return told, names.known


@dataclass
class _Names:
    """`known`: the values that there are at this point, with their types. `finds`: what is not
    there is an input that nobody has named."""

    inputs: dict[str, Any]
    known: dict[str, Any]
    finds: bool

    def follow(self, steps: Iterable[ChainStep]) -> None:
        for step in steps:
            for name, kind in self._made_by(step).items():
                if name in self.known:
                    raise InputError(
                        f"step '{step.name}': there is a value '{name}' already, or it is used"
                        " before it is made: call it otherwise"
                    )
                self.known[name] = kind

    def _made_by(self, step: ChainStep) -> dict[str, Any]:
        if isinstance(step, ModelStep):
            for name in step.template.names:
                self._need(name, step)
            return {step.into: _answer_type(step)}
        if isinstance(step, CallStep):
            self._need_arguments(step)
            return {step.into: step.callee.gives}
        if isinstance(step, EachStep):
            self._need(step.over, step)
            if step.take not in self._lane(step.steps, {step.item: None}):
                raise InputError(f"step '{step.name}': its steps make no value '{step.take}'")
            return {step.into: list}
        if isinstance(step, ParallelStep):
            return self._all_of(step)
        return self._common_of(step)

    def _lane(self, lane: Iterable[ChainStep], more: Mapping[str, Any] = {}) -> dict[str, Any]:
        """What the steps make that see all that is known here, and `more`."""
        for name in more:
            if name in self.known:
                raise InputError(f"an item cannot be called '{name}': there is such a value")
        inner = _Names(self.inputs, {**self.known, **more}, self.finds)
        inner.follow(lane)
        self.known.update({n: k for n, k in self.inputs.items() if n not in self.known})
        return {name: kind for name, kind in inner.known.items() if name not in self.known}

    def _all_of(self, step: ParallelStep) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for lane in step.lanes:
            more = self._lane(lane)
            if twice := sorted(made.keys() & more.keys()):
                raise InputError(f"two steps that go on side by side make '{twice[0]}'")
            made |= more
        return made

    def _common_of(self, step: BranchStep) -> dict[str, Any]:
        """What each case makes, whichever is gone on with."""
        if isinstance(step.on, str):
            self._need(step.on, step)
        else:
            self._need_all(step.on, step)
        lanes = [*step.cases.values(), *([] if step.otherwise is None else [step.otherwise])]
        made = [self._lane(lane) for lane in lanes]
        common = [name for name in made[0] if all(name in one for one in made)]
        kinds = {name: [one[name] for one in made] for name in common}
        return {n: k[0] if all(one == k[0] for one in k) else None for n, k in kinds.items()}

    def _need_all(self, callee: Callee, step: ChainStep) -> None:
        for name in callee.takes or ():
            self._need(name, step)

    def _need_arguments(self, step: CallStep) -> None:
        callee, given = step.callee, step.arguments
        if given is None:
            self._need_all(callee, step)
            return
        if isinstance(given, str):
            self._need(given, step)
            return
        for name in given.values():
            self._need(name, step)
        if callee.takes is None or callee.kind == "runnable":
            return
        takes = (*callee.takes, *callee.may_take)
        for argument in given:
            if argument not in takes:
                raise InputError(
                    f"step '{step.name}': {callee.name} takes no '{argument}'"
                    f"{suggest(argument, takes)}"
                )
        for argument in callee.takes:
            if argument not in given:
                raise InputError(f"step '{step.name}': {callee.name} needs '{argument}', too")

    def _need(self, name: str, step: ChainStep) -> None:
        first, *fields = name.split(".")
        if first not in self.known:
            if not self.finds:
                raise InputError(
                    f"step '{step.name}': there is no value '{first}' at this point"
                    f"{suggest(first, tuple(self.known))}"
                )
            self.inputs[first] = self.known[first] = None
        kind = self.known[first]
        for field in fields:
            kind = _field_type(kind, field, name, step)


def _field_type(kind: Any, field: str, name: str, step: ChainStep) -> Any:
    """The type of a field, None where it is not known.

    Raises:
        InputError: the type is known, and has no such field.
    """
    if not inspect.isclass(kind):
        return None
    if issubclass(kind, BaseModel):
        known = {one: info.annotation for one, info in kind.model_fields.items()}
    elif kind in (str, int, float, bool, list):
        known = {}
    elif is_dataclass(kind):
        known = get_type_hints(kind)
    else:
        return None
    if field not in known:
        raise InputError(
            f"step '{step.name}': '{name}': {kind.__name__} has no field '{field}'"
            f"{suggest(field, tuple(known))}"
        )
    return known[field]


def _answer_type(step: ModelStep) -> Any:
    if step.parse is None:
        return str
    if isinstance(step.parse, type):
        return step.parse
    try:
        return get_type_hints(step.parse).get("return")
    except Exception:  # noqa: BLE001  annotations are the user's, and may name anything
        return None
