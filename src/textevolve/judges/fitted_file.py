"""The file of a fitted judge, in a form that people can read: signals, weights, and measured
figures. `textevolve.bench` fits a judge to labels, and `fitted.py` judges with it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BaseModel, Field, model_validator

from textevolve.errors import InputError
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.texts.yaml_lines import build_at, parse_yaml

ENDING = ".judge"
OTHER_JUDGES = ("python", "rules", "hybrid", "cascade", "metric")
"""The first words of other judges' texts that may end with `.judge`, too, since they name files or
other judges."""
HEAD = """\
# A judge that was fitted to labels. Use it like any other: --judge FILE.judge
# utility = intercept + sum over the signals of weight * (value - mean) / scale
"""
"""The comment at the beginning of the file."""


class _Part(BaseModel):
    """The base of the parts of the file. Errors in a part are reported with their place in the
    whole file."""

    model_config = Frozen.model_config


class FittedSignal(_Part):
    """One signal of a fitted judge: another judge whose value is weighted. `judge`: its text.
    `model`: the model with which it was fitted, and is called again; null if the signal calls no
    model, or its text names one. `values`: whether its values are log-odds or scores. `weight`: its
    weight after standardising the values: (value - `mean`) / `scale`. `share`: its share of the
    agreement, only in files of earlier versions. `alone`: the agreement of this signal alone with
    the labels, with a confidence interval."""

    judge: Annotated[str, Field(min_length=1)]
    model: str | None = None
    values: Literal["log-odds", "scores"] = "log-odds"
    weight: float
    mean: float
    scale: Annotated[float, Field(gt=0)]
    share: float | None = None
    alone: dict[str, float | None] = Field(default_factory=dict)


class FittedThreshold(_Part):
    """The score from which a text passes (`value`), chosen for a required precision. `precision`:
    the required share of good texts among those that pass. `confidence`: the required probability
    that this precision is reached. `holds`: whether any threshold reaches it; if none does, `value`
    is 0.5. `guarantee`: the result as a sentence."""

    value: Annotated[float, Field(ge=0, le=1)]
    precision: float
    confidence: float
    holds: bool
    guarantee: str


class FittedFile(Frozen):
    """A fitted judge. `fitted_to`: pairs (which text is better) or ratings (how good a text is).
    `good`: the rating from which a text counts as good. `orders`: whether the signals see the
    candidates in both orders, or only in the given one, as for the fit. `ridge`: the strength of
    the ridge penalty on the weights. `intercept`: added to the weighted sum. For people to read:
    `labels`, the number and the hash of the labels of the fit; `cross_validated`, figures measured
    on items that were left out of the fit; `warnings`."""

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
            raise ValueError("good: only a judge that was fitted to ratings has this field")
        names = [signal.judge for signal in self.signals]
        if len(set(names)) < len(names):
            raise ValueError("a signal is listed twice; keep one")
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
    return judge.strip().endswith(ENDING) and begins not in OTHER_JUDGES


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
            f"{source}: is not a fitted judge; make one with: textevolve judges fit LABELS -o"
            " NAME.judge"
        )
    return build_at(FittedFile, cast("dict[str, Any]", data), node, source)


def check_name(path: str | Path) -> None:
    """Raise InputError if a name does not end in .judge."""
    if not str(path).endswith(ENDING):
        raise InputError(f"{path}: the file name of a fitted judge must end in {ENDING}")


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
