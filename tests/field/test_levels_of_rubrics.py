"""A rubric has levels, `[poor | fair | good]`, and is given to a judge that asks yes or no."""

import json

import pytest

LEVELS = "How clear is it? [confused | clear in parts | clear]\nIt names the moon.\n"
QUESTION = ("Why are there tides?", "The moon pulls.")


@pytest.mark.parametrize("judge", ["checklist", "probe", "debate"])
def test_unread_levels_are_told(cli, home, model, judge):
    (home / "levels.md").write_text(LEVELS)
    command = ("evaluate", *QUESTION, "-m", model, "--judge", judge, "--rubric", "@levels.md")
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    told = " ".join(outcome.err.split())
    assert f"left out: 1 scale: {judge} asks about no levels of a rubric; the judge decide" in told


def test_unread_levels_are_kept(cli, home, model):
    (home / "levels.md").write_text(LEVELS)
    rows = [{"input": f"Why {n}?", "output": "The moon."} for n in range(2)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("evaluate", "rows.jsonl", "-m", model, "--judge", "checklist")
    assert cli(*command, "--rubric", "@levels.md").code == 0
    assert "1 scale: checklist" in cli("runs", "show", "last").out


def test_levels_in_an_option_are_told(cli, home, model):
    (home / "levels.md").write_text(LEVELS)
    (home / "rows.csv").write_text("question,answer\nWhy?,The moon.\n")
    command = ("compare", "--data", "rows.csv", "--outputs", "answer", "-m", model)
    outcome = cli(*command, "--judge", "checklist+rubric=levels.md")
    assert "left out: 1 scale: checklist" in outcome.err


@pytest.mark.parametrize("rubric", [LEVELS, "It is clear.\nIt names [the moon]."])
def test_nothing_is_told_without_need(cli, home, model, rubric):
    (home / "rubric.md").write_text(rubric)
    judge = "decide" if rubric == LEVELS else "checklist"
    command = ("evaluate", *QUESTION, "-m", model, "--judge", judge, "--rubric", "@rubric.md")
    assert "scale" not in cli(*command).err


SCORES = (
    "Is the reply polite?\nScore 1: It is rude.\nScore 2: It is neutral.\nScore 3: It is kind.\n"
)


@pytest.mark.parametrize("judge", ["checklist", "decide", "investigator"])
def test_descriptions_of_scores_are_no_criteria(cli, home, model, server, judge):
    (home / "scores.md").write_text(SCORES)
    command = ("evaluate", *QUESTION, "-m", model, "--judge", judge, "--rubric", "@scores.md")
    outcome = cli(*command)
    assert outcome.code == 2
    assert "describes scores ('Score 1: It is rude.')" in " ".join(outcome.err.split())
    assert not server.requests


@pytest.mark.parametrize("judge", ["probe", "single", "debate"])
def test_descriptions_of_scores_are_shown(cli, home, model, server, judge):
    (home / "scores.md").write_text(SCORES)
    command = ("evaluate", *QUESTION, "-m", model, "--judge", judge, "--rubric", "@scores.md")
    assert cli(*command).code == 0
    assert all(line in str(server.requests[0]) for line in SCORES.splitlines())


DESCRIPTIONS = {f"score{n}_description": f"It is {n} fifths right." for n in range(1, 6)}


@pytest.mark.parametrize("judge", ["checklist", "probe", "decide", "single"])
@pytest.mark.parametrize("rubric", [DESCRIPTIONS, [{"score_range": [0, 2], "expected": "bad"}]])
@pytest.mark.parametrize("indent", [None, 2])
def test_objects_are_no_rubrics(cli, home, model, server, judge, rubric, indent):
    (home / "rubric.json").write_text(json.dumps(rubric, indent=indent))
    command = ("evaluate", *QUESTION, "-m", model, "--judge", judge, "--rubric", "@rubric.json")
    outcome = cli(*command)
    assert outcome.code == 2
    told = " ".join(outcome.err.split())
    assert "levels, the lowest first, for the judge decide" in told
    assert "prompt:FILE+numbers=1-5" in told
    assert not server.requests


def test_named_descriptions_of_scores_are_no_criteria(cli, home, model, server):
    lines = [f"{name}: {text}" for name, text in DESCRIPTIONS.items()]
    (home / "rubric.yaml").write_text("\n".join(lines))
    command = ("evaluate", *QUESTION, "-m", model, "--judge", "checklist+rubric=rubric.yaml")
    outcome = cli(*command)
    assert outcome.code == 2
    assert "describes scores" in outcome.err
    assert not server.requests


def test_objects_in_prose_are_kept(cli, home, model, server):
    rubric = 'It is an object such as {"city": "Oslo"}.\n[It] names the moon.'
    command = ("evaluate", *QUESTION, "-m", model, "--judge", "checklist")
    assert cli(*command, "--rubric", rubric).code == 0
    assert len(server.requests) == 2
