"""How a persona grows with what its agent remembers: by small edits of sentences, each with the
memories behind it.

Batches of memories give proposals (map), of which a few are chosen (reduce); the new text is made
from the old one by code: the first sentence stays, and at most half of the others change. A persona
that is written anew is made in the same way of the first sentence alone. No model ever writes a
persona whole, so none can wreck it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from textevolve.llm.fence import sanitize
from textevolve.llm.model import Model
from textevolve.llm.template import Template, load_template
from textevolve.llm.token_count import count_tokens
from textevolve.memory.record import MemoryRecord
from textevolve.memory.shown import (
    CitingAnswer,
    ask_about,
    citations,
    count_fitting,
    find_citation_fault,
)
from textevolve.spec import Frozen, option

LONGEST_SENTENCE = 300
"""Characters of what an edit puts in."""
MOST_SENTENCES = 2
"""That one edit may put in."""
ALIKE = 0.9
"""From this similarity of characters on two sentences say the same."""

EditAction: TypeAlias = Literal["add", "replace", "remove"]


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One edit. `sentence`: which is replaced or removed, from 1; 0 where one is added. `before`:
    that sentence. `memories`: ids of those behind it."""

    action: EditAction
    sentence: int
    text: str
    reason: str
    memories: tuple[str, ...]
    before: str = ""


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that is not made, and why."""

    action: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComposedPersona:
    """A persona with those edits that fit together."""

    text: str
    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PersonaSentence:
    """`gap`: the white space behind it."""

    text: str
    gap: str = ""


_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(\s+)|(?<![。！？])[。！？]++(\s*)|([ \t]*\n\s*)"
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|[a-z])\.\s+$", re.IGNORECASE
)


def split_persona(text: str) -> tuple[PersonaSentence, ...]:
    """The sentences of a persona, which join up to it; each line is one at least."""
    found, begun = list[PersonaSentence](), 0
    bare = text.strip()
    for end in _END.finditer(bare):
        whole = bare[begun : end.end()]
        if "\n" not in end[0] and _ABBREVIATED.search(whole):
            continue
        gap = end[1] or end[2] or end[3] or ""
        found.append(PersonaSentence(whole[: len(whole) - len(gap)], gap))
        begun = end.end()
    if begun < len(bare):
        found.append(PersonaSentence(bare[begun:]))
    return tuple(found)


def finish_sentence(text: str) -> str:
    """On one line, with an end."""
    line = " ".join(text.split())
    return line + "." if line and line[-1].isalnum() else line


def find_edit_fault(
    action: EditAction, sentence: int, text: str, sentences: Sequence[PersonaSentence]
) -> str:
    """Why it is no small edit; empty where it is one."""
    if action != "add":
        if not 1 <= sentence <= len(sentences):
            return f"there is no sentence {sentence}"
        if sentence == 1:
            return "the first sentence says who the agent is, and stays"
    if action == "remove":
        return ""
    if not text:
        return "has no text"
    if len(text) > LONGEST_SENTENCE or len(split_persona(text)) > MOST_SENTENCES:
        return f"is longer than {MOST_SENTENCES} sentences or {LONGEST_SENTENCE} characters"
    if sanitize(text, "\0")[1]:
        return "holds marks that steer a model"
    if any(alike(text, known.text) for known in sentences):
        return "the persona says it already"
    return ""


def alike(one: str, other: str) -> bool:
    """Whether two sentences are in nearly the same words, with the same numbers."""
    first, second = (" ".join(text.casefold().split()) for text in (one, other))
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    return SequenceMatcher(None, first, second, autojunk=False).ratio() >= ALIKE


def compose_persona(
    text: str, changes: Sequence[PersonaChange], most_tokens: int
) -> ComposedPersona:
    """The persona with the changes, the first of them first, for as long as they fit together, at
    most half of its sentences are replaced or removed, and it is short enough."""
    sentences = split_persona(text)
    most = max(most_tokens, count_tokens(text.strip()))
    made, refused = list[PersonaChange](), list[RefusedChange]()
    for one in changes:
        tried = _apply_edits(sentences, [*made, one])
        touched = {each.sentence for each in made if each.sentence}
        fault = ""
        if one.sentence and one.sentence in touched:
            fault = f"sentence {one.sentence} is changed already"
        elif one.sentence and 2 * (len(touched) + 1) > len(sentences):
            fault = "more than half of the sentences would change"
        elif count_tokens(tried) > most:
            fault = f"the persona would have {count_tokens(tried)} tokens of at most {most}"
        if fault:
            refused.append(RefusedChange(one.action, one.text or one.before, fault))
        else:
            made.append(one)
    return ComposedPersona(_apply_edits(sentences, made), tuple(made), tuple(refused))


def _apply_edits(sentences: Sequence[PersonaSentence], changes: Sequence[PersonaChange]) -> str:
    edits = {one.sentence: one for one in changes if one.sentence}
    parts = list[str]()
    for number, sentence in enumerate(sentences, 1):
        edit = edits.get(number)
        if edit is None or edit.action == "replace":
            parts += [sentence.text if edit is None else edit.text, sentence.gap]
    added = [one.text for one in changes if one.action == "add"]
    kept = "".join(parts).rstrip()
    last = sentences[-2].gap if len(sentences) > 1 and "\n" in sentences[-2].gap else " "
    return last.join([kept, *added])


PROPOSALS = 4
"""The most changes that one batch of memories may propose."""
PROPOSAL_TOKENS, CHOICE_TOKENS = 160, 30
GROUP = 20
"""Of so many proposals some are chosen at a time."""


class PersonaPlan(Frozen):
    """How far a persona may change at once."""

    rewrite: bool = option(
        False, "Write all but the first sentence anew, out of what the agent remembers."
    )
    changes: int = option(5, "The most changes at once.", ge=1, le=20)
    persona_tokens: int = option(
        400,
        "The most tokens of the new persona; one that is longer already may not grow.",
        ge=32,
        le=20_000,
    )
    newest: int = option(
        500, "Only so many of the newest memories are looked at.", ge=1, le=100_000
    )
    budget: int = option(1500, "The most tokens of memories in one prompt.", ge=64, le=100_000)
    min_trust: float = option(
        0.6,
        "Memories whose source is trusted less are left out: what strangers and tools say has no"
        " say in who an agent is.",
        ge=0,
        le=1,
    )
    seed: int = option(0, "Seed of what is asked.")


@dataclass(frozen=True, slots=True)
class Proposals:
    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()


def batch_memories(
    memories: Sequence[MemoryRecord], plan: PersonaPlan
) -> list[tuple[MemoryRecord, ...]]:
    """Batches that fit into a prompt."""
    left, batches = list(memories), list[tuple[MemoryRecord, ...]]()
    while left:
        number = count_fitting([one.text for one in left], plan.budget)
        batches.append(tuple(left[:number]))
        left = left[number:]
    return batches


class _Proposed(CitingAnswer):
    because: list[int]
    reason: Annotated[str, Field(max_length=LONGEST_SENTENCE)]
    action: EditAction
    sentence: int
    text: Annotated[str, Field(max_length=2 * LONGEST_SENTENCE)]


class _Changes(CitingAnswer):
    changes: Sequence[_Proposed]


class _Chosen(CitingAnswer):
    change: int
    same: list[int] = Field(default=[])


class _Choice(CitingAnswer):
    chosen: Sequence[_Chosen]


@lru_cache(maxsize=256)
def _changes_of(memories: int, sentences: int) -> type[_Changes]:
    told: dict[str, Any] = {"minimum": 0, "maximum": sentences}
    proposed: Any = create_model(
        f"Change{memories}x{sentences}",
        __base__=_Proposed,
        because=(citations(memories), ...),
        sentence=(Annotated[int, Field(json_schema_extra=told)], ...),
    )
    listed: Any = Annotated[list[proposed], Field(max_length=2 * PROPOSALS)]
    return create_model(f"Changes{memories}x{sentences}", __base__=_Changes, changes=(listed, ...))


@lru_cache(maxsize=256)
def _choice_of(number: int) -> type[_Choice]:
    told: dict[str, Any] = {"minimum": 1, "maximum": number}
    one: Any = create_model(
        f"Chosen{number}",
        __base__=_Chosen,
        change=(Annotated[int, Field(json_schema_extra=told)], ...),
        same=(Annotated[list[int], Field(max_length=2 * GROUP)], []),
    )
    listed: Any = Annotated[list[one], Field(max_length=2 * GROUP)]
    return create_model(f"Choice{number}", __base__=_Choice, chosen=(listed, ...))


@cache
def _prompt(name: str, *variables: str) -> Template:
    return load_template("textevolve.agents", name, variables)


def _changes_prompt(*, rewrite: bool) -> Template:
    name = "persona_new" if rewrite else "persona_changes"
    return _prompt(name, "persona", "memories", "number")


def _choice_prompt() -> Template:
    return _prompt("persona_choice", "persona", "changes", "number")


def prompts_version(*, rewrite: bool) -> dict[str, str]:
    """A hash of each prompt that the evolution of personas has."""
    templates = (_changes_prompt(rewrite=rewrite), _choice_prompt())
    return {f"agents.{template.name}": template.version for template in templates}


def text_to_edit(persona: str, plan: PersonaPlan) -> str:
    """Return what edits begin with: of a persona that is written anew the first sentence."""
    return split_persona(persona)[0].text if plan.rewrite else persona


async def propose_changes(
    model: Model,
    sentences: Sequence[PersonaSentence],
    memories: Sequence[MemoryRecord],
    plan: PersonaPlan,
) -> Proposals:
    """What follows from a batch of memories for a persona. What rests on no memory that was shown,
    or is no small edit, is refused.

    Raises:
        AnswerError: no usable answer came.
    """
    texts = [one.text for one in memories]
    persona = [one.text for one in sentences]
    answer = await ask_about(
        model,
        _changes_prompt(rewrite=plan.rewrite),
        _changes_of(len(texts), len(persona)),
        plan.seed,
        50 + PROPOSAL_TOKENS * PROPOSALS,
        PROPOSALS,
        persona=persona,
        memories=texts,
    )
    found, refused = list[PersonaChange](), list[RefusedChange]()
    for one in answer.changes:
        text = "" if one.action == "remove" else finish_sentence(one.text)
        fault = find_citation_fault(one.because, len(memories))
        fault = fault or find_edit_fault(one.action, one.sentence, text, sentences)
        if fault:
            refused.append(RefusedChange(one.action, one.text, fault))
            continue
        edited = 0 if one.action == "add" else one.sentence
        cited = tuple(memories[n - 1].id for n in dict.fromkeys(one.because))
        before = sentences[edited - 1].text if edited else ""
        found.append(PersonaChange(one.action, edited, text, one.reason, cited, before))
    more = [RefusedChange(c.action, c.text, "more than were asked for") for c in found[PROPOSALS:]]
    return Proposals(tuple(found[:PROPOSALS]), (*refused, *more))


async def choose_changes(
    model: Model,
    sentences: Sequence[PersonaSentence],
    proposed: Sequence[PersonaChange],
    plan: PersonaPlan,
) -> Proposals:
    """The most important proposals, with the memories of those that say the same. Of many a few of
    each group are chosen, and then of those.

    Raises:
        AnswerError: no usable answer came.
    """
    left, refused = list(proposed), list[RefusedChange]()
    chosen = len(left) < 2
    while not chosen:
        chosen, kept = len(left) <= GROUP, list[PersonaChange]()
        for begin in range(0, len(left), GROUP):
            found = await _choose(model, sentences, left[begin : begin + GROUP], plan)
            kept += found.changes
            refused += found.refused
        if not chosen and len(kept) >= len(left):  # as with more wanted than a group holds
            refused += [_not_chosen(one) for one in kept[GROUP:]]
            kept = kept[:GROUP]
        left = kept
    return Proposals(tuple(left), tuple(refused))


def _join(one: PersonaChange, other: PersonaChange) -> PersonaChange:
    return replace(one, memories=tuple(dict.fromkeys((*one.memories, *other.memories))))


async def _choose(
    model: Model,
    sentences: Sequence[PersonaSentence],
    proposed: Sequence[PersonaChange],
    plan: PersonaPlan,
) -> Proposals:
    lines = [_say(one) for one in proposed]
    answer = await ask_about(
        model,
        _choice_prompt(),
        _choice_of(len(lines)),
        plan.seed,
        50 + CHOICE_TOKENS * plan.changes,
        plan.changes,
        persona=[one.text for one in sentences],
        changes=lines,
    )
    chosen, gone = dict[int, PersonaChange](), set[int]()
    for one in answer.chosen:
        place = one.change - 1
        if not 0 <= place < len(proposed) or place in gone or len(chosen) >= plan.changes:
            continue
        made = proposed[place]
        gone.add(place)
        for other in one.same:
            if 1 <= other <= len(proposed) and other - 1 not in gone:
                made = _join(made, proposed[other - 1])
                gone.add(other - 1)
        chosen[place] = made
    rest = [_not_chosen(one) for place, one in enumerate(proposed) if place not in gone]
    return Proposals(tuple(chosen.values()), tuple(rest))


def _not_chosen(one: PersonaChange) -> RefusedChange:
    return RefusedChange(one.action, one.text or one.before, "was not chosen")


def _say(one: PersonaChange) -> str:
    where = f" sentence {one.sentence}" if one.sentence else ""
    text = f": {one.text}" if one.text else ""
    return " ".join(f"{one.action}{where}{text} ({one.reason})".split())
