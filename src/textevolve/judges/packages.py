"""Judges from other packages: how they are found and loaded. What they are asked is their own
business."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, runtime_checkable

from textevolve.errors import InputError
from textevolve.llm.model import Model
from textevolve.user_code import load_point

GROUP = "textevolve.judges"


@runtime_checkable
class JudgeMaker(Protocol):
    """What an entry point may name to have a judge for each text that asks for one."""

    def open(self, argument: str, options: Mapping[str, str], model: Model) -> Any:
        """An evaluator, or a function of a `Case`. `argument`: what stands after the name's colon.
        `options`: those after `+`, an empty text for one that has no value. `model`: asked through
        the journal, within limits.

        Raises:
            InputError: the argument or an option cannot be used.
        """
        ...


def installed_judges() -> list[str]:
    return [point.name for point in entry_points(group=GROUP)]


def find_point(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=name)), None)


def load_judge(name: str) -> Any:
    """What the entry point names: a `JudgeMaker`, or an evaluator.

    Raises:
        InputError: it cannot be loaded, or is neither.
    """
    point = find_point(name)
    try:
        found: Any = load_point(point) if point is not None else None
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  code of others runs here, and may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"judge '{name}': cannot be loaded ({why})") from None
    if not callable(getattr(found, "open", found)):
        raise InputError(f"judge '{name}': is neither an evaluator nor has it open(...)")
    return found


def describe_package(name: str) -> str:
    """The package that brings a judge, with its version."""
    point = find_point(name)
    return f"{point.dist.name} {point.dist.version}" if point is not None and point.dist else ""
