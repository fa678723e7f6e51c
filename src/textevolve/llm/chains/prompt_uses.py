"""Prompts that a program is tried with instead of its own, and how it uses each.

Programs read them by `PromptSet`; chains and graphs are given them. Nothing here asks a model.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PromptUse:
    """The prompt that a template made, and the answer to it."""

    name: str
    prompt: str
    output: str


@dataclass(frozen=True, slots=True)
class Trying:
    """Which texts stand in the place of a program's own while it runs, and how they are used."""

    texts: Mapping[str, str]
    uses: list[PromptUse] = field(default_factory=list[PromptUse])

    def in_order(self) -> tuple[PromptUse, ...]:
        """Sorted, so that what was answered first does not matter: by template, then by prompt."""
        place = {name: number for number, name in enumerate(self.texts)}

        def rank(use: PromptUse) -> tuple[int, str, str, str]:
            return place.get(use.name, len(place)), use.name, use.prompt, use.output

        return tuple(sorted(self.uses, key=rank))


current_trial: ContextVar[Trying | None] = ContextVar("prompts", default=None)


@contextmanager
def trying_prompts(texts: Mapping[str, str]) -> Generator[Trying]:
    """Within, every `PromptSet` gives these texts for their names, in all tasks and threads that
    begin here."""
    trying = Trying(texts)
    token = current_trial.set(trying)
    try:
        yield trying
    finally:
        current_trial.reset(token)


def note_use(name: str, prompt: str, output: str) -> None:
    """Tells whoever tries prompts what one was filled in to, and what came of it."""
    if (trying := current_trial.get()) is not None:
        trying.uses.append(PromptUse(name, prompt, output))
