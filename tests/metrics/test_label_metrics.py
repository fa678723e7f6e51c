"""Metrics without a model: against hand-made figures, and against the packages they rest on."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from sacrebleu import sentence_bleu, sentence_chrf

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.metrics.label_metrics import SHIPPED, grade, grade_output, needs_label, open_metric
from textevolve.metrics.plain import check_metric
from textevolve.texts.quantities import read_last_quantity

NEAR = ("edit-distance", "rouge-l", "bleu", "chrf")
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=60
)
WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat"]), max_size=8).map(" ".join)


def score(metric, output, label=None):
    return grade(open_metric(metric), output, label).score


@pytest.mark.parametrize(
    ("metric", "output", "label", "wanted"),
    [
        ("exact", " Paris\n", "Paris ", 1),
        ("exact:ignore-case", "STRASSE", "straße", 1),
        ("contains", "It is Paris, of course.", " Paris ", 1),
        ("contains", "The answer is 42.", 42, 1),
        ("numeric", "First 3, then 4: in all $1,234.50.", "#### 1234.5", 1),
        ("numeric", "No idea.", "42", 0),
        ("numeric:0.5", "41.5", "42", 1),
        ("numeric:1%", "-99", "-100", 1),
        ("numeric:1%", "-98.9", "-100", 0),
        ("numeric", "0.30000000000000004", "0.3", 1),
        ("edit-distance", "kitten", "sitting", 1 - 3 / 7),
        ("edit-distance", "", "abc", 0),
        ("rouge-l", "police kill the gunman", "police killed the gunman", 3 / 4),
        ("rouge-l", "gunman police killed", "Police killed the GUNMAN!", 2 * 2 / 7),
        ("rouge-l", "...", "...", 1),
        ("bleu", "the cat sat on the mat", "the cat sat on the mat", 1),
        ("bleu", "", "the cat", 0),
    ],
)
def test_scores_worked_out_by_hand(metric, output, label, wanted):
    assert score(metric, output, label) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (".5", 0.5),
        ("6e-3 m", 0.006),
        ("1,2,3", 3),
        ("\u22127", -7),
        ("\\boxed{42}", 42),
        ("x2", None),
        ("9" * 400, None),
        ("", None),
    ],
)
def test_the_last_number_of_a_text(text, number):
    quantity = read_last_quantity(text)
    assert (quantity and quantity.value) == number


@given(st.floats(-1e15, 1e15), st.sampled_from(["It is {}", "{} in all.", "about ({})"]))
def test_every_number_that_is_written_is_read(number, sentence):
    assert read_last_quantity(sentence.format(number)).value == number


@given(TEXTS, TEXTS, st.sampled_from(NEAR))
def test_scores_lie_between_0_and_1(output, label, metric):
    assert 0 <= score(metric, output, label) <= 1


@given(TEXTS, st.sampled_from(NEAR))
def test_a_text_is_wholly_like_itself(text, metric):
    assume(any(mark.isalnum() for mark in text))
    assert score(metric, text, text) == pytest.approx(1)


@given(TEXTS, TEXTS)
def test_nearness_is_that_of_the_packages(output, label):
    bleu = sentence_bleu(output, [label], use_effective_order=True).score / 100
    assert score("bleu", output, label) == pytest.approx(bleu)
    assert score("chrf", output, label) == pytest.approx(sentence_chrf(output, [label]).score / 100)
    stripped = Levenshtein.normalized_similarity(output.strip(), label.strip())
    assert score("edit-distance", output, label) == stripped


def longest_common(ours, theirs):
    """By the textbook's recursion."""
    if not ours or not theirs:
        return 0
    if ours[-1] == theirs[-1]:
        return 1 + longest_common(ours[:-1], theirs[:-1])
    return max(longest_common(ours[:-1], theirs), longest_common(ours, theirs[:-1]))


@given(WORDS, WORDS)
def test_rouge_l_is_f1_of_the_longest_common_subsequence(output, label):
    ours, theirs = output.split(), label.split()
    assume(ours and theirs)
    common = longest_common(ours, theirs)
    precision, recall = common / len(ours), common / len(theirs)
    expected = 2 * precision * recall / (precision + recall) if common else 0
    assert score("rouge-l", output, label) == pytest.approx(expected)


def test_a_schema_says_what_is_wrong(tmp_path):
    file = tmp_path / "answer.json"
    file.write_text('{"type": "object", "required": ["city"], "properties": {"city": {}}}')
    metric = open_metric(f"json-schema:{file}")
    assert grade(metric, '{"city": "Paris"}', None) == EvaluationResult(1.0, True)
    result = grade(metric, '{"town": "Paris"}', None)
    assert (result.score, result.passed) == (0.0, False)
    assert "city" in result.feedback
    assert grade(metric, "Paris", None).score == 0
    for wrong in ("[1]", "{", '{"type": "thing"}'):
        file.write_text(wrong)
        with pytest.raises(InputError, match=r"answer\.json"):
            open_metric(f"json-schema:{file}")


async def test_a_long_text_is_graded_too():
    outcome = await grade_output(open_metric("edit-distance"), "a" * 20_000, "b" * 20_000)
    assert outcome.score == 0


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("length", r"'length'\. Write exact.*; write a rule .* rules:FILE\.yaml$"),
        ("exactly", r"'exactly'\. Write .*numeric.*rouge-l.*chrf.*; did you mean 'exact'\?$"),
        ("exact:loud", "exact:ignore-case"),
        ("numeric:x", "numeric:x: the tolerance must be a number"),
        ("regex", "regex:PATTERN"),
        ("json-schema:no-such.json", "no-such.json"),
    ],
)
def test_what_cannot_be_used_is_refused(metric, said):
    with pytest.raises(InputError, match=said):
        open_metric(metric)


@pytest.mark.parametrize(("metric", "label"), [("numeric", "seven"), ("contains", " ")])
def test_a_label_that_cannot_be_compared_with_is_a_failure(metric, label):
    result = grade(open_metric(metric), "7", label)
    assert isinstance(result, Failure)
    assert result.reason.startswith("the label")


def test_which_need_a_label():
    own_names = {name for name, metric in SHIPPED.items() if metric.trajectory}
    assert {name for name in SHIPPED if not needs_label(name)} - own_names == {
        "regex",
        "json-schema",
    }
    assert needs_label("numeric:1%")
    assert needs_label("regex:^{label}$")
    assert not needs_label("json-schema:label.json")


class Predicted:
    """As DSPy's prediction of a metric with feedback."""

    score, feedback = 0.25, "Too long."


def _with_row(output, label, row):
    return output == row["wanted"], f"{row['wanted']} was wanted"


def _like_dspy(example, pred, trace=None):
    return example.word == pred.answer and pred["answer"] == example["word"]


def _like_gepa(gold, pred, trace, pred_name, pred_trace):
    return {"score": float(pred.answer == gold.word), "feedback": f"{trace} {pred_name}"}


@pytest.mark.parametrize(
    ("metric", "output", "scored", "told"),
    [
        (_with_row, "tide", 1, "tide was wanted"),
        (lambda output: Predicted(), "tide", 0.25, "Too long."),
        (_like_dspy, "tide", 1, ""),
        (_like_dspy, '{"reasoning": "It rises.", "answer": "ebb"}', 0, ""),
        (_like_gepa, '{"reasoning": "It rises.", "answer": "tide"}', 1, "None None"),
    ],
)
def test_a_metric_is_called_by_its_shape(metric, output, scored, told):
    row = {"word": "tide", "wanted": "tide"}
    result = grade(check_metric(metric, "own"), output, "tide", row=row)
    assert (result.score, result.feedback) == (scored, told)
    assert result.passed == (scored >= 0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "None, which is no score from 0 to 1: is a return missing?"),
        ((0.5, 7), "int as the reason of its score; the reason must be a text"),
        (1.5, "1.5, which is no score"),
    ],
)
def test_what_no_metric_may_return_is_said(given, said):
    result = grade(lambda output, label: given, "x", "y")
    assert isinstance(result, Failure)
    assert said in result.reason


async def _waits(output, label):
    return 1.0


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (_waits, "is async"),
        (lambda a, b, c, d: 1, "needs 4 arguments"),
        (3, "not a function but int"),
    ],
)
def test_what_is_no_metric_is_said_before_anything_is_graded(metric, said):
    with pytest.raises(InputError, match=said):
        check_metric(metric, "own")
