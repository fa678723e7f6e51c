"""Texts in other scripts than Latin have more tokens for each letter, as estimates have to know.
The true numbers are those of the vocabulary cl100k."""

import json

import pytest

from textevolve.llm.model import Message, Request
from textevolve.llm.prompts import prompt_tokens

TEXTS = (
    ("潮汐是由月球和太阳的引力共同作用而产生的海水周期性涨落现象。", 35),
    ("潮の満ち引きは、主に月の引力によって起こります。", 25),
    ("밀물과 썰물은 주로 달의 인력 때문에 생깁니다.", 27),
    ("น้ำขึ้นน้ำลงเกิดจากแรงดึงดูดของดวงจันทร์", 41),
    ("ज्वार-भाटा मुख्य रूप से चंद्रमा के गुरुत्वाकर्षण से होता है।", 61),
    ("المد والجزر يحدثان أساسا بسبب جاذبية القمر.", 31),
    ("Приливы и отливы вызваны главным образом притяжением Луны.", 32),
    ("Οι παλίρροιες προκαλούνται κυρίως από την έλξη της Σελήνης.", 55),
    ("הגאות והשפל נגרמים בעיקר מכוח המשיכה של הירח.", 44),
    ("Ebbe und Flut entstehen vor allem durch die Anziehung des Mondes.", 18),
    ("The tides are the regular rise and fall of the sea, made by the moon.", 18),
)
LEAST, MOST = 0.45, 2.0
"""The bounds of an estimate as a share of the true number: later vocabularies have fewer tokens."""


@pytest.mark.parametrize(("text", "tokens"), TEXTS)
def test_prompts_without_usage_are_counted(text, tokens):
    estimate = prompt_tokens(Request(messages=(Message("user", (text,)),)))
    assert LEAST * tokens <= estimate <= MOST * tokens


@pytest.mark.parametrize(("text", "tokens"), [TEXTS[0], TEXTS[-1]])
def test_dry_runs_count_scripts(cli, home, model, text, tokens):
    def estimate(length):
        row = {"input": "Why?", "output": text * length}
        (home / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False))
        command = ("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
        return json.loads(cli(*command, "--dry-run", "--json").out)

    # The difference leaves out what each of the three questions has besides the output.
    short, long = estimate(1), estimate(41)
    more = long["expected"]["prompt_tokens"]["median"]
    more -= short["expected"]["prompt_tokens"]["median"]
    assert LEAST * 120 * tokens <= more <= MOST * 120 * tokens
