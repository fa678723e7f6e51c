"""Documents taken apart: nothing is lost, no chunk is too long, no word is cut."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from textevolve.memory.corpus import split_document

TOKENS = 64
MOST = 4 * TOKENS

pieces = st.sampled_from(
    [
        *("# Head\n", "## Sub *x*\n", "Title\n===\n", "low\n---\n", "```\n", "~~~\n", "- item\n"),
        *("\n", "\n \n", "\r\n", "\t", "One sentence here. ", "Another one! ", "And a question? "),
        *("word ", "Ünïcödé ", "日本語。", "x" * 300, "y" * 90 + " ", "z" * 199 + " "),
        *("a.b.c ", "…", '"Quoted." '),
    ]
)
documents = st.lists(pieces, max_size=60).map("".join)


def split(text, format="markdown", tokens=TOKENS):
    return list(split_document(text, format, tokens))


@given(documents, st.sampled_from(["markdown", "text"]))
def test_chunks_make_up_the_document(text, format):
    chunks = split(text, format)
    assert "".join(chunk.text for chunk in chunks) == (text if text.strip() else "")
    assert [chunk.position for chunk in chunks] == list(range(1, len(chunks) + 1))


@given(documents)
def test_chunks_have_their_size(text):
    for chunk in split(text):
        assert 0 < len(chunk.text.strip()) <= MOST


@given(documents)
def test_short_words_stay_whole(text):
    for end in accumulate(len(chunk.text) for chunk in split(text)):
        if end < len(text) and not text[end - 1].isspace() and text[end - 1] not in "。！？":
            around = text[: end + 1].split()[-1]
            expected = around + (text[end + 1 :].split() or [""])[0]
            assert len(expected) > MOST // 3


def test_chunks_keep_their_headings():
    text = "Before.\n# Ward\n## Night\nLamp on.\n## Day\nLamp off.\n# Home\nTea.\n"
    places = [(chunk.headings, chunk.source_in("h.md")) for chunk in split(text)]
    assert places == [
        ((), "h.md"),
        (("Ward", "Night"), "h.md > Ward > Night"),
        (("Ward", "Day"), "h.md > Ward > Day"),
        (("Home",), "h.md > Home"),
    ]


def test_false_headings_are_text():
    text = "# Title\nText.\n```\n# a comment\n```\n\n- item\n---\nend\n"
    (chunk,) = split(text)
    assert chunk.headings == ("Title",)
    (plain,) = split("# not in plain text\n", "text")
    assert plain.headings == ()


def test_paragraphs_are_divided_first():
    opening, ending = "One is here. " * 15, "Two is there. " * 15
    chunks = split(f"# A\n{opening}\n\n{ending}\n")
    assert [chunk.text.split()[-1] for chunk in chunks] == ["here.", "there."]
    long = split("Say this now. " * 40)
    assert all(chunk.text.rstrip().endswith("now.") for chunk in long)
    words = split("word " * 200)
    assert all(set(chunk.text.split()) == {"word"} for chunk in words)
