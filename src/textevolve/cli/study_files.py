"""`textevolve run init` and `run schema`: help with writing a study's YAML file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from textevolve.cli import say
from textevolve.errors import InputError
from textevolve.report.files import open_target
from textevolve.runs.study import kinds, schema_of, schema_of_all, write_example

StudyKind = Annotated[str | None, typer.Argument(help="A kind of study, such as calibrate.")]


def schema(kind: StudyKind = None) -> None:
    """Print the JSON schema of study files: of one kind, or of all.

    An editor that knows it completes fields and marks errors; name it on the file's first line:
    # yaml-language-server: $schema=study.schema.json
    """
    json_schema = schema_of_all() if kind is None else schema_of(kind)
    print(json.dumps(json_schema, indent=2, ensure_ascii=False))


def init(
    kind: StudyKind = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; - is standard output.")
    ] = "study.yaml",
) -> None:
    """Write a commented example of a study file, with every field at its default."""
    if kind is None:
        raise InputError(f"name a kind of study: {', '.join(kinds())}")
    text = write_example(kind, "" if output == "-" else output)
    if output != "-" and Path(output).exists():
        raise InputError(f"{output}: exists already; write to another file with -o")
    with open_target(output) as target:
        target.write(text.encode())
    if output != "-":
        say(f"written to {output}; run it with: textevolve run {shlex.quote(output)}")
