"""A rubric in Markdown has comments between its criteria, which no reader sees.

The right criteria are the lines that CommonMark shows; a comment within a line may be its matter.
"""

import pytest

from textevolve.judges.rubric import expand_rubric, read_criteria

RUBRICS = {
    "It is kind.\n<!-- later: tone\n- It is calm. -->\nIt is short.": (
        "It is kind.",
        "It is short.",
    ),
    "<!-- ours -->\nIt is kind.\n  <!-- done -->\n": ("It is kind.",),
    "The page has no <!-- note --> in it.\nIt is short.": (
        "The page has no <!-- note --> in it.",
        "It is short.",
    ),
}


@pytest.mark.parametrize(("rubric", "criteria"), RUBRICS.items())
def test_comments_are_no_criteria(rubric, criteria):
    assert read_criteria(expand_rubric(rubric)) == criteria


def test_a_checklist_asks_about_no_comment(cli, home, server, model):
    (home / "style.md").write_text("It is kind.\n\n<!-- later:\nIt is calm.\n-->\n\nIt is short.\n")
    command = ("evaluate", "Why?", "So.", "--judge", "checklist+rubric=style.md", "-m", model)
    assert cli(*command).code == 0
    assert server.calls == 2
    assert not any("later" in str(body) or "calm" in str(body) for body in server.requests)
