"""A model notes a fact in the third person, in a language that inflects names or writes nouns with
capital letters: the name does not stand in the dialogue in this form, and was said all the same.

What a speaker of the language would answer is the right value.
"""

import pytest

from textevolve.memory.sameness import heard_names


@pytest.mark.parametrize(
    ("fact", "heard", "names"),
    [
        ("Пользователь живёт в городе Москва.", "Я живу в Москве.", {"Москва": "yes"}),
        ("Użytkownik mieszka w mieście Kraków.", "Mieszkam w Krakowie.", {"Kraków": "yes"}),
        ("Uživatel žije ve městě Praha.", "Bydlím v Praze.", {"Praha": "perhaps"}),
        ("Käyttäjä asuu kaupungissa Helsinki.", "Asun Helsingissä.", {"Helsinki": "yes"}),
        ("Artık Ankara şehrinde yaşıyor.", "Artık Ankara'da yaşıyorum.", {"Ankara": "yes"}),
        ("Der Nutzer hat drei Kinder.", "ich lebe mit drei Kindern", {"Kinder": "yes"}),
        ("Der Benutzer ist Vegetarier.", "Ich esse kein Fleisch.", {"Vegetarier": "perhaps"}),
        ("Anna ernährt sich ohne Fleisch.", "ich bin Vegetarierin", {"Fleisch": "perhaps"}),
        ("The user's doctor is Dr Lind.", "my doctor, lind, said so", {"Lind": "yes"}),
        ("The user works for Mrs Okonski.", "I work for the Okonskis", {"Okonski": "yes"}),
        ("The user lives in Bonn.", "I moved to Berlin.", {"Bonn": "no"}),
        ("The user likes Marta.", "I like the market.", {"Marta": "no"}),
        ("The user knows Anna's dog.", "This is Anna.", {"Anna": "yes"}),
        ("The user has a hat from MIT.", "I have a hat.", {"MIT": "no"}),
    ],
)
def test_names_are_recognised(fact, heard, names):
    assert heard_names(fact, heard) == names
