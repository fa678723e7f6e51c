"""Composition: the steps of a chain are judged one by one while it runs, each by a judge of its
own. A step that fails is revised before the next one begins; where that does not help, its task may
be split anew, and the results of the parts joined.

A step's answer is its first attempt, so a step that passes costs its judge and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field

from textevolve.errors import AnswerError, BudgetError
from textevolve.evaluation import Evaluator, Usage
from textevolve.events import Listener, StepStarted, silence
from textevolve.llm.fence import draw_nonce, fenced
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.loops.attempt import Generator
from textevolve.loops.optimization import (
    ModelGenerator,
    Optimization,
    OptimizationContext,
    OptimizationPlan,
    optimize_text,
    unfence,
)


class _Parts(BaseModel):
    tasks: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2, max_length=4)]


@cache
def _prompt(name: str, *variables: str) -> Template:
    return load_template("textevolve.loops", f"steps/{name}", variables)


def _split_prompt() -> Template:
    return _prompt("split", "task", "previous")


def _join_prompt() -> Template:
    return _prompt("join", "task", "parts")


def composition_prompts() -> dict[str, str]:
    """The versions of the prompts that split a step's task and join the results."""
    return {f"loops.{each.name}": each.version for each in (_split_prompt(), _join_prompt())}


class _Begun:
    """A generator whose first text is there already."""

    def __init__(self, text: str, generator: ModelGenerator) -> None:
        self._text: str | None = text
        self._generator = generator

    async def __call__(self, task: str, /, **options: Any) -> str:
        if (text := self._text) is not None:
            self._text = None
            return text
        return await self._generator(task, **options)


@dataclass(frozen=True, slots=True)
class StepImprover:
    """Improves the answers of a chain's steps as the plan says. `judges`: by the names of steps;
    others are left alone. `splits`: whether the task of a step that still fails is split."""

    judges: Mapping[str, Evaluator]
    plan: OptimizationPlan
    splits: bool = False
    listener: Listener = silence
    case: str = "1"

    async def __call__(
        self, step: str, prompt: str, answer: str, model: Model
    ) -> tuple[str, Usage]:
        """The best answer of a step to its prompt, and what its judge used.

        Raises:
            BudgetError: it is spent; what the step would have come to is not known.
        """
        if step not in self.judges:
            return answer, Usage()
        plan = self.plan
        generator = ModelGenerator(
            model,
            temperature=plan.temperature,
            max_tokens=plan.max_answer_tokens,
            seed=plan.seed,
        )
        made = await self._improve(step, prompt, _Begun(answer, generator), plan)
        text = made.output or answer
        if made.status == "accepted" or not self.splits:
            return text, made.usage
        self.listener(StepStarted(f"{self.case}/{step}", "split", {}))
        try:
            joined = await self._split(prompt, text, model, generator)
        except AnswerError:  # the step keeps what it has
            return text, made.usage
        once = plan.model_copy(update={"max_iterations": 1})
        judged = await self._improve(step, prompt, _Begun(joined, generator), once)
        if judged.output is not None and (judged.score or 0.0) > (made.score or 0.0):
            text = judged.output
        return text, made.usage + judged.usage

    async def _improve(
        self, step: str, prompt: str, generator: Generator, plan: OptimizationPlan
    ) -> Optimization:
        """Let the step's judge score what the generator writes, as the plan says.

        Raises:
            BudgetError: it is spent.
        """
        context = OptimizationContext(generator, self.judges[step], listener=self.listener)
        made = await optimize_text(prompt, plan, context, f"{self.case}/{step}")
        if made.status == "budget":
            raise BudgetError(made.reason)
        return made

    async def _split(
        self, prompt: str, previous: str, model: Model, generator: ModelGenerator
    ) -> str:
        """The answer that is joined of the results of smaller tasks.

        Raises:
            AnswerError: a part, or the whole, has no usable answer.
        """
        nonce = draw_nonce((prompt, previous), self.plan.seed)
        task = fenced("task", prompt, nonce)
        text = _split_prompt().render(task=task, previous=fenced("answer", previous, nonce))
        request = Request(
            messages=(Message("user", (text,)),),
            temperature=0.0,
            max_tokens=self.plan.max_answer_tokens,
            seed=self.plan.seed,
        )
        parts = (await ask_structured(model, request, _Parts)).value.tasks
        results = [await generator(part) for part in parts]
        pairs = enumerate(zip(parts, results, strict=True), 1)
        shown = "\n\n".join(f"{n}. {part}\n{result}" for n, (part, result) in pairs)
        text = _join_prompt().render(task=task, parts=fenced("results", shown, nonce))
        response = await model(replace(request, messages=(Message("user", (text,)),)))
        if response.finish_reason == "length":
            raise AnswerError(f"the answer was cut at {self.plan.max_answer_tokens} tokens")
        return unfence(response.text, nonce)
