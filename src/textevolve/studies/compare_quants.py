"""The comparison of a model with its quantised copies, on the user's rows.

It is `compare` with the models as the variants, and adds the size of each file and its speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.errors import InputError
from textevolve.llm.catalogue import PROVIDER, locate
from textevolve.llm.providers import known_providers, resolve
from textevolve.reach import is_confined
from textevolve.report.blocks import Cell, Column, Report, Table
from textevolve.settings import Settings
from textevolve.spec import Several, option
from textevolve.studies import compare
from textevolve.studies.compare import Comparison
from textevolve.studies.compare_spec import CompareSpec


class CompareQuantsSpec(CompareSpec):
    """Compare quantised models with their original on your rows: scores, size and speed.

    The first model is the original, such as a file of f16. Without --prompt the models get
    the column `input` as their prompt. All models are in memory at the same time.
    """

    kind: ClassVar[str] = "compare-quants"

    original: str = option(
        description="The original model: a GGUF file, or a model's name.",
        argument=True,
    )
    quants: Several = option(
        description="The quantised models to compare with the original.",
        argument=True,
        min_length=1,
    )
    models: Several = option(
        (), "The models that answer: the original and the quantised ones.", hidden=True
    )
    baseline: str | None = option(None, "The original.", hidden=True)
    sizes: Mapping[str, int] = option({}, "The size of each file, in bytes.", hidden=True)

    @model_validator(mode="before")
    @classmethod
    def _ask_input(cls, fields: Any) -> Any:
        plain = ({"name": "input", "text": "{input}"},)
        return {**fields, "prompts": fields.get("prompts") or plain}

    @model_validator(mode="after")
    def _names_once(self) -> CompareQuantsSpec:
        names = (self.original, *self.quants)
        if len(set(names)) < len(names):
            raise InputError("a model is named twice; name the original once, then its quants")
        return self


def complete(spec: CompareQuantsSpec, settings: Settings) -> CompareQuantsSpec:
    """Return the specification with full model names, and with the size of the file of each model
    on this machine."""
    models = tuple(_full_name(name, settings) for name in (spec.original, *spec.quants))
    sizes: dict[str, int] = {}

    for model in models:
        endpoint = resolve(model, settings, asks=False)
        if endpoint.is_local:
            file = locate(endpoint.model, settings.weights_folder)
            sizes[model] = file.weights.bytes if file.weights else file.path.stat().st_size

    return spec.model_copy(update={"models": models, "sizes": sizes})


def _full_name(name: str, settings: Settings) -> str:
    if "://" in name or name.partition("/")[0] in known_providers(settings):
        return name
    path = Path(name).expanduser()
    # A server's client learns nothing of the server's files; it names models.
    if path.suffix == ".gguf" and not is_confined() and path.is_file():
        return f"{PROVIDER}/{path.absolute()}"
    return f"{PROVIDER}/{name}"


@dataclass(frozen=True, slots=True)
class QuantFigures:
    """The size and speed of a model: the `bytes` of its file, and the tokens it generates per
    second (`speed`); None if unknown."""

    bytes: int | None
    speed: float | None


def quant_figures(spec: CompareQuantsSpec, comparison: Comparison) -> dict[str, QuantFigures]:
    """Return size and speed by model, the original first. The time that calls waited for a free
    slot is not counted."""
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for output in comparison.outputs:
        model = output.model
        tokens[model] = tokens.get(model, 0) + output.usage.completion_tokens
        seconds[model] = seconds.get(model, 0.0) + (output.seconds or 0.0)

    return {
        model: QuantFigures(
            spec.sizes.get(model), tokens[model] / seconds[model] if seconds.get(model) else None
        )
        for model in spec.models
    }


def report(spec: CompareQuantsSpec, comparison: Comparison) -> Report:
    columns = (
        "model",
        Column("MB", "number", 0),
        Column("of the original", "percent", 0),
        Column("writes, tokens/s", "number", 1),
        Column("times the original", "number", 2),
    )
    figures = quant_figures(spec, comparison)
    original = next(iter(figures.values()))
    rows: list[list[Cell]] = []

    for model, quant in figures.items():
        size = quant.bytes / 1e6 if quant.bytes else None
        rows.append(
            [
                model,
                size,
                quant.bytes / original.bytes if quant.bytes and original.bytes else None,
                quant.speed,
                quant.speed / original.speed if quant.speed and original.speed else None,
            ]
        )

    note = (
        "Speeds were measured on this machine under its load at the time, with all calls in flight."
    )
    plain = compare.STUDY.report(spec, comparison)
    table = Table("Size and speed", columns, rows, note=note)

    return replace(plain, title="Quants", blocks=chain([table], plain.blocks))


def data(spec: CompareQuantsSpec, comparison: Comparison) -> Mapping[str, Any]:
    return {
        **compare.STUDY.data(spec, comparison),
        "quants": quant_figures(spec, comparison),
    }


STUDY = replace(compare.STUDY, spec=CompareQuantsSpec, complete=complete, report=report, data=data)
