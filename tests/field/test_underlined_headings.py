"""A handbook underlines its headings, as Markdown allows, and begins with fields in YAML.

The right headings are those of CommonMark, as markdown-it reads them.
"""

import pytest
from markdown_it import MarkdownIt

from textevolve.memory.corpus import split_document

HANDBOOK = """\
Depot guide
===========

Words before all chapters.

Opening
-------

The gate opens at six.

Closing
-------

The gate closes at nine.

# Fees

A visit costs two coins.
"""
FIELDS = "---\ntitle: Depot guide\ntags: gate\n---\n"


def sources(text):
    return [chunk.source_in("guide.md") for chunk in split_document(text, "markdown", 64)]


@pytest.mark.parametrize("text", [HANDBOOK, FIELDS + HANDBOOK, HANDBOOK.replace("\n", "\r\n")])
def test_underlined_headings_are_sources(text):
    assert [source for source in sources(text) if source != "guide.md"] == [
        "guide.md > Depot guide",
        "guide.md > Depot guide > Opening",
        "guide.md > Depot guide > Closing",
        "guide.md > Fees",
    ]
    assert "".join(chunk.text for chunk in split_document(text, "markdown", 64)) == text


NO_HEADINGS = {
    "a rule after a blank line": "Words.\n\n---\n\nMore.\n",
    "a rule at the beginning": "---\n\nWords.\n",
    "a list": "- item\ncontinued\n---\nMore.\n",
    "a quote": "> said\n---\nMore.\n",
    "a table": "| gate | hour |\n|---|---|\n| one | six |\n---\n",
    "code in a fence": "```\nname\n---\n```\nMore.\n",
    "code by indentation": "    name\n---\nMore.\n",
    "a heading with marks": "# Fees\n---\nMore.\n",
}


@pytest.mark.parametrize("text", NO_HEADINGS.values(), ids=NO_HEADINGS)
def test_other_lines_underline_nothing(text):
    tokens = MarkdownIt().enable("table").parse(text)
    opens = [n for n, token in enumerate(tokens) if token.type == "heading_open"]
    right = [tokens[n + 1].content for n in opens]
    paths = [chunk.headings for chunk in split_document(text, "markdown", 64)]
    assert [path[-1] for path in paths if path] == right
