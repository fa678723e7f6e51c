"""Change an agent's persona by small edits of sentences, each supported by memories of the agent.

The model proposes edits for each batch of memories (map) and chooses a few of them (reduce); code
applies them to the old text. The first sentence stays, and at most half of all sentences change. A
complete rewrite starts from the first sentence alone and adds sentences in the same way. No model
writes a whole persona, so no model can spoil it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from textevolve.llm.model import Model
from textevolve.llm.prompts import count_tokens, load_template, prompt_versions, sanitize
from textevolve.loading import regex
from textevolve.memory.integration import (
    CitingAnswer,
    ask_about,
    citations,
    count_fitting,
    find_citation_fault,
)
from textevolve.memory.record import MemoryRecord
from textevolve.spec import Frozen, Share, option
from textevolve.texts.prose import cut_sentences, fold_case, join_lines

LONGEST_SENTENCE = 300
"""The most characters that one edit may insert."""
MOST_SENTENCES = 2
"""The most sentences that one edit may insert."""
ALIKE = 0.9
"""The similarity of characters, from 0 to 1, from which two sentences count as the same."""

EditAction: TypeAlias = Literal["add", "replace", "remove"]


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One edit of a persona.

    Attributes:
        action: Whether a sentence is added, replaced or removed.
        sentence: The number of the replaced or removed sentence, from 1; 0 for an addition.
        text: The new sentence; empty for a removal.
        reason: The model's reason for the edit.
        memories: The ids of the memories that support the edit.
        before: The text of the replaced or removed sentence.
    """

    action: EditAction
    sentence: int
    text: str
    reason: str
    memories: tuple[str, ...]
    before: str = ""


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """An edit of a persona that was rejected, with the reason. `text`: the sentence that it would
    insert."""

    action: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComposedPersona:
    """A persona after edits. `text`: the persona; `changes`: the edits that were applied;
    `refused`: the edits that were rejected, because they contradict others or change too much."""

    text: str
    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PersonaSentence:
    """A sentence of a persona. `gap`: the white space that follows it."""

    text: str
    gap: str = ""


_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|[a-z])\.\s+$", re.IGNORECASE
)


_FRAME = re.compile(r"(?:---(?:\n(?!---).*)*|---\n(?:.*\n)*?---\s*)?(?:#.*(?:\n\s*|\Z))*")
"""Matches the front matter and the headings above the first sentence of a Markdown file, which are
no sentences of the persona."""
_MARK = re.compile(r"(?:(?:[-*+•>]|#{1,6}|\d{1,3}[.)])[ \t]+)?")
"""Matches the mark at the beginning of a line of Markdown, such as `- ` of a list, or nothing. A
sentence that replaces another one keeps its mark."""


def split_persona(text: str) -> tuple[PersonaSentence, ...]:
    """Split a persona into sentences; joined again they give the same text. A line without a full
    stop is a sentence, too; only headings above the first sentence belong to that."""
    sentences: list[PersonaSentence] = []
    sentence = ""

    for piece in cut_sentences(text.strip()):
        sentence += piece
        bare = sentence.rstrip()
        gap = sentence[len(bare) :]
        is_frame = not sentences and _FRAME.fullmatch(bare)
        if bare and not is_frame and ("\n" in gap or not _ABBREVIATED.search(sentence)):
            sentences.append(PersonaSentence(bare, gap))
            sentence = ""

    if sentence:
        sentences.append(PersonaSentence(sentence))

    return tuple(sentences)


def finish_sentence(text: str) -> str:
    """Return a text on one line, with a full stop if it has none."""
    return _close_sentence(join_lines(text))


def _close_sentence(text: str) -> str:
    """Return a text with a full stop if it ends with a letter, its mark, or a digit."""
    return f"{text}." if regex.search(r"[\p{L}\p{M}\p{N}]\Z", text) else text


def find_edit_fault(
    action: EditAction, sentence: int, text: str, sentences: Sequence[PersonaSentence]
) -> str:
    """Return the reason why an edit is not acceptable; empty if it is acceptable."""
    if action != "add":
        if not 1 <= sentence <= len(sentences):
            return f"there is no sentence {sentence}"
        if sentence == 1:
            return "the first sentence says who the agent is, and stays"

    if action == "remove":
        return ""
    if not text:
        return "the change has no text"
    if len(text) > LONGEST_SENTENCE or len(split_persona(text)) > MOST_SENTENCES:
        return (
            f"the change is longer than {MOST_SENTENCES} sentences or {LONGEST_SENTENCE} characters"
        )

    if sanitize(text, "\0")[1]:
        return "the change contains control marks of prompts"
    if any(alike(text, existing.text) for existing in sentences):
        return "the persona says this already"

    return ""


def alike(sentence: str, other: str) -> bool:
    """Return whether two sentences have nearly the same characters, apart from case and white
    space, and the same numbers in the same order."""
    left_words, right_words = (join_lines(fold_case(text)) for text in (sentence, other))
    if re.findall(r"\d+", left_words) != re.findall(r"\d+", right_words):
        return False
    return SequenceMatcher(None, left_words, right_words, autojunk=False).ratio() >= ALIKE


def compose_persona(
    text: str, changes: Sequence[PersonaChange], most_tokens: int
) -> ComposedPersona:
    """Apply the changes in their order. A change is rejected if it edits a changed sentence, if
    more than half of the sentences would change, or if the persona would have more than
    `most_tokens` tokens, and more than it has now."""
    sentences = split_persona(text)
    most = max(most_tokens, count_tokens(text.strip()))
    accepted: list[PersonaChange] = []
    refused: list[RefusedChange] = []

    for change in changes:
        tried = _apply_edits(sentences, [*accepted, change])
        touched = {each.sentence for each in accepted if each.sentence}
        fault = ""
        if change.sentence and change.sentence in touched:
            fault = f"sentence {change.sentence} is changed already"
        elif change.sentence and 2 * (len(touched) + 1) > len(sentences):
            fault = "more than half of the sentences would change"
        elif count_tokens(tried) > most:
            fault = f"the persona would have {count_tokens(tried)} tokens of at most {most}"

        if fault:
            refused.append(RefusedChange(change.action, change.text or change.before, fault))
        else:
            accepted.append(change)

    return ComposedPersona(_apply_edits(sentences, accepted), tuple(accepted), tuple(refused))


def _apply_edits(sentences: Sequence[PersonaSentence], changes: Sequence[PersonaChange]) -> str:
    edits = {change.sentence: change.text for change in changes if change.sentence}
    parts: list[str] = []
    for number, sentence in enumerate(sentences, 1):
        if text := edits.get(number, sentence.text):  # a removed sentence has none
            parts += [text, sentence.gap]
    added = [change.text for change in changes if change.action == "add"]
    edited = "".join(parts).rstrip()
    last = sentences[-2].gap if len(sentences) > 1 and "\n" in sentences[-2].gap else " "
    if added and last == " ":  # otherwise the last sentence and the new one would be one
        edited = _close_sentence(edited)

    return last.join([edited, *added])


PROPOSALS = 4
"""The most edits that the model may propose from one batch of memories."""
PROPOSAL_TOKENS = 160
CHOICE_TOKENS = 30
GROUP = 20
"""The number of proposed edits from which the model chooses at a time."""


class PersonaPlan(Frozen):
    """How far a persona may change at once."""

    rewrite: bool = option(False, "Rewrite all sentences but the first from the agent's memories.")
    changes: int = option(5, "The most changes of the persona in one run.", ge=1, le=20)
    persona_tokens: int = option(
        400,
        "The most tokens of the new persona; a persona that is longer already may not grow.",
        ge=32,
        le=20_000,
    )
    newest: int = option(500, "The number of memories to read, the newest ones.", ge=1, le=100_000)
    budget: int = option(1500, "The most tokens of memories in one prompt.", ge=64, le=100_000)
    min_trust: Share = option(
        0.6,
        "The least trust of a memory, from 0 to 1. Memories with less trust, such as words of"
        " strangers and output of tools, do not change a persona.",
    )
    seed: int = option(0, "The seed of the model's answers; another seed may give other changes.")


@dataclass(frozen=True, slots=True)
class Proposals:
    """The edits that a model proposed or chose. `refused`: proposals that were rejected, with
    reasons."""

    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()


def batch_memories(
    memories: Sequence[MemoryRecord], plan: PersonaPlan
) -> list[tuple[MemoryRecord, ...]]:
    """Split memories, in their order, into batches of at most `plan.budget` tokens."""
    remaining = list(memories)
    batches: list[tuple[MemoryRecord, ...]] = []
    while remaining:
        number = count_fitting([memory.text for memory in remaining], plan.budget)
        batches.append(tuple(remaining[:number]))
        remaining = remaining[number:]

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
    bounds: dict[str, Any] = {"minimum": 0, "maximum": sentences}
    proposed: Any = create_model(
        f"Change{memories}x{sentences}",
        __base__=_Proposed,
        because=(citations(memories), ...),
        sentence=(Annotated[int, Field(json_schema_extra=bounds)], ...),
    )
    listed: Any = Annotated[list[proposed], Field(max_length=2 * PROPOSALS)]

    return create_model(f"Changes{memories}x{sentences}", __base__=_Changes, changes=(listed, ...))


@lru_cache(maxsize=256)
def _choice_of(number: int) -> type[_Choice]:
    bounds: dict[str, Any] = {"minimum": 1, "maximum": number}
    choice: Any = create_model(
        f"Chosen{number}",
        __base__=_Chosen,
        change=(Annotated[int, Field(json_schema_extra=bounds)], ...),
        same=(Annotated[list[int], Field(max_length=2 * GROUP)], []),
    )
    listed: Any = Annotated[list[choice], Field(max_length=2 * GROUP)]

    return create_model(f"Choice{number}", __base__=_Choice, chosen=(listed, ...))


def _name_changes_prompt(*, rewrite: bool) -> str:
    return "persona_new" if rewrite else "persona_changes"


def persona_prompts(*, rewrite: bool) -> dict[str, str]:
    """Return the version of each prompt that evolves personas, by the prompt's name."""
    return prompt_versions("agents", _name_changes_prompt(rewrite=rewrite), "persona_choice")


def text_to_edit(persona: str, plan: PersonaPlan) -> str:
    """Return the text that edits start from: the persona, or its first sentence for a rewrite."""
    return split_persona(persona)[0].text if plan.rewrite else persona


async def propose_changes(
    model: Model,
    sentences: Sequence[PersonaSentence],
    memories: Sequence[MemoryRecord],
    plan: PersonaPlan,
) -> Proposals:
    """Ask the model for edits that follow from a batch of memories. Edits that cite none of these
    memories, or are not small, are rejected.

    Raises:
        AnswerError: no usable answer came.
    """
    texts = [memory.text for memory in memories]
    persona = [sentence.text for sentence in sentences]
    answer = await ask_about(
        model,
        load_template("textevolve.agents", _name_changes_prompt(rewrite=plan.rewrite)),
        _changes_of(len(texts), len(persona)),
        plan.seed,
        50 + PROPOSAL_TOKENS * PROPOSALS,
        PROPOSALS,
        persona=persona,
        memories=texts,
    )
    accepted: list[PersonaChange] = []
    refused: list[RefusedChange] = []

    for change in answer.changes:
        text = "" if change.action == "remove" else finish_sentence(change.text)
        fault = find_citation_fault(change.because, len(memories))
        fault = fault or find_edit_fault(change.action, change.sentence, text, sentences)
        if fault:
            refused.append(RefusedChange(change.action, change.text, fault))
            continue
        edited = 0 if change.action == "add" else change.sentence
        cited = tuple(memories[n - 1].id for n in dict.fromkeys(change.because))
        before = sentences[edited - 1].text if edited else ""
        if change.action == "replace":
            text = _MARK.findall(before)[0] + _MARK.sub("", text, count=1)
        accepted.append(PersonaChange(change.action, edited, text, change.reason, cited, before))

    more = [
        RefusedChange(c.action, c.text, "the model proposed more changes than the prompt allows")
        for c in accepted[PROPOSALS:]
    ]

    return Proposals(tuple(accepted[:PROPOSALS]), (*refused, *more))


async def choose_changes(
    model: Model,
    sentences: Sequence[PersonaSentence],
    proposed: Sequence[PersonaChange],
    plan: PersonaPlan,
) -> Proposals:
    """Choose the most important proposals, at most `plan.changes`, merged with their duplicates. A
    single proposal is chosen without a call. If there are many, the model chooses within groups
    first and then among the chosen ones.

    Raises:
        AnswerError: no usable answer came.
    """
    candidates = list(proposed)
    refused: list[RefusedChange] = []
    chosen = len(candidates) < 2

    while not chosen:
        chosen = len(candidates) <= GROUP
        survivors: list[PersonaChange] = []
        for begin in range(0, len(candidates), GROUP):
            proposals = await _choose(model, sentences, candidates[begin : begin + GROUP], plan)
            survivors += proposals.changes
            refused += proposals.refused

        if not chosen and len(survivors) >= len(
            candidates
        ):  # as when more are requested than a group holds
            refused += list(map(_not_chosen, survivors[GROUP:]))
            survivors = survivors[:GROUP]

        candidates = survivors

    return Proposals(tuple(candidates), tuple(refused))


async def _choose(
    model: Model,
    sentences: Sequence[PersonaSentence],
    proposed: Sequence[PersonaChange],
    plan: PersonaPlan,
) -> Proposals:
    lines = list(map(_format_change, proposed))
    answer = await ask_about(
        model,
        load_template("textevolve.agents", "persona_choice"),
        _choice_of(len(lines)),
        plan.seed,
        50 + CHOICE_TOKENS * plan.changes,
        plan.changes,
        persona=[sentence.text for sentence in sentences],
        changes=lines,
    )
    chosen: dict[int, PersonaChange] = {}
    gone: set[int] = set()

    for choice in answer.chosen:
        place = choice.change - 1
        if not 0 <= place < len(proposed) or place in gone or len(chosen) >= plan.changes:
            continue
        change = proposed[place]
        gone.add(place)

        for other in choice.same:
            if 1 <= other <= len(proposed) and other - 1 not in gone:
                memories = (*change.memories, *proposed[other - 1].memories)
                change = replace(change, memories=tuple(dict.fromkeys(memories)))
                gone.add(other - 1)

        chosen[place] = change

    dropped = [_not_chosen(choice) for place, choice in enumerate(proposed) if place not in gone]

    return Proposals(tuple(chosen.values()), tuple(dropped))


def _not_chosen(change: PersonaChange) -> RefusedChange:
    return RefusedChange(
        change.action, change.text or change.before, "the model did not choose this change"
    )


def _format_change(change: PersonaChange) -> str:
    where = f" sentence {change.sentence}" if change.sentence else ""
    text = f": {change.text}" if change.text else ""
    return join_lines(f"{change.action}{where}{text} ({change.reason})")
