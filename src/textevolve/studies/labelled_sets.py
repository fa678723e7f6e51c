"""`labelling:NAME` in the place of a file of rows: what people said in a labelling task so far.

The rows are those that `labelling export` writes, so every study that reads labels takes them.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from textevolve import store
from textevolve.agents.resources import split_name
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.labelling.label_rows import item_rows, rows_to_rank
from textevolve.reach import allow_namespace, also_reach
from textevolve.report.data import write_rows
from textevolve.settings import Settings
from textevolve.spec import noted_of
from textevolve.store import labelling as stored_labels
from textevolve.studies.study import Study, StudySpec

PREFIX = "labelling:"

S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
T = TypeVar("T")


def read_from_labels(study: Study[S, R, T], spec: S, settings: Settings) -> list[Case] | None:
    """The cases of a study, where its specification names a labelling task as one of the files it
    reads; else None.

    Raises:
        InputError: there is no such task, or it has no labels that can be used so.
    """
    fields = type(spec).model_fields
    values: dict[str, Any] = {
        name: getattr(spec, name) for name, field in fields.items() if noted_of(field).get("reads")
    }
    named = {name: value for name, value in values.items() if any(map(_is_named, _several(value)))}
    return _read(study, spec, named, settings) if named else None


def _several(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def _is_named(value: object) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)


def _read(study: Study[S, R, T], spec: S, named: dict[str, Any], settings: Settings) -> list[Case]:
    ranked = spec.takes_items
    made: dict[str, str] = {}
    with TemporaryDirectory(prefix="textevolve-labels-") as folder:
        for one in {one for value in named.values() for one in _several(value) if _is_named(one)}:
            made[one] = _write(one, settings, Path(folder), ranked)
        written: dict[str, Any] = {}
        for name, value in named.items():
            files = tuple(made.get(one, one) for one in _several(value))
            written[name] = files if isinstance(value, tuple) else files[0]
        with also_reach(*made.values()):
            return list(study.cases(spec.model_copy(update=written)))


def _write(given: str, settings: Settings, folder: Path, ranked: bool) -> str:
    """The file that the labels of a task are written to."""
    space, name = split_name(given.removeprefix(PREFIX), settings.namespace)
    allow_namespace(space)
    resources = store.Store(settings.memory_location)
    try:
        task = resources.read(stored_labels.find_task, space, name)
        items, labels = resources.read(stored_labels.read_task, task.id)
    finally:
        resources.close()
    if ranked and any(item.images or any(item.text_images) for item in items):
        raise InputError(f"{given}: has images, and judges are measured on texts alone so far")
    try:
        make = rows_to_rank if ranked else item_rows
        rows = list(make(task.spec, items, labels))
    except InputError as error:
        raise InputError(f"{given}: {error}") from None
    path = folder / f"{space}-{name}.jsonl"
    with path.open("wb") as target:
        write_rows(lambda: rows, target, ".jsonl")
    return str(path)
