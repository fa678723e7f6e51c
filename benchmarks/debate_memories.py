"""Do memories help a debate? Cases whose right answer depends on a fact that stands only in memory.

    python benchmarks/debate_memories.py --store build/debate_memories.db [--model SPEC]
        [--cases 60] [--agents 1] [--readout auto] [--argue] [--embedder local/bge-small]

Each case is judged three times by the same agents: with memories among which is the fact that it
needs (30 facts in each collection), with memories of other places alone, and without any. Shown is
the share of cases whose better candidate is the right one, with Wilson intervals at 95 %, and pairs
of conditions by a sign-flip test. `found`: the needed fact was among those recalled. Every call
is journaled in --store. Only scores are asked for unless --argue is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from memory_facts import (
    Fact,
    add_options,
    debate_options,
    debaters,
    judge,
    make_facts,
    open_place,
    run_benchmark,
    say_share,
    was_right,
)
from sitting import describe_machine
from textevolve import DebateResult, Settings
from textevolve.memory.record import Origin
from textevolve.statistics.comparisons import sign_flip_test

GROUP = 30
MOST = 5 * GROUP
MEMORY = {"limit": 5}


async def compare(arguments: argparse.Namespace, settings: Settings) -> None:
    all_facts = make_facts(arguments.cases + GROUP)
    facts, other_facts = all_facts[: arguments.cases], all_facts[arguments.cases :]
    groups = [facts[n : n + GROUP] for n in range(0, len(facts), GROUP)]
    async with open_place(settings, arguments.embedder) as place:
        for n, group in enumerate(groups):
            filled = [*group, *other_facts[: GROUP - len(group)]]
            await place.fill(
                f"facts-{n}", [(fact.text, 0.5) for fact in filled], Origin("handbook")
            )
        await place.fill("others", [(fact.text, 0.5) for fact in other_facts], Origin("handbook"))
    options = debate_options(arguments)
    results: dict[str, list[DebateResult]] = {"needed": [], "irrelevant": [], "none": []}
    begun = time.monotonic()
    for n, group in enumerate(groups):
        for name, collections in (
            ("needed", [f"facts-{n}"]),
            ("irrelevant", ["others"]),
            ("none", []),
        ):
            profile = debaters(collections, MEMORY, arguments.agents)
            results[name] += await judge(group, profile, settings, options)
            print(f"{name}: {len(results[name])} cases", file=sys.stderr)
    tell(facts, results, time.monotonic() - begun)


def tell(facts: Sequence[Fact], results: dict[str, list[DebateResult]], seconds: float) -> None:
    right = {
        name: [was_right(fact, debate) for fact, debate in zip(facts, debates, strict=True)]
        for name, debates in results.items()
    }
    for name, title in (
        ("needed", "with the needed fact among 30"),
        ("irrelevant", "with irrelevant memories"),
        ("none", "without memories"),
    ):
        print(say_share(title, right[name]))
    for other in ("irrelevant", "none"):
        pairs = zip(right["needed"], right[other], strict=True)
        both = [(float(a), float(b)) for a, b in pairs if a is not None and b is not None]
        if not both:
            continue
        test = sign_flip_test([a for a, _ in both], [b for _, b in both])
        print(f"needed against {other}: sign-flip p = {test.p:.2g} over {len(both)} cases")
    recalled = [
        any(fact.text == memory.text for turn in debate.turns for memory in turn.memories)
        for fact, debate in zip(facts, results["needed"], strict=True)
    ]
    print(say_share("the needed fact was found", recalled))
    tokens = {
        name: sum(debate.usage.prompt_tokens for debate in debates)
        for name, debates in results.items()
    }
    print("prompt tokens: " + ", ".join(f"{name} {number:,}" for name, number in tokens.items()))
    print(f"{seconds:.0f} seconds; {describe_machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_options(parser, 60)
    run_benchmark(parser, compare, MOST)


if __name__ == "__main__":
    main()
