"""A chain as a report: its steps as a tree, its inputs, outputs and models, before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textevolve.llm.chains.chain import Chain, ChainCallee, say_type
from textevolve.llm.chains.chat_template import write_text_template
from textevolve.llm.chains.steps import (
    BranchStep,
    CallStep,
    ChainStep,
    EachStep,
    ModelStep,
    ParallelStep,
)
from textevolve.report import wording
from textevolve.report.blocks import Branch, Report, Texts, Tree


def report_chain(chain: Chain) -> Report:
    """What a person is shown of a chain: nothing of it is run."""
    models = [*chain.models, *(["the model of whoever runs it"] if chain.asks_default else [])]
    facts = {
        "Inputs": _say_names(chain.inputs),
        "Outputs": _say_names(chain.outputs),
        "Models": ", ".join(models) or "none: no step asks one",
        "Version": chain.version,
    }
    tree = Tree("Steps", [Branch(chain.name, "chain", children=_grow(chain.steps, chain))])
    prompts = [
        (f"{name} ({message.role})", write_text_template(message.parts))
        for name, template in chain.templates.items()
        for message in template.messages
    ]
    blocks = [tree, *([Texts("Templates", prompts)] if prompts else [])]
    return Report(f"Chain {chain.name}", chain.description, blocks, facts)


def _say_names(named: Mapping[str, Any]) -> str:
    shown = [
        name if kind is None else f"{name} ({say_type(kind).partition(' ')[0]})"
        for name, kind in named.items()
    ]
    return ", ".join(shown) or "none"


def _grow(steps: Sequence[ChainStep], chain: Chain) -> list[Branch]:
    return [_branch(step, chain) for step in steps]


def _branch(step: ChainStep, chain: Chain) -> Branch:
    if isinstance(step, ModelStep):
        return Branch(step.into, _say_model_step(step, chain))
    if isinstance(step, CallStep):
        callee, inner = step.callee, list[Branch]()
        if isinstance(callee, ChainCallee):
            inner = _grow(callee.chain.steps, callee.chain)
        again = f", up to {wording.count(step.attempts, 'attempt')}" if step.attempts > 1 else ""
        return Branch(step.into, f"call {callee.kind} {callee.name}{again}", children=inner)
    if isinstance(step, EachStep):
        note = f"each {step.item} of {step.over}, gathers {step.take}"
        return Branch(step.into, note, children=_grow(step.steps, chain))
    if isinstance(step, ParallelStep):
        lanes = [Branch(f"lane {n}", children=_grow(x, chain)) for n, x in enumerate(step.lanes, 1)]
        return Branch("together", "side by side", children=lanes)
    return _fork(step, chain)


def _fork(step: BranchStep, chain: Chain) -> Branch:
    cases = [Branch(key, children=_grow(lane, chain)) for key, lane in step.cases.items()]
    if step.otherwise is not None:
        cases.append(Branch("otherwise", children=_grow(step.otherwise, chain)))
    return Branch(step.name, "branch", children=cases)


def _say_model_step(step: ModelStep, chain: Chain) -> str:
    notes = ["ask", step.model or chain.model or ""]
    if step.template.names:
        notes.append(f"from {', '.join(step.template.names)}")
    if step.parse is not None:
        notes.append(f"as {getattr(step.parse, '__name__', 'parsed')}")
    if step.attempts > 1:
        notes.append(f"up to {wording.count(step.attempts, 'attempt')}")
    if step.name != step.into:
        notes.append(f"template {step.name}")
    return ", ".join(note for note in notes if note)
