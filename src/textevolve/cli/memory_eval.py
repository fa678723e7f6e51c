"""`textevolve memory-eval synth`: writes made-up data for trying out a memory system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textevolve.cli import say
from textevolve.memory_eval.dataset import user_to_line
from textevolve.memory_eval.synthesis import synthesise
from textevolve.report.files import open_target


def synth(
    output: Annotated[Path, typer.Argument(help="The .jsonl file to write.")],
    users: Annotated[int, typer.Option(help="The number of users.", min=1)] = 5,
    sessions: Annotated[int, typer.Option(help="The number of sessions of each user.", min=1)] = 10,
    seed: Annotated[
        int, typer.Option(help="The seed of the users; another seed makes other users.")
    ] = 0,
) -> None:
    """Make users with dialogues, facts, updates, things not to keep, and questions, by templates.

    No model is needed. It is for trying an adapter and for tests: scores on it say little about
    real dialogues.
    """
    dataset = synthesise(users, sessions, seed)
    with open_target(output) as target:
        for user in dataset:
            target.write(user_to_line(user).encode() + b"\n")
    say(f"written to {output}: users: {users}, sessions of each: {sessions}")
