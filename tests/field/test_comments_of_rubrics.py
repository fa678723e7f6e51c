"""A rubric in Markdown has comments, headings and tables between its criteria.

The right criteria are the lines that CommonMark shows; a comment within a line may be its matter. A
heading is true of no response, so that it is refused where each line is asked about.
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


@pytest.mark.parametrize("line", ["# Tone", "## Tone ##", "---", "| line | weight |", "```", "***"])
@pytest.mark.parametrize("judge", ["checklist", "decide", "trajectory", "investigator"])
def test_markup_is_no_criterion(cli, home, server, model, judge, line):
    (home / "style.md").write_text(f"{line}\n\nIt is kind.\n")
    outcome = cli("evaluate", "Why?", "So.", "--judge", f"{judge}+rubric=style.md", "-m", model)
    assert outcome.code == 2
    assert f"the rubric's line '{line}' is a heading, table or rule" in " ".join(
        outcome.err.split()
    )
    assert server.calls == 0


@pytest.mark.parametrize("judge", ["probe", "single"])
def test_other_judges_read_it_as_it_is(cli, home, server, model, judge):
    (home / "style.md").write_text("# Tone\n\nIt is kind.\n")
    command = ("evaluate", "Why?", "So.", "--judge", f"{judge}+rubric=style.md", "-m", model)
    assert cli(*command).code == 0
    assert any("# Tone" in str(body) for body in server.requests)
