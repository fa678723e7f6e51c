"""Words and sentences of prose."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")


def split_words(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits; `don't`, `mother-in-law` and `3.5`
    are one word each. Languages that are written without spaces give too few words."""
    return _WORD.findall(text)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text with their closing punctuation; a line break also ends a
    sentence. Pieces without a word are left out."""
    pieces = re.split(r"(?<=[.!?…])\s+|\s*\n\s*", text.strip())
    return [piece for piece in pieces if _WORD.search(piece)]


# Splitting of long texts into pieces of a bounded size, which are cut at the ends of paragraphs,
# or else of sentences, or else at spaces (together called seams).
#
# No text is left out: the joined pieces are the original text. `excerpt` shows parts of a text
# that is too long to show it all.

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"(?:[.!?…][\"'”’)\]]*+\s|[。！？]|\n)\s*")
_SPACE = re.compile(r"\s+")
_SEAMS = (_PARAGRAPH, _SENTENCE, _SPACE)


def split_text(text: str, size: int) -> Iterator[str]:
    """Split a text into pieces of at most `size` characters; if there are several, each has at
    least a third of `size`. A word is cut only if it is longer than a third of a piece.

    Raises:
        ValueError: `size` is below 3.
    """
    if size < 3:
        raise ValueError("size must be 3 or more")
    start = 0
    third = size // 3
    while (remaining := len(text) - start) > size:
        end = _find_seam(text, start + third, start + min(size, remaining - third))
        yield text[start:end]
        start = end

    if start < len(text):
        yield text[start:]


def _find_seam(text: str, low: int, high: int) -> int:
    """Return the last position from `low` to `high` that follows a seam of the strongest kind in
    that range; `high` if there is none."""
    for seam in _SEAMS:
        seam_end = 0
        # One character before, so that a seam that ends just at `low` is seen.
        for match in seam.finditer(text, low - 1, high):
            seam_end = match.end()
        if seam_end >= low:
            return seam_end

    return high


def cut_at_seam(text: str, size: int) -> str:
    """Return the beginning of a text, at most `size` characters: whole sentences if the first one
    fits, otherwise whole words, otherwise `size` characters. Trailing spaces are removed."""
    if len(text) <= size:
        return text
    for seam in (_SENTENCE, _SPACE):
        # The space behind the last sentence may lie behind the last character that fits.
        ends = [match.end() for match in seam.finditer(text, 0, size + 1)]
        for end in reversed(ends):
            if 0 < len(head := text[:end].rstrip()) <= size:
                return head

    return text[:size]


def excerpt(text: str, most: int, focus: int | None = None) -> str:
    """Return a text of at most `most` characters unchanged. Of a longer one return the beginning
    and the end, and the part around the position `focus` if that is set, together about `most`
    characters; marks in addition state how much is left out."""
    if len(text) <= most:
        return text
    part = most // 2 if focus is None else most // 4
    spans = [(0, part), (len(text) - part, len(text))]
    if focus is not None:
        start = min(max(focus - part, part), len(text) - 3 * part)
        spans.insert(1, (start, start + 2 * part))
    result = ""
    end = 0

    for start, stop in spans:
        omitted = start - end
        result += (f"\n[... {omitted} characters left out ...]\n" if omitted else "") + text[
            start:stop
        ]
        end = stop

    return result
