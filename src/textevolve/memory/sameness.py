"""Whether two texts say the same, by rules of text alone: what needs no model is not asked of one.

Names are taken for words that begin with a capital letter, which holds for Latin, Greek and
Cyrillic script; German nouns count as names, too. The rules only ever spare a question where texts
are nearly equal, so that a language that they do not fit costs calls and loses nothing.
"""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"[.!?:;]\s+[\"“(]*$|^[\"“(]*$")
_MONTHS_AND_DAYS = (
    "january february march april may june july august september october november december"
    " jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday"
    " saturday sunday"
)
_CALENDAR, _NO_NAMES, _FILLERS, _PERSONS, _OPENINGS, _SHAPELESS = (
    frozenset(words.split())
    for words in (
        _MONTHS_AND_DAYS,
        "i user assistant the a an he she they it we you",
        "the a an that also now currently",
        "i you he she they we me him her them us my your his their our user users",
        "yes no yeah okay ok sure thanks thank great good nice right what when where why how is are"
        " this these those there here hello hi bye please sorry luck well",
        "is are was were has have had be been called named name in on at of to for with as from by"
        " and or not no",
    )
)

LABEL_WORDS = 4
"""A name or number has at most so many: headlines write every word with a capital letter, too."""


def words_of(text: str) -> list[str]:
    """The words alone, without case, punctuation and encodings of accents."""
    return [found.casefold() for found in _WORD.findall(unicodedata.normalize("NFKC", text))]


def names_in(text: str, *, first: bool = True) -> tuple[str, ...]:
    """Words with a capital letter, neighbours together, each once. `first`: those, too, with which
    a sentence begins, where nothing tells whether they are names."""
    found: dict[str, None] = {}
    last = -2
    run: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0]
        begins = bool(_SENTENCE_END.search(text[max(0, match.start() - 4) : match.start()]))
        is_name = word[0].isupper() and word.casefold() not in _NO_NAMES | _CALENDAR
        if is_name and (first or not begins):
            if match.start() != last + 1 and run:
                found[" ".join(run)] = None
                run = []
            run.append(re.sub(r"['’]s$", "", word))
            last = match.end()
    if run:
        found[" ".join(run)] = None
    return tuple(found)


def details_of(text: str) -> frozenset[str]:
    """Names and numbers, word by word: what two texts on one matter most likely differ in."""
    names = {word.casefold() for name in names_in(text) for word in name.split()}
    return frozenset(names | {word for word in words_of(text) if word[0].isdigit()})


def lacks(text: str, other: str) -> frozenset[str]:
    """The names and numbers of `other` that `text` does not have anywhere."""
    held = {re.sub(r"['’]s$", "", word) for word in words_of(text)}
    return details_of(other) - held


def is_label(text: str) -> bool:
    """Whether a text is nothing but a name or a number, such as Ann Moss or KX-2041."""
    words = set(words_of(text))
    return 0 < len(words) <= LABEL_WORDS and words <= details_of(text) - _OPENINGS


def nearly_same(one: str, other: str) -> bool:
    """In the same words, but for those that say nothing. Embeddings are no help here: of two texts
    that differ in one word, such as sister and brother, they are all but equal."""
    return _telling(one) == _telling(other)


def _telling(text: str) -> list[str]:
    """The words but for those that say nothing."""
    return [word for word in words_of(text) if word not in _FILLERS]


def telling_words(text: str) -> set[str]:
    """The words that neither stand for a person nor give a text its shape alone."""
    return {word for word in _telling(text) if word not in _PERSONS | _SHAPELESS}


def differ_in_dates(one: str, other: str) -> int:
    """Whether two texts are the same but for dates that one alone has: 1 where it is the first, -1
    where it is the second, else 0."""
    texts = [_telling(one), _telling(other)]
    plain = [[word for word in words if not _is_of_a_date(word)] for words in texts]
    dated = [len(words) > len(rest) for words, rest in zip(texts, plain, strict=True)]
    return dated[0] - dated[1] if plain[0] == plain[1] else 0


def _is_of_a_date(word: str) -> bool:
    return word[0].isdigit() or word in _CALENDAR or word in ("at", "on")


def share_words(one: str, other: str) -> bool:
    """Whether two texts have a word in common that is neither a name nor a number nor one that says
    nothing: they may be of one shape, such as two notes on who somebody's sister is."""
    said = [telling_words(text) - details_of(text) for text in (one, other)]
    return bool(said[0] & {re.sub(r"['’]s$", "", word) for word in said[1]})


def speaks_of_nobody(text: str) -> bool:
    """Whether a text in a script with capital letters has no name and no word for a person, as sums
    and thanks do not. A word that begins a sentence may be a name unless it is a common one."""
    words = words_of(text)
    cased = any(letter.lower() != letter.upper() for letter in text)
    named = any(name.split()[0].casefold() not in _OPENINGS for name in names_in(text))
    return bool(words) and cased and not named and not _PERSONS.intersection(words)


def unheard_names(text: str, heard: str) -> tuple[str, ...]:
    """Names within the sentences of a text that stand nowhere in what was heard."""
    held = {re.sub(r"['’]s$", "", word) for word in words_of(heard)}
    named = (word for name in names_in(text, first=False) for word in name.split())
    return tuple(word for word in named if not set(words_of(word)) <= held)
