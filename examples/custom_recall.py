"""Give agents a memory: a `Recall` is any async callable from a `Cue` to memories.

    python examples/custom_recall.py [MODEL]

This one looks for shared words in a few notes. A real one would ask a search index or a database.
"""

from __future__ import annotations

import re
import sys

from textevolve import Agent, Cue, Memory, Profile, TextEvolveError, evaluate

NOTES = {
    "policy": (
        "Refunds for goods that arrive broken are paid within five working days.",
        "Broken goods need not be sent back below a price of 50 euros.",
    ),
    "style": ("Customers prefer answers of at most three sentences.",),
}


async def recall_notes(cue: Cue) -> tuple[Memory, ...]:
    """The notes of the agent's collections that share words with the input, the best first."""
    input_words = words(cue.input)
    memories = [
        Memory(text, source=name, score=float(len(input_words & words(text))))
        for name in cue.collections
        for text in NOTES.get(name, ())
    ]
    memories.sort(key=lambda memory: -(memory.score or 0.0))
    return tuple(memory for memory in memories if memory.score)[:3]


def words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 4}


PROFILE = Profile(
    name="with-notes",
    agents=(
        Agent(name="Policy Reader", persona="You check promises.", collections=("policy",)),
        Agent(name="Editor", persona="You judge the writing.", collections=("style",)),
    ),
)


def main(model: str | None = None) -> None:
    result = evaluate(
        "Answer a customer whose lamp arrived broken: what about the refunds?",
        [
            "We have refunded the price; you will see it within five working days.",
            "Please send the lamp back first, at your own cost.",
        ],
        profile=PROFILE,
        model=model,
        recall=recall_notes,
    )
    if result.debate is not None:
        for turn in result.debate.turns:
            agent = result.debate.agents[turn.agent]
            print(f"{agent} recalled {len(turn.memories)}: {turn.memories}")
    print(f"scores {result.scores}, best: candidate {(result.best or 0) + 1}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TextEvolveError as error:
        sys.exit(f"error: {error}")
