"""Format memories for prompts: numbered, one per line, between marks that the text of a memory
cannot imitate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from textevolve.llm.fence import draw_nonce, fenced, number_lines
from textevolve.llm.model import Model, text_request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.llm.token_count import count_tokens

A = TypeVar("A", bound=BaseModel)


def memory_prompt(name: str) -> Template:
    """Load a prompt of this package."""
    return load_template("textevolve.memory", name)


def number_texts(texts: Iterable[str], name: str, nonce: str) -> str:
    """Format texts for a prompt: numbered from 1, each on one line, between marks."""
    return fenced(name, number_lines(" ".join(text.split()) for text in texts), nonce)


def count_fitting(texts: Sequence[str], budget: int) -> int:
    """Return how many of the first texts fit into a budget of tokens; at least one if there is
    any."""
    room = budget
    for number, text in enumerate(texts):
        room -= count_tokens(text) + 3  # its number and the end of its line
        if room < 0:
            return max(1, number)
    return len(texts)


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
    """Ask the model about texts, which the prompt shows numbered, each group between marks with its
    name. `number`: how many answers, such as insights, to ask for.

    Raises:
        AnswerError: no usable answer came.
    """
    nonce = draw_nonce([text for group in texts.values() for text in group], seed)
    groups = {name: number_texts(group, name, nonce) for name, group in texts.items()}
    request = text_request(template.render(**groups, number=number), max_tokens, seed)
    return (await ask_structured(model, request, answer)).value


def find_citation_fault(cited: Sequence[int], number: int) -> str:
    """Return why citations of `number` memories are invalid; empty if they are valid."""
    if not cited:
        return "cites no memory"
    wrong = [n for n in cited if not 1 <= n <= number]
    return f"cites memory {wrong[0]}, and {number} were shown" if wrong else ""


def _take_number(value: Any) -> int:
    """Replace an unreadable number by 0, which no memory has, so a bad citation only spoils the
    edit or insight that has it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0
    try:
        number = float(value)
        return int(number) if number.is_integer() else 0
    except (ValueError, OverflowError):
        return 0


def citations(most: int) -> Any:
    """Return the type of a list of numbers of `most` memories. The schema names the valid range;
    other numbers are accepted, so that they can be counted as faults."""
    constraints: dict[str, Any] = {"items": {"type": "integer", "minimum": 1, "maximum": most}}
    constraints |= {"minItems": 1, "maxItems": min(most, 10)}
    number = Annotated[int, BeforeValidator(_take_number)]
    return Annotated[list[number], Field(max_length=50, json_schema_extra=constraints)]
