"""Do the agents of a debate argue: different things, about the texts, as themselves?

    python benchmarks/debate_arguments.py natural.json --store build/arguments.db
        [--half report] [--items 10] [--skip 0] [--model SPEC] [--words 40]

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

Every call is journaled, so the same run asks nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept_run import keep_run, open_run
from sitting import describe_machine
from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.debate.result import NOTHING_TO_ADD
from textevolve.evaluation import Case, Usage
from textevolve.metrics.overlap import rouge_l
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import Store, open_store

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


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of one debate. `round` counts from 0; `text` is empty for an agent that had
    nothing to add."""

    case: Case
    round: int
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


def is_short(row: dict[str, Any]) -> bool:
    lengths = {field: len(row[field].split()) for field in LONGEST}
    outputs = (lengths["output_1"], lengths["output_2"])
    fits = all(lengths[field] <= most for field, most in LONGEST.items())
    return fits and min(outputs) >= SHORTEST


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


async def measure(
    cases: Sequence[Case], store: Store, settings: Settings, options: argparse.Namespace
) -> Figures:
    """Hold the debates, and show each argument on standard error as it comes."""
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

    async with open_run(store, run, settings) as bench:
        debate = Debate(profile, lambda _: bench.model, concurrency=1)
        for case in cases:
            result = await debate(case)
            usage += result.usage
            for turn in result.turns:
                text = "" if turn.argument == NOTHING_TO_ADD else turn.argument
                arguments.append(Argument(case, turn.round, text))
                speaker = profile.agents[turn.agent].name
                shown = text or "(nothing to add)"
                print(f"{case.id} {turn.round + 1} {speaker}: {shown}", file=sys.stderr)

    return Figures(tuple(arguments), usage, len(cases), time.monotonic() - began)


def show(figures: Figures) -> None:
    print(f"\n{figures.debates} debates, {len(figures.arguments)} arguments")
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


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--items", type=int, default=HALF)
    parser.add_argument("--skip", type=int, default=0, help="leaves out the first pairs")
    parser.add_argument("--profile", default="general")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--words", type=int, help="limits the arguments; leaves out remarks")
    parser.add_argument("--store", help="the file that keeps runs")
    options = parser.parse_args()
    settings = read_settings(store=options.store or None)
    cases = read_pairs(options.file, options.half, options.items, options.skip)
    print(f"{options.model}, {len(cases)} pairs ({options.half}), profile {options.profile}")
    print(describe_machine())
    with open_store(settings.store) as store:
        show(await measure(cases, store, settings, options))


if __name__ == "__main__":
    asyncio.run(main())
