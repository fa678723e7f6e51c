"""What an agent remembers in a turn: the cue that it recalls by, and how its prompt shows it.

Texts of memories are data from strangers: they are fenced, or quoted where a prompt quotes, each
below its source, which is not a part of the text. How memories are found is the business of
`memory`.
"""

from __future__ import annotations

from collections.abc import Sequence

from textevolve.debate.context import DebateContext, prompt
from textevolve.debate.profile import Agent
from textevolve.errors import InputError, TextEvolveError
from textevolve.llm.fence import fence, quote, sanitize
from textevolve.memory.cue import Cue, Memory, nothing

SOURCE_CHARACTERS = 160


async def remember(
    context: DebateContext, speaker: Agent, history: Sequence[str]
) -> tuple[Memory, ...]:
    """What the agent recalls by the input, the candidates and what was said.

    Raises:
        InputError: the recall, which may be the caller's own code, failed.
    """
    if context.recall is nothing:
        return ()
    settings = speaker.recall_settings
    cue = Cue(
        speaker.name,
        () if settings is None else settings.collections,
        context.case.input,
        context.case.candidates,
        _plain(history, context.nonce),
        settings,
    )
    try:
        return await context.recall(cue)
    except TextEvolveError:
        raise
    except Exception as error:  # the caller's code; only this case is to fail by it
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the recall of {speaker.name} failed: {reason}") from error


def _plain(history: Sequence[str], nonce: str) -> str:
    """What was said, without marks and scores, which mean nothing to a search."""
    left_out = (f"[[{nonce}", f"[[/{nonce}", "Scores by ")
    lines = "".join(history).splitlines()
    return "\n".join(line for line in lines if line and not line.startswith(left_out))


def fence_memories(context: DebateContext, memories: Sequence[Memory]) -> tuple[str, ...]:
    """Memories for the prompt of a turn, their rules first; nothing where there are none."""
    shown = [
        _show(context, m, fence("memory", _clean(context, m), context.nonce)) for m in memories
    ]
    return (prompt("memory_rules").render(), *shown) if shown else ()


def quote_memories(context: DebateContext, speaker: Agent, memories: Sequence[Memory]) -> str:
    """Memories for a question on one candidate alone; an empty text where there are none."""
    if not memories:
        return ""
    shown = [_show(context, memory, quote(_clean(context, memory))) for memory in memories]
    rules = prompt("memory_rules").render()
    return prompt("memory_alone").render(agent=speaker.name, memories=shown, rules=rules)


def _clean(context: DebateContext, memory: Memory) -> str:
    return sanitize(memory.text, context.nonce)[0]


def _show(context: DebateContext, memory: Memory, text: str) -> str:
    source = " ".join(sanitize(memory.source, context.nonce)[0].split())[:SOURCE_CHARACTERS]
    trust = None if memory.trust is None else f"{memory.trust:g}"
    said = source or "a source that is not known"
    return prompt("memory").render(source=said, trust=trust, text=text)
