"""`textevolve labels create|list|show|export|delete`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.cli import options, say
from textevolve.cli.options import NamespaceName, Yes
from textevolve.cli.results import open_named, print_json, print_lines, print_list, show_report
from textevolve.cli.spec_options import read_given, takes
from textevolve.cli.study import telling_warnings
from textevolve.desk.labelling import (
    LabellingSpec,
    make_task,
    read_row_items,
    report_task,
    run_cases,
)
from textevolve.errors import InputError
from textevolve.labelling.tasks import LabelItem, StoredTask, agree, item_rows
from textevolve.report import wording
from textevolve.report.files import check_target, open_target
from textevolve.rows.formats import choose_writer
from textevolve.runs.stored_runs import ending_of
from textevolve.spec import option
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import open_store

TaskName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the task, or NAMESPACE/NAME.")
]


class TaskOptions(LabellingSpec):
    """A task, with the file or the run whose texts are labelled."""

    data: str | None = option(
        None,
        "A file of rows as JSONL, JSON, CSV or Parquet, or the data set hf:OWNER/NAME.",
        argument=True,
    )
    run: str | None = option(
        None, "The run whose texts are labelled, instead of a file of rows.", metavar="RUN"
    )
    map: Mapping[str, str] = option(
        {},
        "Rename a column: --map input=frage reads the column frage as input. Repeatable.",
        metavar="NEW=OLD",
    )


@takes(TaskOptions, "name")
@telling_warnings()
def create(
    name: TaskName,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
    **values: Any,
) -> None:
    """Make a labelling task of a file of rows, or of the texts of a run."""
    with open_named(store, name, namespace) as (settings, resources, space, bare_name):
        new = TaskOptions(**read_given(TaskOptions, {**values, "name": bare_name}))
        if (new.data is None) == (new.run is None):
            raise InputError("nothing to label: name a file of rows, or a run with --run")
        if new.run is not None:
            with open_store(settings.store) as runs:
                cases = run_cases(new, runs, new.run)
                source = f"run {runs.get_run(new.run).id}"
        else:
            cases = read_row_items(new.data or "", new.map)
            source = Path(new.data or "").name

        earlier: list[LabelItem] = []
        if new.after is not None:
            task = resources.read(stored_labels.find_task, space, new.after)
            earlier, _ = resources.read(stored_labels.read_task, task.id)
        spec, items = make_task(new, cases, source, earlier)
        task = resources.write(stored_labels.create_task, space, bare_name, spec, items)

    noun = "pair" if spec.kind == "pairs" else "text"
    typer.echo(
        f"made {space}/{bare_name}: {wording.count(len(items), noun)} to label; label at"
        f" /labelling/{task.id} of: textevolve serve"
    )


def list_tasks(
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """List the labelling tasks, with how much each person has labelled."""
    with open_named(store, namespace=namespace) as (_, resources, space, _own):
        tasks = resources.read(stored_labels.list_tasks, space)
    print_list(
        tasks,
        lambda task: {**asdict(task), "spec": task.spec.model_dump(mode="json")},
        print_lines(_describe),
        f"no labelling tasks in the namespace '{space}'; make one with: textevolve labels create"
        " replies rows.csv",
        as_json=as_json,
    )


def _describe(task: StoredTask) -> str:
    done = ", ".join(f"{who} {many}" for who, many in task.done.items()) or "nobody yet"
    return f"{task.name}: {task.spec.kind}, {task.positions:,} to label; {done}"


def show(
    name: TaskName,
    as_json: options.Json = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Show how far people agree with each other, and where they do not."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        task = resources.read(stored_labels.find_task, space, bare_name)
        items, labels = resources.read(stored_labels.read_task, task.id)
    if as_json:
        print_json({"task": f"{space}/{bare_name}", **asdict(agree(task.spec, items, labels))})
    else:
        show_report(report_task(task, items, labels))


def export(
    name: TaskName,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="The file to write: .jsonl, .csv or .parquet; - is standard output.",
        ),
    ] = "-",
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Write the labels as rows that `bench agreement` and `bench rate` read."""
    ending = ending_of(output)
    check_target(output)
    write = choose_writer(ending)
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        task = resources.read(stored_labels.find_task, space, bare_name)
        items, labels = resources.read(stored_labels.read_task, task.id)
    with open_target(output, binary=ending == ".parquet") as target:
        number = write(lambda: item_rows(task.spec, items, labels), target)
    if output != "-":
        say(f"{wording.count(number, 'row')} written to {output}")


def delete(
    name: TaskName,
    yes: Yes = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Delete a labelling task with all its labels."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        task = resources.read(stored_labels.find_task, space, bare_name)
        labels = wording.count(sum(task.done.values()), "label")
        options.confirm(f"Delete the labelling task {bare_name} with {labels}?", yes)
        resources.write(stored_labels.delete_task, task.id)

    typer.echo(f"deleted the labelling task {bare_name}")
