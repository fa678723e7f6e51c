"""Generated sets of labelled responses, and the figures of other packages for them.

`python tests/bench/agreement_oracle.py` writes `agreement_oracle.jsonl` beside it, with figures of
scikit-learn, statsmodels and krippendorff, none of which the tests need.
"""

import json
import math
import warnings
from pathlib import Path

import numpy as np

SETS, FIGURES = 200, Path(__file__).with_suffix(".jsonl")


def generate(seed):
    """Scores and verdicts of a judge, labels of annotators (NaN: missing) and weights: with ties,
    missing values, and in some sets one class alone."""
    rng = np.random.default_rng(seed)
    size, annotators = int(rng.integers(3, 70)), int(rng.choice([1, 2, 3, 4]))
    quality = rng.random(size)
    scores = np.round(quality + rng.normal(0, 0.3, size), int(rng.choice([1, 2, 6]))).clip(0, 1)
    scores[rng.random(size) < rng.choice([0, 0.2])] = math.nan
    labels = (quality + rng.normal(0, 0.3, (annotators, size)) > 0.5).astype(float)
    if seed % 10 == 0:
        labels[:] = seed % 20 == 0
    if annotators > 1:
        labels[rng.random(labels.shape) < 0.2] = math.nan
    return scores, labels, rng.integers(0, 4, size).astype(float)


def majorities(labels):
    """Whether most annotators pass each response; NaN if half of them do, or nobody labelled it."""
    passes, count = np.nansum(labels, axis=0), (~np.isnan(labels)).sum(axis=0)
    return np.where(2 * passes == count, math.nan, 2 * passes > count)


def measure(seed):
    import krippendorff
    from sklearn import metrics
    from statsmodels.stats.inter_rater import cohens_kappa

    scores, labels, weights = generate(seed)
    people = majorities(labels)
    known_values = ~np.isnan(scores + people)
    score, truth, weight = (
        scores[known_values],
        people[known_values].astype(int),
        weights[known_values],
    )
    judged = (score >= 0.5).astype(int)

    def alpha(ratings):
        present = ratings[~np.isnan(ratings)]
        shared = (~np.isnan(ratings)).sum(axis=0) > 1
        if (
            not shared.any()
            or len(np.unique(ratings[:, shared][~np.isnan(ratings[:, shared])])) < 2
        ):
            return None
        assert present.size
        return krippendorff.alpha(ratings, level_of_measurement="nominal", value_domain=[0.0, 1.0])

    def area(sample_weight=None):
        used = truth if sample_weight is None else truth[sample_weight > 0]
        if len(np.unique(used)) < 2:
            return None
        return metrics.roc_auc_score(truth, score, sample_weight=sample_weight)

    def kappa(sample_weight=None):
        return metrics.cohen_kappa_score(truth, judged, labels=[0, 1], sample_weight=sample_weight)

    undefined = {"pos_label": 0, "zero_division": math.nan}
    figures = {
        "accuracy": metrics.accuracy_score(truth, judged) if truth.size else None,
        "precision": metrics.precision_score(truth, judged, **undefined) if truth.size else None,
        "recall": metrics.recall_score(truth, judged, **undefined) if truth.size else None,
        "kappa": kappa() if truth.size else None,
        "kappa_weighted": kappa(weight) if weight.any() else None,
        "auc": area(),
        "auc_weighted": area(weight) if weight.any() else None,
        "alpha": alpha(np.array([judged, truth], dtype=float)) if truth.size else None,
        "alpha_of_people": alpha(labels),
        "brier": metrics.brier_score_loss(truth, score)
        if len(labels) == 1 and truth.size
        else None,
    }
    table = metrics.confusion_matrix(truth, judged, labels=[0, 1]) if truth.size else np.eye(2)
    if figures["kappa"] is not None and not math.isnan(figures["kappa"]):
        assert math.isclose(cohens_kappa(table).kappa, figures["kappa"], abs_tol=1e-12)
    undefined = {name for name, value in figures.items() if value is None or math.isnan(value)}
    return {
        name: None if name in undefined else float(f"{value:.12g}")
        for name, value in figures.items()
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    FIGURES.write_text("".join(json.dumps(measure(seed)) + "\n" for seed in range(SETS)))
