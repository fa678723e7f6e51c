"""`textevolve run chains show`. To run a chain is a study (`studies/run_chain`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from textevolve.cli import options
from textevolve.cli.drawing import open_console
from textevolve.cli.results import print_json
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.chain_file import load_chain
from textevolve.llm.chains.chat_template import write_text_template
from textevolve.llm.chains.steps import ChainStep, ModelStep, describe_type
from textevolve.report import wording
from textevolve.report.blocks import Branch, Report, Texts, Tree
from textevolve.report.terminal import print_report


def show(
    chain: Annotated[
        str,
        typer.Argument(metavar="CHAIN", help="A chain: FILE.yaml, MODULE:NAME or FILE.py:NAME."),
    ],
    as_json: options.Json = False,
) -> None:
    """Show a chain's steps as a tree, with its inputs, outputs and models. Nothing is asked."""
    loaded = load_chain(chain)
    if as_json:
        print_json({**loaded.describe(), "version": loaded.version, "models": list(loaded.models)})
        return
    print_report(report_chain(loaded), open_console())


def report_chain(chain: Chain) -> Report:
    """A chain as a report: its steps as a tree, its inputs, outputs, models and templates."""
    models = [*chain.models, *(["the model of whoever runs it"] if chain.asks_default else [])]
    facts = {
        "Inputs": _list_names(chain.inputs),
        "Outputs": _list_names(chain.outputs),
        "Models": ", ".join(models) or "none: no step asks one",
        "Version": chain.version,
    }
    tree = Tree(
        "Steps",
        [Branch(chain.name, "chain", children=[_branch(step, chain) for step in chain.steps])],
    )
    prompts = [
        (f"{name} ({message.role})", write_text_template(message.parts))
        for name, template in chain.templates.items()
        for message in template.messages
    ]
    blocks = [tree, *([Texts("Templates", prompts)] if prompts else [])]
    return Report(f"Chain {chain.name}", chain.description, blocks, facts)


def _list_names(names: Mapping[str, Any]) -> str:
    shown = [
        name if kind is None else f"{name} ({describe_type(kind).partition(' ')[0]})"
        for name, kind in names.items()
    ]
    return ", ".join(shown) or "none"


def _branch(step: ChainStep, chain: Chain) -> Branch:
    if isinstance(step, ModelStep):
        return Branch(step.into, ", ".join(_describe_model_step(step, chain)))
    target = step.callee.target
    inner = [_branch(one, target) for one in target.steps] if isinstance(target, Chain) else []
    return Branch(step.into, f"call {step.callee.kind} {step.callee.name}", children=inner)


def _describe_model_step(step: ModelStep, chain: Chain) -> list[str]:
    notes = ["ask", *filter(None, [step.model or chain.model])]
    if step.template.names:
        notes.append(f"from {', '.join(step.template.names)}")
    if step.parse is not None:
        notes.append(f"as {getattr(step.parse, '__name__', 'parsed')}")
    if step.name != step.into:
        notes.append(f"template {step.name}")
    if step.attempts > 1:
        notes.append(f"up to {wording.count(step.attempts, 'attempt')}")
    return notes
