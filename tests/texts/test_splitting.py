"""Pieces of long texts: nothing is left out, and every piece has its bounds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.texts.prose import cut_at_seam, excerpt, split_text

WRITTEN = st.lists(
    st.sampled_from(
        ["word ", "a ", "End. ", "Really? ", "\n", "\n\n", "длинное ", "完。", "x" * 40]
    )
).map("".join)
TEXTS = WRITTEN | st.text()


@given(TEXTS, st.integers(3, 60))
def test_pieces_join_to_the_text_and_keep_their_bounds(text, size):
    pieces = list(split_text(text, size))
    assert "".join(pieces) == text
    assert all(len(piece) <= size for piece in pieces)
    if len(pieces) > 1:
        assert all(len(piece) >= size // 3 for piece in pieces)


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1), st.integers(30, 60))
def test_no_word_is_cut_where_words_are_short(words, size):
    pieces = list(split_text(" ".join(words), size))
    assert " ".join(pieces).split() == words


def test_a_paragraph_goes_before_a_sentence_and_a_sentence_before_a_word():
    assert next(iter(split_text("One. Two.\n\nThree four. Five", 22))) == "One. Two.\n\n"
    assert next(iter(split_text("One two three. Four five six", 20))) == "One two three. "
    assert next(iter(split_text("One two three four five six", 20))) == "One two three four "
    assert list(split_text("x" * 30, 20)) == ["x" * 20, "x" * 10]
    assert list(split_text("", 20)) == []


def test_a_size_has_to_leave_room_for_a_seam():
    with pytest.raises(ValueError, match="3 or more"):
        next(split_text("abcd", 2))


@given(TEXTS, st.integers(1, 60))
def test_what_is_cut_off_is_the_end(text, size):
    stored_text = cut_at_seam(text, size)
    assert len(stored_text) <= size
    assert text.startswith(stored_text)
    assert stored_text or not text[:size]


def test_a_cut_keeps_whole_sentences_or_else_whole_words():
    assert cut_at_seam("One two. Three four. Five six.", 21) == "One two. Three four."
    assert cut_at_seam("One two. Three four. Five six.", 20) == "One two. Three four."
    assert cut_at_seam("One two three", 8) == "One two"
    assert cut_at_seam("一二三。四五六。七八", 8) == "一二三。四五六。"
    assert cut_at_seam("一二三。四五六。七八", 7) == "一二三。"
    assert cut_at_seam("abcdef", 3) == "abc"
    assert cut_at_seam("short", 5) == "short"


@given(st.text(max_size=400), st.integers(4, 200), st.none() | st.integers(0, 400))
def test_an_excerpt_is_made_of_the_text_and_says_what_it_leaves_out(text, most, focus):
    output = excerpt(text, most, focus)
    pieces = re.split(r"\n\[\.\.\. \d+ characters left out \.\.\.\]\n", output)
    count = sum(int(n) for n in re.findall(r"\[\.\.\. (\d+) characters left out", output))
    if "characters left out" not in text:
        assert sum(map(len, pieces)) + count == len(text)
        assert sum(map(len, pieces)) <= max(most, 4)
    assert text.startswith(pieces[0])
    assert text.endswith(pieces[-1])
    if focus is not None and focus < len(text) and most >= 8:
        assert text[focus] in output


@pytest.mark.parametrize("most", range(60, 70))
def test_line_breaks_are_not_cut(most):
    """Of ASCII characters only the two of a line break are one sign."""
    text = excerpt("\r\n" * 300, most, 301)
    assert not re.search(r"\r(?!\n)|\]\n\n", text)
