"""What reading an instruction in its own tokens changes, on LLMBar (docs/measurements.md).

    python benchmarks/likelihood.py DATA/natural.json DATA/neighbor.json --limit 12 --reads FILE

Each item of the half on which wordings are chosen is read twice over, its two responses and the
empty one: as the judge did before, with a schema and a prompt that asks for JSON ("json"), and in
the instruction's own tokens ("tokens"). The whole instruction is read, so that what fewer of its
words would have said follows from the same answers. All reads are kept in FILE, and none is asked
twice; `--no-ask` prints what is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from judges import read_half
from sitting import describe_machine
from textevolve.bench.items import Item
from textevolve.evaluation import Case
from textevolve.judges.context import JudgeContext, prompt
from textevolve.judges.measures import (
    InstructionLikelihood,
    cut_instruction,
    request_instruction,
)
from textevolve.llm.model import Message, Model
from textevolve.llm.opening import open_client
from textevolve.llm.prompts import fence
from textevolve.settings import read_settings

MODES = ("json", "tokens")
WORDS = (5, 10, 15, 20, 30, 40, 0)
ASKS_JSON = (
    ' Answer with a JSON object that has one field, "instruction".',
    ", and nothing else.",
)
OPENING = '"instruction"'


@dataclass(frozen=True)
class Read:
    """One read: the tokens that write the instruction, as text, with what each surprises by."""

    tokens: tuple[tuple[str, float], ...]
    prompt_tokens: int
    answer_tokens: int
    seconds: float

    @property
    def nats(self) -> float:
        return sum(nats for _, nats in self.tokens)

    def within(self, characters: int) -> tuple[float, int]:
        """Nats and number of the tokens that begin in the first so many characters."""
        nats, number, start = 0.0, 0, 0
        for token, surprise in self.tokens:
            if start < characters:
                nats, number = nats + surprise, number + 1
            start += len(token)
        return nats, number


async def read(model: Model, mode: str, target: str, response: str) -> Read:
    request = request_instruction(response, target, 0)
    if mode == "json":
        request = replace(request, forced=None)
        (message,) = request.messages
        text = message.text.replace(ASKS_JSON[1], "." + ASKS_JSON[0])
        request = replace(request, messages=(Message("user", (text,)),))
    answer = await model(request)
    if mode == "tokens" and answer.text != target:
        raise SystemExit("the endpoint does not force tokens")
    tokens = [(token.token, -token.logprob) for token in answer.logprobs]
    if mode != "tokens":
        tokens = strip_envelope(tokens)
    usage = answer.usage
    return Read(tuple(tokens), usage.prompt_tokens, usage.completion_tokens, answer.seconds)


def strip_envelope(tokens: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The tokens of the value of the one field; one that holds a bit of both counts."""
    text = "".join(token for token, _ in tokens)
    begin = text.index('"', text.index(":", text.index(OPENING) + len(OPENING))) + 1
    last = text.rindex('"')
    inside: list[tuple[str, float]] = []
    start = 0
    for token, nats in tokens:
        end = start + len(token)
        if end > begin and start < last:
            inside.append((text[max(start, begin) : min(end, last)], nats))
        start = end
    return inside


Reads = dict[tuple[str, str, int], Read]
"""By mode, item and response, of which 2 is the empty one."""


def show(items: Sequence[Item], reads: Reads) -> None:
    """Print what each way of reading costs, and how often their verdicts agree."""
    complete = {(mode, id) for mode, id, n in reads if n == 2}
    items = [item for item in items if all((mode, item.id) in complete for mode in MODES)]
    most = max(len(item.input.split()) for item in items)
    print(f"\n{len(items)} items of at most {most} words; two responses and the empty one")
    print("mode      mean nats   prompt   answer   seconds an item")

    for mode in MODES:
        readings = [reads[mode, item.id, n] for item in items for n in range(3)]
        print(
            f"{mode:7} {sum(r.nats for r in readings) / len(readings):11.1f}"
            f"{sum(r.prompt_tokens for r in readings) / len(items):9.0f}"
            f"{sum(r.answer_tokens for r in readings) / len(items):9.0f}"
            f"{sum(r.seconds for r in readings) / len(items):12.1f}"
        )

    show_verdicts(items, reads)


def show_verdicts(items: Sequence[Item], reads: Reads) -> None:
    subsets = list(dict.fromkeys(item.subset for item in items))
    names = " ".join(f"{name:>12}" for name in subsets)
    print(f"\n{'right on':20} {names}   same as tokens, all   tokens an item")
    for mode, words in [("json", 0), *(("tokens", n) for n in WORDS)]:
        prefers = {item.id: prefers_first(item, reads, mode, words) for item in items}
        cells: list[str] = []
        for subset in subsets:
            mine = [item for item in items if item.subset == subset]
            right = sum(prefers[item.id] == (item.human[0] > item.human[1]) for item in mine)
            cells.append(f"{right:5} of {len(mine):3}")
        same = sum(prefers[item.id] == prefers_first(item, reads, "tokens", 0) for item in items)
        spent = sum(cost(item, reads, mode, words) for item in items) / len(items)
        title = f"{mode}, {f'{words} words' if words else 'all words'}"
        line = " ".join(f"{cell:>12}" for cell in cells)
        print(f"{title:20} {line}{same:14} of {len(items):3}{spent:17.0f}")


def prefers_first(item: Item, reads: Reads, mode: str, words: int) -> bool:
    nats = [_within(item, reads[mode, item.id, n], words)[0] for n in (0, 1)]
    return nats[0] < nats[1]


def cost(item: Item, reads: Reads, mode: str, words: int) -> int:
    """Tokens of the prompts and the answers of one item, had so many words been read."""
    every = [reads[mode, item.id, n] for n in range(3)]
    numbers = [
        _within(item, reading, words)[1] if words else reading.answer_tokens for reading in every
    ]
    return sum(
        reading.prompt_tokens + number for reading, number in zip(every, numbers, strict=True)
    )


def _within(item: Item, reading: Read, words: int) -> tuple[float, int]:
    if not words:
        return reading.nats, len(reading.tokens)
    return reading.within(len(cut_instruction(item.input, words)))


def load(file: Path) -> Reads:
    reads: Reads = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            mode, id, n, tokens, *figures = json.loads(line)
            reads[mode, id, n] = Read(tuple((text, nats) for text, nats in tokens), *figures)
    return reads


async def ask(items: Sequence[Item], model: Model, reads: Reads, file: Path) -> None:
    with file.open("a", encoding="utf-8") as stored:
        for item in items:
            judge = InstructionLikelihood()
            context = JudgeContext(judge, Case(item.input, item.candidates), model)
            target = cut_instruction(item.input, 0)
            responses = map(context.response, range(len(item.candidates)))
            fenced = (*responses, fence("response", "", context.lone_nonce))
            for mode in MODES:
                for n, response in enumerate(fenced):
                    if (mode, item.id, n) in reads:
                        continue
                    reading = reads[mode, item.id, n] = await read(model, mode, target, response)
                    row = (
                        mode,
                        item.id,
                        n,
                        reading.tokens,
                        reading.prompt_tokens,
                        reading.answer_tokens,
                        reading.seconds,
                    )
                    stored.write(json.dumps(row) + "\n")
                    stored.flush()
            print(f"{item.id}", file=sys.stderr, flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--limit", type=int, default=12, help="items of each file")
    parser.add_argument("--longest", type=int, default=60, help="words of an instruction")
    parser.add_argument("--no-ask", action="store_true", help="figures of what is there")
    parser.add_argument("--reads", type=Path, required=True, help="keeps what was read")
    options = parser.parse_args()
    print(describe_machine())
    print(f"{options.model}, prompt {prompt('backward').version}, load {os.getloadavg()[1]:.1f}")
    files = [
        [item for item in read_half(file, "tune") if len(item.input.split()) <= options.longest]
        for file in options.files
    ]
    files = [items[: options.limit] for items in files]
    items = [item for item in chain.from_iterable(zip_longest(*files)) if item is not None]
    reads = load(options.reads)
    settings = read_settings()
    async with AsyncExitStack() as stack:
        if not options.no_ask:
            model, _, _ = await open_client(options.model, settings, stack)
            await ask(items, model, reads, options.reads)
    show(items, reads)


if __name__ == "__main__":
    asyncio.run(main())
