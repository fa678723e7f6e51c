"""The figures of memory evaluation against the benchmark's formulas, written a second time here."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from textevolve.evaluation import Failure
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
)
from textevolve.memory_eval.evaluation import SessionTimes
from textevolve.memory_eval.items_to_judge import Survey, read_recorded
from textevolve.memory_eval.judgement import LABELS, MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.metrics import (
    METRICS,
    TYPE_METRICS,
    JudgementSums,
    compute_metrics,
    to_json,
)

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
    integrity, updates, extracted, asked = [], [], [], []
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
                asked += session["questions"]

    def share(numerator, denominator):
        return numerator / denominator if denominator else None

    wanted = [p for p in integrity if p["source"] != "interference"]
    traps = [p for p in integrity if p["source"] == "interference"]
    right = [p for p in wanted if p["score"] == 2]
    weighted = 0.0
    for p in wanted:
        if p["score"] is not None:
            weighted += 0.5 * p["score"] * p["importance"]
    counted = [p for p in wanted if every or p["score"] is not None]
    counted_traps = [p for p in traps if every or p["score"] is not None]
    target = [m for m in extracted if m["score"] is not None and m["included"]]
    counted_memories = [m for m in extracted if every or m["score"] is not None]
    found = {
        "recall": share(len(right), len(counted)),
        "weighted_recall": share(weighted, sum(p["importance"] for p in counted)),
        "fmr": share(len([p for p in traps if p["score"] == 0]), len(counted_traps)),
        "target_precision": share(sum(0.5 * m["score"] for m in target), len(target)),
        "accuracy": share(
            sum(0.5 * m["score"] for m in extracted if m["score"] is not None),
            len(counted_memories),
        ),
    }
    precision, recall = found["target_precision"], found["recall"]
    if precision is None or recall is None:
        found["f1"] = None
    elif precision == recall == 0:
        found["f1"] = 0.0
    else:
        found["f1"] = 2 * precision * recall / (precision + recall)
    for task, records in (("update", updates), ("question", asked)):
        usable = [r for r in records if every or r["class"] is not None]
        for label in LABELS[task]:
            hits = len([r for r in records if r["class"] == label])
            found[f"{task}_{label.lower()}"] = share(hits, len(usable))
    if type is not None:
        total = len([p for p in integrity if every or p["score"] is not None])
        total += len([p for p in updates if every or p["class"] is not None])
        kept = len([p for p in integrity if p["score"] == 2])
        updated = len([p for p in updates if p["class"] == "Correct"])
        found["kept"], found["updated"] = share(kept, total), share(updated, total)
        found["memory_accuracy"] = share(kept + updated, total)
    return found


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
    kept = Survey(has_extracted=True, has_answers=True)
    for number, person in enumerate(people):
        for piece in read_recorded(as_user(f"user {number}", person), kept):
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


@settings(max_examples=2 * settings().max_examples)
@given(users)
def test_figures_are_those_of_the_published_formulas(people):
    made = compute_metrics(sums_of(people), draws=5)
    for kind in ("all", "valid"):
        wanted = published(people, kind)
        for name in METRICS:
            same(getattr(made.overall[name], kind), wanted[name])
        for type, pairs in made.by_type.items():
            wanted = published(people, kind, type)
            for name in TYPE_METRICS:
                same(getattr(pairs[name], kind), wanted[name])
    present = {
        point["type"]
        for person in people
        for session in person
        if not session["is_generated_qa"]
        for point in session["points"]
    }
    assert set(made.by_type) == present


@given(st.lists(st.lists(sessions, max_size=3), min_size=2, max_size=5))
def test_intervals_are_those_of_leaving_out_whole_users(people):
    """So few users are left out one by one; here from their records."""
    made = compute_metrics(sums_of(people))
    for kind in ("all", "valid"):
        values = [published(people[:out] + people[out + 1 :], kind) for out in range(len(people))]
        for name in METRICS:
            figure = getattr(made.overall[name], kind)
            found = [value[name] for value in values if value[name] is not None]
            if figure.low is None:
                assert figure.value is None or len(found) < len(people) or np.ptp(found) < 1e-8
                assert figure.reason
            else:
                error = np.sqrt((len(found) - 1) * np.var(found))
                half = stats.t.ppf(0.975, len(found) - 1) * error
                wanted = max(0, figure.value - half), min(1, figure.value + half)
                assert [figure.low, figure.high] == pytest.approx(wanted, abs=1e-9)


def test_many_users_are_drawn_with_replacement():
    people = [[point(2 if n % 3 else 0, str(n))] for n in range(30)]
    sums = JudgementSums()
    for (one,) in people:
        sums.add(one)
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
        for one in judged:
            sums.add(one)
        both.append(sums)
        chance.shuffle(judged)
    first, second = (compute_metrics(sums, draws=50) for sums in both)
    assert first == second


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


def test_a_failure_stays_in_all_and_leaves_valid():
    made = metrics_from(point(2), point(LOST))
    recall = made.overall["recall"]
    assert (recall.all.value, recall.all.of) == (0.5, 2)
    assert (recall.valid.value, recall.valid.of) == (1, 1)
    coverage = made.coverage["integrity"]
    assert (coverage.asked, coverage.valid, coverage.failed, coverage.share) == (2, 1, 1, 0.5)


def test_what_was_skipped_is_in_neither_and_lowers_coverage():
    made = metrics_from(point(2), point(Failure("skipped", "the limit of calls is reached")))
    recall = made.overall["recall"]
    assert recall.all.value == recall.valid.value == 1
    assert made.coverage["integrity"].skipped == 1
    assert made.coverage["integrity"].share == 0.5


def test_nothing_judged_is_not_measured_and_says_why():
    made = compute_metrics(JudgementSums(), {"question": "the system does not search"})
    for name, task in METRICS.items():
        for figure in (made.overall[name].all, made.overall[name].valid):
            assert figure.value is figure.low is figure.high is None
            known = "the system does not search" if task == "question" else "was asked"
            assert figure.reason.startswith("not measured: ")
            assert known in figure.reason
    assert made.coverage["update"].share is None
    assert made.users == 0
    assert made.minutes.total is None


def test_what_is_made_of_a_task_that_is_not_measured_is_not_measured():
    update = MemoryJudgement(
        subject("update", type="event", source="primary"), MemoryVerdict("Correct", "")
    )
    made = metrics_from(update, not_measured={"integrity": "it does not say"}).by_type["event"]
    assert made["update_correct"].all.value == 1
    for name in ("kept", "updated", "memory_accuracy"):
        assert made[name].all.value is None
        assert made[name].all.reason == "not measured: it does not say"


def test_zero_denominators_say_what_is_lacking():
    made = metrics_from(
        point(1, importance=0.0),
        MemoryJudgement(subject("accuracy"), MemoryVerdict(2, "", included=False)),
        MemoryJudgement(subject("update"), LOST),
    ).overall
    assert made["weighted_recall"].all.reason == "not measured: no point has an importance"
    assert "interference" in made["fmr"].all.reason
    assert made["target_precision"].all.reason == "not measured: no memory is included in the gold"
    assert made["f1"].all.value is None
    assert made["update_correct"].all.value == 0
    assert made["update_correct"].valid.reason == "not measured: no judgement of update is usable"


def test_f1_of_two_measured_zeros_is_zero():
    wrong = MemoryJudgement(subject("accuracy"), MemoryVerdict(0, "", included=True))
    made = metrics_from(point(0), wrong).overall["f1"]
    assert made.all.value == made.valid.value == 0


def test_one_user_has_no_interval():
    recall = metrics_from(point(2), point(0)).overall["recall"].all
    assert (recall.value, recall.low, recall.high) == (0.5, None, None)
    assert recall.reason == "no interval: one user only"


def asked(label, user="a", type="", difficulty=""):
    outcome = label if isinstance(label, Failure) else MemoryVerdict(label, "")
    return MemoryJudgement(
        subject("question", user, question_type=type, difficulty=difficulty), outcome
    )


def test_answers_are_told_apart_by_question_type_and_difficulty():
    made = metrics_from(
        asked("Correct", "a", "Recall", "easy"),
        asked("Omission", "a", "Recall", "hard"),
        asked("Hallucination", "b", "Boundary", "hard"),
        asked(LOST, "b", "Boundary", "hard"),
        asked(Failure("skipped", "a limit"), "b", "Update"),
        point(2),
        draws=50,
    )
    assert list(made.by_question_type) == ["Boundary", "Recall", "Update"]
    recall = made.by_question_type["Recall"].metrics["question_correct"].all
    assert (recall.value, recall.of) == (0.5, 2)
    boundary = made.by_question_type["Boundary"]
    assert boundary.metrics["question_hallucination"].all.value == 0.5
    assert boundary.metrics["question_hallucination"].valid.value == 1
    assert (boundary.coverage.asked, boundary.coverage.valid) == (2, 1)
    skipped = made.by_question_type["Update"]
    for pair in skipped.metrics.values():
        assert pair.all.value is None
        assert pair.all.reason == "not measured: nothing of question was asked"
    assert (skipped.coverage.skipped, skipped.coverage.share) == (1, 0)
    assert list(made.by_difficulty) == ["easy", "hard", ""]  # of one it is not said
    of = {name: one.coverage.asked for name, one in made.by_difficulty.items()}
    assert of == {"easy": 1, "hard": 3, "": 0}
    assert sum(one.coverage.valid for one in made.by_difficulty.values()) == 3
    written = to_json(made)["by_question_type"]["Update"]
    assert written["metrics"]["question_correct"]["all"]["value"] is None
    assert written["coverage"] == {"asked": 0, "valid": 0, "skipped": 1, "failed": 0, "share": 0}


def test_where_the_data_tells_nothing_apart_there_is_nothing_by_it():
    made = metrics_from(asked("Correct"), point(2))
    assert made.by_question_type == made.by_difficulty == {}
    assert made.overall["question_correct"].all.value == 1


def test_answers_of_one_type_have_the_intervals_of_a_run_with_that_type_alone():
    chance = random.Random(3)
    every = [
        asked(chance.choice(["Correct", "Omission", LOST]), f"user {n % 9}", f"type {n % 31}")
        for n in range(900)
    ]
    made = metrics_from(*every, draws=200).by_question_type
    assert len(made) == 31  # more than are drawn at once
    for name in ("type 0", "type 30"):
        alone = metrics_from(
            *(one for one in every if one.subject.question_type == name), draws=200
        )
        wanted = alone.overall["question_correct"]
        assert made[name].metrics["question_correct"] == wanted


def test_users_who_are_all_alike_have_no_interval_of_width_zero():
    recall = metrics_from(point(2, "a"), point(2, "b")).overall["recall"].all
    assert (recall.value, recall.low) == (1, None)
    assert recall.reason == "no interval: no variation between the users"


def test_interference_is_apart_from_recall_but_in_the_published_figure_by_type():
    made = metrics_from(point(2), point(2, source="interference"), point(0, source="interference"))
    assert made.overall["recall"].all.value == 1
    assert made.overall["fmr"].all.value == 0.5
    assert made.by_type["event"]["memory_accuracy"].all.value == pytest.approx(2 / 3)


def test_minutes_are_sums_and_none_where_nothing_is_known():
    sums = JudgementSums()
    sums.add_time("a", adding=30)
    sums.add_time("b", adding=60, answering=6)
    sums.add_time("b", adding=None)
    minutes = compute_metrics(sums).minutes
    assert (minutes.adding, minutes.searching, minutes.answering) == (1.5, None, 0.1)
    assert minutes.total == 1.5


@given(users)
def test_figures_are_plain_json_without_nan(people):
    made = to_json(compute_metrics(sums_of(people), draws=5))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert set(made["overall"]) == set(METRICS)
    assert set(made["coverage"]["update"]) == {"asked", "valid", "skipped", "failed", "share"}


def test_sums_do_not_grow_with_what_is_judged():
    sums = JudgementSums()
    chance = random.Random(0)
    for number in range(2000):
        sums.add(point(chance.choice([0, 1, 2]), f"user {number % 3}", type=TYPES[number % 3]))
    assert sum(len(row) for row in sums.sums.values()) == 6  # of all, and of each one's type
    assert compute_metrics(sums, draws=10).coverage["integrity"].asked == 2000


def test_many_users_are_drawn_in_blocks():
    sums = JudgementSums()
    for number in range(1500):
        sums.add(point(2 * (number % 2), f"user {number}"))
    recall = compute_metrics(sums).overall["recall"].all
    assert recall.value == 0.5
    assert 0.45 < recall.low < 0.5 < recall.high < 0.55
