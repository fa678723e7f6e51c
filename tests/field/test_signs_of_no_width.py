"""A document from a page or a PDF has soft hyphens, and spaces and joiners of no width in words.

The right words are those that a reader sees. Joiners that are seen, as in Persian, stay.
"""

import pytest

from textevolve.store.memory_search_sqlite import words_to_find
from textevolve.texts.prose import split_words

WORDS = {
    "Kran\u00adken\u00adhaus": ["Krankenhaus"],
    "time\u200btable": ["timetable"],
    "time\u2060table": ["timetable"],
    "\ufefftimetable": ["timetable"],
    "می\u200cخواهم": ["می\u200cخواهم"],
}


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_words_are_those_that_are_seen(text, words):
    assert split_words(text) == words
    assert split_words(text, "parts") == words
    if "\u200c" not in text:
        assert words_to_find(text) == [word.casefold() for word in words]


def test_a_search_for_the_plain_name_finds_it(cli, home, model):
    command = ("memories", "collections", "create", "docs", "--kind", "semantic")
    assert cli(*command, "--embedder", model).code == 0
    gates = [f"Gate {n} opens at six. " * 8 for n in range(9)]
    text = "\n\n".join([*gates, "Ann Mo\u2060ss has the key. " * 6, *gates])
    (home / "gates.txt").write_text(text)
    assert cli("memories", "read", "gates.txt", "-c", "docs", "--chunk-tokens", "64").code == 0
    best = cli("memories", "search", "docs", "Ann Moss", "--json", "--limit", "1").rows[0]
    assert "has the key" in best["text"]
