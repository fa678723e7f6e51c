"""Extract the points in a dialogue that are worth remembering, with a model.

A dialogue is read in windows that fit the context, each with the last turns before it as context. A
window with an unusable answer is read again in halves; if a single turn fails, the dialogue fails
and none of its points is stored. `creation.py` stores the points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import cache
from itertools import pairwise
from math import log
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError, TooLongError
from textevolve.evaluation import mend_text
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.prompts import draw_nonce, fence, load_template, sanitize
from textevolve.llm.structured import UnusableAnswer, ask_structured
from textevolve.memory.record import DialogueTurn
from textevolve.memory.sameness import (
    AGREEMENTS,
    DENIALS,
    NEGATIONS,
    details_of,
    entities_in,
    heard_names,
    lacks,
    name_user,
    names_user,
    speaks_of_nobody,
    speaks_to_somebody,
    telling_words,
    words_of,
)
from textevolve.rows.chats import ASSISTANT, USER, speaker_of
from textevolve.spec import Frozen, Share, option
from textevolve.texts.dates import dates_in, read_moment, resolve_phrases
from textevolve.texts.prose import join_lines, split_sentences, split_text


class CreationSettings(Frozen):
    """Settings of extraction: its focus, the trust in each speaker, and the search for near
    memories.

    `trust_*` becomes the trust of a memory, by the speaker of its turn. A statement of a less
    trusted speaker never replaces a memory.
    """

    about: str = option(
        "", "The name of the user in all dialogues; default: that of each dialogue, or “the user”."
    )
    focus: str = option(
        "", "The facts to remember, in a sentence or two; default: all facts of lasting value."
    )
    window: int = option(
        900,
        "The size of the pieces in which a dialogue is read, in tokens (about).",
        ge=100,
        le=100_000,
        group="Advanced",
    )
    overlap: int = option(
        2,
        "The number of turns before a piece that the model sees with it.",
        ge=0,
        le=50,
        group="Advanced",
    )
    neighbours: int = option(
        4,
        "The most similar memories with which each extracted point is compared.",
        ge=1,
        le=20,
        group="Advanced",
    )
    floor: float | None = option(
        None,
        "The least similarity of a memory with which a point is compared; default: 0.5, and 0.62"
        " for local/bge-small.",
        ge=-1,
        le=1,
        group="Advanced",
    )
    compare: Literal["questions", "structured"] = option(
        "questions",
        "How a point is compared with similar memories: questions (yes / no, for small models),"
        " or structured (one answer, which can merge).",
        group="Advanced",
        metavar="NAME",
    )
    trust_user: Share = option(
        0.9, "The trust in what the user says, from 0 to 1.", group="Advanced"
    )
    trust_assistant: Share = option(
        0.6, "The trust in what the assistant says, from 0 to 1.", group="Advanced"
    )
    trust_others: Share = option(
        0.5, "The trust in what others and tools say, from 0 to 1.", group="Advanced"
    )
    entities: bool = option(
        False,
        "Have the model name the people and things that each point is about.",
        group="Advanced",
    )
    seed: int = option(
        0,
        "The seed of the model's answers; another seed extracts the points again.",
        group="Advanced",
    )


TOKENS_OF_POINT = 70
"""The maximum number of tokens of an answer for each point."""
TOKENS_A_POINT = 20
MOST_POINTS = 40
"""The limits on the number of points of a window: one for each `TOKENS_A_POINT` tokens of its text
(and 4 more), and `MOST_POINTS` in all. They stop a small model that begins to repeat itself, so
that the points before the repetition can be used."""
MOST_TEXT = 600
"""The maximum number of characters of a point; longer texts of a model are usually nonsense."""

Status: TypeAlias = Literal["true", "denied", "imagined", "stranger"]
"""How the model says that a fact was meant: as a true statement about the user, denied, imagined
(an example, a joke or a guess), or about a stranger."""
REFUSED = {
    "denied": "somebody said that it is not so",
    "imagined": "it was said as an example, a joke or a guess",
    "stranger": "it is about somebody else",
}
"""The reasons why a point is not remembered, by the status that the model reports."""
LEAST_EVIDENCE = 2
"""The words that a turn shares with a fact, names and numbers counted twice, from which it may be
preferred to the turn that the model names: one common word, such as evening, is chance."""
STEM = 4
"""The letters at the beginning of a word by which it is compared with those of a turn."""
UNSURE_TRUST = 0.3
"""The highest trust in a fact with a name that the dialogue says at most in another form."""
OPENING = 4
"""The number of words at the beginning of a reply that may deny or confirm what was asked."""
LEAST_TOLD = 3
"""The distinctive words from which a turn without facts is kept: fewer are thanks or a greeting."""
TURN_IMPORTANCE = 0.1
"""The importance of a turn that is kept as it was said."""
_QUESTION_MARKS = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class DialoguePoint:
    """A fact from a dialogue that may be remembered. `turn`: the number of the turn that states it,
    from 1; None if no turn clearly does, and then `trust` is that of the least trusted speaker in
    the window that was read. `author`: the speaker. `importance` and `trust`: in [0, 1]. `said`:
    the time of the statement; `since`: the time from which the fact holds; both in seconds since
    1970, None if unknown. `entities`: the people and things that it is about. `refused`: the reason
    for rejecting it; empty if it is accepted. `doubt`: the reason for a low trust, and that its
    words stand in another turn than the model names. `verbatim`: whether it is a turn as it was
    said. Only for an insight: `cites`, the ids of the memories that support it, and `question`,
    which it answers."""

    text: str
    turn: int | None
    author: str
    importance: float
    trust: float
    said: float | None = None
    since: float | None = None
    entities: tuple[str, ...] = ()
    refused: str = ""
    doubt: str = ""
    verbatim: bool = False
    cites: tuple[str, ...] = ()
    question: str = ""


@dataclass(frozen=True, slots=True)
class DialoguePiece:
    """A turn of a dialogue, or a part of a long turn. `turn`: the number of the turn, from 1.
    `time`: its time in the zone of its speaker; None if unknown."""

    turn: int
    speaker: str
    text: str
    time: datetime | None


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a dialogue that is read in one call. `pieces`: the turns from which points are
    extracted. `earlier`: the last turns before them, which are shown as context."""

    earlier: tuple[DialoguePiece, ...]
    pieces: tuple[DialoguePiece, ...]

    def halves(self) -> tuple[Window, Window]:
        middle = len(self.pieces) // 2
        front = self.pieces[:middle]
        back = self.pieces[middle:]
        return Window(self.earlier, front), Window(front[-max(1, len(self.earlier)) :], back)


def _clamp(value: Any) -> Any:
    return min(10, max(1, round(value))) if isinstance(value, int | float) else value


class _Fact(BaseModel):
    """What is missing has a value all the same: one field that was left out costs no answer."""

    model_config = ConfigDict(
        json_schema_extra={"required": ["turn", "fact", "status", "importance", "since"]}
    )
    turn: int = 0
    fact: str = ""
    status: Status = "true"
    importance: Annotated[int, BeforeValidator(_clamp), Field(ge=1, le=10)] = 5
    since: str = ""


class _FactAbout(_Fact):
    model_config = ConfigDict(
        json_schema_extra={"required": ["turn", "fact", "status", "importance", "since", "about"]}
    )
    about: list[str] = Field(default=[], max_length=4)


class _Facts(BaseModel):
    facts: Sequence[_Fact]


@cache
def _bounded(most: int, entities: bool) -> type[_Facts]:
    """Return the type of the model's answer, with at most `most` facts."""
    kind: Any = list[_FactAbout] if entities else list[_Fact]
    return create_model("Facts", __base__=_Facts, facts=(kind, Field(max_length=most)))


async def extract_points(
    model: Model,
    dialogue: Sequence[DialogueTurn],
    settings: CreationSettings,
    skipped_turns: int,
    concurrency: int = 1,
) -> tuple[DialoguePoint, ...]:
    """Extract the points of all turns but the first `skipped_turns`, which are only context. The
    points, refused ones included, are in the order of the windows, and within a window in that of
    the turns.

    Raises:
        InputError: the time of a turn cannot be read. UnusableAnswer: the answer for a single turn
            is unusable. ModelError: an answer is missing.
    """
    windows = cut_windows(dialogue, settings, skipped_turns)
    points_by_window = await gather_bounded(
        [lambda w=window: _read_window(model, w, settings) for window in windows], concurrency
    )

    return tuple(point for points in points_by_window for point in points)


def cut_windows(
    dialogue: Sequence[DialogueTurn], settings: CreationSettings, skipped_turns: int = 0
) -> list[Window]:
    """Split all turns but the first `skipped_turns` into windows. System messages are omitted."""
    pieces = [
        piece
        for number, turn in enumerate(dialogue, 1)
        if turn.content.strip() and speaker_of(turn.role) != "System"
        for piece in _cut_turn(number, turn, 4 * settings.window)
    ]
    groups = [[piece for piece in pieces if piece.turn <= skipped_turns]]
    size = settings.window  # the first piece begins a window

    for piece in pieces[len(groups[0]) :]:
        length = len(piece.text) // 4 + 12
        if size + length > settings.window:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += length

    return [Window(_last(before, settings), tuple(group)) for before, group in pairwise(groups)]


def _last(pieces: Sequence[DialoguePiece], settings: CreationSettings) -> tuple[DialoguePiece, ...]:
    """Return the last `settings.overlap` turns as the context of the next window. Only the end of a
    long turn is kept."""
    last_pieces = pieces[-settings.overlap :] if settings.overlap else ()
    most = max(200, settings.window)
    return tuple(DialoguePiece(p.turn, p.speaker, p.text[-most:], p.time) for p in last_pieces)


def _cut_turn(number: int, turn: DialogueTurn, most: int) -> list[DialoguePiece]:
    """Split a turn into pieces of at most `most` characters, between sentences if possible.

    Raises:
        InputError: its time cannot be read.
    """
    speaker = speaker_of(turn.role)
    try:
        time = turn.moment
    except ValueError as error:
        raise InputError(f"the time of turn {number}: {error}") from None
    parts = (part.strip() for part in split_text(turn.content.strip(), most))
    return [DialoguePiece(number, speaker, part, time) for part in parts if part]


async def _read_window(
    model: Model, window: Window, settings: CreationSettings
) -> list[DialoguePoint]:
    most = _most_points(window)
    try:
        answer = _bounded(most, settings.entities)
        answer_read = await ask_structured(model, _ask(window, settings, most), answer)
    except (UnusableAnswer, TooLongError):
        if len(window.pieces) < 2:
            raise
        front, back = window.halves()
        return [
            *await _read_window(model, front, settings),
            *await _read_window(model, back, settings),
        ]

    facts = answer_read.value.facts
    points = [_point(fact, window, settings) for fact in facts]
    distinct = {point.text: point for point in points if point.text}  # each once
    read_turns = {p.turn or fact.turn for p, fact in zip(points, facts, strict=True) if p.text}
    kept_turns = () if settings.focus else _keep_turns(window, read_turns, settings)

    return sorted([*distinct.values(), *kept_turns], key=lambda point: point.turn or 0)


def _keep_turns(
    window: Window, read_turns: Collection[int], settings: CreationSettings
) -> Iterator[DialoguePoint]:
    """Yield the turns of people that tell something and of which no fact was extracted, as they
    were said, so that recall finds what the model missed. `read_turns`: those with facts, accepted
    or refused."""
    for piece in window.pieces:
        is_telling = len(telling_words(" ".join(_statements_of(piece.text)))) >= LEAST_TOLD
        is_person = piece.speaker != ASSISTANT and not piece.speaker.startswith("Tool")
        if piece.turn in read_turns or not is_person or not is_telling:
            continue

        words = join_lines(mend_text(piece.text))
        said_at = None if piece.time is None else piece.time.timestamp()
        yield DialoguePoint(
            text=_quote(
                resolve_phrases(words, piece.time) if piece.time else words, piece, settings
            ),
            turn=piece.turn,
            author=piece.speaker,
            importance=TURN_IMPORTANCE,
            trust=_trust(piece.speaker, settings),
            said=said_at,
            since=said_at,
            verbatim=True,
        )


def _quote(text: str, piece: DialoguePiece, settings: CreationSettings) -> str:
    """Return words as those of the speaker of a turn, so that they are understood alone."""
    speaker = piece.speaker.removeprefix("Other ").strip("()")
    if piece.speaker == USER:
        speaker = settings.about or "The user"
    return f"{speaker} said: “{text}”"


def _most_points(window: Window) -> int:
    tokens = sum(len(piece.text) for piece in window.pieces) // 4
    return min(MOST_POINTS, 4 + tokens // TOKENS_A_POINT)


def _ask(window: Window, settings: CreationSettings, points: int) -> Request:
    rules = load_template("textevolve.memory", "extract").render(
        who=settings.about or "the user", focus=settings.focus, entities=settings.entities
    )
    texts = [piece.text for piece in (*window.earlier, *window.pieces)]
    nonce = draw_nonce(texts, 0)
    parts: list[str] = []
    if window.earlier:
        earlier = "\n".join(_show(piece, nonce) for piece in window.earlier)
        parts.append(fence("before", earlier, nonce))
        parts.append("These turns came before and are there to be understood only.\n\n")

    parts.append(fence("turns", "\n".join(_show(p, nonce) for p in window.pieces), nonce))
    language = "" if "".join(texts).isascii() else ", each in the language of its turn"
    parts.append(f"Note the facts in these turns{language}. Answer with a JSON object alone.")

    return Request(
        messages=(Message("system", (rules,)), Message("user", tuple(parts))),
        temperature=0.0,
        max_tokens=100 + TOKENS_OF_POINT * points,
        seed=settings.seed,
    )


def _show(piece: DialoguePiece, nonce: str) -> str:
    """Format a turn for the prompt: its number, then its text, with further lines indented so that
    none looks like a turn."""
    when = "" if piece.time is None else f" ({piece.time.date().isoformat()})"
    text = "\n   ".join(mend_text(piece.text).splitlines())
    return f"{piece.turn}{when} {piece.speaker}: {sanitize(text, nonce)[0]}"


def _point(fact: _Fact, window: Window, settings: CreationSettings) -> DialoguePoint:
    text = join_lines(mend_text(fact.fact))[:MOST_TEXT]
    # A small model copies a whole turn, with its speaker and its question.
    for speaker in filter(None, (USER, ASSISTANT, settings.about)):
        text = text.removeprefix(f"{speaker}: ")
    if text.endswith(_QUESTION_MARKS):
        text = " ".join(_statements_of(text)) or text
    if settings.about:
        text = name_user(text, settings.about)
    pieces = (*window.earlier, *window.pieces)
    matches = _match_pieces(text, pieces, set(words_of(settings.about)))
    piece = _find_piece(text, fact.turn, matches, settings)
    text = _with_date(text, piece.text) if piece and text else text
    named_piece = next((each for each in pieces if each.turn == fact.turn), None)
    said = (piece or named_piece or window.pieces[-1]).time
    said_at = None if said is None else said.timestamp()
    if said and (piece or named_piece):
        text = resolve_phrases(text, said)
    since = _read_since(fact.since, said)
    if since is not None and said_at is not None and since > said_at:
        since = None  # an appointment: the statement about it holds already
    heard = " ".join([settings.about, *(p.text for p in pieces)])
    about = tuple(fact.about) if isinstance(fact, _FactAbout) else entities_in(text, heard)
    names = heard_names(text, heard)
    unheard = [name for name, is_heard in names.items() if is_heard == "no"]
    unsure = [name for name, is_heard in names.items() if is_heard == "perhaps"]
    refused = REFUSED.get(fact.status, "") or _refuse_offer(text, matches, settings.about)
    if unheard and not refused:
        refused = f"the dialogue does not say “{unheard[0]}”"
    if not refused and (text.endswith(_QUESTION_MARKS) or speaks_of_nobody(text)):
        refused = "it says nothing about a person"
    if piece and speaks_to_somebody(text):
        text = _quote(text, piece, settings)
    doubts = [f"it is unsure whether the dialogue says “{name}”" for name in unsure[:1]]
    if piece and named_piece and piece.turn != fact.turn:
        doubts.append(f"the model names turn {fact.turn}, and its words stand in turn {piece.turn}")
    sayers = [piece] if piece else pieces
    trust = min(_trust(each.speaker, settings) for each in sayers)

    return DialoguePoint(
        text=text,
        turn=piece.turn if piece else None,
        author=piece.speaker if piece else "",
        importance=fact.importance / 10,
        trust=min(trust, UNSURE_TRUST) if unsure else trust,
        said=said_at,
        since=said_at if since is None else since,
        entities=tuple(mend_text(name).strip()[:100] for name in about if name.strip())[:8],
        refused=refused,
        doubt="; ".join(doubts),
    )


def _read_since(text: str, said: datetime | None) -> float | None:
    """Return the time from which a fact holds, in seconds since 1970, from a date of the model; it
    is a day of the speaker's zone. None if the model gives no date: it often writes words here."""
    try:
        since = read_moment(text).date()
    except ValueError:
        return None

    zone = UTC if said is None else said.tzinfo
    return datetime.combine(since, time(), zone).timestamp()


def _with_date(text: str, turn: str) -> str:
    """Return a fact with the date in its sentence (the one of the turn that shares most words with
    it), since small models omit dates. The fact stays unchanged if it has a date, if the sentence
    has none or several, or if the sentence lacks one of its names and numbers."""
    words = set(words_of(text))
    sentence = max(_sentences_of(turn), key=lambda part: len(words & set(words_of(part))))
    dates = dates_in(sentence)
    if len(dates) != 1 or dates_in(text) or lacks(sentence, text):
        return text

    return f"{text.rstrip('.')} ({dates[0]})."


@dataclass(frozen=True, slots=True)
class _Match:
    """The sentence of a piece that shares most with a fact. `weight`: the sum of the weights of the
    words that both have, `claim`: without names and numbers; `evidence`: their number, names and
    numbers counted twice. `asks`: whether the sentence is a question."""

    piece: DialoguePiece
    weight: float
    claim: float
    evidence: int
    asks: bool

    @property
    def is_outside(self) -> bool:
        return self.piece.speaker not in (USER, ASSISTANT)


def _refuse_offer(text: str, matches: Sequence[_Match], about: str) -> str:
    """Return the reason to refuse a fact that stands in words of the assistant; empty if it may be
    kept. A question or guess is refused if the user's reply denies it, or neither agrees nor says
    any of it, and an answer to a question if it is not about the user, who states nothing of it
    in any turn."""
    places = range(len(matches))
    # Names stand in many turns, so the other words may stand in another one than the most words.
    offers = {max(places, key=lambda place: matches[place].weight)}
    offers.add(max(places, key=lambda place: matches[place].claim))

    for place in offers:
        offer = matches[place]
        if offer.piece.speaker != ASSISTANT:
            continue
        reply = next(iter(matches[place + 1 : place + 2]), None)
        opening = set(words_of(reply.piece.text)[:OPENING]) if reply else set[str]()
        if opening & DENIALS and not set(words_of(text)) & NEGATIONS:
            return REFUSED["denied"]
        says_it = opening & (AGREEMENTS | DENIALS) or (reply is not None and reply.evidence)
        if offer.asks and not says_it:
            return "the assistant asks it, and nobody says it"
        was_asked = place > 0 and matches[place - 1].piece.text.endswith(_QUESTION_MARKS)
        states = [m.evidence for m in matches if m.piece.speaker != ASSISTANT and not m.asks]
        if was_asked and not any(states) and not says_it and not names_user(text, about):
            return "it is an answer of the assistant, and nobody else speaks of it"

    return ""


def _find_piece(
    text: str, turn: int, matches: Sequence[_Match], settings: CreationSettings
) -> DialoguePiece | None:
    """Find the turn that states a fact: the one whose sentence shares most words with it, names,
    numbers and rare words above all, unless the turn that the model names comes close to it.

    Return None if no turn has any of the words, or if only other speakers mention one of its names
    and numbers.
    """
    about = set(words_of(settings.about))
    pieces = [match.piece for match in matches]

    def rank(match: _Match) -> tuple[float | bool, ...]:
        is_named = match.piece.turn == turn
        # User and assistant may repeat what a tool said, and an assistant what the user said.
        speakers = (match.is_outside, match.piece.speaker == USER)
        return match.weight, is_named or not match.asks, *speakers, is_named, not match.asks

    best = max(matches, key=rank)
    named_match = max((each for each in matches if each.piece.turn == turn), key=rank, default=best)
    match = best if _words_win(best, named_match) else named_match
    piece = match.piece

    speaker_text = " ".join(each.text for each in pieces if each.speaker == piece.speaker)
    everything = " ".join(each.text for each in pieces)
    of_others = lacks(speaker_text, text) - lacks(everything, text) - about

    return None if of_others or not best.weight else piece


def _match_pieces(
    text: str, pieces: Sequence[DialoguePiece], about: Collection[str]
) -> list[_Match]:
    """Compare a fact with each piece. A word weighs more the fewer pieces have it, and twice as
    much as a name or number. `about`: the words of the user's name, which do not count."""
    words = _stems(telling_words(text).difference(about))
    words_by_piece = [_stems(telling_words(piece.text)) for piece in pieces]
    names = _stems(details_of(text))
    weights: dict[str, float] = {}
    for word in words:
        pieces_with_word = sum(word in piece_words for piece_words in words_by_piece)
        weight = log((len(pieces) + 1) / max(1, pieces_with_word))
        weights[word] = 2 * weight if word in names else weight

    matches: list[_Match] = []
    for piece in pieces:
        sentences: list[_Match] = []
        for sentence in _sentences_of(piece.text):
            shared = words & _stems(telling_words(sentence))
            # Summed in one order, since equal sentences must have equal weights.
            weight = round(sum(weights[word] for word in sorted(shared)), 6)
            claim = round(sum(weights[word] for word in sorted(shared - names)), 6)
            evidence = len(shared) + len(shared & names)
            asks = sentence.endswith(_QUESTION_MARKS)
            sentences.append(_Match(piece, weight, claim, evidence, asks))
        matches.append(max(sentences, key=lambda match: (match.weight, not match.asks)))

    return matches


def _stems(words: Iterable[str]) -> set[str]:
    """Return the beginnings of words, since a fact in the third person inflects what was said."""
    return {word if word[0].isdigit() else word[:STEM] for word in words}


def _words_win(best: _Match, named: _Match) -> bool:
    """Return whether the turn with most words of a fact states it, and not the turn that the model
    names: text from tools can make a model name the user's turn."""
    if best.evidence < LEAST_EVIDENCE:
        return False
    if named.weight == best.weight:
        return True
    answers = best.asks and named.piece.turn == best.piece.turn + 1
    if answers and named.piece.speaker != best.piece.speaker:
        return False
    if best.is_outside and not named.is_outside:
        return True
    if best.piece.speaker == USER and named.piece.speaker == ASSISTANT:
        return True

    is_clear = best.evidence >= named.evidence + LEAST_EVIDENCE
    return is_clear and named.weight < best.weight / 2


def _statements_of(text: str) -> list[str]:
    """Return the sentences of a text without its questions."""
    return [part for part in _sentences_of(text) if not part.endswith(_QUESTION_MARKS)]


def _sentences_of(text: str) -> list[str]:
    return split_sentences(text) or [text]


def _trust(speaker: str, settings: CreationSettings) -> float:
    trust_by_speaker = {USER: settings.trust_user, ASSISTANT: settings.trust_assistant}
    return trust_by_speaker.get(speaker, settings.trust_others)
