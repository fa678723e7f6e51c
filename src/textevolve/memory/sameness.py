"""Compare texts by rules, without a model.

Capitalised words count as names, which holds for Latin, Greek and Cyrillic script; German nouns
count as names, too. The rules only save calls for nearly equal texts, so for a language that they
do not fit they cost calls and lose nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Literal

from textevolve.loading import late_re, late_regex
from textevolve.texts.prose import find_words, fold_case, fold_widths, split_words

Heard = Literal["yes", "perhaps", "no"]

# Symbols such as €, +, < and emoji. A hyphen is one only if it touches a word on one side, as in A-
# and -18; quotation marks and hyphens between words change no fact.
_DASHES = "-−–"
_SYMBOL = late_regex(
    r"(?V1)[[\p{S}#%&@*§‰\\/]--[`´−]]"
    rf"|(?<=\w)[{_DASHES}](?!\w)|(?<!\w)[{_DASHES}](?=[\w.])",
)
_SENTENCE_END = late_re(r"[.!?:;]\s+[\"“(]*$|^[\"“(]*$")
_MONTHS_AND_DAYS = (
    "january february march april may june july august september october november december"
    " jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday"
    " saturday sunday"
)
_CALENDAR, _NO_NAMES, _FILLERS, _PERSONS, _OPENINGS, _SHAPELESS, _BEGINNINGS, _FOLLOWERS = (
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
        "yesterday today tomorrow tonight recently lately usually often sometimes always never"
        " since after before during until while if because although though when once every each"
        " both all some many most several few one two three next last another other",
        "the a an for of in on at to from her his their my our your this that",
    )
)

LABEL_WORDS = 4
"""The maximum number of words of a name or number that stands alone. Longer texts may be headlines,
which capitalise every word."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, case-folded, without punctuation, and with accents normalised."""
    if text.isascii():
        return split_words(text.lower(), "facts")
    return [fold_case(word) for word in split_words(text, "facts")]


def names_in(text: str, *, openings: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the distinct capitalised words except months, weekdays, articles and pronouns,
    adjacent ones joined. `openings`: the words that are names at the beginning of a sentence, too,
    without an English genitive; None: all."""
    names: dict[str, None] = {}
    last = -2
    run: list[str] = []

    for match in find_words(text, "facts"):
        word = match[0]
        name = _without_genitive(word)
        begins = _begins_sentence(text, match.start())
        is_name = word[0].isupper() and word.casefold() not in _NO_NAMES | _CALENDAR
        if is_name and (openings is None or not begins or name in openings):
            if match.start() != last + 1 and run:
                names[" ".join(run)] = None
                run = []
            run.append(name)
            last = match.end()

    if run:
        names[" ".join(run)] = None

    return tuple(names)


def entities_in(text: str, heard: str) -> tuple[str, ...]:
    """Return the people and things that a text names. A word that begins a sentence is a name if
    `heard`, the dialogue that it is from, has it with a capital within a sentence; or nowhere in
    small letters, and it is no common beginning."""
    within = {word for name in names_in(heard, openings=()) for word in name.split()}
    small = {fold_case(word) for word in split_words(heard, "facts") if word[0].islower()}
    openings: set[str] = set()
    for word in map(_without_genitive, split_words(text, "facts")):
        plain = fold_case(word)
        if plain not in _NOT_NAMES and (word in within or plain not in small):
            openings.add(word)

    return names_in(text, openings=openings)


def _without_genitive(word: str) -> str:
    return re.sub(r"['’]s$", "", word)


def details_of(text: str) -> frozenset[str]:
    """Return the names and numbers of a text as words: two texts on one subject most likely differ
    in these."""
    names = {word.casefold() for name in names_in(text) for word in name.split()}
    return frozenset(names | {word for word in words_of(text) if word[0].isdigit()})


def lacks(text: str, other: str) -> frozenset[str]:
    """Return the names and numbers of `other` that are missing in `text`."""
    words = set(map(_without_genitive, words_of(text)))
    return details_of(other) - words


def adds_details(new: str, known: str) -> Heard:
    """Return whether a text has names and numbers that a known one lacks: "perhaps" if only the
    first word of a sentence may be such a name, as in "Presently Mia lives in Oslo"."""
    known_words = set(map(_without_genitive, words_of(known)))
    new_words = set(map(_without_genitive, words_of(new)))
    missing = _names_beside(new, known) - known_words
    if not missing:
        return "no"
    within = {fold_case(word) for name in names_in(new, openings=()) for word in name.split()}
    has_all = _names_beside(known, new) <= new_words  # otherwise the first word may replace a name
    is_unsure = has_all and not any(word in within or word[0].isdigit() for word in missing)
    return "perhaps" if is_unsure else "yes"


def _names_beside(text: str, other: str) -> set[str]:
    """Return the names and numbers of a text without the first words of sentences that are no
    names: common ones, and those before an article, a preposition, or a name of the other text."""
    shared = details_of(other)
    words = list(find_words(text, "facts"))
    within = {fold_case(word) for name in names_in(text, openings=()) for word in name.split()}
    names = set(details_of(text))
    for match, follower in zip(words, [*words[1:], None], strict=True):
        word = fold_case(_without_genitive(match[0]))
        if word in within | shared or not _begins_sentence(text, match.start()):
            continue
        next_word = "" if follower is None else fold_case(_without_genitive(follower[0]))
        if word in _NOT_NAMES or next_word in _FOLLOWERS | shared:
            names.discard(word)

    return names


_USER = late_regex(
    r"(?i)\b(?:the|der|die|dem|den|le|la|el|il|o|a|l['’]) ?(?:user|(?:be)?nutzer(?:in)?"
    r"|anwender(?:in)?|utilisat(?:eur|rice)|usuari[oa]|utilizadora?|utente)\b|^User\b"
)
DENIALS, NEGATIONS, AGREEMENTS = (
    frozenset(words.split())
    for words in (
        "no nope nah not never wrong incorrect false neither nein nicht nie niemals falsch quatsch"
        " non no não nao nie нет ne nej nei hayır нет いいえ 不 不是 没 没有 아니요",
        "no not never none nobody nothing neither without cannot can't won't isn't aren't doesn't"
        " don't didn't hasn't haven't wasn't nicht kein keine keinen keinem nie niemals ohne pas ne"
        " jamais sans nunca não nao sin sem non mai senza не нет без nie bez 不 没 没有 无",
        "yes yeah yep yup right exactly correct true sure indeed absolutely definitely totally"
        " very course ja genau stimmt richtig klar doch sehr oui exactement si sí sim claro sì да"
        " так tak evet はい 是 是的 对 嗯 네",
    )
)
"""The words with which a reply denies a question or guess, those that negate a sentence, and those
with which a reply confirms."""


def name_user(text: str, name: str) -> str:
    """Return a text with a person's name in the place of words such as "the user"."""
    return _USER.sub(lambda _: name, text)


def names_user(text: str, name: str) -> bool:
    """Check whether a text has a word for the user, or a word of the user's name."""
    words = set(map(_without_genitive, words_of(text)))
    return bool(words & {*words_of(name), "user", "you", "your"})


def exact_words(text: str) -> frozenset[str]:
    """Return the words of a text that stand for one thing alone and have no synonyms: those with a
    digit, such as 88231, 3.12.1 and the number of E-4012, and abbreviations in capitals, such as
    DGIA, unless the whole text is in capitals."""
    words = split_words(text, "facts")
    shouts = text.upper() == text
    exact = [
        word
        for word in words
        if word[0].isdigit() or (len(word) > 1 and word.isupper() and not shouts)
    ]

    return frozenset(fold_case(word) for word in exact)


def is_label(text: str) -> bool:
    """Check whether a text is only a name or a number, such as Ann Moss or KX-2041."""
    words = set(words_of(text))
    return 0 < len(words) <= LABEL_WORDS and words <= details_of(text) - _OPENINGS


def nearly_same(text: str, other: str) -> bool:
    """Check whether two texts have the same words and symbols, except fillers. Embeddings cannot
    decide this: they are nearly equal for texts that differ in one word, such as sister and
    brother, or in a sign, such as A- and A+."""
    return _words_and_symbols(text) == _words_and_symbols(other)


def _words_and_symbols(text: str) -> list[str]:
    """Return the words of a text except fillers, and its symbols, in their order. A filler with a
    capital within a sentence is a name, as in block A."""
    plain = fold_widths(text)
    places: dict[int, str] = {}
    for match in _SYMBOL.finditer(plain):
        places[match.start()] = "-" if match[0] in _DASHES else match[0]
    for match in find_words(plain, "facts"):
        word = match[0]
        is_name = word[0].isupper() and not _begins_sentence(plain, match.start())
        if is_name or fold_case(word) not in _FILLERS:
            places[match.start()] = fold_case(word)

    return [places[start] for start in sorted(places)]


def _begins_sentence(text: str, start: int) -> bool:
    """Return whether a sentence begins at this place of a text."""
    return _SENTENCE_END.search(text[max(0, start - 4) : start]) is not None


def _without_fillers(text: str) -> list[str]:
    """Return the words of a text except fillers."""
    return [word for word in words_of(text) if word not in _FILLERS]


def telling_words(text: str) -> set[str]:
    """Return the distinctive words of a text: without fillers, words for persons and common words
    of form."""
    return {word for word in _without_fillers(text) if word not in _PERSONS | _SHAPELESS}


def differ_in_dates(text: str, other: str) -> int:
    """Compare two texts that differ only in dates: return 1 if the first alone has a date, -1 if
    the second alone has one. Return 0 otherwise, and if other words differ, too."""
    words = _without_fillers(text)
    other_words = _without_fillers(other)
    undated = _without_dates(words)
    other_undated = _without_dates(other_words)
    if undated != other_undated:
        return 0

    has_date = len(words) > len(undated)
    other_has_date = len(other_words) > len(other_undated)
    return has_date - other_has_date


def _without_dates(words: Sequence[str]) -> list[str]:
    of_dates = _CALENDAR | {"at", "on"}
    return [word for word in words if not (word[0].isdigit() or word in of_dates)]


_PARTNERS = late_re(
    r"\b(?:I|I['’](?:m|ve|d|ll)|me|my|mine|we|us|our|you|your|ich|mir|mich|mein\w*|wir|uns(?:er\w*)?)\b"
)


def speaks_to_somebody(text: str) -> bool:
    """Check whether an English or German text has a word for its speaker or listener, such as I and
    your, so that it is not understood alone. A quoted text is."""
    plain = text[:1].lower() + text[1:] if text[:2] != "I " else text
    return "“" not in text and _PARTNERS.search(plain) is not None


def speaks_of_nobody(text: str) -> bool:
    """Check whether a text in a script with capital letters has no name and no word for a person,
    like sums and thanks. A word that begins a sentence counts as a name unless it is a common
    one."""
    words = words_of(text)
    told = telling_words(text) - _OPENINGS - {"it", "that", "so", "too"}
    says_one_word = len(words) == 1 or (words[:1] == ["i"] and len(told) < 2)
    if says_one_word and text[-1:] in ".!":  # such as Done. and I knew it.
        return True
    cased = any(letter.lower() != letter.upper() for letter in text)
    has_name = any(name.split()[0].casefold() not in _OPENINGS for name in names_in(text))
    return (
        bool(words)
        and cased
        and not has_name
        and not _PERSONS.intersection(map(_without_genitive, words))
    )


# Names that somebody said, in another form: many languages inflect names, as in Москва and Москве,
# and German writes each noun with a capital letter.

_SPOKEN_OF, _GERMAN = (
    frozenset(words.split())
    for words in (
        "nutzer nutzerin benutzer benutzerin anwender anwenderin assistent assistentin"
        " dr mr mrs ms miss prof professor doctor sir madam herr frau dipl ing phd",
        "der die das den dem ein eine einen ist hat und nicht kein keine sich ohne auf zu"
        " bei nach seit sein seine ihr ihre wird haben sind auch für aus im zum zur",
    )
)
"""German words for the user and the assistant, and titles before names, which the dialogue need not
contain; then frequent German words, by which German is recognised."""
_NOT_NAMES = _OPENINGS | _PERSONS | _SHAPELESS | _GERMAN | _SPOKEN_OF | _BEGINNINGS
"""The common words that begin a sentence without being a name."""
GERMAN_WORDS = 2
"""The number of frequent words from which a text counts as German."""
LEAST_STEM = 3
SURE_STEM = 0.7
"""The letters at the beginning that two forms of a name have in common: at least `LEAST_STEM`, and
half of the name. From a share of `SURE_STEM` on it is surely the same name; Praha and Praze have
0.6, like Marta and Maria."""


def heard_names(text: str, heard: str) -> dict[str, Heard]:
    """Return whether each name in a text occurs in `heard`, in any form. Names at the beginning of
    a sentence do not count."""
    heard_words = {_plain(word) for word in split_words(heard, "facts")}
    # Another form of a name has a capital letter, too: Marta is no form of market.
    heard_forms = {_plain(word) for word in split_words(heard, "facts") if word[0].isupper()}
    has_noun_capitals = len(_GERMAN.intersection(words_of(text))) >= GERMAN_WORDS
    names: dict[str, Heard] = {}

    for name in " ".join(names_in(text, openings=())).split():
        parts = [_plain(word) for word in split_words(name, "facts")]
        if not _SPOKEN_OF.isdisjoint(parts):
            continue
        if heard_words.issuperset(parts):
            names[name] = "yes"
            continue

        share = min(_stem_share(part, heard_forms) for part in parts)
        if share >= SURE_STEM:
            names[name] = "yes"
        else:
            names[name] = "perhaps" if share >= 0.5 or has_noun_capitals else "no"

    return names


def _plain(word: str) -> str:
    """Return a word in small letters, without accents and the ending of an English genitive."""
    letters = unicodedata.normalize("NFD", fold_case(_without_genitive(word)))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _stem_share(name: str, forms: Collection[str]) -> float:
    """Return the largest share of a name with which one of the forms begins; 0 below `LEAST_STEM`
    letters."""
    longest = 0
    for form in forms:
        pairs = zip(name, form, strict=False)
        longest = max(longest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return longest / len(name) if longest >= LEAST_STEM else 0.0
