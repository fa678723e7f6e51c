"""From what a node made of some rows to new nodes: one template of a program rewritten, or several
in one proposal. A plain prompt is a program with one.

How a single template is rewritten is in `rewriting.py`; which node is worked on, and when, is for a
strategy to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from textevolve.errors import AnswerError
from textevolve.llm.fence import draw_nonce
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.structured import answer_schema, read_answer
from textevolve.loops.calibration.program import Templates
from textevolve.loops.calibration.rewriting import (
    SAMPLING,
    Rewritten,
    append_instructions,
    ask_again,
    ask_instructions,
    fence_outcomes,
    fenced,
    prompt,
    read_template,
    show_outcomes,
    template_fault,
    worst_first,
    write_instructions,
    write_successor,
)
from textevolve.loops.calibration.search import TemplateSearch
from textevolve.loops.calibration.trial_runner import TrialOutcome

MANY_TEMPLATES = 3


def part_of(search: TemplateSearch, parent: int, number: int) -> str | None:
    """Which template of a node to rewrite in this round: in turn several of them in one proposal
    (None), for which the editor says by the traces where failures come from, and each alone; of
    many templates every other proposal is about several."""
    names, turn = search.nodes[parent].templates.names, number - 1 + parent
    if len(names) > MANY_TEMPLATES:
        return names[turn // 2 % len(names)] if turn % 2 else None
    return names[0] if len(names) == 1 else (None, *names)[turn % (len(names) + 1)]


async def criticise(
    search: TemplateSearch,
    parent: int,
    outcomes: Sequence[TrialOutcome],
    part: str | None,
    most: int | None = None,
) -> tuple[str, ...]:
    """Instructions for the template `part` of a node, or for several, by what came of it.

    Raises:
        AnswerError: no outcome has a score, or no usable answer came. ModelError, BudgetError: as
            the editor raises them.
    """
    templates, most = search.nodes[parent].templates, most or search.plan.gradient_depth
    outcomes = search.fit(worst_first(outcomes))
    if part is not None and len(templates.names) == 1 and search.rules_of(part).names:
        rules = search.rules_of(part)
        return await write_instructions(search.editor, templates[part], outcomes, rules, most)
    shown = show_outcomes(outcomes, search.context.shown)
    texts = [text for _, text in templates.parts] + [text for one in shown for _, text in one]
    nonce = draw_nonce(texts, search.plan.seed)
    asked = prompt("calibrate_program").render(
        about="",
        templates=_list_templates(search, templates, nonce),
        part=part or "",
        examples=fence_outcomes(outcomes, shown, nonce),
        most=most,
    )
    return await ask_instructions(search.editor, asked, search.plan.seed, most)


async def rewrite(
    search: TemplateSearch,
    parent: int,
    instructions: tuple[str, ...],
    sample: int,
    part: str | None,
) -> Rewritten:
    """A node's template with the instructions applied, or several of them (`part` None). Where that
    fails, the instructions stand below its text."""
    templates = search.nodes[parent].templates
    if part is None:
        return await _rewrite_several(search, templates, instructions, sample)
    text, rules = templates[part], search.rules_of(part)
    made = await write_successor(search.editor, text, instructions, rules, sample)
    return made if made.text else append_instructions(text, made, rules)


def _list_templates(
    search: TemplateSearch, templates: Templates, nonce: str
) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "placeholders": search.rules_of(name).placeholders,
            "text": fenced(f"template {name}", text, nonce),
        }
        for name, text in templates.parts
    ]


class _Named(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    template: str


class _Several(BaseModel):
    model_config = ConfigDict(extra="forbid")

    templates: list[_Named]


async def _rewrite_several(
    search: TemplateSearch, templates: Templates, instructions: tuple[str, ...], sample: int
) -> Rewritten:
    """Those templates anew that the instructions are about, in one answer. A fault in one of them
    is named, and asked about once again; then those without a fault are taken, if there are any."""
    seed = search.plan.seed
    nonce = draw_nonce((*(text for _, text in templates.parts), *instructions), seed)
    listed = "\n".join(f"{n}. {text}" for n, text in enumerate(instructions, 1))
    asked = prompt("calibrate_together").render(
        templates=_list_templates(search, templates, nonce),
        instructions=fenced("instructions", listed, nonce),
    )
    request = Request(
        messages=(Message("user", (asked,)),),
        temperature=SAMPLING,
        max_tokens=sum(search.rules_of(name).max_tokens for name in templates.names),
        schema=answer_schema(_Several),
        seed=seed + sample,
        sample=sample,
    )
    first = await search.editor(request)
    made, fault = _read_several(search, templates, first, nonce)
    if not fault:
        return Rewritten(None, instructions, others=made)
    again = await search.editor(ask_again(request, first, fault))
    later, still = _read_several(search, templates, again, nonce)
    made = later or made
    if not made:
        return _append_to_named(search, templates, Rewritten(None, instructions, still or fault))
    note = f"left as it was: {still}" if still else ""
    return Rewritten(None, instructions, repaired=True, note=note, others=made)


def _read_several(
    search: TemplateSearch, templates: Templates, response: Response, nonce: str
) -> tuple[tuple[tuple[str, str], ...], str]:
    """The templates in an answer that are new and without a fault, and what is wrong with it."""
    try:
        answer, _ = read_answer(response, _Several)
    except AnswerError as error:
        return (), str(error)
    made, faults = dict[str, str](), list[str]()
    for one in answer.templates:
        if one.name not in templates.names:
            faults.append(f"there is no template {one.name!r:.60}")
            continue
        text = read_template(one.template, nonce, templates[one.name])
        if text == templates[one.name].strip():
            continue
        if fault := template_fault(text, templates[one.name], search.rules_of(one.name)):
            faults.append(f"template {one.name}: {fault}")
        else:
            made[one.name] = text
    if not made and not faults:
        faults.append("all templates are the same as before")
    return tuple(made.items()), "; ".join(faults)


def _append_to_named(search: TemplateSearch, templates: Templates, failed: Rewritten) -> Rewritten:
    """The instructions below the texts of those templates that they begin with the names of."""
    made, note = dict[str, str](), ""
    for name, text in templates.parts:
        told = [line.partition(":") for line in failed.instructions]
        own = tuple(after.strip() for before, _, after in told if before.strip(" `'\"*") == name)
        if own:
            appended = append_instructions(
                text, replace(failed, instructions=own), search.rules_of(name)
            )
            if appended.text:
                made[name], note = appended.text, appended.note
    if not made:
        return failed
    return Rewritten(None, failed.instructions, note=note, others=tuple(made.items()))
