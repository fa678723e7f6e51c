"""A new template in one call, by what the old one made of some rows: what fails, and a template in
which it does not.

The way of two calls, instructions first, is in `rewriting.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from textevolve.errors import AnswerError
from textevolve.llm.fence import draw_nonce
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.structured import answer_schema, read_answer
from textevolve.loops.calibration.rewriting import (
    INSTRUCTIONS_TOKENS,
    SAMPLING,
    RewritingRules,
    Rewritten,
    append_instructions,
    ask_again,
    fence_outcomes,
    fenced,
    prompt,
    read_template,
    shorten_instruction,
    show_outcomes,
    template_fault,
    worst_first,
)
from textevolve.loops.calibration.trial_runner import TrialOutcome


class _Reflection(BaseModel):
    model_config = ConfigDict(extra="forbid")

    changes: list[str]
    template: str


async def write_reflection(
    model: Model,
    template: str,
    outcomes: Sequence[TrialOutcome],
    rules: RewritingRules,
    most: int,
    sample: int,
) -> Rewritten:
    """A new template by what the outcomes show; it names at most `most` changes. One with a fault
    is asked for once again; if that has one, too, the changes stand below the template as it is.

    Raises:
        AnswerError: no outcome has a score. ModelError, BudgetError: as the model raises them.
    """
    scored = worst_first(outcomes)
    parts = show_outcomes(scored, rules.shown)
    nonce = draw_nonce([template, *(text for part in parts for _, text in part)], rules.seed)
    asked = prompt("calibrate_reflection").render(
        placeholders=rules.placeholders,
        template=fenced("template", template, nonce),
        examples=fence_outcomes(scored, parts, nonce),
        most=most,
    )
    request = Request(
        messages=(Message("user", (asked,)),),
        temperature=SAMPLING,
        max_tokens=rules.max_tokens + INSTRUCTIONS_TOKENS,
        schema=answer_schema(_Reflection),
        seed=rules.seed + sample,
        sample=sample,
    )
    first = await model(request)
    text, changes, fault = _read(first, nonce, template, rules, most)
    if not fault:
        return Rewritten(text, changes)
    again = await model(ask_again(request, first, fault))
    text, listed, still = _read(again, nonce, template, rules, most)
    changes = listed or changes
    if not still:
        return Rewritten(text, changes, repaired=True)
    failed = Rewritten(None, changes, still, repaired=True)
    return append_instructions(template, failed, rules) if changes else failed


def _read(
    response: Response, nonce: str, template: str, rules: RewritingRules, most: int
) -> tuple[str, tuple[str, ...], str]:
    """The template, the changes, and what is wrong with the template."""
    try:
        answer, _ = read_answer(response, _Reflection)
    except AnswerError as error:
        return "", (), str(error)
    changes = [text for text in map(shorten_instruction, answer.changes) if text][:most]
    text = read_template(answer.template, nonce, template)
    return text, tuple(dict.fromkeys(changes)), template_fault(text, template, rules)
