"""A document has code, comments and fields in which `#` is no heading, and long tables and lists.

The right headings are those of CommonMark, as markdown-it reads them, and a row, an item or a line
of code is whole if one chunk has it.
"""

from itertools import chain

import pytest
from markdown_it import MarkdownIt

from textevolve.memory.corpus import split_document

DOCUMENTS = {
    "a fence with a longer one": "# Gate\n\n````md\n```\n# no\n```\n# no\n````\n\n# Fees\n\nTwo.\n",
    "marks with words end nothing": "# Gate\n\n```sh\n# no\n``` sh\n# no\n```\n\n# Fees\n\nTwo.\n",
    "marks within a line": "# Gate\n\n```open``` it.\n\n# Fees\n\nTwo.\n",
    "a fence of tildes": "# Gate\n\n~~~ `x`\n```\n# no\n~~~\n\n# Fees\n\nTwo.\n",
    "a fence that never ends": "# Gate\n\nIt opens.\n\n```\n# no\n\nmore\n",
    "a comment": "# Gate\n\n<!--\n# no\n\n# no\n-->\n\nIt opens.\n\n# Fees\n\nTwo.\n",
    "a comment of one line": "<!-- draft -->\n# Gate\n\nIt opens.\n",
    "a comment before a title": "<!-- draft -->\nGate\n====\n\nIt opens.\n",
    "preformatted HTML": "# Gate\n\n<pre>\n# no\n\n# no\n</pre>\n\n# Fees\n\nTwo.\n",
    "a comment in code": "# Gate\n\n```\n<!--\n```\n\n# Fees\n\nTwo.\n",
    "a closed heading": "## Gate ##\n\nIt opens.\n",
}


def list_titles(chunks):
    """Return the headings of all chunks, one after another."""
    return list(chain.from_iterable(chunk.headings for chunk in chunks))


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headings_are_those_of_commonmark(text, end):
    tokens = MarkdownIt().parse(text)
    right = [
        tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"
    ]
    written = text.replace("\n", end)
    chunks = list(split_document(written, "markdown", 64))
    assert list(dict.fromkeys(list_titles(chunks))) == right
    assert "".join(chunk.text for chunk in chunks) == written


@pytest.mark.parametrize(
    "fields", ["---\n# a comment\ntitle: Gate\n---\n", '+++\ntitle = "Gate"\n# a comment\n+++\n']
)
def test_fields_have_no_headings(fields):
    chunks = list(split_document(f"{fields}\nWords.\n\n# Fees\n\nTwo.\n", "markdown", 64))
    assert set(list_titles(chunks)) == {"Fees"}


LINES = {
    "a table": "| Gate {n} opens at six. | It closes at nine, or a little later |",
    "a list": "- Gate {n} opens at six. It closes at nine.",
    "a numbered list": "{n}. The gate opens at six. It closes at nine.",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("format", ["markdown", "text"])
def test_long_tables_and_lists_are_cut_between_lines(line, format):
    lines = [line.format(n=n) for n in range(40)]
    chunks = list(split_document("\n".join(lines), format, 64))
    assert len(chunks) > 3
    assert [line for chunk in chunks for line in chunk.text.splitlines()] == lines


def test_long_code_is_cut_between_lines():
    lines = [f"gate_{n} = open({n})  # It opens. It closes." for n in range(40)]
    text = "\n".join(["# Gate", "", "```python", *lines, "```", ""])
    chunks = [chunk.text for chunk in split_document(text, "markdown", 64)]
    assert len(chunks) > 3
    assert [line for line in lines if not any(line in chunk for chunk in chunks)] == []
    assert "```" not in [chunk.strip() for chunk in chunks]


def test_markdown_on_standard_input_has_headings(cli, home, model):
    command = ("memories", "collections", "create", "docs", "--kind", "semantic")
    assert cli(*command, "--embedder", model).code == 0
    text = b"# Gate\n\nIt opens.\n\n# Fees\n\nTwo.\n"
    assert cli("memories", "read", "-", "-c", "docs", stdin=text).code == 0
    rows = cli("memories", "list", "docs", "--json").rows
    assert sorted(row["source"] for row in rows) == [
        "standard input > Fees",
        "standard input > Gate",
    ]
