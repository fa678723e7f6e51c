"""A new fact differs from a stored one in a sign, a capital or a vowel sign alone: it is another
fact, and must not be dropped as a repetition."""

import pytest

from textevolve.memory.sameness import nearly_same, words_of


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Mia's blood type is A-.", "Mia's blood type is A+."),
        ("Mia teaches C.", "Mia teaches C++."),
        ("Mia teaches C++.", "Mia teaches C#."),
        ("Mia's rent is €900.", "Mia's rent is $900."),
        ("Mia's freezer has 18 degrees.", "Mia's freezer has −18 degrees."),
        ("Mia owns 40 of the firm.", "Mia owns 40 % of the firm."),
        ("Mia's limit is < 5 mg.", "Mia's limit is > 5 mg."),
        ("Mia's pet is a 🐶.", "Mia's pet is a 🐱."),
        ("Mia lives in block A.", "Mia lives in block."),
        ("Mia works at Now.", "Mia works at That."),
        ("The code is 10².", "The code is 102."),
        ("मेरी बेटी डॉक्टर है।", "मेरा बेटा डॉक्टर है।"),
        ("ฉันกินปลา", "ฉันกันปลา"),
        ("Mia's room is 5 m × 4 m.", "Mia's room is 5 m + 4 m."),
    ],
)
def test_signs_make_other_facts(first, second):
    assert not nearly_same(first, second)
    assert nearly_same(first, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The cat is here now.", "the cat is here"),
        ("Mia - my sister - likes “tea”.", "Mia, my sister, likes tea"),
        ("A dog bit Mia.", "The dog bit Mia"),
        ("Mia lives in Ko\u0308ln.", "Mia lives in Köln."),
    ],
)
def test_marks_between_words_change_nothing(first, second):
    assert nearly_same(first, second)


def test_words_of_facts_are_apart():
    assert words_of("5kg, KX-2041 at 14:30") == ["5", "kg", "kx", "2041", "at", "14:30"]
