"""Memories as prompts show them: numbered, a line each, between marks that no memory can close."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from textevolve.llm.fence import draw_nonce, fence, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.llm.token_count import count_tokens

A = TypeVar("A", bound=BaseModel)


@cache
def memory_prompt(name: str, *variables: str) -> Template:
    """A prompt of this room."""
    return load_template("textevolve.memory", name, variables)


def number_texts(texts: Iterable[str], name: str, nonce: str) -> str:
    """The texts, numbered from 1, each on one line, between marks."""
    lines = (f"{n}. {' '.join(text.split())}" for n, text in enumerate(texts, 1))
    return fence(name, sanitize("\n".join(lines), nonce)[0], nonce)


def count_fitting(texts: Sequence[str], budget: int) -> int:
    """How many of the texts, from the first on, have at most so many tokens together; at least
    one where there is any."""
    left = budget
    for number, text in enumerate(texts):
        left -= count_tokens(text) + 3  # its number and the end of its line
        if left < 0:
            return max(1, number)
    return len(texts)


def ask_once(prompt: str, seed: int, max_tokens: int) -> Request:
    """A request of one message, answered as evenly as the model can."""
    return Request(
        messages=(Message("user", (prompt,)),), temperature=0.0, max_tokens=max_tokens, seed=seed
    )


class CitingAnswer(BaseModel):
    """An answer that cites memories by their numbers."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)


async def ask_about(
    model: Model,
    template: Template,
    answer: type[A],
    seed: int,
    max_tokens: int,
    number: int,
    **texts: Sequence[str],
) -> A:
    """Ask about texts, which the prompt shows numbered, each group between marks of its name.
    `number`: how many things are asked for.

    Raises:
        AnswerError: no usable answer came.
    """
    nonce = draw_nonce([text for group in texts.values() for text in group], seed)
    groups = {name: number_texts(group, name, nonce) for name, group in texts.items()}
    request = ask_once(template.render(**groups, number=number), seed, max_tokens)
    return (await ask_structured(model, request, answer)).value


def find_citation_fault(cited: Sequence[int], shown: int) -> str:
    """Why citations cannot be used, of so many memories; empty where they can."""
    if not cited:
        return "cites no memory"
    wrong = [n for n in cited if not 1 <= n <= shown]
    return f"cites memory {wrong[0]}, and {shown} were shown" if wrong else ""


def _take_numbers(given: Any) -> Any:
    """A number that cannot be read becomes 0, which no memory has, so that one bad citation spoils
    only what cites it."""
    if not isinstance(given, list):
        return given
    return [_take_number(one) for one in given]  # pyright: ignore[reportUnknownVariableType]


def _take_number(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return 0
    try:
        found = float(given)
        return int(found) if found.is_integer() else 0
    except (ValueError, OverflowError):
        return 0


def citations(most: int) -> Any:
    """The type of a list of numbers of `most` memories. The schema tells the model which there are;
    others are taken as they come, so that they can be counted."""
    told: dict[str, Any] = {"items": {"type": "integer", "minimum": 1, "maximum": most}}
    told |= {"minItems": 1, "maxItems": min(most, 10)}
    return Annotated[
        list[int],
        BeforeValidator(_take_numbers),
        Field(max_length=50, json_schema_extra=told),
    ]
