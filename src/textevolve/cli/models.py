"""`textevolve models list|pull|quantize`: the local models with their weights, and the progress bar
of downloads."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from textevolve.errors import InputError
from textevolve.llm import weights
from textevolve.llm.providers import LOCAL, PROVIDERS
from textevolve.llm.quantize import Quantized, check_target, quantize_file, quantized_name
from textevolve.llm.weights import ReportProgress, TransferProgress, fetch
from textevolve.settings import Settings, read_settings


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the known local models: size, licence, and whether they are downloaded and checked."""
    settings = read_settings()
    rows = weights.list_weights(settings)
    if as_json:
        typer.echo(json.dumps([asdict(row) | {"path": str(row.path)} for row in rows], indent=2))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        size = f"{row.bytes / 1e9:.2f} GB"
        note = f"  ({row.note})" if row.note else ""
        typer.echo(f"{row.name:{width}}  {size:>8}  {row.licence:10}  {row.state:11}{note}")
    typer.echo(f"\nkept in {settings.weights_folder}; used as local/NAME")


def pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="The names of the local models; default: the default model."),
    ] = None,
) -> None:
    """Fetch weights and check their hash; a broken download resumes.

    Existing weights are hashed again, and fetched again if they are damaged.
    """
    settings = read_settings()
    for name in names or [PROVIDERS[LOCAL].default_model or ""]:
        weights.forget_check(name.removeprefix(f"{LOCAL}/"), settings)
        with draw_transfer() as report:
            path = weights.fetch(name.removeprefix(f"{LOCAL}/"), settings, report)
        typer.echo(f"{name}: ready in {path}")


@contextmanager
def draw_transfer() -> Generator[ReportProgress]:
    """Yield a function for `fetch` that reports its progress within the block: at a terminal by a
    bar with bytes, speed, source and time left. Notes are printed everywhere, and stay visible
    above the bar."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    from textevolve.cli.drawing import open_console

    console = open_console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    state: dict[str, Any] = {}

    def report(now: TransferProgress) -> None:
        if now.note:
            console.print(f"{now.name}: {now.note}", markup=False, highlight=False, soft_wrap=True)
        # A new source, or the hashing of a download, has its own speed.
        if state.get("source") != now.source or (now.note and now.done == 0):
            if "task" in state:
                bar.remove_task(state["task"])
            state["source"] = now.source
            state["task"] = bar.add_task(f"{now.name}, {now.source}", total=now.total)
        bar.update(state["task"], completed=now.done)

    with bar:
        yield report


def quantize(
    file: Annotated[
        str, typer.Argument(help="A GGUF file, or the name of a local model, which is downloaded.")
    ],
    to: Annotated[
        list[str],
        typer.Option(
            help="The types to write, such as q8_0,q4_k_m; known are f16, bf16, q8_0, q6_k,"
            " q5_k_m, q4_k_m, q4_0, q3_k_m. Repeatable.",
            metavar="TYPE,...",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="The folder to write to; default: the folder of the GGUF file."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Make files of weights with fewer bits from a GGUF file.

    `textevolve models compare-quants` measures their quality and speed.
    """
    settings = read_settings()
    source = _find_source(file, settings)
    types = list(dict.fromkeys(name for group in to for name in group.split(",") if name.strip()))
    if not types:
        raise InputError("--to: name at least one type, such as q8_0")
    folder = source.parent if output is None else Path(output).expanduser()
    targets = {name: folder / quantized_name(source, name) for name in types}
    for into in targets.values():  # before the first takes its time
        check_target(source, into, force=force)
    for name, into in targets.items():
        with draw_transfer() as report:
            _report_quant(quantize_file(source, name, into, force=force, report=report), settings)


def _find_source(file: str, settings: Settings) -> Path:
    name = file.removeprefix(f"{LOCAL}/")
    if Path(name).expanduser().is_dir():
        raise InputError(
            f"{file}: is a folder. Models as folders of safetensors are first converted to GGUF, by"
            " llama.cpp's convert_hf_to_gguf.py; see docs/local-models.md"
        )
    if name.endswith(".safetensors"):
        return _find_source(str(Path(name).expanduser().parent), settings)
    with draw_transfer() as report:
        return fetch(name, settings, report)


def _report_quant(quant: Quantized, settings: Settings) -> None:
    share = quant.bytes / quant.source_bytes
    typer.echo(f"{quant.path}: {quant.bytes / 1e6:,.1f} MB, {share:.0%} of the source")
    typer.echo(f"SHA-256 {quant.sha256}")
    is_named = quant.path.parent.resolve() == settings.weights_folder.resolve()
    typer.echo(f"used as local/{quant.path.stem if is_named else quant.path.resolve()}")
