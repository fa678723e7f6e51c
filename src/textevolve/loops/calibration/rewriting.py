"""From judged outputs to instructions for the template, and from those to new templates.

Both are calls to a model; a reflection does both in one call. Demonstrations are labelled rows in
front of a template, as examples (few-shot). What they show of templates, outputs, labels
and reasons stands in fences; an instruction is a model's text as well, and is fenced when it is
applied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, zip_longest
from typing import Annotated, Any, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
)

from textevolve.errors import AnswerError
from textevolve.llm.fence import EXAMPLE_NONCE, draw_nonce, fence, sanitize
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.structured import answer_schema, ask_structured, read_answer
from textevolve.llm.template import Template, load_template
from textevolve.loops.calibration.examples import Example
from textevolve.loops.calibration.selection import shuffle
from textevolve.loops.calibration.trial_runner import TrialOutcome
from textevolve.loops.placeholders import find_fault, find_placeholders
from textevolve.loops.scoring import REASON_CHARACTERS
from textevolve.texts.splitting import excerpt

_VARIABLES = {
    "calibrate_instructions": ("placeholders", "template", "examples", "most"),
    "calibrate_successor": ("template", "instructions", "placeholders"),
    "calibrate_again": ("fault",),
    "calibrate_reflection": ("placeholders", "template", "examples", "most"),
    "calibrate_program": ("about", "templates", "part", "examples", "most"),
    "calibrate_together": ("templates", "instructions"),
}
ANSWER_SHOWN = 1500
"""Characters of an unusable answer that its writer is shown again."""
SHOWN = 12_000
"""Characters of all outcomes in one prompt, for an editor of unknown context."""
LARGEST_CONTEXT = 16_384
"""Tokens of context from which on a larger one is not used: every rewrite would cost more."""
TEXT_SHARES = (8, 16, 32)
"""One text of an outcome may have an eighth of the characters that are shown of all outcomes; less,
where otherwise fewer than `FEWEST_SHOWN` outcomes had room."""
TRACE_TEXTS, REASON_TEXTS = 4, 3
"""All steps of a program together have room as so many texts, half of each step's for its prompt; a
judge's reasons as so many."""
REASONS_SHOWN = sum(REASON_CHARACTERS.values()) + 100
"""Characters of a judge's reasons: those of all parts of a debate's, with their headings."""
STEPS_SHOWN = 8
FEWEST_SHOWN, MOST_SHOWN = 3, 10
"""Outcomes that one prompt shows, if there are as many."""
INSTRUCTIONS_TOKENS = 1000
EXTRA_TOKENS = 600
SAMPLING = 0.8
INSTRUCTION_LENGTH = 600
APPENDED = "Rules:"
OWN_WORDS = "stand for text that is filled in"
"""What prompts say of placeholders. Small models repeat it in the templates that they write."""
EXAMPLE = (
    "What is the mood of this review? {review}",
    ("Answer with one word: good, bad or mixed.", "Do not repeat the review."),
    "Read the review below and say what its mood is. Answer with one word, good, bad or mixed, and"
    " do not repeat the review.\n\nReview: {review}",
)
"""A template, instructions, and the template with those applied."""

_NO_BRACES = str.maketrans("{}", "()")


@cache
def prompt(name: str) -> Template:
    return load_template("textevolve.loops", name, _VARIABLES[name])


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new template, or why there is none. `repaired`: it took a second call. `note`: what else is
    to be known of how it was made. `others`: in place of `text`, several templates of a program
    that were rewritten together, by their names."""

    text: str | None
    instructions: tuple[str, ...]
    fault: str = ""
    repaired: bool = False
    note: str = ""
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RewritingRules:
    """What every successor has to respect. `longest`: characters of a template at most. `shown`:
    characters of all outcomes that one prompt shows the editor."""

    seed_template: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    seed: int = 0
    shown: int = SHOWN

    @property
    def longest(self) -> int:
        return 3 * len(self.seed_template) + 2000

    @property
    def max_tokens(self) -> int:
        """Of an answer: what the longest template may take in any language that is not dense."""
        return self.longest // 3 + EXTRA_TOKENS

    @property
    def placeholders(self) -> str:
        return ", ".join(f"{{{name}}}" for name in self.names)


class _Template(BaseModel):
    model_config = ConfigDict(extra="forbid")

    template: str


class _Instructions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instructions: list[str]


_Instruction = Annotated[
    str, StringConstraints(min_length=1, max_length=INSTRUCTION_LENGTH, strip_whitespace=True)
]


def shorten_instruction(text: str) -> str:
    """An instruction that is too long ends with the last sentence that has room, or is cut."""
    text = text.strip()
    if len(text) <= INSTRUCTION_LENGTH:
        return text
    cut = text[:INSTRUCTION_LENGTH]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? ", "; ", "\n"))
    return cut[: end + 1].strip() if end > INSTRUCTION_LENGTH // 3 else cut[:-1].rstrip() + "…"


@cache
def _answer_type(most: int) -> type[_Instructions]:
    """With the greatest number in the schema, so that a server that follows it stops there. Of a
    longer list, or one with long texts or empty ones, what can be used is taken all the same."""

    def usable(given: Any) -> Any:
        if not isinstance(given, list):
            return given
        texts = [
            shorten_instruction(one) for one in cast("list[Any]", given) if isinstance(one, str)
        ]
        return [text for text in texts if text][:most]

    listed = Annotated[
        list[_Instruction], Field(min_length=1, max_length=most), BeforeValidator(usable)
    ]
    return create_model("_Instructions", __base__=_Instructions, instructions=(listed, ...))


async def write_instructions(
    model: Model, template: str, outcomes: Sequence[TrialOutcome], rules: RewritingRules, most: int
) -> tuple[str, ...]:
    """At most `most` instructions, from the outcomes that have a score, the worst of them first.

    Raises:
        AnswerError: no outcome has a score, or no usable answer came. ModelError, BudgetError: as
            the model raises them.
    """
    scored = worst_first(outcomes)
    parts = show_outcomes(scored, rules.shown)
    texts = [template, *(text for part in parts for _, text in part)]
    nonce = draw_nonce(texts, rules.seed)
    asked = prompt("calibrate_instructions").render(
        placeholders=rules.placeholders,
        template=fenced("template", template, nonce),
        examples=fence_outcomes(scored, parts, nonce),
        most=most,
    )
    return await ask_instructions(model, asked, rules.seed, most)


def worst_first(outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome]:
    """Those with a score, from the worst on.

    Raises:
        AnswerError: none has a score; says why.
    """
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    if not scored:
        reason = next((o.failure.reason for o in outcomes if o.failure), "nothing was tried")
        raise AnswerError(f"no output could be scored ({reason})")
    return sorted(scored, key=lambda outcome: outcome.score or 0.0)


def fence_outcomes(
    scored: Sequence[TrialOutcome], parts: Sequence[Sequence[tuple[str, str]]], nonce: str
) -> list[dict[str, str]]:
    """Outcomes as a prompt shows them: the score, and the parts, each in a fence."""
    return [
        {
            "score": f"{outcome.score:.2f}",
            "text": "".join(fenced(name, text, nonce) for name, text in part),
        }
        for outcome, part in zip(scored, parts, strict=True)
    ]


async def ask_instructions(model: Model, asked: str, seed: int, most: int) -> tuple[str, ...]:
    request = Request(
        messages=(Message("user", (asked,)),),
        temperature=0.0,
        max_tokens=INSTRUCTIONS_TOKENS,
        seed=seed,
    )
    answer = await ask_structured(model, request, _answer_type(most))
    return tuple(dict.fromkeys(answer.value.instructions))


def characters_shown(context: int) -> int:
    """Characters of outcomes that an editor with so many tokens of context is shown at once: half
    of it, at three characters a token."""
    return 3 * min(context, LARGEST_CONTEXT) // 2


def show_outcomes(outcomes: Sequence[TrialOutcome], shown: int) -> list[list[tuple[str, str]]]:
    """What is shown of each outcome: its parts by their names, and excerpts of what is long; of a
    program with several templates also what each step was asked, and what it gave. `shown`:
    characters of all of them."""
    room = _text_room(outcomes, shown)
    return [[(name, text) for name, text, _ in _list_parts(one, room)] for one in outcomes]


def find_shortened(outcomes: Sequence[TrialOutcome], shown: int) -> list[tuple[str, int]]:
    """The parts of which only excerpts are shown, with their lengths."""
    room = _text_room(outcomes, shown)
    parts = [part for one in outcomes for part in _list_parts(one, room)]
    return [(name, whole) for name, text, whole in parts if whole > len(text)]


def fit_outcomes(outcomes: Sequence[TrialOutcome], shown: int) -> list[TrialOutcome]:
    """As many of the first as an editor is shown at once; one at least."""
    room = _text_room(outcomes[:FEWEST_SHOWN], shown)
    sizes = accumulate(_count_characters(one, room) for one in outcomes[:MOST_SHOWN])
    return list(outcomes[: max(1, sum(size <= shown for size in sizes))])


def _text_room(outcomes: Sequence[TrialOutcome], shown: int) -> int:
    """Characters of one text, with which these outcomes keep to `shown` together."""
    rooms = [shown // share for share in TEXT_SHARES]
    sums = (sum(_count_characters(one, room) for one in outcomes) for room in rooms)
    return next((room for room, size in zip(rooms, sums, strict=True) if size <= shown), rooms[-1])


def _count_characters(outcome: TrialOutcome, room: int) -> int:
    return sum(len(text) for _, text, _ in _list_parts(outcome, room))


def _list_parts(outcome: TrialOutcome, most: int) -> list[tuple[str, str, int]]:
    """Name, text as it is shown, and length of the whole. Of answer and label, which can be the
    same for long, also the place where they begin to differ is shown."""
    label = outcome.example.label
    answer, expected = outcome.output or "", "" if label is None else str(label)
    pairs = enumerate(zip_longest(answer, expected))
    differs = next((n for n, pair in pairs if pair[0] != pair[1]), None) if expected else None
    values = outcome.example.values
    whole = sum(map(len, values.values()))
    lines = [
        # Each has its share, and what others leave of theirs.
        f"{name}: {excerpt(value, max(most // len(values), most - whole + len(value)))}"
        for name, value in values.items()
    ]
    plain = "\n".join(f"{name}: {value}" for name, value in values.items())
    problem = outcome.failure.reason if outcome.failure else ""
    reasons = min(REASONS_SHOWN, REASON_TEXTS * most)
    parts = [
        ("input", "\n".join(lines), len(plain)),
        *_list_steps(outcome, TRACE_TEXTS * most),
        ("answer", excerpt(answer, most, differs), len(answer)),
        ("expected", excerpt(expected, most, differs), len(expected)),
        ("problem", excerpt(problem, most), len(problem)),
        ("judgement", excerpt(outcome.reasons, reasons), len(outcome.reasons)),
    ]
    return [part for part in parts if part[2]]


def _list_steps(outcome: TrialOutcome, shown: int) -> list[tuple[str, str, int]]:
    """Each step's prompt and output; those of steps before the last `STEPS_SHOWN` are left out."""
    steps = outcome.trace[-STEPS_SHOWN:]
    texts = list[tuple[str, str]]()
    for step in steps:
        if step.prompt:
            texts.append((f"prompt of {step.template}", step.prompt))
        if step.output != outcome.output:
            texts.append((f"output of {step.template}", step.output))
    most = shown // max(1, 2 * len(steps))
    return [(name, excerpt(text, most), len(text)) for name, text in texts if text]


def share_out(instructions: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Which instructions each of `count` successors applies: the first all, the others seeded parts
    of them of every smaller size, so that what one instruction is worth can show."""
    made = [tuple(instructions)]
    for n in range(1, count):
        size = 1 + (n - 1) % max(1, len(instructions) - 1)
        order = list(range(len(instructions)))
        shuffle(order, seed, "instructions", n, *instructions)
        made.append(tuple(instructions[k] for k in sorted(order[:size])))
    return made[:count]


async def write_successor(
    model: Model, template: str, instructions: Sequence[str], rules: RewritingRules, sample: int
) -> Rewritten:
    """A template in which the instructions are applied. One with a fault, such as a placeholder
    that is lost or invented, is asked for once again with the fault named.

    Raises:
        ModelError, BudgetError: as the model raises them.
    """
    nonce = draw_nonce((template, *instructions), rules.seed)
    request = Request(
        messages=(
            *example(),
            Message("user", (_ask_successor(template, instructions, rules.placeholders, nonce),)),
        ),
        temperature=SAMPLING,
        max_tokens=rules.max_tokens,
        schema=answer_schema(_Template),
        seed=rules.seed + sample,
        sample=sample,
    )
    applied = tuple(instructions)
    first = await model(request)
    text, fault = _read(first, nonce, template, rules)
    if not fault:
        return Rewritten(text, applied)
    again = await model(ask_again(request, first, fault))
    text, still = _read(again, nonce, template, rules)
    if still:
        return Rewritten(None, applied, still, repaired=True)
    return Rewritten(text, applied, repaired=True)


def _ask_successor(
    template: str, instructions: Sequence[str], placeholders: str, nonce: str
) -> str:
    listed = "\n".join(f"{n}. {text}" for n, text in enumerate(instructions, 1))
    return prompt("calibrate_successor").render(
        template=fenced("template", template, nonce),
        instructions=fenced("instructions", listed, nonce),
        placeholders=placeholders,
    )


@cache
def example() -> tuple[Message, Message]:
    """A rewrite that was done well, as turns before the question: without one, small models repeat
    the marks, or give the placeholder alone."""
    asked = _ask_successor(EXAMPLE[0], EXAMPLE[1], "{review}", EXAMPLE_NONCE)
    answer = json.dumps({"template": EXAMPLE[2]})
    return Message("user", (asked,)), Message("assistant", (answer,))


def append_instructions(template: str, failed: Rewritten, rules: RewritingRules) -> Rewritten:
    """What takes the place of a rewrite that failed: the template as it is, with the instructions
    below it. Small models can often say what is wrong, and not put it into a template's words."""
    plain = [text.translate(_NO_BRACES) for text in failed.instructions]
    text = "\n".join([template.rstrip(), "", APPENDED, *(f"- {line}" for line in plain)])
    fault = find_fault(text, rules.seed_template, rules.names, rules.columns)
    if fault or _unusable(text, rules.seed_template) or len(text) > rules.longest:
        return failed
    note = f"not rewritten ({failed.fault}): the instructions stand below its parent's text"
    return Rewritten(text, failed.instructions, note=note)


def ask_again(request: Request, response: Response, fault: str) -> Request:
    said = prompt("calibrate_again").render(fault=fault)
    messages = (
        *request.messages,
        Message("assistant", (excerpt(response.text, ANSWER_SHOWN) or "(nothing)",)),
        Message("user", (said,)),
    )
    return replace(request, messages=messages)


def read_template(answer: str, nonce: str, parent: str) -> str:
    """The template in an answer, without what models like to put around one, our own words on
    placeholders among it."""
    mark = re.compile(rf"\[\[/?{re.escape(nonce)}[^\]\n]*\]\]")
    lines = list[str]()
    for line in answer.replace("\u2060", "" if "\u2060" not in parent else "\u2060").splitlines():
        lines += [one for one in mark.split(line) if one.strip()] if mark.search(line) else [line]
    echoes = (nonce,) if OWN_WORDS in parent else (nonce, OWN_WORDS)
    lines = [line for line in lines if not any(echo in line for echo in echoes)]
    while lines and not lines[0].strip():
        del lines[0]
    while lines and not lines[-1].strip():
        del lines[-1]
    wrapped = len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```"
    if wrapped and not parent.lstrip().startswith("```"):
        lines = lines[1:-1]
    return "\n".join(lines).strip()


def _read(response: Response, nonce: str, template: str, rules: RewritingRules) -> tuple[str, str]:
    """The template in a response, and what is wrong with it; empty where nothing is."""
    try:
        answer, _ = read_answer(response, _Template)
    except AnswerError as error:
        return "", str(error)
    text = read_template(answer.template, nonce, template)
    return text, template_fault(text, template, rules)


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
    """What no prompt may hold; empty where there is nothing of it."""
    if "\0" in text:
        return "it holds a NUL character"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "it holds half a surrogate pair, which is no text"
    # A prompt is not fenced: what servers read as a change of speaker would be one.
    unseen = draw_nonce((text, seed), 0)
    if sanitize(text, unseen)[1] > sanitize(seed, unseen)[1]:
        return "it holds a mark of a chat format, such as <|im_end|>; leave those out"
    return ""


def fenced(name: str, text: str, nonce: str) -> str:
    return fence(name, sanitize(text, nonce)[0], nonce)


HEADING, ENDING = "Examples of inputs and their right answers:", "Now the same for this:"
MOST_CHARACTERS = 6000
LONGEST_DEMO = 1500


def show_demo(example: Example) -> str:
    values = "\n".join(f"{name}: {value}" for name, value in example.values.items())
    return f"{values}\nanswer: {example.label}"


def can_show(example: Example, rules: RewritingRules) -> bool:
    """Whether the row has a label, and nothing of it would be read as a placeholder or a mark."""
    if example.label is None or not str(example.label).strip():
        return False
    text = show_demo(example)
    if len(text) > LONGEST_DEMO or find_placeholders(text, rules.names):
        return False
    return not template_fault(f"{text}\n{rules.seed_template}", "", rules)


def front(demos: Sequence[Example]) -> str:
    """What stands before a template with these demonstrations; nothing without any."""
    if not demos:
        return ""
    return "\n\n".join([HEADING, *map(show_demo, demos), ENDING, ""])


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
    text, changes, fault = _read_reflection(first, nonce, template, rules, most)
    if not fault:
        return Rewritten(text, changes)
    again = await model(ask_again(request, first, fault))
    text, listed, still = _read_reflection(again, nonce, template, rules, most)
    changes = listed or changes
    if not still:
        return Rewritten(text, changes, repaired=True)
    failed = Rewritten(None, changes, still, repaired=True)
    return append_instructions(template, failed, rules) if changes else failed


def _read_reflection(
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
