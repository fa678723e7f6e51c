"""How memories are made from dialogues. What is done with it is in `creation.py`."""

from __future__ import annotations

from typing import Literal

from textevolve.spec import Frozen, option


class CreationSettings(Frozen):
    """What is taken from a dialogue, how far its speakers are believed, and what counts as near.

    `trust_*` becomes the trust of a memory, by the speaker of the turn that it rests on. A memory
    is never replaced by what a less trusted speaker said.
    """

    about: str = option(
        "", "The name of the user whose dialogues these are; where none is named, “the user”."
    )
    focus: str = option(
        "", "What is to be remembered, in a sentence or two; where nothing is said, all that lasts."
    )
    window: int = option(
        900,
        "A dialogue is read in pieces of about so many tokens, which have to fit the model's"
        " context together with their answer.",
        ge=100,
        le=100_000,
    )
    overlap: int = option(
        2, "So many turns before a piece are shown with it, to be understood only.", ge=0, le=50
    )
    neighbours: int = option(
        4, "With at most so many near memories each point is compared.", ge=1, le=20
    )
    floor: float = option(
        0.5,
        "Memories whose embeddings are less similar than this are not near; a point without a near"
        " memory is added without asking.",
        ge=-1,
        le=1,
    )
    compare: Literal["questions", "structured"] = option(
        "questions",
        "How a point is compared with what is near: by yes / no questions about each note, read"
        " from log-probabilities, which small models answer far better; or by one structured"
        " answer about all of them, which can also merge two notes into one.",
    )
    trust_user: float = option(0.9, "How far what a user says is believed.", ge=0, le=1)
    trust_assistant: float = option(0.6, "How far what an assistant says is believed.", ge=0, le=1)
    trust_others: float = option(
        0.5, "How far what anybody else says is believed, tools among them.", ge=0, le=1
    )
    entities: bool = option(
        False, "The model names whom and what each point speaks of; else names are found by code."
    )
    seed: int = option(
        0, "Seed of what is extracted; another one asks anew where a dialogue gave nothing."
    )
