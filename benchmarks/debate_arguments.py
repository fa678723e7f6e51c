"""Do the agents of a debate argue: different things, about the texts, as themselves?

    python benchmarks/debate_arguments.py natural.json --store build/arguments.db
        [--half report] [--arms earlier new] [--items 10] [--skip 0] [--model SPEC]
        [--blind FILE] [--words 40] [--accuracy 60]

FILE is one of LLMBar's (a list of `input`, `output_1`, `output_2`, `label`). Short pairs of it are
sorted by a hash of the input: wordings were chosen on the first ten (`--half choose`), and the
figures in docs/measurements.md are those of pairs after them (`--half report`), on which nothing
was tried. Each pair is debated by the agents of a shipped profile over two rounds. Counted:

- alike: the mean ROUGE-L of two agents' arguments in a round, each round apart. An agent that says
  nothing counts as alike (1) and without a quotation.
- quote: the share of arguments that have at least four words in a row of a response, of which the
  quotations are at most a third of the argument.
- form: the share of arguments that speak of marks, codes, lots, scores or the form of the answer.
- tokens: prompts and answers of all calls of the debate, scores included.

`earlier` is the wording before plain arguments: one JSON object a turn after all other turns, at
temperature 0. `--blind` writes ten arguments of the first round without their speakers, for a
reader who guesses, and the speakers to a second file. Every call is journaled, so the same run asks
nothing.

`--accuracy N` instead asks one agent for the better output of N short pairs, before its argument
(the readout pointwise) and after it (after-argument), and shows the share of right answers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept_run import keep_run, open_run
from sitting import Spent, describe_machine, format_share
from textevolve.debate.context import load_prompt
from textevolve.debate.deciding import answer_type
from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.debate.result import NOTHING_TO_ADD
from textevolve.evaluation import Case, Usage
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.prompts import draw_nonce, fence
from textevolve.llm.structured import answer_schema, ask_structured
from textevolve.metrics.overlap import rouge_l
from textevolve.settings import Settings, read_settings, today
from textevolve.store.repository import Store, open_store
from textevolve.wiring import Limits

HALF = 10
LONGEST = {"input": 60, "output_1": 70, "output_2": 70}
SHORTEST = 12
"""The least words of an output: a quotation of four words needs something to be quoted from."""
ROUNDS = 2
QUOTED = 4
# Not `mark` in the singular, which is a name of persons.
FORM = re.compile(
    r"\b(json|codes?|marks|markers?|brackets?|labels?|lots?|rounds?|scores?|scored|format"
    r"|out of (?:5|10|five|ten)|debaters?|debate)\b|\[\[",
    re.IGNORECASE,
)
EARLIER = Path(__file__).with_name("debate_earlier.md")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of one debate. `round` and `agent` count from 0; `text` is empty for an agent
    that had nothing to add."""

    case: Case
    round: int
    agent: int
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Figures:
    arguments: tuple[Argument, ...]
    usage: Usage
    debates: int
    seconds: float


def read_pairs(path: str, half: str, number: int, skip: int = 0) -> list[Case]:
    """Return the first `number` short pairs of one half after those to `skip`."""
    short = [row for row in read_rows(path) if is_short(row)]
    part = range(HALF) if half == "choose" else range(HALF, len(short))
    numbers = part[skip : skip + number]
    return [
        Case(short[n]["input"], (short[n]["output_1"], short[n]["output_2"]), f"pair-{n}")
        for n in numbers
    ]


def read_rows(path: str) -> list[dict[str, Any]]:
    """Return all rows, sorted by a hash that says nothing of their content."""
    rows: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return sorted(rows, key=lambda row: hashlib.sha256(row["input"].encode()).hexdigest())


def is_short(row: dict[str, Any], shortest: int = SHORTEST) -> bool:
    lengths = {field: len(row[field].split()) for field in LONGEST}
    outputs = (lengths["output_1"], lengths["output_2"])
    fits = all(lengths[field] <= most for field, most in LONGEST.items())
    return fits and min(outputs) >= shortest


def words_of(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.replace("’", "'").lower())


def quotes(argument: Argument) -> bool:
    """Tell whether four words in a row are those of a response, and all such runs together are at
    most a third of the argument."""
    words = words_of(argument.text)
    covered: set[int] = set()
    for candidate in argument.case.candidates:
        source = words_of(candidate)
        runs = {tuple(source[n : n + QUOTED]) for n in range(len(source) - QUOTED + 1)}
        for n in range(len(words) - QUOTED + 1):
            if tuple(words[n : n + QUOTED]) in runs:
                covered.update(range(n, n + QUOTED))

    return bool(covered) and len(covered) * 3 <= len(words)


def likeness(arguments: Sequence[Argument], round: int) -> list[float]:
    """Return ROUGE-L of each two agents in a round of a debate; 1 where one of them is silent."""
    values: list[float] = []
    for _, group in itertools.groupby(arguments, key=lambda argument: argument.case.id):
        texts = [argument.text for argument in group if argument.round == round]
        for one, other in itertools.combinations(texts, 2):
            values.append(rouge_l(one, other) if one and other else 1.0)
    return values


async def debate_earlier(case: Case, profile: Profile, model: Model) -> list[Argument]:
    """Hold the arguments of a debate with the wording of earlier versions; scores are not asked
    for, so that the tokens are those of the arguments alone."""
    template = EARLIER.read_text(encoding="utf-8")
    rules, _, request_text = template.partition("\n---\n")
    nonce = draw_nonce((case.input, *sorted(case.candidates)), profile.seed)
    components = "\n".join(
        f"- {c.name}: {c.meaning}. " + "; ".join(f"{n} = {m}" for n, m in c.rubric.items()) + "."
        for c in profile.components
    )
    system = Message("system", (rules.format(components=components),))
    names = tuple(component.name for component in profile.components)
    history: list[str] = []
    arguments: list[Argument] = []

    for round, (number, agent) in itertools.product(range(ROUNDS), enumerate(profile.agents)):
        order = (0, 1) if (round * len(profile.agents) + number) % 2 == 0 else (1, 0)
        kind = answer_type(tuple(j + 1 for j in order), names, "pointwise", None)
        opening = load_prompt("case").render(
            nonce=nonce,
            input=fence("input", case.input, nonce),
            responses=[fence(f"response {j + 1}", case.candidates[j], nonce) for j in order],
        )
        ending = request_text.format(
            agent=agent.name,
            persona=agent.persona,
            round=round + 1,
            rounds=ROUNDS,
            today=today(),
            labels=" and ".join(f"Response {j + 1}" for j in order),
        )
        request = Request(
            messages=(system, Message("user", (opening, *history, ending))),
            schema=answer_schema(kind),
            temperature=0.0,
            max_tokens=1200,
            seed=profile.seed,
        )
        answer = await ask_structured(model, request, kind)
        text = str(getattr(answer.value, "argument"))  # noqa: B009 - the type is made at run time
        arguments.append(Argument(case, round, number, agent.name, text))
        quotation = fence("argument", text, nonce)
        history.append(
            load_prompt("spoken").render(
                round=round + 1, agent=agent.name, argument=quotation, scores=""
            )
        )

    return arguments


async def debate_now(case: Case, debate: Debate, speakers: Profile) -> tuple[list[Argument], Usage]:
    result = await debate(case)
    arguments = [
        Argument(
            case,
            turn.round,
            turn.agent,
            speakers.agents[turn.agent].name,
            "" if turn.argument == NOTHING_TO_ADD else turn.argument,
        )
        for turn in result.turns
    ]
    return arguments, result.usage


async def measure(
    arm: str,
    cases: Sequence[Case],
    store: Store,
    settings: Settings,
    options: argparse.Namespace,
) -> Figures:
    """Hold the debates of one arm, and show each argument on standard error as it comes."""
    profile = override(
        load_profile(options.profile),
        {
            "components": ["completeness"],
            "rounds": ROUNDS,
            "convergence": None,
            "readout": "pointwise",
            "argument_words": options.words,
        },
    )
    parameters = {"benchmark": "debate_arguments", "half": options.half, "profile": options.profile}
    run = await keep_run(store, settings, options.model, parameters, cases)
    arguments: list[Argument] = []
    usage = Usage()
    began = time.monotonic()

    async with open_run(store, run, settings, Limits(), Spent().hear) as bench:
        for case in cases:
            if arm == "earlier":
                # Scores of answers alone do not depend on arguments: they are those of both arms.
                meter = UsageMeter(bench.model)
                turns = await debate_earlier(case, profile, meter)
                scored = override(profile, {"argue": False, "protocol": "simultaneous"})
                usage += meter.usage
                usage += (await Debate(scored, lambda _: bench.model, concurrency=1)(case)).usage
            else:
                debate = Debate(profile, lambda _: bench.model, concurrency=1)
                turns, spent = await debate_now(case, debate, profile)
                usage += spent
            arguments += turns
            for turn in turns:
                text = turn.text or "(nothing to add)"
                print(f"{arm} {case.id} {turn.round + 1} {turn.speaker}: {text}", file=sys.stderr)

    return Figures(tuple(arguments), usage, len(cases), time.monotonic() - began)


def show(arm: str, figures: Figures) -> None:
    print(f"\n{arm}: {figures.debates} debates, {len(figures.arguments)} arguments")
    for round in range(ROUNDS):
        arguments = [a for a in figures.arguments if a.round == round]
        alike = likeness(figures.arguments, round)
        quoting = sum(map(quotes, arguments))
        of_form = sum(bool(FORM.search(a.text)) for a in arguments)
        silent = sum(not a.text for a in arguments)
        print(
            f"  round {round + 1}: alike {statistics.fmean(alike):.2f} (at most {max(alike):.2f}),"
            f" quote {quoting}/{len(arguments)}, silent {silent}, form {of_form}"
        )
    used = figures.usage
    print(
        f"  a debate: {used.tokens / figures.debates:,.0f} tokens ({used.completion_tokens:,}"
        f" written in all), {used.calls / figures.debates:.1f} calls; {figures.seconds:.0f} s here"
    )


def write_blind(path: str, arguments: Sequence[Argument]) -> None:
    """Write ten arguments of the first round without their speakers; the speakers come after a
    page of empty lines, so that a reader can guess first."""
    shuffled = [a for a in arguments if a.round == 0]
    random.Random(0).shuffle(shuffled)
    chosen = shuffled[:10]
    speakers = ", ".join(sorted({a.speaker for a in chosen}))
    names = re.compile("|".join({a.speaker for a in chosen}), re.IGNORECASE)
    lines = [f"{n}. ({a.case.id}) {names.sub('(name)', a.text)}\n" for n, a in enumerate(chosen, 1)]
    answers = [f"{n}. {a.speaker}" for n, a in enumerate(chosen, 1)]
    text = f"Speakers: {speakers}\n\n" + "\n".join(lines)
    Path(path).write_text(text, encoding="utf-8")
    Path(f"{path}.speakers").write_text("\n".join(answers) + "\n", encoding="utf-8")


async def show_accuracy(
    path: str, number: int, store: Store, settings: Settings, options: argparse.Namespace
) -> None:
    """Show how often one agent's scores are right before and after its argument."""
    rows = [row for row in read_rows(path) if is_short(row, 1)][:number]
    cases = [
        Case(row["input"], (row["output_1"], row["output_2"]), f"accuracy-{n}")
        for n, row in enumerate(rows)
    ]
    parameters = {"benchmark": "debate_arguments", "accuracy": number}
    run = await keep_run(store, settings, options.model, parameters, cases)
    hits: dict[str, list[float]] = {"pointwise": [], "after-argument": []}

    async with open_run(store, run, settings) as bench:
        for case, row in zip(cases, rows, strict=True):
            for readout, values in hits.items():
                changes = {"components": ["completeness"], "rounds": 1, "readout": readout}
                profile = override(load_profile(options.profile), changes | {"argument_words": 40})
                lone = profile.model_copy(update={"agents": profile.agents[-1:]})
                result = await Debate(lone, lambda _: bench.model, concurrency=1)(case)
                right = int(row["label"]) - 1
                values.append(0.5 if result.tied else float(result.best == right))
            print(f"{case.id}: {hits['pointwise'][-1]} {hits['after-argument'][-1]}", flush=True)

    for readout, values in hits.items():
        print(f"{readout}: {format_share(values)}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--arms", nargs="+", choices=("earlier", "new"), default=["earlier", "new"])
    parser.add_argument("--items", type=int, default=HALF)
    parser.add_argument("--skip", type=int, default=0, help="leaves out the first pairs")
    parser.add_argument("--profile", default="general")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--words", type=int, help="limits the new arguments; leaves out remarks")
    parser.add_argument("--store", help="the file that keeps runs")
    parser.add_argument("--blind", help="write ten arguments without their speakers to this file")
    parser.add_argument("--accuracy", type=int, help="short pairs, before and after an argument")
    options = parser.parse_args()
    settings = read_settings(store=options.store or None)
    if options.accuracy:
        with open_store(settings.store) as store:
            await show_accuracy(options.file, options.accuracy, store, settings, options)
        return

    cases = read_pairs(options.file, options.half, options.items, options.skip)
    print(f"{options.model}, {len(cases)} pairs ({options.half}), profile {options.profile}")
    print(describe_machine())
    with open_store(settings.store) as store:
        for arm in options.arms:
            figures = await measure(arm, cases, store, settings, options)
            show(arm, figures)
            if options.blind and arm == "new":
                write_blind(options.blind, figures.arguments)


if __name__ == "__main__":
    asyncio.run(main())
