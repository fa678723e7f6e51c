"""Judge the cases of a file and print a line for each, as they finish.

    python examples/batch.py [CASES] [MODEL]

Run it again: nothing is asked a second time, since the answers are in the store.
"""

from __future__ import annotations

import sys
from pathlib import Path

from textevolve import EvaluationResult, Failure, TextEvolveError, Usage, evaluate_batch
from textevolve.studies.rows import read_cases

CASES = Path(__file__).with_name("cases.jsonl")


def describe(judged: EvaluationResult | Failure) -> str:
    if isinstance(judged, Failure):
        return f"no score: {judged.reason}"
    return f"{judged.score:.2f} {'passed' if judged.passed else 'not passed'}"


def main(path: str = str(CASES), model: str | None = None) -> None:
    spent = Usage()
    for result in evaluate_batch(read_cases(path), model=model):
        spent += result.usage
        print(f"{result.case.id}: {result.usage.calls} calls")
        for number, judged in enumerate(result.result):
            mark = "*" if number == result.best else " "
            print(f"  {mark} candidate {number + 1}: {describe(judged)}")
    print(f"{spent.calls} calls, {spent.tokens} tokens")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TextEvolveError as error:
        sys.exit(f"error: {error}")
