"""How a server renders a conversation, if it tells: llama.cpp's server does.

Nothing is rendered here, so that this may be loaded wherever endpoints are tried. Templates in
files are the business of `checking`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

SYSTEM, QUESTION = "Answer in verse.", "What is a tide?"
_MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]

Ask = Callable[[str, Mapping[str, Any] | None], Awaitable[Any]]
"""Asks a server at a path, with a body or without; what it answers, read from JSON, or None."""


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """`good` is None where it could not be found out, or is neither good nor bad."""

    question: str
    good: bool | None
    note: str


async def check_server(ask: Ask) -> TemplateFinding:
    """Whether a server's template keeps the system message and begins with one BOS. Only
    llama.cpp's server tells; three short requests, none of them to the model."""
    question = "chat template"
    body = {"messages": _MESSAGES}
    properties = await ask("/props", None)
    if served_text(properties, "chat_template") is None:
        return TemplateFinding(question, None, "only llama.cpp's server shows what it makes of one")
    prompt = served_text(await ask("/apply-template", body), "prompt")
    if prompt is None:
        return TemplateFinding(question, False, "the server's template refuses a system message")
    if SYSTEM not in prompt:
        note = "the server's template drops the system message: the model never sees it"
        return TemplateFinding(question, False, note)
    bos = served_text(properties, "bos_token")
    told = await ask("/tokenize", {"content": prompt, "add_special": True, "with_pieces": True})
    match told:
        case {"tokens": [{"piece": first}, {"piece": second}, *_]} if (
            bos and first == second == bos
        ):
            note = f"the prompt begins with {bos} twice: from the template and from the tokenizer"
            return TemplateFinding(question, False, note)
        case _:
            return TemplateFinding(question, True, "the system message is kept, BOS comes once")


def served_text(found: Any, name: str) -> str | None:
    """A text of a JSON object that a server sent."""
    value = cast(dict[str, object], found).get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None
