"""A fitted judge as a file that people can read: signals, weights, and their measured figures.

How one is fitted is in `textevolve.bench`, how it judges in `fitted.py`.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from textevolve.errors import InputError
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.texts.yaml_lines import build_at, parse_yaml

ENDING = ".judge"
OTHERS = ("python", "rules", "hybrid", "cascade", "metric")
"""How judges' texts begin that may end like a fitted one's."""
HEAD = """\
# A judge that was fitted to labels. Use it like any other: --judge FILE.judge
# utility = intercept + sum over the signals of weight * (value - mean) / scale
"""


class _Part(BaseModel):
    """A part of the file; the file as a whole reports faults, with their place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FittedSignal(_Part):
    """One signal. `model`: the one it was fitted with, which is asked again; null for a signal that
    asks none, or whose judge names it. `values`: their unit. `weight`: of the standardised signal.
    `share`: what files of earlier versions say that it earns. `alone`: its agreement, with its
    interval."""

    judge: Annotated[str, Field(min_length=1)]
    model: str | None = None
    values: Literal["log-odds", "scores"] = "log-odds"
    weight: float
    mean: float
    scale: Annotated[float, Field(gt=0)]
    share: float | None = None
    alone: dict[str, float | None] = Field(default_factory=dict)


class FittedThreshold(_Part):
    """The score from which a text passes, and its promise. `precision` and `confidence` are the
    required ones; `holds` says whether any threshold holds them: else `value` is 0.5."""

    value: Annotated[float, Field(ge=0, le=1)]
    precision: float
    confidence: float
    holds: bool
    guarantee: str


class FittedFile(Frozen):
    """A fitted judge. `fitted_to`: pairs (who is better) or ratings (how good); `good` is the grade
    from which a text is good. `orders`: how its signals were asked, and are. `ridge`: the strength
    of the penalty. For people to read: `labels`, the number and the hash of the labels it was
    fitted to; `cross_validated`, figures of items that it was not fitted to."""

    format: Literal[1] = 1
    fitted_to: Literal["pairs", "ratings"]
    date: datetime.date
    orders: Literal["both", "given"] = "both"
    signals: Annotated[tuple[FittedSignal, ...], Field(min_length=1)]
    ridge: float
    good: float | None = None
    intercept: float = 0.0
    threshold: FittedThreshold
    labels: dict[str, int | str]
    cross_validated: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> FittedFile:
        if (self.good is None) != (self.fitted_to == "pairs"):
            raise ValueError("good belongs to a judge fitted to ratings, and to no other")
        names = [signal.judge for signal in self.signals]
        if len(set(names)) < len(names):
            raise ValueError("a signal is there twice")
        if nested := [name for name in names if ENDING in name]:
            raise ValueError(f"the signal {nested[0]} has a fitted judge: name its signals instead")
        return self

    @property
    def text(self) -> str:
        """Return the file as YAML."""
        data = self.model_dump(mode="json")
        return HEAD + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def is_fitted(judge: str) -> bool:
    """Tell whether a judge's text is the path of a fitted judge's file."""
    begins = judge.strip().partition(":")[0]
    return judge.strip().endswith(ENDING) and begins not in OTHERS


def load_fitted(path: str) -> FittedFile:
    """Read the file of a fitted judge.

    Raises:
        InputError: the file cannot be read or used; names it, the line and the reason.
    """
    return parse_fitted(read_text(path), path)


def parse_fitted(text: str, source: str) -> FittedFile:
    node, data = parse_yaml(text, source)
    if not isinstance(data, dict) or "signals" not in data:
        raise InputError(
            f"{source}: is no fitted judge: textevolve judges fit LABELS -o NAME.judge"
        )
    return build_at(FittedFile, cast("dict[str, Any]", data), node, source)


def check_name(path: str | Path) -> None:
    """Raise InputError if a name does not end in .judge."""
    if not str(path).endswith(ENDING):
        raise InputError(f"{path}: the name of a fitted judge ends in {ENDING}")


def save_fitted(file: FittedFile, path: str | Path) -> None:
    """Write the file of a fitted judge.

    Raises:
        InputError: the name does not end in .judge, or the file cannot be written.
    """
    check_name(path)
    try:
        Path(path).write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
