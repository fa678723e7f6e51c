"""Two prompts times two local models on tasks that code checks: what `textevolve compare` finds.

    python benchmarks/compare_models.py                 80 rows; about an hour on two idle cores
    python benchmarks/compare_models.py --limit 3       a try

The tasks are made by rule from one seed, a quarter each: arithmetic in a story, sorting, writing a
date in another format, and taking a value out of a text. An answer is right if its last line holds
the expected text and nothing else but a full stop or quotes (`is_right`). Printed are the mean of
each variant with its 95 % interval, pass rates by kind of task, wins, paired differences to the
baseline with Holm, tokens, and median times. The answers are kept in `--store`, so that a second
run asks nothing.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from textevolve import Client
from textevolve.report.blocks import Matrix, Report
from textevolve.report.markdown import write_markdown
from textevolve.studies.compare import report
from textevolve.studies.compare_spec import CompareSpec

MODELS = ("local/qwen2.5-coder-0.5b", "local/qwen2.5-coder-1.5b")
PROMPTS = {
    "plain": "{task}\nAnswer with nothing but the result.",
    "steps": "{task}\nFirst think in at most three short steps. Then write the result, and nothing"
    " else, on a last line of its own.",
}
NAMES = ("Ada", "Ben", "Chloe", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan")
CITIES = ("Lisbon", "Oslo", "Quito", "Dakar", "Hanoi", "Turin", "Perth", "Lima", "Cork", "Riga")
WORDS = ["pear", "fig", "plum", "kiwi", "lime", "date", "apple", "melon", "grape", "cherry"]
SEED = 13


def make_rows(number: int) -> Iterator[dict[str, str]]:
    """So many tasks, each with its kind and its one right answer."""
    draw = random.Random(SEED)
    makers = (_arithmetic, _sorting, _dates, _extraction)
    for n in range(number):
        maker = makers[n % len(makers)]
        task, answer = maker(draw)
        yield {"id": f"{maker.__name__.strip('_')}-{n // 4 + 1}", "task": task, "answer": answer}


def _arithmetic(draw: random.Random) -> tuple[str, str]:
    name, boxes, each, gone = draw.choice(NAMES), *(draw.randint(2, 12) for _ in range(3))
    task = (
        f"{name} buys {boxes} boxes with {each} pens each, and then loses {gone} pens."
        f" How many pens does {name} have now?"
    )
    return (task, str(boxes * each - gone)) if boxes * each > gone else _arithmetic(draw)


def _sorting(draw: random.Random) -> tuple[str, str]:
    if draw.random() < 0.5:
        numbers = draw.sample(range(1, 100), 5)
        task = f"Sort these numbers from low to high, separated by commas: {_join(numbers)}"
        return task, _join(sorted(numbers))
    words = draw.sample(WORDS, 4)
    task = f"Sort these words by the alphabet, separated by commas: {_join(words)}"
    return task, _join(sorted(words))


def _join(values: list[int] | list[str]) -> str:
    return ", ".join(map(str, values))


def _dates(draw: random.Random) -> tuple[str, str]:
    day = date(1990, 1, 1) + timedelta(days=draw.randrange(15_000))
    written = f"{day.strftime('%B')} {day.day}, {day.year}"
    return f"Write the date {written} in the format YYYY-MM-DD.", day.isoformat()


def _extraction(draw: random.Random) -> tuple[str, str]:
    name, city = draw.choice(NAMES), draw.choice(CITIES)
    order, price = draw.randint(10_000, 99_999), f"{draw.randint(10, 99)}.{draw.randint(10, 99)}"
    text = (
        f"Dear team, {name} from {city} here. My order {order} came on Monday, but I paid {price}"
        " euros and not what the page said."
    )
    part, answer = draw.choice(
        (("the order number", str(order)), ("the city", city), ("the price in euros", price))
    )
    return f'Take {part} out of this text: "{text}"', answer


def is_right(output: str, answer: str) -> bool:
    """Whether the last line is the answer, but for white space, marks and case."""
    lines = [line for line in output.strip().splitlines() if line.strip(" `*")]
    last = re.sub(
        r"^(the )?(result|answer)( is)?:?\s*", "", (lines or [""])[-1].strip(), flags=re.I
    )
    return _plain(last) == _plain(answer)


def _plain(text: str) -> str:
    return re.sub(r"\s*,\s*", ",", text.strip(" \t.`*\"'")).casefold()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=80, help="rows; a multiple of 4 is balanced")
    parser.add_argument("--store", default="compare_models.db")
    parser.add_argument("--report", default="compare_models.md", help="Markdown, to be read")
    parser.add_argument("--model", action="append", help="in place of the two; repeatable")
    options = parser.parse_args()
    models = tuple(options.model or MODELS)
    comparison = Client(store=options.store).compare(
        list(make_rows(options.limit)),
        PROMPTS,
        models=models,
        label="answer",
        metric=is_right,
        max_output_tokens=200,
    )
    nothing = {"outputs": ("none",), "metric": ("exact",), "label": "none"}  # the report needs none
    spec = CompareSpec.model_validate(nothing)
    document = report(spec, comparison)
    blocks = [block for block in document.blocks if not isinstance(block, Matrix)]
    with open(options.report, "wb") as file:
        write_markdown(Report(document.title, document.sentence, blocks, document.facts), file)
    print(Path(options.report).read_text())
    print("Right, by kind of task:")
    for variant in comparison.variants:
        kinds: dict[str, list[bool]] = {}
        for output in comparison.outputs:
            if output.variant == variant.variant and output.score is not None:
                kinds.setdefault(output.row.split("-")[0], []).append(bool(output.passed))
        shares = (f"{kind} {sum(ok)} of {len(ok)}" for kind, ok in kinds.items())
        print(f"  {variant.variant}: {', '.join(shares)}")


if __name__ == "__main__":
    main()
