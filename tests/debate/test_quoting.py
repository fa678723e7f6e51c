"""Arguments that repeat each other: a cheap bound decides most comparisons, and never wrongly."""

from difflib import SequenceMatcher

from hypothesis import given
from hypothesis import strategies as st

from textevolve.debate.quoting import COPIED, SAME_REMARK, is_quoted, repeats
from textevolve.texts.prose import find_words, fold_case, split_words

WORDS = st.lists(st.sampled_from(["the", "tide", "moon", "Sea", "5", "it", "é", "月"]), max_size=12)


@given(WORDS, WORDS, st.sampled_from([COPIED, SAME_REMARK, 0.0]))
def test_bound_agrees_with_the_share(words, other_words, limit):
    text, other = " ".join(words), " ".join(other_words)
    heard, read = (split_words(fold_case(each), "parts") for each in (text, other))
    share = SequenceMatcher(None, heard, read, autojunk=False).ratio()
    assert repeats(text, [other], limit) == (share > limit)


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_those_of_the_general_pattern(text):
    assert split_words(text, "parts") == [match[0] for match in find_words(text, "parts")]


marks = st.text(st.sampled_from("a.-%'@&*/#!_ \nb(…‰x"), max_size=14)


@given(marks, marks)
def test_punctuation_around_words_does_not_count(before, after):
    text = f"the {before}ferry{after} leaves"
    assert is_quoted(f'the "{before}ferry{after}" leaves.', [text])


def test_long_lines_of_marks_are_passed_over():
    # It would take a quarter of an hour to begin anew at each mark.
    assert is_quoted("the ferry leaves", [f"a{'_' * 200_000}b the ferry leaves"])
