"""A rendered prompt of one format, in another one."""

from __future__ import annotations

from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat
from textevolve.llm.chat_formats.conversation import OnMarker
from textevolve.llm.chat_formats.parsing import parse_chat


def convert(
    text: str,
    source: ChatFormat,
    target: ChatFormat,
    *,
    on_marker: OnMarker = "neutralise",
) -> str:
    """A rendered prompt of one format, in another one. A system message that is the default text of
    the first format is not carried over.

    Raises:
        InputError: the text is not in the first format, or the second cannot express it.
    """
    parsed = parse_chat(source, text)
    messages = parsed.messages
    own = {"role": "system", "content": source.system.default if source.system else None}
    return render_chat(
        target,
        messages[1:] if messages[0] == own else messages,
        tools=parsed.tools or None,
        add_generation_prompt=parsed.add_generation_prompt,
        on_marker=on_marker,
    )
