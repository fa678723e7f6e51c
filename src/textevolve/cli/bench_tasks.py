"""The work behind the commands of `bench.py` that ask judges about items: do it, show it, write it.

Nothing is computed here, and what is common to all measurements is in `measuring.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from textevolve.bench.ablation import Payoff
    from textevolve.bench.items import Item
    from textevolve.runs.agreement import Measured, Plan
    from textevolve.runs.calibration import Escalated
    from textevolve.runs.spec import MeasurementSpec
    from textevolve.settings import Settings
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord
    from textevolve.wiring import Limits

WORTH = 0.05  # as in `bench.ablation`, which is not imported for a mere --help
ABLATED = ("single", "jury", "debate", "escalation")
FIRST_ROUND = "debate, first round"
UNLABELLED = (
    "These items have no labels, so whether the debate pays cannot be told: only how far the judges"
    " agree with each other, how steady they are, and what they cost."
)
EQUAL_NOTE = (
    "That is for asking each judge once; further samples bring each up to the dearest's tokens."
)


@dataclass(frozen=True, slots=True)
class Task:
    """What a command was told that is not about judges."""

    kind: str
    files: Sequence[str]
    half: str | None
    limits: Limits
    dry_run: bool
    as_json: bool
    outputs: Sequence[str]
    name: str
    worth: float = WORTH

    @property
    def source(self) -> str:
        files = ", ".join(self.files)
        return f"{files}, the half to {self.half} on" if self.half else files


def agree(
    task: Task,
    settings: Settings,
    model: str | None,
    judges: Sequence[str],
    items: Sequence[Item],
    plan: Plan,
) -> int:
    """Ask what is missing, show and write the figures, and return the exit code."""
    from textevolve.bench.verdicts import STEP
    from textevolve.cli import measuring
    from textevolve.engine import sync
    from textevolve.runs.agreement import as_cases, measure_agreement
    from textevolve.runs.work import take_in
    from textevolve.store.repository import open_store

    measuring.check_outputs(task.outputs)
    measuring.refuse_overwriting(task.outputs, task.files)
    parameters = {"orders": plan.orders, "samples": plan.samples, "equal_tokens": plan.equal_tokens}
    spec = sync.run(measuring.specify(settings, task.kind, judges, model, parameters))
    cases = list(as_cases(items))
    if task.dry_run:
        turned = [replace(case, candidates=case.candidates[::-1]) for case in cases]
        measuring.show_estimate(
            spec,
            [*cases, *(turned if plan.orders == "both" else [])],
            settings,
            items=len(cases),
            times=plan.samples,
            note=EQUAL_NOTE if plan.equal_tokens else "",
            as_json=task.as_json,
        )
        return 0
    with open_store(settings.store) as store:
        run = take_in(store, spec, cases, name=task.name, source=task.source)
        try:
            found = measuring.work_on(
                run,
                settings,
                STEP,
                lambda hear: measure_agreement(
                    store, run, items, plan, settings, task.limits, hear
                ),
                quiet=task.as_json,
            )
        except KeyboardInterrupt:
            return measuring.stopped()
        _show_agreement(task, store, run, spec, plan, found)
    return measuring.end(found.missing, found.skipped, "verdicts")


def _show_agreement(
    task: Task,
    store: Store,
    run: RunRecord,
    spec: MeasurementSpec,
    plan: Plan,
    found: Measured,
) -> None:
    from textevolve.bench.summary import to_json
    from textevolve.cli import measuring
    from textevolve.cli.figures import print_json
    from textevolve.cli.judge_tables import print_agreement, summary_facts

    payoff, sentence = _weigh(task, spec, found) if task.kind == "ablate" else (None, "")
    data = {
        "kind": task.kind,
        "run": run.id,
        "model": spec.model,
        "source": list(task.files),
        "half": task.half,
        "orders": plan.orders,
        "samples": dict(found.samples),
        **({"payoff": to_json(payoff), "sentence": sentence} if task.kind == "ablate" else {}),
        "summary": to_json(found.summary),
        "once": to_json(found.once),
    }
    facts = measuring.run_facts(store, run)
    title = "Does the debate pay?" if task.kind == "ablate" else "Judges beside people"
    about = {**summary_facts(found), **facts}
    # Before anything is printed, since whoever reads that may close the pipe.
    measuring.write_agreement(found, task.outputs, data, about, title=title, sentence=sentence)
    if task.as_json:
        print_json(data)
        return
    print_agreement(found, facts, sentence=sentence)
    if plan.equal_tokens and found.once is None:
        typer.echo("equal tokens: not asked for yet, since verdicts are missing", err=True)


def _weigh(task: Task, spec: MeasurementSpec, found: Measured) -> tuple[Payoff | None, str]:
    """Whether the debate pays, and the sentence that says it."""
    from textevolve.bench.ablation import say_payoff, weigh_debate
    from textevolve.bench.verdicts import gather_outcomes

    if not found.summary.labelled:
        return None, UNLABELLED
    judges = dict(zip(ABLATED, spec.judges, strict=True))
    payoff = weigh_debate(
        found.items,
        found.summary,
        gather_outcomes(found.items, found.verdicts),
        judges["debate"],
        [judges["jury"], judges["single"], FIRST_ROUND],
        once=found.once,
        worth=task.worth,
    )
    if payoff is None:
        return None, "Whether the debate pays cannot be told: no item has what it takes."
    names = {
        judges["debate"]: "the debate",
        judges["jury"]: "the jury of the same agents",
        judges["single"]: "a single judge",
        FIRST_ROUND: "its own first round",
    }
    return payoff, say_payoff(payoff, names, equal_tokens=found.once is not None)


def escalate(
    task: Task,
    settings: Settings,
    model: str | None,
    judge: str,
    items: Sequence[Item],
    agreement: float,
    confidence: float,
) -> int:
    """Debate what is missing, show and write what follows, and return the exit code."""
    from textevolve.cli import measuring
    from textevolve.engine import sync
    from textevolve.runs.agreement import as_cases
    from textevolve.runs.calibration import STEP, measure_escalation
    from textevolve.runs.work import take_in
    from textevolve.store.repository import open_store

    measuring.check_outputs(task.outputs, (".json",))
    measuring.refuse_overwriting(task.outputs, task.files)
    spec = sync.run(measuring.specify(settings, task.kind, [judge], model, {}))
    cases = list(as_cases(items))
    if task.dry_run:
        measuring.show_estimate(spec, cases, settings, as_json=task.as_json)
        return 0
    with open_store(settings.store) as store:
        run = take_in(store, spec, cases, name=task.name, source=task.source)
        try:
            found = measuring.work_on(
                run,
                settings,
                STEP,
                lambda hear: measure_escalation(
                    store,
                    run,
                    items,
                    settings,
                    task.limits,
                    hear,
                    agreement=agreement,
                    confidence=confidence,
                ),
                total=len(items),
                quiet=task.as_json,
            )
        except KeyboardInterrupt:
            return measuring.stopped()
        _show_escalation(task, store, run, found)
    return measuring.end(found.missing, found.skipped, "items")


def _show_escalation(task: Task, store: Store, run: RunRecord, found: Escalated) -> None:
    from textevolve.bench.summary import to_json
    from textevolve.cli import measuring
    from textevolve.cli.escalation_tables import print_escalation
    from textevolve.cli.figures import print_json

    data = {
        "kind": task.kind,
        "run": run.id,
        "model": run.spec.get("model"),
        "source": list(task.files),
        "half": task.half,
        **to_json(found),
    }
    for output in task.outputs:
        measuring.write_json(output, data)
        typer.echo(f"written to {output}", err=True)
    if task.as_json:
        print_json(data)
    else:
        print_escalation(found, measuring.run_facts(store, run))
