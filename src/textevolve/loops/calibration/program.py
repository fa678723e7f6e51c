"""What is optimised: a program with named templates, of which a plain prompt has one.

Programs of other kinds (a chain, a graph, a function) are adapted where they are known. Nothing
here rewrites a template or scores an output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from textevolve.errors import AnswerError
from textevolve.evaluation import Usage
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.loops.calibration.examples import Example
from textevolve.loops.placeholders import fill

PROMPT = "prompt"
"""The name of the only template of a plain prompt."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The texts of a program's templates by their names, in the program's order; hashable."""

    parts: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        return dict(self.parts)[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parts)

    def with_text(self, name: str, text: str) -> Templates:
        """The same but for one text."""
        return replace(self, parts=tuple((n, text if n == name else t) for n, t in self.parts))

    def alike(self, other: Templates) -> bool:
        """Whether they are the same but for white space around each."""
        texts = [[text.strip() for _, text in one.parts] for one in (self, other)]
        return texts[0] == texts[1]

    @property
    def text(self) -> str:
        """All as one text for people: a single template as it is, several under their names."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        return "\n\n".join(f"# {name}\n{text}" for name, text in self.parts)


def plain_prompt(text: str) -> Templates:
    """A prompt's only template."""
    return Templates(((PROMPT, text),))


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One use of a template within a program: the prompt that it made, and what came of it."""

    template: str
    prompt: str
    output: str


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program gives for a row. `trace`: how it came about, where a program has steps."""

    response: Response
    trace: tuple[TraceStep, ...] = ()


class ProgramError(AnswerError):
    """A program gave nothing that can be used; `trace`: how far it came."""

    def __init__(self, reason: str, trace: tuple[TraceStep, ...]) -> None:
        super().__init__(reason)
        self.trace = trace


class Program(Protocol):
    """Templates by name, and how a row is answered with them."""

    @property
    def templates(self) -> Templates:
        """The original ones."""
        ...

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        """What the program gives for a row with these templates in place of its own. `count` hears
        what was used, also by a program that failed.

        Raises:
            AnswerError: it gave nothing that can be used. ModelError, BudgetError: as its models.
        """
        ...

    def show(self, templates: Templates, example: Example, /) -> str:
        """What judges see as the input, under these templates."""
        ...


@dataclass(frozen=True)
class PromptProgram:
    """A template whose filled text is the whole prompt of one call."""

    templates: Templates
    model: Model
    temperature: float | None = 0.0
    max_output_tokens: int = 512
    seed: int = 0

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        request = Request(
            messages=(Message("user", (self.show(templates, example),)),),
            temperature=self.temperature,
            max_tokens=self.max_output_tokens,
            seed=self.seed,
        )
        response = await self.model(request)
        count(response.usage)
        return ProgramOutput(response)

    def show(self, templates: Templates, example: Example, /) -> str:
        return fill(templates[PROMPT], example.values)
