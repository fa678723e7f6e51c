"""Separate a model's reasoning from its answer.

Most endpoints return the reasoning in a field of its own; some leave it in the text, between tags
at the beginning. How much a model reasons is a setting of its provider (`reasoning_effort`), which
`client` sends.
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
    """Split a text into the reasoning at its beginning and the answer after it. Reasoning without
    an end tag is recognised only in truncated answers, since a text may also be about the tag."""
    if "<th" not in text[:64]:  # nearly always
        return "", text
    if match := _THOUGHTS.match(text):
        return match[2].strip(), text[match.end() :]
    if finish_reason == "length" and (begun := _BEGUN.match(text)):
        return begun[1].strip(), ""
    return "", text


class StreamedThoughts:
    """A filter that removes the reasoning at the beginning of a streamed text. Reasoning that never
    ends is withheld; `split_reasoning` decides once the text is complete."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tail = ""
        self._within = self._passed = False

    def pass_text(self, text: str) -> str:
        """Return the part of the text that may be shown now, after the parts returned before."""
        if self._passed:
            return text
        self._parts.append(text)
        self._tail = self._tail[-_LONGEST:] + text
        if self._within and "</th" not in self._tail:  # nearly always, of long thoughts
            return ""
        whole = "".join(self._parts)
        start = whole.lstrip()
        if any(tag.startswith(start) for tag in _TAGS):
            return ""
        match = _THOUGHTS.match(start)
        self._within = match is None and start.startswith(_TAGS)
        if self._within:
            return ""
        answer = whole if match is None else start[match.end() :]
        self._passed = bool(answer)
        return answer


def tokens_of_end(tokens: Sequence[TokenLogprobs], left_out: int) -> tuple[TokenLogprobs, ...]:
    """Return the tokens after the first `left_out` characters of a text, including a token that
    spans this boundary."""
    passed = 0
    for number, token in enumerate(tokens):
        passed += len(token.token)
        if passed > left_out:
            return tuple(tokens[number:])
    return ()


def describe_missing_text(response: Response, subject: str = "the answer") -> str:
    """Describe why an answer has no text, and a remedy if known. `subject`: the name of the missing
    text."""
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
        return f"the model called {called} instead of giving {subject}"
    reason = response.finish_reason
    return f"{subject} was empty" + ("" if reason == "stop" else f" ({reason})")
