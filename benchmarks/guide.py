"""Does a debate as reasoning make answers better? `guide` on questions with one right answer.

    python benchmarks/guide.py ROWS.jsonl ... --store build/guide.db [--model SPEC] [--rows 60]
        [--profile general] [--debate rounds=1]

Rows: JSON lines with `question` or `input`, and `answer`; of each file the first `--rows`. Three
answers to each: plain; the most frequent of several samples that together have at least the tokens
of the debate (self-consistency, Wang and others, arXiv 2203.11171); and guided. Right: the text
behind the last "Answer:" is the row's, apart from case, "$", "," and a full stop. Printed for each
file: the share that is right with Wilson intervals at 95 %, and paired differences with a sign-flip
test. Every call is journaled in --store, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

from memory_place import open_place, run_benchmark
from sitting import describe_machine, format_share
from textevolve import AsyncClient, Settings
from textevolve.engine.local import gather_bounded
from textevolve.llm.model import Message, Model, Request
from textevolve.statistics.comparisons import sign_flip_test

FORM = "\n\nThink in a few short steps. Write the result alone on a last line: Answer: RESULT"
MOST_SAMPLES = 40
WAYS = ("plain", "samples", "guided")


def read_rows(path: Path, most: int) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:most]]
    return [(row.get("question") or row["input"], row["answer"]) for row in rows]


def result_of(text: str | None) -> str | None:
    """The text behind the last "Answer:", in the form in which results are compared."""
    _, mark, result = (text or "").rpartition("Answer:")
    line = (result.strip().splitlines() or [""])[0]
    return line.strip(" .*$").replace(",", "").casefold() if mark else None


async def sample(model: Model, question: str, seed: int) -> tuple[str | None, int]:
    """A sampled answer's result, and the tokens that it took."""
    response = await model(
        Request(
            messages=(Message("user", (question,)),), temperature=0.8, max_tokens=800, seed=seed
        )
    )
    return result_of(response.text), response.usage.tokens


async def answer(
    question: str, model: Model, client: AsyncClient, options: argparse.Namespace
) -> dict[str, str | None]:
    """The three results of a question."""
    debate = dict(pair.split("=", 1) for pair in options.debate)
    guided = await client.guide(
        question, profile=options.profile, model=options.model, debate=debate
    )
    first_result, tokens = await sample(model, question, 0)
    number = min(MOST_SAMPLES, math.ceil(guided.usage.tokens / max(1, tokens)))
    more = [await sample(model, question, seed) for seed in range(1, number)]
    votes = Counter(
        result for result in [first_result, *(r for r, _ in more)] if result is not None
    )
    plain = guided.made.plain
    return {
        "plain": result_of(plain.text if plain else None),
        "samples": votes.most_common(1)[0][0] if votes else None,
        "guided": result_of(guided.answer),
    }


async def compare(options: argparse.Namespace, settings: Settings) -> None:
    client = AsyncClient(settings=settings)
    async with open_place(settings, options.model) as place:
        model = place.bench.model_of(options.model)
        for path in options.files:
            rows = read_rows(path, options.rows)

            async def work(row: tuple[str, str]) -> dict[str, bool]:
                results = await answer(row[0] + FORM, model, client, options)
                print(".", end="", file=sys.stderr, flush=True)
                right = row[1].strip(" .$").replace(",", "").casefold()
                return {way: results[way] == right for way in WAYS}

            marks = await gather_bounded([lambda row=row: work(row) for row in rows], 2)
            print(f"\n{path.stem}, {options.model}, profile {options.profile}")
            for way in WAYS:
                print(f"{way}: {format_share([mark[way] for mark in marks])}")
            for way in ("plain", "samples"):
                test = sign_flip_test([m["guided"] for m in marks], [m[way] for m in marks])
                print(
                    f"guided against {way}: {test.first} better, {test.second} worse,"
                    f" p {test.p:.3f}"
                )
    print(describe_machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--profile", default="general")
    parser.add_argument("--debate", nargs="*", default=["rounds=1"], metavar="NAME=VALUE")
    parser.add_argument("--store", type=Path, required=True, help="a file; it is kept")
    run_benchmark(parser, compare)


if __name__ == "__main__":
    main()
