"""`textevolve bench`: how far judges can be believed, on items that people have judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import cards, options
from textevolve.cli.bench_tasks import ABLATED, FIRST_ROUND, WORTH, Task, agree, escalate
from textevolve.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textevolve.settings import Settings
    from textevolve.wiring import Limits

app = typer.Typer(**options.PLAIN)
app.command("card")(cards.card)
app.command("rate")(cards.rate)

Items = Annotated[
    list[str], typer.Argument(metavar="ITEMS", help="Files of items with people's judgements.")
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", help="Such as openai/gpt-5-mini, local/NAME.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format", help="auto, plain, llmbar, faireval, mt-bench, judgebench or rewardbench."
    ),
]
Limit = Annotated[int | None, typer.Option(help="Only the first so many items.")]
HalfOf = Annotated[
    str | None,
    typer.Option("--half", help="tune or report: the half to choose on, or the one to report on."),
]
OrdersOf = Annotated[
    str, typer.Option("--orders", help="both, or given: each item in its own order alone.")
]
EqualTokens = Annotated[
    bool,
    typer.Option("--equal-tokens", help="Ask cheaper judges again, up to the dearest's tokens."),
]
Seed = Annotated[int, typer.Option(help="Of the intervals; judges have their own, as probe+seed=1")]
Concurrency = Annotated[int | None, typer.Option(help="Verdicts in flight.")]
Json = Annotated[bool, typer.Option("--json", help="The figures as one JSON object.")]
Output = Annotated[
    list[str] | None,
    typer.Option(
        "--output", "-o", help="Figures to .json, verdicts to .jsonl, all to .html; repeatable."
    ),
]
Profile = Annotated[
    str, typer.Option("--profile", "-p", help="Who debates: a shipped profile, or a YAML file.")
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="What all have: rules, or NAME=VALUE of the profile; repeatable."),
]


@app.command()
def agreement(
    items: Items,
    judge: Annotated[
        list[str],
        typer.Option("--judge", help="Such as debate:general, jury, pairwise+rules; repeatable."),
    ],
    model: Model = None,
    format: Format = "auto",
    limit: Limit = None,
    half: HalfOf = None,
    orders: OrdersOf = "both",
    equal_tokens: EqualTokens = False,
    samples: Annotated[int, typer.Option(help="How often each judge is asked the same.")] = 1,
    seed: Seed = 0,
    concurrency: Concurrency = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Json = False,
    output: Output = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Measure how far judges agree with people, and whether one does better than another.

    The same command again goes on where it was stopped, and asks nothing twice. Exit codes: 0 done;
    1 a model or the store failed; 2 bad input; 3 some verdicts are missing; 130 interrupted.
    """
    from textevolve.runs.agreement import Plan, read_items

    plan = Plan(orders, samples, equal_tokens, seed)
    read = read_items(items, format, half=half, limit=limit)
    limits = _limits(max_cost, max_tokens, max_calls)
    task = Task("agreement", items, half, limits, dry_run, as_json, output or [], name or "")
    settings = _read_settings(model, store, concurrency)
    raise typer.Exit(agree(task, settings, model, judge, read, plan))


@app.command()
def ablate(
    items: Annotated[
        list[str], typer.Argument(metavar="CASES", help="Files of your items, best labelled.")
    ],
    profile: Profile = "general",
    option: With = None,
    model: Model = None,
    format: Format = "auto",
    limit: Limit = None,
    half: HalfOf = None,
    orders: OrdersOf = "both",
    equal_tokens: EqualTokens = False,
    worth: Annotated[float, typer.Option(help="The least gain worth having, 0 to 1.")] = WORTH,
    seed: Seed = 0,
    concurrency: Concurrency = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Json = False,
    output: Output = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Does the debate pay here? A single judge, a jury, the debate and escalation in one table.

    On items without labels it can only be told how far they agree with each other, how steady they
    are and what they cost. Exit codes as of `bench agreement`.
    """
    from textevolve.bench.ablation import first_round
    from textevolve.runs.agreement import Plan, read_items

    if not 0 < worth < 1:
        raise InputError(f"--worth must lie between 0 and 1, not at {worth}")
    judges = [_name_judge(kind, profile, option) for kind in ABLATED]
    debate = judges[ABLATED.index("debate")]
    views = {FIRST_ROUND: (debate, first_round)}
    plan = Plan(orders, 1, equal_tokens, seed, views)
    read = read_items(items, format, half=half, limit=limit, unlabelled=True)
    limits = _limits(max_cost, max_tokens, max_calls)
    task = Task("ablate", items, half, limits, dry_run, as_json, output or [], name or "", worth)
    settings = _read_settings(model, store, concurrency)
    raise typer.Exit(agree(task, settings, model, judges, read, plan))


@app.command()
def escalation(
    items: Items,
    profile: Profile = "general",
    agreement: Annotated[
        float, typer.Option(help="How often a first round that may stand is to be right, 0 to 1.")
    ] = 0.9,
    confidence: Annotated[
        float, typer.Option(help="With which probability that holds for new items, 0 to 1.")
    ] = 0.9,
    option: With = None,
    model: Model = None,
    format: Format = "auto",
    limit: Limit = None,
    half: HalfOf = None,
    concurrency: Concurrency = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Json = False,
    output: Output = None,
    name: options.RunName = None,
    store: options.StoreFile = None,
) -> None:
    """Find from which certainty on a first round may stand, and what that saves and costs.

    Every item is debated to the end once. Exit codes as of `bench agreement`.
    """
    from textevolve.runs.agreement import read_items
    from textevolve.runs.calibration import WHOLE, check_wanted

    check_wanted(agreement, confidence)
    read = read_items(items, format, half=half, limit=limit)
    limits = _limits(max_cost, max_tokens, max_calls)
    task = Task("escalation", items, half, limits, dry_run, as_json, output or [], name or "")
    settings = _read_settings(model, store, concurrency)
    judge = _name_judge("debate", profile, [*(option or []), *WHOLE])
    raise typer.Exit(escalate(task, settings, model, judge, read, agreement, confidence))


def _limits(cost: float | None, tokens: int | None, calls: int | None) -> Limits:
    from textevolve.wiring import Limits

    return Limits(cost, tokens, calls)


def _read_settings(model: str | None, store: Path | None, concurrency: int | None) -> Settings:
    from textevolve.settings import read_settings

    return read_settings({"model": model, "store": store, "concurrency": concurrency})[0]


def _name_judge(kind: str, profile: str, options: Sequence[str] | None) -> str:
    """A judge's spec; the profile that is the default is not named."""
    named = kind if profile == "general" else f"{kind}:{profile}"
    return "+".join([named, *(options or [])])
