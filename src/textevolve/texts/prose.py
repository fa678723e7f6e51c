"""Plain measures of prose that need no model: words, sentences, language.

A language is estimated by its commonest words or its script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WORDS_TO_TELL = 20
"""Of fewer words than this a language with Latin letters is not told."""

_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")

# The commonest words of each language that are words of few others.
_COMMON: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "en": "the and of to is that it was for with as are this have from they not",
        "de": "der die und das ist nicht ein eine zu den mit sich auf für dem es auch",
        "fr": "le la les et des est une du dans que qui pour pas sur au ce avec",
        "es": "el los las y que una por con para del se no lo más como pero su",
        "it": "il di che è e un una per non sono gli della nel con del anche più",
        "pt": "o os as e que não uma um do da em para com dos no na mais",
        "nl": "de het een en van is dat niet op te zijn voor met aan ook er maar",
    }.items()
}
_SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
LANGUAGES = (*_COMMON, *_SCRIPTS)


def split_words(text: str) -> list[str]:
    """Runs of letters and digits; `don't`, `mother-in-law` and `3.5` are one word each. A language
    that is written without spaces has too few of them to be counted."""
    return _WORD.findall(text)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, or its lines, with the marks that end them."""
    pieces = re.split(r"(?<=[.!?…])\s+|\s*\n\s*", text.strip())
    return [piece for piece in pieces if _WORD.search(piece)]


def tell_language(text: str) -> str | None:
    """One of `LANGUAGES`, or None where it cannot be told: another language, or too little text."""
    letters = sum(character.isalpha() for character in text)
    if not letters:
        return None
    for name, script in _SCRIPTS.items():  # Japanese before Chinese: it has characters of both
        share = len(script.findall(text)) / letters
        if share > (0.1 if name == "ja" else 0.4):
            return name
    words = [word.lower() for word in split_words(text)]
    if len(words) < WORDS_TO_TELL:
        return None
    found = {name: sum(w in common for w in words) for name, common in _COMMON.items()}
    best, other = sorted(found, key=lambda name: -found[name])[:2]
    if found[best] < 0.08 * len(words) or found[best] < 1.3 * found[other]:
        return None
    return best
