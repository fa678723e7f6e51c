"""Arguments that repeat each other: a cheap bound decides most comparisons, and never wrongly."""

from hypothesis import given
from hypothesis import strategies as st

from textevolve.debate.quoting import COPIED, SAME_REMARK, match_words, repeats
from textevolve.texts.prose import find_words, split_words

WORDS = st.lists(st.sampled_from(["the", "tide", "moon", "Sea", "5", "it", "é", "月"]), max_size=12)


@given(WORDS, WORDS, st.sampled_from([COPIED, SAME_REMARK, 0.0]))
def test_bound_agrees_with_the_share(words, other_words, limit):
    text, other = " ".join(words), " ".join(other_words)
    assert repeats(text, [other], limit) == (match_words(text, other).ratio() > limit)


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_those_of_the_general_pattern(text):
    assert split_words(text, "parts") == [match[0] for match in find_words(text, "parts")]
