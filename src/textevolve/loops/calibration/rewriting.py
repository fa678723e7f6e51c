"""Derive instructions for a template from judged outputs, and new templates from instructions.

A plain prompt is a program with one template. Instructions and a rewrite take two calls; a
reflection does both in one. Templates, outputs, labels and reasons are between marks in a prompt,
and so are instructions when they are applied, since a model wrote them. Demonstrations (few-shot
examples) are labelled rows before a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, zip_longest
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model

from textevolve.errors import AnswerError
from textevolve.json_texts import is_array
from textevolve.llm.model import Message, Model, Request, Response, draw_sample, text_request
from textevolve.llm.prompts import (
    EXAMPLE_NONCE,
    Template,
    draw_nonce,
    fenced,
    load_template,
    number_lines,
    sanitize,
)
from textevolve.llm.structured import answer_schema, ask_structured, read_answer
from textevolve.loops.attempt import REASON_CHARACTERS
from textevolve.loops.calibration.trial_runner import Example, Templates, TrialOutcome
from textevolve.rows.columns import column_text
from textevolve.texts.placeholders import (
    find_fault,
    find_placeholders,
    find_spellings,
    restore_spelling,
)
from textevolve.texts.prose import excerpt

ANSWER_SHOWN = 1500
"""The maximum number of characters of an unusable answer that are shown to its writer again."""
SHOWN = 12_000
"""The characters of all outcomes in one prompt, for an editor whose context size is unknown."""
LARGEST_CONTEXT = 16_384
"""The number of tokens of an editor's context that are used at most, since longer prompts make
every rewrite more expensive."""
TEXT_SHARES = (8, 16, 32)
"""The maximum size of one text of an outcome is an eighth of the characters of all outcomes, or a
smaller share if otherwise fewer than `FEWEST_SHOWN` outcomes fit."""
TRACE_TEXTS = 4
REASON_TEXTS = 3
"""The maximum size of all steps of a program together (half of it for their prompts), and that of a
judge's reasons, as multiples of the size of one text."""
REASONS_SHOWN = sum(REASON_CHARACTERS.values()) + 100
"""The maximum number of characters of a judge's reasons: those of all parts of a debate's reasons,
with headings."""
STEPS_SHOWN = 8
"""The maximum number of a program's steps that a prompt shows."""
FEWEST_SHOWN = 3
MOST_SHOWN = 10
"""The least and the greatest number of outcomes in one prompt, if there are as many."""
INSTRUCTIONS_TOKENS = 1000
"""The maximum number of tokens of a list of instructions."""
EXTRA_TOKENS = 600
"""The tokens of a rewrite beyond those of the longest template."""
SAMPLING = 0.8
"""The sampling temperature of rewrites."""
INSTRUCTION_LENGTH = 600
"""The maximum number of characters of an instruction."""
APPENDED = "Rules:"
"""The heading of instructions that are appended to a template."""
OWN_WORDS = "stand for text that is filled in"
"""A part of the sentence about placeholders in prompts. Small models repeat the sentence in
templates that they write, which is a fault."""
EXAMPLE = (
    "What is the mood of this review? {review}",
    ("Answer with one word: good, bad or mixed.", "Do not repeat the review."),
    "Read the review below and say what its mood is. Answer with one word, good, bad or mixed, and"
    " do not repeat the review.\n\nReview: {review}",
)
"""A template, instructions, and the template after applying them, as an example for the model."""

_NO_BRACES = str.maketrans("{}", "()")


def prompt(name: str) -> Template:
    return load_template("textevolve.loops", name)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new template. `text`: None if there is none. `instructions`: the applied ones. `fault`: the
    reason why the text cannot be used; empty if it can. `note`: a remark on how it was made."""

    text: str | None
    instructions: tuple[str, ...]
    fault: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RewritingRules:
    """The rules for every new text of a template. `seed_template`: the original. `names`: the
    placeholders to keep. `columns`: the columns of the data, which must not become new
    placeholders."""

    seed_template: str
    names: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def longest(self) -> int:
        return 3 * len(self.seed_template) + 2000

    @property
    def max_tokens(self) -> int:
        """Return the token limit of an answer: enough for the longest template in most
        languages."""
        return self.longest // 3 + EXTRA_TOKENS

    @property
    def placeholders(self) -> str:
        """Return the placeholders in the spelling of the original."""
        spellings = find_spellings(self.seed_template, self.names)
        return ", ".join(spellings[name][0] for name in self.names)


@dataclass(frozen=True, slots=True)
class Editor:
    """The model that rewrites templates. `rules`: for each template of a program by its name.
    `most`: the maximum number of instructions written at once. `shown`: the characters of outcomes
    in a prompt."""

    model: Model
    rules: Mapping[str, RewritingRules]
    seed: int = 0
    most: int = 10
    shown: int = SHOWN


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Template(_Strict):
    template: str


class _Reflection(_Strict):
    changes: list[str]
    template: str


class _Instructions(_Strict):
    instructions: list[str]


_Instruction = Annotated[
    str, StringConstraints(min_length=1, max_length=INSTRUCTION_LENGTH, strip_whitespace=True)
]


def shorten_instruction(text: str) -> str:
    """Shorten an instruction that is too long: to the last full sentence that fits, otherwise by
    truncation."""
    text = text.strip()
    if len(text) <= INSTRUCTION_LENGTH:
        return text
    cut = text[:INSTRUCTION_LENGTH]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? ", "; ", "\n"))
    return cut[: end + 1].strip() if end > INSTRUCTION_LENGTH // 3 else cut[:-1].rstrip() + "…"


@cache
def _answer_type(most: int) -> type[_Instructions]:
    """Return the type of an answer with at most `most` instructions. The limit is in the schema, so
    that a server that follows it stops there. From an answer with a longer list, or with long or
    empty texts, the usable instructions are taken."""

    def usable(value: Any) -> Any:
        if not is_array(value):
            return value
        texts = [shorten_instruction(item) for item in value if isinstance(item, str)]
        return [text for text in texts if text][:most]

    listed = Annotated[
        list[_Instruction], Field(min_length=1, max_length=most), BeforeValidator(usable)
    ]

    return create_model("_Instructions", __base__=_Instructions, instructions=(listed, ...))


async def write_instructions(
    editor: Editor, templates: Templates, outcomes: Sequence[TrialOutcome], part: str
) -> tuple[str, ...]:
    """Write instructions for the template `part` from the outcomes that have a score or were cut,
    the worst first.

    Raises:
        AnswerError: there is no such outcome, or the model gave no usable answer. ModelError,
            BudgetError: as the model raises them.
    """
    scored = fit_outcomes(worst_first(outcomes), editor.shown)
    nonce, examples = _fence_outcomes(scored, editor, [text for _, text in templates.parts])

    if len(templates.names) == 1 and editor.rules[part].names:
        request_text = prompt("calibrate_instructions").render(
            placeholders=editor.rules[part].placeholders,
            template=fenced("template", templates[part], nonce),
            examples=examples,
            most=editor.most,
        )
    else:
        request_text = prompt("calibrate_program").render(
            about="",
            templates=[
                {
                    "name": name,
                    "placeholders": editor.rules[name].placeholders,
                    "text": fenced(f"template {name}", text, nonce),
                }
                for name, text in templates.parts
            ],
            part=part,
            examples=examples,
            most=editor.most,
        )

    request = text_request(request_text, INSTRUCTIONS_TOKENS, editor.seed)
    answer = await ask_structured(editor.model, request, _answer_type(editor.most))

    return tuple(dict.fromkeys(answer.value.instructions))


def worst_first(outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome]:
    """Return the outcomes that have a score or were cut at the token limit, sorted from the worst
    to the best.

    Raises:
        AnswerError: there is none; the message has the reason.
    """
    # Those that have a score, were cut, or broke off after steps that say how far they came.
    shown = [each for each in outcomes if each.score is not None or each.is_unfinished]
    if not shown:
        reason = next((o.failure.reason for o in outcomes if o.failure), "nothing was tried")
        raise AnswerError(f"no output could be scored ({reason})")

    return sorted(shown, key=lambda outcome: outcome.score or 0.0)


def _fence_outcomes(
    outcomes: Sequence[TrialOutcome], editor: Editor, texts: Sequence[str]
) -> tuple[str, list[dict[str, str]]]:
    """Return a new nonce for fences, and the outcomes as a prompt shows them: a score, and the
    parts in fences. The nonce occurs in none of the prompt's texts."""
    room = _text_room(outcomes, editor.shown)
    listings = [_list_parts(outcome, room) for outcome in outcomes]
    nonce = draw_nonce([*texts, *(text for parts in listings for _, text in parts)], editor.seed)
    examples = [
        {
            "score": "none" if outcome.score is None else f"{outcome.score:.2f}",
            "text": "".join(fenced(name, text, nonce) for name, text in parts),
        }
        for outcome, parts in zip(outcomes, listings, strict=True)
    ]

    return nonce, examples


def characters_shown(context: int) -> int:
    """Return how many characters of outcomes fit into an editor's prompt: half of the context (in
    tokens), at three characters per token."""
    return 3 * min(context, LARGEST_CONTEXT) // 2


def fit_outcomes(outcomes: Sequence[TrialOutcome], limit: int) -> list[TrialOutcome]:
    """Return as many of the first outcomes as fit into an editor's prompt, at least one and at most
    `MOST_SHOWN`. `limit`: the most characters of outcomes in the prompt."""
    room = _text_room(outcomes[:FEWEST_SHOWN], limit)
    sizes = accumulate(_count_characters(outcome, room) for outcome in outcomes[:MOST_SHOWN])
    return list(outcomes[: max(1, sum(size <= limit for size in sizes))])


def _text_room(outcomes: Sequence[TrialOutcome], limit: int) -> int:
    """Return the maximum number of characters of one text with which these outcomes fit into
    `limit` characters."""
    room = limit
    for share in TEXT_SHARES:
        room = limit // share
        if sum(_count_characters(outcome, room) for outcome in outcomes) <= limit:
            break

    return room


def _count_characters(outcome: TrialOutcome, room: int) -> int:
    return sum(len(text) for _, text in _list_parts(outcome, room))


def _list_parts(outcome: TrialOutcome, most: int) -> list[tuple[str, str]]:
    """Return the parts of an outcome by name, shortened. `most`: the most characters of the
    answer; the other parts are shortened in proportion. The excerpts of answer and label include
    the place where they begin to differ."""
    answer = outcome.output or ""
    expected = column_text(outcome.example.label)
    differs = None
    if expected:
        pairs = enumerate(zip_longest(answer, expected))
        differs = next((n for n, (ours, theirs) in pairs if ours != theirs), None)

    values = outcome.example.values
    total = sum(map(len, values.values()))
    lines: list[str] = []
    for name, value in values.items():
        # Each has its share, and what others leave of theirs.
        room = max(most // len(values), most - total + len(value))
        lines.append(f"{name}: {excerpt(value, room)}")

    problem = outcome.failure.reason if outcome.failure else ""
    parts = [
        ("input", "\n".join(lines)),
        *_list_steps(outcome, TRACE_TEXTS * most),
        ("answer", excerpt(answer, most, differs)),
        ("expected", excerpt(expected, most, differs)),
        ("problem", excerpt(problem, most)),
        ("judgement", excerpt(outcome.reasons, min(REASONS_SHOWN, REASON_TEXTS * most))),
    ]

    return [(name, text) for name, text in parts if text]


def _list_steps(outcome: TrialOutcome, limit: int) -> list[tuple[str, str]]:
    """Return prompt and output of each of the last `STEPS_SHOWN` steps by name, without an output
    that is also the answer. `limit`: the most characters of all texts together."""
    steps = outcome.trace[-STEPS_SHOWN:]
    texts: list[tuple[str, str]] = []
    for step in steps:
        texts.append((f"prompt of {step.name}", step.prompt))
        if step.output != outcome.output:
            texts.append((f"output of {step.name}", step.output))

    most = limit // max(1, 2 * len(steps))

    return [(name, excerpt(text, most)) for name, text in texts if text]


async def rewrite(
    editor: Editor,
    templates: Templates,
    instructions: tuple[str, ...],
    part: str,
    sample: int,
) -> Rewritten:
    """Ask for a text of the template `part` in which the instructions are applied. If the answer is
    faulty twice, append them below the old text.

    Raises:
        ModelError, BudgetError: as the model raises them.
    """
    template = templates[part]
    nonce = draw_nonce((template, *instructions), editor.seed)
    question = _ask_successor(template, instructions, editor.rules[part].placeholders, nonce)
    messages = (*_example(), Message("user", (question,)))

    return await _ask_rewrite(editor, part, template, messages, nonce, sample, instructions)


async def write_reflection(
    editor: Editor, template: str, outcomes: Sequence[TrialOutcome], part: str, sample: int
) -> Rewritten:
    """Ask in one call for a better text of the template `part`, by what the outcomes show. If the
    answer is faulty twice, append the changes that it named below the old text.

    Raises:
        AnswerError: no outcome has a score. ModelError, BudgetError: as the model raises them.
    """
    nonce, examples = _fence_outcomes(worst_first(outcomes), editor, [template])
    question = prompt("calibrate_reflection").render(
        placeholders=editor.rules[part].placeholders,
        template=fenced("template", template, nonce),
        examples=examples,
        most=editor.most,
    )
    messages = (Message("user", (question,)),)

    return await _ask_rewrite(editor, part, template, messages, nonce, sample)


async def _ask_rewrite(
    editor: Editor,
    part: str,
    template: str,
    messages: tuple[Message, ...],
    nonce: str,
    sample: int,
    instructions: tuple[str, ...] = (),
) -> Rewritten:
    """Ask for a rewrite. If it has a fault, such as a lost or invented placeholder, ask once more
    and name the fault. `instructions`: those that it applies; if there are none, the answer names
    its changes, the first answer's if the second names none."""
    rules = editor.rules[part]
    answer_type: type[_Template | _Reflection] = _Template if instructions else _Reflection
    request = Request(
        messages=messages,
        temperature=SAMPLING,
        max_tokens=rules.max_tokens + (0 if instructions else INSTRUCTIONS_TOKENS),
        schema=answer_schema(answer_type),
        seed=editor.seed,
    )
    request = draw_sample(request, sample)

    def read(response: Response) -> Rewritten:
        try:
            answer, _ = read_answer(response, answer_type)
        except AnswerError as error:
            return Rewritten(None, instructions, str(error))

        changes = instructions
        if isinstance(answer, _Reflection):
            texts = [text for text in map(shorten_instruction, answer.changes) if text]
            changes = tuple(dict.fromkeys(texts[: editor.most]))
        text = read_template(answer.template, nonce, template)
        text = restore_spelling(text, rules.seed_template, rules.names)
        fault = template_fault(text, template, rules)

        return Rewritten(None if fault else text, changes, fault)

    answer = await editor.model(request)
    rewritten = read(answer)
    if not rewritten.fault:
        return rewritten
    retry = Message("user", (prompt("calibrate_again").render(fault=rewritten.fault),))
    reply = Message("assistant", (excerpt(answer.text, ANSWER_SHOWN) or "(nothing)",))
    again = replace(request, messages=(*messages, reply, retry))
    repaired = read(await editor.model(again))
    changes = repaired.instructions or rewritten.instructions
    if not repaired.fault or not changes:
        return replace(repaired, instructions=changes)

    return append_instructions(template, replace(repaired, instructions=changes), rules)


def _ask_successor(
    template: str, instructions: Sequence[str], placeholders: str, nonce: str
) -> str:
    return prompt("calibrate_successor").render(
        template=fenced("template", template, nonce),
        instructions=fenced("instructions", number_lines(instructions), nonce),
        placeholders=placeholders,
    )


@cache
def _example() -> tuple[Message, Message]:
    """Return an example of a good rewrite as chat turns before the question. Without it, small
    models repeat the marks, or return only the placeholder."""
    question = _ask_successor(EXAMPLE[0], EXAMPLE[1], "{review}", EXAMPLE_NONCE)
    answer = json.dumps({"template": EXAMPLE[2]})
    return Message("user", (question,)), Message("assistant", (answer,))


def append_instructions(template: str, failed: Rewritten, rules: RewritingRules) -> Rewritten:
    """Append the instructions to a template whose rewrite failed, since small models can often name
    a fault without being able to rewrite the template. If the result has a fault too, return
    `failed` unchanged."""
    plain = [text.translate(_NO_BRACES) for text in failed.instructions]
    text = "\n".join([template.rstrip(), "", APPENDED, *(f"- {line}" for line in plain)])
    if template_fault(text, "", rules):
        return failed

    return Rewritten(
        text,
        failed.instructions,
        note=f"not rewritten ({failed.fault}): the instructions stand below its parent's text",
    )


def read_template(answer: str, nonce: str, parent: str) -> str:
    """Extract the template from an answer, without a code block around it, the marks of fences, or
    a sentence of the prompt that the model repeated."""
    mark = re.compile(rf"\[\[/?{re.escape(nonce)}[^\]\n]*\]\]")
    lines: list[str] = []
    for line in answer.replace("\u2060", "" if "\u2060" not in parent else "\u2060").splitlines():
        lines += (
            [part for part in mark.split(line) if part.strip()] if mark.search(line) else [line]
        )

    echoes = (nonce,) if OWN_WORDS in parent else (nonce, OWN_WORDS)
    lines = [line for line in lines if not any(echo in line for echo in echoes)]
    text = "\n".join(lines).strip()
    lines = text.splitlines()
    wrapped = len(lines) > 2 and text.startswith("```") and lines[-1].strip() == "```"
    if wrapped and not parent.lstrip().startswith("```"):
        text = "\n".join(lines[1:-1]).strip()

    return text


def template_fault(text: str, template: str, rules: RewritingRules) -> str:
    if not text:
        return "it is empty"
    if fault := _unusable(text, rules.seed_template):
        return fault
    if len(text) > rules.longest:
        return f"it has {len(text)} characters, and {rules.longest} are the most there may be"
    if fault := find_fault(text, rules.seed_template, rules.names, rules.columns):
        return fault

    return "it is the same as before" if text == template.strip() else ""


def _unusable(text: str, seed: str) -> str:
    """Name a mark that no prompt may hold; empty if there is none."""
    # A prompt is not fenced: what servers read as a change of speaker would be one.
    unseen = draw_nonce((text, seed), 0)
    if sanitize(text, unseen)[1] > sanitize(seed, unseen)[1]:
        return "it holds a mark of a chat format, such as <|im_end|>; leave those out"
    return ""


HEADING = "Examples of inputs and their right answers:"
ENDING = "Now the same for this:"
"""The text before the demonstrations, and the text between them and the template."""
MOST_CHARACTERS = 6000
"""The maximum number of characters of all demonstrations of a template."""
LONGEST_DEMO = 1500
"""The maximum number of characters of one demonstration."""


def show_demo(example: Example) -> str:
    values = "\n".join(f"{name}: {value}" for name, value in example.values.items())
    return f"{values}\nanswer: {column_text(example.label)}"


def can_show(example: Example, rules: RewritingRules) -> bool:
    """Return whether a row can be a demonstration: it has a label, its text has at most
    `LONGEST_DEMO` characters, and no part of it would be read as a placeholder or a mark."""
    if not column_text(example.label).strip():
        return False
    text = show_demo(example)
    if len(text) > LONGEST_DEMO or find_placeholders(text, rules.names):
        return False
    # Other names in braces, as in code, are never filled in: they are no fault of a row.
    return not _unusable(f"{text}\n{rules.seed_template}", rules.seed_template)


def front(demos: Sequence[Example]) -> str:
    """Return the text before a template with these demonstrations; empty without any."""
    if not demos:
        return ""
    return "\n\n".join([HEADING, *map(show_demo, demos), ENDING, ""])
