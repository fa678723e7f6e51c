"""The generator that asks a model: an answer to a task, or the revision of an earlier one.

Task, answer and feedback go into the prompt as data within fences. A revision sees one earlier
answer and a bounded number of requests, so a prompt does not grow with the iterations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from textevolve.errors import AnswerError
from textevolve.evaluation import Usage
from textevolve.llm.fence import draw_nonce, fence, sanitize
from textevolve.llm.model import Message, Model, Request, request_key
from textevolve.llm.reasoning import why_without_text
from textevolve.llm.template import Template, load_template
from textevolve.llm.usage_meter import UsageMeter

TEMPERATURE = 0.7
MOST_TOKENS = 2000


@cache
def _prompt(name: str) -> Template:
    variables = {"generate": ("task",), "revise": ("task", "previous", "feedback")}
    return load_template("textevolve.loops", name, variables[name])


class ModelGenerator:
    """A `Generator` around a model. `usage` sums up what it has used.

    The same request again, as for another attempt that begins anew, is another sample. One instance
    belongs to one loop: what it has asked before decides which sample is next.
    """

    def __init__(
        self,
        model: Model,
        *,
        temperature: float = TEMPERATURE,
        max_tokens: int = MOST_TOKENS,
        seed: int = 0,
    ) -> None:
        self._model = UsageMeter(model)
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._seed = seed
        self._asked: Counter[str] = Counter()

    @property
    def usage(self) -> Usage:
        return self._model.usage

    async def __call__(
        self,
        task: str,
        /,
        *,
        previous: str | None = None,
        feedback: Sequence[str] = (),
        temperature: float | None = None,
    ) -> str:
        """
        Raises:
            AnswerError: the answer was cut at the token limit. ModelError: it did not come.
        """
        nonce, text = write_prompt(task, previous, feedback, self._seed)
        request = Request(
            messages=(Message("user", (text,)),),
            temperature=self._temperature if temperature is None else temperature,
            max_tokens=self._max_tokens,
            seed=self._seed,
        )
        response = await self._model(self._next_sample(request))
        if not response.text and (response.reasoning or response.tool_calls):
            raise AnswerError(why_without_text(response))
        if response.finish_reason == "length":
            raise AnswerError(f"the answer was cut at {self._max_tokens} tokens; allow more")
        return unfence(response.text, nonce)

    def _next_sample(self, request: Request) -> Request:
        key = request_key(self._model.name, request)
        sample = self._asked[key]
        self._asked[key] += 1
        if not sample:
            return request
        return replace(request, sample=sample, seed=self._seed + sample)


def write_prompt(
    task: str, previous: str | None, feedback: Sequence[str], seed: int = 0
) -> tuple[str, str]:
    """The nonce of the fences, and the prompt."""
    listed = "\n".join(f"{n}. {' '.join(line.split())}" for n, line in enumerate(feedback, 1))
    nonce = draw_nonce((task, previous or "", listed), seed)

    def fenced(name: str, text: str) -> str:
        return fence(name, sanitize(text, nonce)[0], nonce)

    if previous is None:
        return nonce, _prompt("generate").render(task=fenced("task", task))
    return nonce, _prompt("revise").render(
        task=fenced("task", task),
        previous=fenced("answer", previous),
        feedback=fenced("requests", listed) if listed else "",
    )


def unfence(text: str, nonce: str) -> str:
    """The answer without marks of the prompt's fences, which small models like to repeat."""
    return re.sub(rf"\[\[/?{nonce}[^\[\]\n]*\]\]\n?", "", text).strip()
