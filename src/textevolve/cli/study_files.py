"""`textevolve run init` and `run schema`: help with writing a study's YAML file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
import yaml

from textevolve.cli import say
from textevolve.errors import InputError
from textevolve.report.files import open_target
from textevolve.report.wording import count
from textevolve.rows.writing import write_lines
from textevolve.runs.study import kinds, schema_of, schema_of_all, write_example
from textevolve.studies.promptfoo import convert_config

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
    config: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A configuration of promptfoo that becomes the study, with a file of rows beside"
            " it; default: an example is written.",
        ),
    ] = None,
) -> None:
    """Write a commented example of a study file, with every field at its default; or convert a
    configuration of promptfoo."""
    if (kind is None) == (config is None):
        raise InputError(f"name a kind of study, or a file with --from: {', '.join(kinds())}")
    if config is not None:
        study, rows = convert_config(config)
        data = Path(output).with_suffix(".jsonl")
        if data.exists() or output == "-":
            raise InputError(f"{data}: exists already; write to another file with -o")
        with open_target(data) as target:
            write_lines(lambda: rows, target)
        say(f"written to {data}: {count(len(rows), 'row')}")
        text = yaml.safe_dump({**study, "data": str(data)}, sort_keys=False, allow_unicode=True)
    else:
        text = write_example(kind or "", "" if output == "-" else output)
    if output != "-" and Path(output).exists():
        raise InputError(f"{output}: exists already; write to another file with -o")
    with open_target(output) as target:
        target.write(text.encode())
    if output != "-":
        say(f"written to {output}; run it with: textevolve run {shlex.quote(output)}")
