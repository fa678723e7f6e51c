"""Most facts begin with the person whom they are about, so the graph of memories knew nobody.

The names that a reader finds are the right value.
"""

import pytest

from textevolve.memory.sameness import entities_in


@pytest.mark.parametrize(
    ("fact", "heard", "names"),
    [
        ("Ann lives in Oslo.", "Ann lives in Oslo.", ["Ann", "Oslo"]),
        ("Ann has a dog.", "My sister Ann has a dog.", ["Ann"]),
        ("Ann Moss likes tea.", "Ann Moss likes tea.", ["Ann Moss"]),
        ("Mia's dog is Rex. Rolf walks it.", "Rolf walks Rex, Mia's dog.", ["Mia", "Rex", "Rolf"]),
        ("Анна живёт в Москве.", "Анна живёт в Москве.", ["Анна", "Москве"]),
        ("Zoë plays chess.", "zoe and I play, and Zoë wins", ["Zoë"]),
        ("User lives in Oslo.", "I live in Oslo.", ["Oslo"]),
        ("Nutzer wohnt in Wien.", "Ich wohne in Wien.", ["Wien"]),
        ("Dinner is at eight.", "We have dinner at eight.", []),
        ("Running is her hobby.", "She loves running.", []),
        ("Yesterday the user met Rolf.", "I met Rolf.", ["Rolf"]),
        ("Every Friday Ann swims.", "Ann swims each Friday.", ["Ann"]),
        ("Her name is Bo.", "My dog's name is Bo.", ["Bo"]),
    ],
)
def test_people_who_begin_sentences(fact, heard, names):
    assert list(entities_in(fact, heard)) == names
