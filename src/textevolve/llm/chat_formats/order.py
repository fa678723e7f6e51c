"""Whether a format can express a conversation: the rules of order, and what it has no place for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textevolve.errors import InputError
from textevolve.llm.chat_formats.conversation import Said

if TYPE_CHECKING:
    from textevolve.llm.chat_formats.chat_format import ChatFormat


def check_order(format: ChatFormat, said: Sequence[Said], tools: bool) -> None:
    """Refuses what the format cannot express.

    Raises:
        InputError: says which message, why, and what to do.
    """
    _check_system(format, said)
    _check_tools(format, said, tools)
    for one in said:
        if one.thought and format.thoughts is None:
            raise _refused(format, one, "thoughts", "leave reasoning_content out")
    if not format.alternate:
        return
    spoken = [one for one in said if one.role in ("user", "assistant") and not one.calls]
    for n, one in enumerate(spoken):
        wanted = "user" if n % 2 == 0 else "assistant"
        if one.role != wanted:
            told = "user and assistant take turns in it, the user first"
            todo = "join the texts of one speaker in a row into one message"
            raise InputError(f"message {one.place}: {format.name} cannot write it: {told}; {todo}")


def _check_system(format: ChatFormat, said: Sequence[Said]) -> None:
    system = format.system
    for n, one in enumerate(said):
        if one.role != "system":
            continue
        if system is None:
            todo = "put its text into the first message of the user"
            raise _refused(format, one, "system messages", todo)
        if n > 0 and not system.later:
            told = "its only system message is the first message"
            raise InputError(f"message {one.place}: {format.name} cannot write it: {told}")
    inside = system is not None and system.inside and said[0].role == "system"
    if inside and all(one.role != "user" for one in said):
        raise InputError(
            f"{format.name} writes the system message into a user's turn: add a message of the user"
        )
    if inside and system is not None and system.placement == "last-user":
        if said[-1].role != "user":
            raise InputError(
                f"{format.name} writes the system message into the last message, which must be the "
                "user's: end with a message of the user, or leave the system message out"
            )
    elif inside and said[1].role != "user":
        raise InputError(f"message 2: {format.name} needs the user after the system message")


def _check_tools(format: ChatFormat, said: Sequence[Said], declared: bool) -> None:
    tools = format.tools
    placement = tools.placement if tools is not None else None
    if declared and (placement is None or (placement == "system" and format.system is None)):
        raise InputError(f"{format.name} has no declarations of tools: describe them in a message")
    for n, one in enumerate(said):
        if one.role == "tool" and (tools is None or not tools.result):
            raise _refused(format, one, "results of tools", "put it into a message of the user")
        if one.calls and (tools is None or not tools.call):
            raise _refused(format, one, "calls of tools", "put them into the text")
        if tools is None:
            continue
        if one.calls and one.text and not tools.text_beside:
            raise _refused(format, one, "a text beside calls", "leave the text or the calls out")
        if len(one.calls) > 1 and tools.single_call:
            raise _refused(format, one, "several calls at once", "make them one after another")
        ids = [call.id for call in one.calls] + ([one.answers] if one.role == "tool" else [])
        wanted = tools.id_length
        if wanted and any(len(given) != wanted or not given.isalnum() for given in ids):
            todo = f"give each call an id of {wanted} letters and digits"
            raise _refused(format, one, "such ids of calls", todo)
        after_tool = n > 0 and said[n - 1].role == "tool"
        if one.role in ("user", "system") and after_tool and tools.answer_before is not None:
            told = "the assistant answers the results of tools before anybody else speaks"
            raise InputError(f"message {one.place}: {format.name} cannot write it: {told}")
    if declared and tools is not None and tools.placement in ("first-user", "last-user"):
        first = next((one for one in said if one.role != "system"), None)
        if first is None or first.role != "user":
            raise InputError(f"{format.name} declares tools in a user's turn: begin with the user")


def _refused(format: ChatFormat, one: Said, what: str, todo: str) -> InputError:
    return InputError(f"message {one.place}: {format.name} has no {what}: {todo}")
