"""What a model thought before its answer, kept apart from it.

Most endpoints say it in a field of its own; some leave it in the text, between tags at its
beginning. Not here: how an endpoint is told to think more or less (`wires`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from textevolve.llm.model import Response, TokenLogprobs
from textevolve.llm.tool_calls import tool_names

_THOUGHTS = re.compile(r"\s*<(think|thinking)>(.*?)</\1>\s*", re.DOTALL)
_BEGUN = re.compile(r"\s*<(?:think|thinking)>(.*)", re.DOTALL)


def split_reasoning(text: str, finish_reason: str) -> tuple[str, str]:
    """The thoughts that a text begins with, and the text after them. Thoughts that do not end are
    told from a text about the tag by the answer's being cut."""
    if "<think" not in text[:64]:  # nearly always
        return "", text
    if whole := _THOUGHTS.match(text):
        return whole[2].strip(), text[whole.end() :]
    if finish_reason == "length" and (begun := _BEGUN.match(text)):
        return begun[1].strip(), ""
    return "", text


def tokens_of_end(tokens: Sequence[TokenLogprobs], left_out: int) -> tuple[TokenLogprobs, ...]:
    """The tokens after the first so many characters of a text; a token that ends after them is
    among those that are kept."""
    passed = 0
    for number, token in enumerate(tokens):
        passed += len(token.token)
        if passed > left_out:
            return tuple(tokens[number:])
    return ()


def why_without_text(response: Response) -> str:
    """Why there is no text to read in an answer, and what helps, as the end of a sentence."""
    if response.finish_reason == "length" and (
        response.reasoning or response.usage.reasoning_tokens
    ):
        spent = response.usage.completion_tokens
        return (
            f"the model was still thinking when its {spent} tokens were used up; allow it more"
            " tokens, or set a lower reasoning_effort for its provider"
        )
    if response.tool_calls:
        called = tool_names(response.tool_calls)
        return f"the model called {called} in place of an answer; take away its tools"
    reason = response.finish_reason
    return "the answer was empty" + ("" if reason == "stop" else f" ({reason})")
