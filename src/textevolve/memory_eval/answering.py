"""The answer to a question that a model gives from what a memory system has found.

For systems that have no answer of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textevolve.errors import AnswerError
from textevolve.llm.fence import draw_nonce
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.reasoning import why_without_text
from textevolve.memory_eval.judging import clean, fence_text, prompt

MAX_TOKENS = 400


async def answer_question(
    model: Model,
    question: str,
    memories: Sequence[str],
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
) -> Response:
    """The model's answer, "unknown" where the memories do not say it; asked without memories too.

    Raises:
        AnswerError: it came empty, or was cut at `max_tokens`. ModelError: it did not come.
    """
    found = "\n".join(f"{number}. {text}" for number, text in enumerate(memories, 1))
    nonce = draw_nonce((clean(found), clean(question)), seed)
    text = prompt("answer").render(
        memories=fence_text("memories", found, nonce),
        question=fence_text("question", question, nonce),
    )
    response = await model(
        Request(
            messages=(Message("user", (text,)),), temperature=0.0, max_tokens=max_tokens, seed=seed
        )
    )
    if not response.text.strip():
        raise AnswerError(why_without_text(response, "the answer to a question"))
    if response.finish_reason == "length":
        raise AnswerError(f"the answer to a question was cut at the limit of {max_tokens} tokens")
    return replace(response, text=response.text.strip())
