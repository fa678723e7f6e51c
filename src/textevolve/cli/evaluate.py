"""`textevolve evaluate`: one case from the arguments, or a batch from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textevolve.cli import options
from textevolve.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textevolve.debate.profile import Profile
    from textevolve.evaluation import Case
    from textevolve.evaluators import EvaluatorSpec
    from textevolve.runs.intake import Columns
    from textevolve.runs.spec import RunSpec
    from textevolve.settings import Settings


def evaluate(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT CANDIDATE... | CASES",
            help="The input and the candidate texts; @FILE reads a text from a file, - from "
            "standard input. Or one file of cases: .jsonl, .json, .csv or .parquet; - alone is "
            "JSON lines from standard input.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Results to .jsonl, .csv, .parquet or .html."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="A shipped profile, or a YAML file.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="Any judge in place of the profile's debate: probe+backward, pairwise+rules, "
            "jury:general, ...",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Such as openai/gpt-5-mini, local/NAME.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="The most rounds, 1 or more.")] = None,
    convergence: Annotated[
        str | None, typer.Option(help="Stop early at this CV, 0 to 1; 'none': never.")
    ] = None,
    history_rounds: Annotated[
        int | None, typer.Option(help="Past rounds that a turn sees; all if not given.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="sequential, blind-first, escalation, simultaneous, simultaneous-summary or "
            "independent."
        ),
    ] = None,
    escalate_below: Annotated[
        float | None,
        typer.Option(help="With escalation: debate where round 1 is less certain, 0 to 1."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Such as accuracy=1,relevance=0.5; those left out are 0.")
    ] = None,
    select: Annotated[str | None, typer.Option(help="argmax or sample.")] = None,
    readout: Annotated[
        str | None, typer.Option(help="auto, stated, expected, probe or alone.")
    ] = None,
    argue: Annotated[
        bool | None,
        typer.Option("--argue/--no-argue", help="Arguments; without: needs --readout alone."),
    ] = None,
    rules: Annotated[
        bool | None,
        typer.Option("--rules/--no-rules", help="Explicit rules on what counts for the agents."),
    ] = None,
    order: Annotated[str | None, typer.Option(help="balanced, fixed or swap.")] = None,
    aggregation: Annotated[str | None, typer.Option(help="mean, median or trimmed.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the softmax, above 0.")] = None,
    sampling_temperature: Annotated[
        str | None, typer.Option(help="Of the model; 'none': its own default.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Score from 0 to 1 from which a candidate passes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed is another run.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Debates in flight.")] = None,
    max_cost: options.MaxCost = None,
    max_tokens: options.MaxTokens = None,
    max_calls: options.MaxCalls = None,
    dry_run: options.DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Results as JSON lines.")] = False,
    name: options.RunName = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this run; refused if anything differs.")
    ] = None,
    store: options.StoreFile = None,
) -> None:
    """Judge candidate texts by a debate of agents.

    Exit codes: 0 all scored; 1 a model or the store failed; 2 bad input; 3 some cases have no
    score; 130 interrupted (the run can be resumed).
    """
    from textevolve.api.evaluation import specify
    from textevolve.cli import judging
    from textevolve.cli.execution import check_output, execute
    from textevolve.cli.results import refuse_overwriting
    from textevolve.engine import sync
    from textevolve.evaluators import read_profile
    from textevolve.rows import SUFFIXES
    from textevolve.runs.intake import Columns
    from textevolve.runs.work import begin
    from textevolve.settings import read_settings
    from textevolve.store.repository import open_store
    from textevolve.wiring import Limits

    parameters = {
        "rounds": rounds,
        "history_rounds": history_rounds,
        "protocol": protocol,
        "escalate_below": escalate_below,
        "weights": options.read_weights(weights),
        "select": select,
        "readout": readout,
        "argue": argue,
        "rules": rules,
        "order": order,
        "aggregation": aggregation,
        "temperature": temperature,
        "sampling_temperature": sampling_temperature,
        "threshold": threshold,
        "seed": seed,
        "convergence": convergence,
    }
    limits = Limits(max_cost, max_tokens, max_calls)
    settings, _ = read_settings({"model": model, "store": store, "concurrency": concurrency})
    batch = len(texts) == 1 and (texts[0] == "-" or Path(texts[0]).suffix.lower() in SUFFIXES)
    source = texts[0] if batch else "command line"
    if batch and output is not None:
        refuse_overwriting([output], texts)
    base: str | Profile | None = profile
    columns = Columns()
    if judge is not None:
        chosen = _choose_judge(judge, profile)
        if not chosen.is_debate:
            own = {"seed": parameters.pop("seed"), "threshold": parameters.pop("threshold")}
            judging.refuse_debate_options(judge, {**parameters, "resume": resume})
            judging.check_output(output)
            cases = judging.with_parameters(_read_cases(texts, batch, columns), options.given(own))
            asked = judging.Asked(
                judge, model, name or "", source, output, as_json, dry_run, columns
            )
            raise typer.Exit(judging.evaluate(cases, asked, settings, limits))
        base, model = read_profile(chosen), chosen.model or model
    check_output(output)
    spec = sync.run(specify(settings, base, model, options.given(parameters)))
    cases = _read_cases(texts, batch, columns)
    if dry_run:
        _show_estimate(spec, cases, settings, as_json)
        judging.warn_of_unread(columns, reference=False)
        return
    with open_store(settings.store) as opened:
        run = begin(
            opened,
            spec,
            cases,
            name=name or "",
            source=source,
            resume=resume,
        )
        judging.warn_of_unread(columns, reference=False)
        raise typer.Exit(execute(opened, run, settings, limits, output=output, as_json=as_json))


def _choose_judge(judge: str, profile: str | None) -> EvaluatorSpec:
    from textevolve.evaluators import parse_evaluator

    if profile is not None:
        raise InputError("--judge and --profile both say who judges: write --judge debate:PROFILE")
    return parse_evaluator(judge)


def _read_cases(texts: list[str], batch: bool, columns: Columns) -> Iterable[Case]:
    from textevolve.runs.intake import read_cases

    return read_cases(texts[0], columns) if batch else [_read_case(texts)]


def _read_case(texts: list[str]) -> Case:
    from textevolve.evaluation import Case, check_case
    from textevolve.rows import SUFFIXES

    if len(texts) < 2:
        given = texts[0] if texts else ""
        kinds = ", ".join(SUFFIXES)
        raise InputError(
            f"no candidates: give the input and one candidate or more, or a file of cases ({kinds})"
            + (f"; '{given[:40]}' is neither" if given else "")
        )
    if Path(texts[0]).suffix.lower() in SUFFIXES and os.path.isfile(texts[0]):
        raise InputError(
            f"'{texts[0]}' is a file of cases, which stands alone, and '{texts[1][:40]}' is one"
            " argument too many; a text out of a file is written @FILE"
        )
    if texts.count("-") > 1:
        raise InputError("only one of the texts can come from standard input")
    input, *candidates = (options.read_argument(text) for text in texts)
    case = Case(input, tuple(candidates), "1")
    check_case(case)
    return case


def _show_estimate(spec: RunSpec, cases: Iterable[Case], settings: Settings, as_json: bool) -> None:
    from textevolve.cli.estimates import print_estimate
    from textevolve.runs.estimate import estimate
    from textevolve.wiring import price_of

    found = estimate(cases, spec.profile, spec.model, lambda model: price_of(model, settings))
    print_estimate(found, spec.model, spec.why, as_json=as_json)
