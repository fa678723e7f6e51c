"""`textevolve chains show`: a chain before it runs. To run one is a study (`studies/run_chain`)."""

from __future__ import annotations

from typing import Annotated

import typer

from textevolve.cli import options
from textevolve.cli.drawing import open_console
from textevolve.cli.results import print_json
from textevolve.llm.chains.chain_file import load_chain
from textevolve.report.terminal import print_report
from textevolve.studies.chain_outline import report_chain


def show(
    chain: Annotated[
        str,
        typer.Argument(metavar="CHAIN", help="A chain: FILE.yaml, MODULE:NAME or FILE.py:NAME."),
    ],
    as_json: options.Json = False,
) -> None:
    """Show a chain's steps as a tree, with its inputs, outputs and models. Nothing is asked."""
    found = load_chain(chain)
    if as_json:
        print_json({**found.describe(), "version": found.version, "models": list(found.models)})
        return
    print_report(report_chain(found), open_console())
