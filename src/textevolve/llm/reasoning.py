"""What a model thought before its answer, kept apart from it.

Most endpoints say it in a field of its own; some leave it in the text, between tags at its
beginning. Not here: how an endpoint is told to think more or less (`wires`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from textevolve.llm.model import Response, TokenLogprobs

_THOUGHTS = re.compile(r"\s*<(think|thinking|thought)>(.*?)</\1>\s*", re.DOTALL)
_TAGS = ("<think>", "<thinking>", "<thought>")
_LONGEST = len("</thinking>")
_BEGUN = re.compile(r"\s*<(?:think|thinking|thought)>(.*)", re.DOTALL)


def split_reasoning(text: str, finish_reason: str) -> tuple[str, str]:
    """The thoughts that a text begins with, and the text after them. Thoughts that do not end are
    told from a text about the tag by the answer's being cut."""
    if "<th" not in text[:64]:  # nearly always
        return "", text
    if whole := _THOUGHTS.match(text):
        return whole[2].strip(), text[whole.end() :]
    if finish_reason == "length" and (begun := _BEGUN.match(text)):
        return begun[1].strip(), ""
    return "", text


class StreamedThoughts:
    """Leaves out of the text of a stream, as it comes, the thoughts that it begins with. What never
    closes is not told; `split_reasoning` says of the whole text what it was."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tail = ""
        self._within = self._after = self._passed = False

    def pass_text(self, text: str) -> str:
        """What may be told of the text so far, beside what was."""
        if self._passed:
            return text
        self._parts.append(text)
        self._tail = self._tail[-_LONGEST:] + text
        if self._within and "</th" not in self._tail:  # nearly always, of long thoughts
            return ""
        start = "".join(self._parts).lstrip()
        if not self._after:
            if any(tag.startswith(start) for tag in _TAGS):
                return ""
            self._within = start.startswith(_TAGS)
            whole = _THOUGHTS.match(start) if self._within else None
            if self._within and whole is None:
                return ""
            self._after, self._within = whole is not None, False
            start = start[whole.end() :] if whole else "".join(self._parts)
        self._parts = [start]
        self._passed = bool(start)
        return start


def tokens_of_end(tokens: Sequence[TokenLogprobs], left_out: int) -> tuple[TokenLogprobs, ...]:
    """The tokens after the first so many characters of a text; a token that ends after them is
    among those that are kept."""
    passed = 0
    for number, token in enumerate(tokens):
        passed += len(token.token)
        if passed > left_out:
            return tuple(tokens[number:])
    return ()


def why_without_text(response: Response, what: str = "the answer") -> str:
    """Why an answer holds no text, and what helps, where that is known. `what`: the name of what
    should have been there."""
    thought = bool(response.reasoning or response.usage.reasoning_tokens)
    if response.finish_reason == "length" and thought:
        spent = response.usage.completion_tokens
        return (
            f"the model was still thinking when its {spent} tokens were used up; allow it more"
            " tokens, or set a lower reasoning_effort for its provider"
        )
    if response.tool_calls:
        names = (call.name or "a function without a name" for call in response.tool_calls)
        called = ", ".join(dict.fromkeys(names))
        return f"the model called {called} in place of {what}"
    reason = response.finish_reason
    return f"{what} was empty" + ("" if reason == "stop" else f" ({reason})")
