"""`textevolve labelling create|list|show|export|delete`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.agents.resources import split_name
from textevolve.cli import options, say
from textevolve.cli.drawing import open_console
from textevolve.cli.resources import NamespaceName, Yes
from textevolve.cli.results import ending_of, print_json
from textevolve.cli.spec_options import give_parameters, keyword, parameters_of, read_given
from textevolve.cli.study import telling_warnings
from textevolve.errors import InputError
from textevolve.labelling.agreement import agree
from textevolve.labelling.label_rows import item_rows, label_rows
from textevolve.report import wording
from textevolve.report.data import choose_writer
from textevolve.report.files import check_target, open_target
from textevolve.report.terminal import print_report
from textevolve.settings import Settings, read_settings
from textevolve.store import Store
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import open_store
from textevolve.studies.labelling import (
    LabellingSpec,
    make_task,
    read_row_items,
    report_task,
    run_cases,
)

TaskName = Annotated[str, typer.Argument(metavar="NAME", help="A task, or NAMESPACE/NAME.")]


@contextmanager
def _open(
    name: str, namespace: str | None, store: str | None
) -> Generator[tuple[Settings, Store, str, str]]:
    """The store, and the namespace and the bare name of a task."""
    settings, _ = read_settings({"store": store})
    space, own = split_name(name or "-", namespace or settings.namespace)
    resources = Store(settings.memory_location)
    try:
        if space == settings.namespace:
            resources.ensure_namespace(space)
        yield settings, resources, space, own
    finally:
        resources.close()


@telling_warnings()
def create(data: str | None, run: str | None, map: list[str] | None, **given: Any) -> None:
    """Make a labelling task of a file of rows, or of the texts of a run."""
    if (data is None) == (run is None):
        raise InputError("name a file of rows, or a run with --run")
    renamed = dict(_read_pair(one) for one in map or ())
    with _open(given["name"], given["namespace"], given["store"]) as (settings, kept, space, own):
        spec = LabellingSpec(**read_given(LabellingSpec, {**given, "name": own}))
        if run is not None:
            with open_store(settings.store) as opened:
                cases, source = run_cases(spec, opened, run), f"run {opened.get_run(run).id}"
        else:
            cases, source = read_row_items(data or "", renamed), Path(data or "").name
        told, items = make_task(spec, cases, source)
        made = kept.write(stored_labels.create_task, space, own, told, items)
    noun = "pair" if told.kind == "pairs" else "text"
    again = sum(one.again for one in items)
    typer.echo(
        f"made {space}/{own}: {wording.count(len(items) - again, noun)} to label, {again} of them"
        f" twice; label at /labelling/{made.id} of: textevolve serve"
    )


def _read_pair(given: str) -> tuple[str, str]:
    new, equals, old = given.partition("=")
    if not equals:
        raise InputError(f"--map: give NEW=OLD, not '{given}'")
    return new.strip(), old


def list_tasks(
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """List the labelling tasks, with how much each person has labelled."""
    with _open("", namespace, store) as (_, resources, space, _own):
        found = resources.read(stored_labels.list_tasks, space)
    for task in found:
        if as_json:
            print_json({**asdict(task), "spec": task.spec.model_dump(mode="json")})
        else:
            done = ", ".join(f"{who} {many}" for who, many in task.done.items()) or "nobody yet"
            typer.echo(f"{task.name}: {task.spec.kind}, {task.positions:,} to label; {done}")
    if not found and not as_json:
        typer.echo(
            f"no labelling tasks in the namespace '{space}'; make one with: textevolve labelling"
            " create NAME DATA"
        )


def show(
    name: TaskName,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Show how far people agree with each other and with themselves, and where they do not."""
    with _open(name, namespace, store) as (_, resources, space, own):
        task = resources.read(stored_labels.find_task, space, own)
        items, labels = resources.read(stored_labels.read_task, task.id)
    if as_json:
        print_json({"task": f"{space}/{own}", **asdict(agree(task.spec, items, labels))})
    else:
        print_report(report_task(task, items, labels), open_console())


def export(
    name: TaskName,
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .jsonl, .json, .csv or .parquet file; or -.")
    ] = "-",
    each: Annotated[
        bool, typer.Option("--each", help="A row for each label, in place of each item.")
    ] = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Write the labels as rows that `bench agreement` and `bench rate` read."""
    ending = ending_of(output)
    check_target(output)
    write = choose_writer(ending)
    with _open(name, namespace, store) as (_, resources, space, own):
        task = resources.read(stored_labels.find_task, space, own)
        items, labels = resources.read(stored_labels.read_task, task.id)
    make = label_rows if each else item_rows
    with open_target(output, binary=ending == ".parquet") as target:
        number = write(lambda: make(task.spec, items, labels), target)
    if output != "-":
        say(f"{wording.count(number, 'row')} written to {output}")


def delete(
    name: TaskName,
    yes: Yes = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Delete a labelling task with all its labels."""
    with _open(name, namespace, store) as (_, resources, space, own):
        task = resources.read(stored_labels.find_task, space, own)
        if not yes:
            held = wording.count(sum(task.done.values()), "label")
            typer.confirm(f"Delete the labelling task {own} with {held}?", abort=True)
        resources.write(stored_labels.delete_task, task.id)
    typer.echo(f"deleted the labelling task {own}")


_DATA = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="Rows as JSONL, JSON, CSV or Parquet, or hf:NAME."),
]
_RUN = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="A run in place of a file of rows.")
]
_MAP = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="NEW=OLD", help="What a column is to be called, as in --map input=frage."
    ),
]
_NAME, *_OPTIONS = parameters_of(LabellingSpec)
give_parameters(
    create,
    [
        *(_NAME, keyword("data", _DATA), keyword("run", _RUN), keyword("map", _MAP), *_OPTIONS),
        keyword("namespace", NamespaceName),
        keyword("store", options.StoreFile),
    ],
)
