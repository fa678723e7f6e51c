"""Judge prompts of other projects ask for a form of their own, such as `Rating: [[5]]` (MT-Bench)
or `[RESULT] 5` (Prometheus), and models keep to it although JSON is asked for, too.

The right values are read by hand: a form of the prompts' own pages has the label that it marks;
a text that marks none of the scale, or several, has none.
"""

import json

import pytest
from pydantic import ValidationError

from textevolve.judges.own_prompt import (
    answer_type,
    read_labels,
    read_marked,
    read_range,
)
from textevolve.llm.testing import Answer

ROW = {"input": "Name a tide.", "output": "Ebb."}
PROMPT = 'Rate {output} for {input} strictly as "[[rating]]", as in: "Rating: [[5]]".'
FIVE = read_range("1-5")
WORDS = read_labels("good=1,partly=.5,bad=0")


def read(text, scale):
    try:
        return answer_type(scale)(**(read_marked(text, scale) or {})).label
    except ValidationError:
        return None


@pytest.mark.parametrize("form", ["[[{}]]", "[RESULT] {}", "Rating: {}", "**{}**", "Poor.\n{}"])
@pytest.mark.parametrize("label", ["-2", "-1", "0", "2"])
def test_numbers_below_zero(form, label):
    assert read(form.format(label), read_range("-2-2")) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("It is short.\n\nRating: [[4]]", "4"),
        ("[[4]]", "4"),
        ("Clarity: [[4]], so [[ 4/5 ]]", "4"),
        ("Feedback: it is short. [RESULT] 4", "4"),
        ("<score>\n4\n</score>", "4"),
        ("**Rating:** 4", "4"),
        ("### Final score: **4**/5", "4"),
        ("Score (1-5): 4", "4"),
        ("Score: 4 out of 5. It has 2 faults.", "4"),
        ("My rating is 4.0.", "4"),
        ("It has 2 faults of 3.\n**4**", "4"),
        ("It has 2 faults.\n\n4.", "4"),
        ("它很短。评分：[[4]]", "4"),
        ("<think>Rating: [[2]]</think>Rating: [[4]]", "4"),
        ("I would give it 4 of 5, since it has 2 faults.", None),
        ("Clarity score: 4", None),
        ("Score: 4/10", None),
        ("Score: 4.5", None),
        ("Score: -4", None),
        ("Score: 1-5", None),
        ("Score: 45", None),
        ("Rating: 5 would be too much", None),
        ("Rating: [[5]] or [[4]]", None),
        ("Rating: [[rating]]\n4", None),
        ("Score: 4\nRating: 3", None),
        ("**1. Clarity**\n4", None),
        ("4\nsince it is short", None),
    ],
)
def test_numbers(text, label):
    assert read(text, FIVE) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Verdict: Good. It is short.", "good"),
        ("It is short.\ngood", "good"),
        ("[[partly]]", "partly"),
        ("Verdict: not good", None),
        ("Verdict: good/bad", None),
        ("It is **good** that it is short.", None),
        ("Score: 5", None),
    ],
)
def test_labels(text, label):
    assert read(text, WORDS) == label


@pytest.mark.parametrize(
    ("answer", "score", "calls"),
    [
        ("It is short.\n\nRating: [[4]]", 0.75, 1),
        ("[[4]]", 0.75, 1),
        ("4", 0.75, 1),
        (json.dumps({"reason": "Not [[2]].", "label": "4"}), 0.75, 1),
        ("Rating: [[5]] or [[4]]", None, 2),
    ],
)
def test_a_judge_of_another_project(home, cli, server, answer, score, calls):
    server.script = lambda *_: Answer(text=answer)
    (home / "rows.jsonl").write_text(json.dumps(ROW))
    (home / "mt.md").write_text(PROMPT)
    outcome = cli(
        *("evaluate", "rows.jsonl", "--judge", "prompt:mt.md+numbers=1-5"),
        *("-m", f"{server.url}#scripted", "--json"),
    )
    (result,) = json.loads(outcome.out)["candidates"]
    assert result.get("score") == score
    assert server.calls == calls
