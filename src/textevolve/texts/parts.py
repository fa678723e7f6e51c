"""Parts of a text, evenly spread over it, each with what stands before it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from textevolve.errors import InputError


def cut_parts(text: str, words: int, most: int) -> Iterator[tuple[str, str]]:
    """At most so many parts of `words` words, each after the twice as many words before it: pairs
    of what is before, and the part. They are as the text has them, with its spaces and lines.

    Raises:
        InputError: the text is too short for two parts.
    """
    begins = [found.start() for found in re.finditer(r"\S+", text)]
    before = 2 * words
    room = (len(begins) - before) // words
    if room < 2:
        raise InputError(
            f"the text has {len(begins)} words, too few: two parts of {words} words, and"
            f" {before} words before them, need {before + 2 * words}"
        )
    begins.append(len(text))
    number = min(most, room)
    for index in range(number):
        first = before + (index * room // number) * words
        context = text[begins[first - before] : begins[first]]
        yield context.strip(), text[begins[first] : begins[first + words]].strip()
