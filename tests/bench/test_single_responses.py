"""Pass/fail labels on single responses: reading them, and the figures of judges on them."""

import json
import math

import numpy as np
import pytest
from agreement_oracle import FIGURES, SETS, generate, majorities
from hypothesis import given
from hypothesis import strategies as st

from textevolve.bench.agreement import summarise, validate_threshold
from textevolve.bench.fitting import draw_folds
from textevolve.bench.items import Item, items_of, load_items
from textevolve.bench.verdicts import Verdict
from textevolve.errors import InputError
from textevolve.statistics.agreement import (
    area_under_curve,
    best_threshold,
    kappa_of,
    weighted_area,
)
from textevolve.studies.labels.agreement import _draw_curve
from textevolve.studies.labels.fit import FitSpec, names_of


def rows_of(*labels, **columns):
    return [
        {"input": f"q{n}", "output": f"a{n}", "label": v, **columns} for n, v in enumerate(labels)
    ]


@pytest.mark.parametrize(
    ("labels", "good", "human"),
    [
        (["pass", "FAIL", "good", "bad"], None, [1, 0, 1, 0]),
        ([True, False, "yes", "no"], None, [1, 0, 1, 0]),
        ([1, 0, "1", "0.4"], None, [1, 0, 1, 0]),
        ([1, 2, 4, 5], None, [0, 0, 1, 1]),  # the upper half of the scale that is used
        ([1, 2, 4, 5], "5", [0, 0, 0, 1]),
        (["supported", "partly", "not"], "Supported, partly", [1, 1, 0]),
    ],
)
def test_labels_are_passes_and_failures(labels, good, human):
    assert [item.human for item in items_of(rows_of(*labels), good)] == [(h,) for h in human]


def test_annotators_have_a_column_each(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "id,question,answer,label_ann,label_bob,label_cy,context\n"
        "x,Why?,Because.,pass,fail,pass,c\ny,How?,So.,,1,0,\nz,Who?,Me.,,,,\n"
    )
    x, y = load_items(path)  # nobody labelled z
    assert x == Item(
        "x", "Why?", ("Because.",), (2 / 3,), x.group, context="c",
        labels=(("ann", 1.0), ("bob", 0.0), ("cy", 1.0)),
    )  # fmt: skip
    assert (y.human, y.labels) == ((0.5,), (("bob", 1.0), ("cy", 0.0)))


def test_an_exported_labelling_task_is_read_again():
    row = {"id": "x", "input": "q", "candidate": 2, "output": "text", "human": 0.5, "labels": 2}
    (item,) = items_of([{**row, "label_ann": 1.0, "label_bob": 0.0}])
    assert (item.id, item.candidates, item.human) == ("x.2", ("text",), (0.5,))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (rows_of("pass", "supported"), "row 2: 'label' must be pass or fail .*with --good"),
        (rows_of(None), "no row has a label"),
        (
            [{"input": "q", "messages": [{"role": "user", "content": "?"}], "label": 1}],
            "one output",
        ),
    ],
)
def test_what_is_no_label_is_refused(rows, reason):
    with pytest.raises(InputError, match=reason):
        items_of(rows)


def test_single_responses_and_pairs_are_measured_apart(tmp_path):
    from textevolve.bench.items import read_items

    single, pair = tmp_path / "single.jsonl", tmp_path / "pair.jsonl"
    single.write_text('{"id": "s", "input": "q", "output": "a", "label": 1}\n')
    pair.write_text('{"id": "p", "input": "q", "a": "x", "b": "y", "winner": 1}\n')
    with pytest.raises(InputError, match="separate commands"):
        read_items([str(single), str(pair)])


def summarised(scores, labels, **options):
    """The summary of a judge that passes from 0.5 on; labels (annotators, items)."""
    items, verdicts = [], []
    for n, (score, answers) in enumerate(zip(scores, labels.T, strict=True)):
        known = [(str(who), float(v)) for who, v in enumerate(answers) if not math.isnan(v)]
        human = sum(v for _, v in known) / len(known) if known else math.nan
        items.append(Item(str(n), f"q{n}", ("a",), (human,), labels=tuple(known)))
        if not math.isnan(score):
            score = float(score)
            verdict = Verdict("j", str(n), "given", (score,), score=score, passed=score >= 0.5)
            verdicts.append(verdict)
    return summarise(items, verdicts, **options)


def same(figure, expected):
    if expected is None:
        return math.isnan(figure)
    return figure == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_figures_are_those_of_scikit_learn_statsmodels_and_krippendorff(part):
    """The quick part is a fifth of the sets."""
    expected = [json.loads(line) for line in FIGURES.read_text().splitlines()]
    assert len(expected) == SETS
    for seed, figures in enumerate(expected):
        scores, labels, weights = generate(seed)
        if bool(seed % 5) != part or np.isnan(scores).all():
            continue
        summary = summarised(scores, labels)
        (judge,) = summary.judges
        verdicts, fields = judge.responses.verdicts, {"alpha_of_people": summary.people.alpha.value}
        for name in ("accuracy", "precision", "recall", "kappa", "alpha"):
            fields[name] = getattr(verdicts, name).value
        people = majorities(labels)
        known_values = ~np.isnan(scores + people)
        cells = zip(
            scores[known_values] >= 0.5, people[known_values], weights[known_values], strict=True
        )
        table = np.zeros((2, 2))
        for passed, truth, weight in cells:
            table[int(passed), int(truth)] += weight
        fields["kappa_weighted"] = float(kappa_of(table))
        fields["auc"] = judge.responses.auc.value
        fields["auc_weighted"] = float(
            weighted_area(scores[known_values], people[known_values], weights[known_values])
        )
        fields["brier"] = judge.calibration.brier.value if len(labels) == 1 else math.nan
        wrong = {
            name: (v, figures[name]) for name, v in fields.items() if not same(v, figures[name])
        }
        assert not wrong, seed


graded = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.8, 0.9]), st.booleans()), min_size=1)


@given(graded)
def test_area_and_threshold_are_those_of_pairs_counted_one_by_one(rows):
    scores, passed = np.array([s for s, _ in rows]), np.array([float(p) for _, p in rows])
    good, bad = scores[passed == 1].tolist(), scores[passed == 0].tolist()
    won = [1.0 if g > b else 0.5 if g == b else 0.0 for g in good for b in bad]
    area = area_under_curve(scores, passed).value
    assert area == pytest.approx(sum(won) / len(won)) if won else math.isnan(area)

    def kappa(least):
        table = np.zeros((2, 2))
        for score, label in rows:
            table[int(score >= least), int(label)] += 1
        return float(kappa_of(table))

    best = best_threshold(scores, passed)
    tried = [kappa(least) for least in sorted(set(scores.tolist()))[1:]]  # some fail, some pass
    tried = [each for each in tried if not math.isnan(each)]
    assert math.isnan(best) == (not tried)
    assert not tried or kappa(best) == pytest.approx(max(tried))


def test_a_threshold_is_never_chosen_by_the_question_that_it_is_reported_on():
    rng = np.random.default_rng(3)
    scores = rng.random(60)
    people = (scores + rng.normal(0, 0.2, 60) > 0.4).astype(float)
    groups = [f"g{n // 2}" for n in range(60)]
    passed = validate_threshold(scores, people, groups)
    folds = draw_folds(np.arange(60) // 2, 10, 0)
    changed = 0
    for fold in range(10):
        held = folds == fold
        other = validate_threshold(scores, np.where(held, 1 - people, people), groups)
        np.testing.assert_array_equal(passed[held], other[held])
        changed += int((passed[~held] != other[~held]).sum())
    assert changed
    assert all(len(set(folds[2 * n : 2 * n + 2])) == 1 for n in range(30))


def test_a_threshold_that_is_given_replaces_the_verdicts_of_the_judge():
    labels = np.array([[1.0, 1.0, 0.0, 0.0, 0.0]])
    scores = np.array([0.9, 0.7, 0.6, 0.6, 0.2])
    own_summary, moved = (summarised(scores, labels, threshold=t).judges[0] for t in (None, 0.65))
    assert (own_summary.accuracy.value, moved.accuracy.value) == (0.6, 1.0)
    assert (own_summary.responses.verdicts.recall.value, own_summary.position) == (
        pytest.approx(1 / 3),
        None,
    )
    assert own_summary.responses.threshold == pytest.approx(0.65)
    blind = dict(summarised(scores, labels).blind_answers)
    assert blind == {"always pass": 0.4, "always fail": 0.6}


def test_a_fit_to_single_responses_takes_no_signal_that_only_compares():
    spec, items = FitSpec(items="labels.jsonl"), items_of(rows_of(1, 0))
    assert names_of(spec, items) == ("probe", "instruction-likelihood", "look:length")
    assert "pairwise" in names_of(FitSpec(items="x", signals="pairwise,probe"), items)


def test_the_curve_shows_agreement_at_each_threshold():
    items = items_of(rows_of("pass", "fail", "pass", "fail"))
    scores = (0.9, 0.2, 0.4, 0.6)
    verdicts = [
        Verdict("j", item.id, "given", (score,), score=score, passed=score >= 0.5)
        for item, score in zip(items, scores, strict=True)
    ]
    verdicts += [Verdict("none", item.id, "given", (None,)) for item in items]
    curve = _draw_curve(items, verdicts)
    at = dict(zip(curve.places, curve.lines["j"], strict=True))
    # From 0.3 on 0.9, 0.4 and 0.6 pass, and people pass two of them; from 0.95 on none does.
    assert (at["0.0"], at["0.3"], at["0.4"], at["0.5"], at["0.95"]) == (0.5, 0.75, 0.75, 0.5, 0.5)
    assert "none" not in curve.lines
