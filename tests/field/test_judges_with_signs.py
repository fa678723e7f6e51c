"""A judge's rubric, decider or file has the signs of a judge's text in it: +, @, : and quotes."""

import pytest

import textevolve
from textevolve.errors import InputError
from textevolve.judges.judge import parse_judge
from textevolve.judges.probe import Checklist, Probe
from textevolve.studies.labels.agreement import AgreementSpec
from textevolve.testing.judging import write_with_reference

RUBRIC = 'It greets @all + "nobody": [no | yes]'
DECIDER = "http://127.0.0.1:9/v1#m@v2"


def test_specification_takes_objects():
    debate = textevolve.Debate(rubric=RUBRIC, rounds=1, decider=DECIDER, readout="decide")
    judges = AgreementSpec(judge=[debate, Probe(rubric=RUBRIC)], items=["items.jsonl"]).judge
    assert [judge.find_rubric() for judge in judges] == [RUBRIC, RUBRIC]
    assert judges[0].load().decider == DECIDER


@pytest.mark.parametrize(
    "text",
    [
        f'checklist+decider="{DECIDER}"@x/y',
        'probe+rubric="a + b @ c"@http://127.0.0.1:9/v1#m@v2',
        'hybrid:rules.yaml:probe+rubric="a@b + c"@x/y',
    ],
)
def test_reference_is_added_to_any(text):
    """A test with a reference uses a default judge that reads it."""
    judge = parse_judge(text)
    if not any(hasattr(part, "reference") for part in judge.leaves()):
        return
    changed = parse_judge(write_with_reference(judge))
    assert changed.reads_reference
    assert changed.models(None) == judge.models(None)
    (before,) = judge.leaves()
    (after,) = changed.leaves()
    assert after.rubric == before.rubric


def test_file_with_signs(home):
    (home / "a+b@c.md").write_text(RUBRIC)
    judge = Probe(rubric="@a+b@c.md")
    assert judge.find_rubric() == RUBRIC
    assert parse_judge(judge.text).find_rubric() == RUBRIC
    with pytest.raises(InputError, match="a value with \\+ or @ is quoted"):
        parse_judge("probe+rubric=a+b.md")


def test_decider_comes_back():
    assert parse_judge(Checklist(decider=DECIDER).text).models("m") == ("m", DECIDER)
