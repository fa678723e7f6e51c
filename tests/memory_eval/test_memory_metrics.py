"""The figures of memory evaluation against the benchmark's formulas, written a second time here."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from textevolve.evaluation import Failure
from textevolve.memory_eval.dataset import DialogueTurn, MemoryPoint, MemoryQuestion, Session, User
from textevolve.memory_eval.evaluation import (
    METRICS,
    TYPE_METRICS,
    JudgementSums,
    SessionTimes,
    compute_metrics,
)
from textevolve.memory_eval.judging import LABELS, MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.system_operations import Survey, read_recorded

TYPES = ("event", "persona", "relationship")
SOURCES = ("primary", "secondary", "interference", "system")
LOST = Failure("failed", "no usable answer")


# Plain records: what a session gave to remember, and what a judge said of it. A label of None is a
# judgement that failed.

scores = st.sampled_from([None, 0, 1, 2])
points = st.fixed_dictionaries(
    {
        "type": st.sampled_from(TYPES),
        "source": st.sampled_from(SOURCES),
        "importance": st.sampled_from([0.0, 0.1, 0.25, 0.7, 1.0]) | st.floats(0, 1),
        "is_update": st.booleans(),
        "returned": st.booleans(),
        "score": scores,
        "class": st.sampled_from([None, *LABELS["update"]]),
    }
)
memories = st.fixed_dictionaries({"score": scores, "included": st.booleans()})
questions = st.fixed_dictionaries({"class": st.sampled_from([None, *LABELS["question"]])})
sessions = st.fixed_dictionaries(
    {
        "is_generated_qa": st.sampled_from([False, False, False, True]),
        "points": st.lists(points, max_size=6),
        "memories": st.lists(memories, max_size=4),
        "questions": st.lists(questions, max_size=3),
    }
)
users = st.lists(st.lists(sessions, max_size=4), min_size=1, max_size=4)


def published(people, kind, type=None):
    """Every figure from the spec's text, in plain loops; None where a denominator is 0.

    With a memory type: of its points alone, and the benchmark's figures by type.
    """
    every = kind == "all"
    integrity, updates, extracted, requests = [], [], [], []
    for person in people:
        for session in person:
            if session["is_generated_qa"]:
                continue
            for point in session["points"]:
                if type is not None and point["type"] != type:
                    continue
                if point["is_update"] and point["returned"]:
                    updates.append(point)
                elif not session["memories"]:  # nothing extracted: 0 without a call
                    integrity.append({**point, "score": 0})
                else:
                    integrity.append(point)
            if type is None:
                extracted += session["memories"]
                requests += session["questions"]

    def share(numerator, denominator):
        return numerator / denominator if denominator else None

    expected_ps = [p for p in integrity if p["source"] != "interference"]
    traps = [p for p in integrity if p["source"] == "interference"]
    right = [p for p in expected_ps if p["score"] == 2]
    weighted = 0.0
    for p in expected_ps:
        if p["score"] is not None:
            weighted += 0.5 * p["score"] * p["importance"]
    counted = [p for p in expected_ps if every or p["score"] is not None]
    counted_traps = [p for p in traps if every or p["score"] is not None]
    target = [m for m in extracted if m["score"] is not None and m["included"]]
    counted_memories = [m for m in extracted if every or m["score"] is not None]
    fields = {
        "recall": share(len(right), len(counted)),
        "weighted_recall": share(weighted, sum(p["importance"] for p in counted)),
        "fmr": share(len([p for p in traps if p["score"] == 0]), len(counted_traps)),
        "target_precision": share(sum(0.5 * m["score"] for m in target), len(target)),
        "accuracy": share(
            sum(0.5 * m["score"] for m in extracted if m["score"] is not None),
            len(counted_memories),
        ),
    }
    precision, recall = fields["target_precision"], fields["recall"]
    if precision is None or recall is None:
        fields["f1"] = None
    elif precision == recall == 0:
        fields["f1"] = 0.0
    else:
        fields["f1"] = 2 * precision * recall / (precision + recall)
    for task, records in (("update", updates), ("question", requests)):
        usable = [r for r in records if every or r["class"] is not None]
        for label in LABELS[task]:
            hits = len([r for r in records if r["class"] == label])
            fields[f"{task}_{label.lower()}"] = share(hits, len(usable))
    if type is not None:
        total = len([p for p in integrity if every or p["score"] is not None])
        total += len([p for p in updates if every or p["class"] is not None])
        count = len([p for p in integrity if p["score"] == 2])
        updated = len([p for p in updates if p["class"] == "Correct"])
        fields["kept"], fields["updated"] = share(count, total), share(updated, total)
        fields["memory_accuracy"] = share(count + updated, total)
    return fields


def as_user(name, person):
    """The records as recorded data, which is read back into subjects as a result file's is."""
    return User(
        name,
        tuple(
            Session(
                index=number,
                dialogue=(DialogueTurn("user", "hello"),),
                points=tuple(
                    MemoryPoint(
                        index=n,
                        content="it",
                        type=p["type"],
                        source=p["source"],
                        importance=p["importance"],
                        is_update=p["is_update"],
                        returned=("something",) if p["returned"] else (),
                    )
                    for n, p in enumerate(session["points"], 1)
                ),
                questions=tuple(
                    MemoryQuestion("what?", "that", recorded_answer="this")
                    for _ in session["questions"]
                ),
                is_generated_qa=session["is_generated_qa"],
                extracted=tuple("a memory" for _ in session["memories"]),
            )
            for number, session in enumerate(person)
        ),
    )


def judge(subject, session):
    """The judgement that the records have for a subject."""
    if subject.by_rule is not None:
        return MemoryJudgement(subject, MemoryVerdict(subject.by_rule, "by rule"))
    kind = {"accuracy": "memories", "question": "questions"}.get(subject.task, "points")
    record = session[kind][subject.item - 1]
    label = record["class" if subject.task in ("update", "question") else "score"]
    if label is None:
        return MemoryJudgement(subject, LOST)
    return MemoryJudgement(subject, MemoryVerdict(label, "", record.get("included")))


def judgements_of(people):
    survey = Survey(has_extracted=True, has_answers=True)
    for number, person in enumerate(people):
        for piece in read_recorded(as_user(f"user {number}", person), survey):
            if not isinstance(piece, SessionTimes):
                yield judge(piece, person[piece.session])


def sums_of(people):
    sums = JudgementSums()
    for number in range(len(people)):
        sums.add_time(f"user {number}")  # a user counts also where nothing of them was judged
    for judgement in judgements_of(people):
        sums.add(judgement)
    return sums


def same(figure, wanted):
    assert (figure.value is None) == (wanted is None), figure
    if wanted is not None:
        assert math.isclose(figure.value, wanted, rel_tol=0, abs_tol=1e-9)
    else:
        assert figure.reason.startswith("not measured: ")


@given(users)
def test_figures_are_those_of_the_published_formulas(people):
    metrics = compute_metrics(sums_of(people), draws=5)
    for kind in ("all", "valid"):
        expected = published(people, kind)
        for name in METRICS:
            same(getattr(metrics.overall[name], kind), expected[name])
        for type, pairs in metrics.by_type.items():
            expected = published(people, kind, type)
            for name in TYPE_METRICS:
                same(getattr(pairs[name], kind), expected[name])
    present = {
        point["type"]
        for person in people
        for session in person
        if not session["is_generated_qa"]
        for point in session["points"]
    }
    assert set(metrics.by_type) == present


@given(st.lists(st.lists(sessions, max_size=3), min_size=2, max_size=5))
def test_intervals_are_those_of_leaving_out_whole_users(people):
    """So few users are left out one by one; here from their records."""
    metrics = compute_metrics(sums_of(people))
    for kind in ("all", "valid"):
        values = [published(people[:out] + people[out + 1 :], kind) for out in range(len(people))]
        for name in METRICS:
            figure = getattr(metrics.overall[name], kind)
            found = [value[name] for value in values if value[name] is not None]
            if figure.value is None or len(found) < len(people) or np.ptp(found) < 1e-8:
                assert figure.low is None
                assert figure.reason
                continue
            error = np.sqrt((len(found) - 1) * np.var(found))
            half = stats.t.ppf(0.975, len(found) - 1) * error
            expected = max(0, figure.value - half), min(1, figure.value + half)
            if len(found) < 3 or (half > figure.value + 1e-9 and half > 1 - figure.value + 1e-9):
                assert figure.low is figure.high is None
                assert figure.reason == "too few users for an interval"
            elif figure.low is not None:
                assert [figure.low, figure.high] == pytest.approx(expected, abs=1e-9)
            else:  # of an interval that ends where the bounds are, either may be
                assert expected == (0, 1)


def test_two_users_are_too_few():
    people = [[point(2, str(n)), point(0, str(n)), point(2 * n, str(n))] for n in range(2)]
    sums = JudgementSums()
    for judgement in (judgement for person in people for judgement in person):
        sums.add(judgement)
    figure = compute_metrics(sums).overall["recall"].all
    assert (figure.value, figure.low, figure.high) == (0.5, None, None)
    assert figure.reason == "too few users for an interval"


def test_many_users_are_drawn_with_replacement():
    people = [[point(2 if n % 3 else 0, str(n))] for n in range(30)]
    sums = JudgementSums()
    for (judgement,) in people:
        sums.add(judgement)
    figure = compute_metrics(sums, draws=40, seed=7).overall["recall"].all
    drawn = np.random.default_rng(7).integers(0, 30, (40, 30))
    names = sorted(str(n) for n in range(30))
    found = [np.mean([int(names[i]) % 3 > 0 for i in draw]) for draw in drawn]
    assert [figure.low, figure.high] == pytest.approx(np.quantile(found, [0.025, 0.975]))


@given(users, st.randoms(use_true_random=False))
def test_the_order_of_judgements_does_not_matter(people, chance):
    judged = list(judgements_of(people))
    both = []
    for _ in range(2):
        sums = JudgementSums()
        for judgement in judged:
            sums.add(judgement)
        both.append(sums)
        chance.shuffle(judged)
    first_metrics, second_metrics = (compute_metrics(sums, draws=50) for sums in both)
    assert first_metrics == second_metrics


def subject(task="integrity", user="a", label=None, **more):
    return Subject(task, user, 0, 1, {}, **more)


def point(label, user="a", source="primary", importance=1.0, type="event"):
    outcome = label if isinstance(label, Failure) else MemoryVerdict(label, "")
    return MemoryJudgement(
        Subject("integrity", user, 0, 1, {}, type=type, source=source, importance=importance),
        outcome,
    )


def metrics_from(*judgements, **more):
    sums = JudgementSums()
    for judgement in judgements:
        sums.add(judgement)
    return compute_metrics(sums, **more)


def test_what_was_skipped_is_in_neither_and_lowers_coverage():
    metrics = metrics_from(point(2), point(Failure("skipped", "the limit of calls is reached")))
    recall = metrics.overall["recall"]
    assert recall.all.value == recall.valid.value == 1
    assert metrics.coverage["integrity"].skipped == 1
    assert metrics.coverage["integrity"].share == 0.5


def test_nothing_judged_is_not_measured_and_says_why():
    metrics = compute_metrics(JudgementSums(), {"question": "the system does not search"})
    for name, task in METRICS.items():
        for figure in (metrics.overall[name].all, metrics.overall[name].valid):
            assert figure.value is figure.low is figure.high is None
            known = "the system does not search" if task == "question" else "was judged"
            assert figure.reason.startswith("not measured: ")
            assert known in figure.reason
    assert metrics.coverage["update"].share is None
    assert metrics.users == 0
    assert metrics.minutes.total is None
