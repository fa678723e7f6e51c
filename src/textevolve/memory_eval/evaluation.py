"""The records of an evaluation of a memory system, and the sums and metrics of all records.

Records are added one by one and not kept in memory: the metrics are computed from sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from statistics import fmean
from typing import Any, TypeAlias

from textevolve.evaluation import Failure, Result, Usage, empty_default
from textevolve.mappings import map_values
from textevolve.memory_eval.dataset import Malformed
from textevolve.memory_eval.judging import (
    Label,
    MemoryJudgement,
    MemoryVerdict,
    Subject,
    Task,
)
from textevolve.memory_eval.metrics import JudgementSums, MemoryMetrics, compute_metrics
from textevolve.memory_eval.published import LOCOMO_TYPES

TEXT_KEPT = 20_000
"""The maximum number of characters of a text in a record; the journal stores the whole text."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The size of an evaluation: the numbers of users and sessions. `not_measured`: the reasons why
    tasks are not measured. `run`: the id of the run."""

    users: int
    sessions: int
    not_measured: Mapping[Task, str]
    run: str = ""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """The record of a session that the system has processed. `judgements`: the number of judgements
    to make. `adding`, `searching`: the seconds that the system took; None if unknown. `stopped`:
    the reason if a limit of the run, or of one of the system's own models, was reached in the
    session; empty otherwise."""

    user: str
    session: int
    judgements: int = 0
    adding: float | None = None
    searching: float | None = None
    stopped: str = ""


EvaluationRecord: TypeAlias = Scope | Malformed | SessionTimes | MemoryJudgement


@dataclass
class MemoryEvaluation(Result):
    """The sums of an evaluation, to which judgements are added one by one without their texts.

    `seed`: of the bootstrap. `sums`: the figures of each user, from which metrics are computed.
    `malformed`: the invalid lines of the data. `counts` and `labels`: the numbers of judgements by
    outcome, and by task and label. `token_f1`: the published figure of each answer to a question of
    LoCoMo's types, by type; `needs`: the package that it lacks. `skipped`: the limit that stopped
    the evaluation; empty if it is complete.
    """

    seed: int = 0
    scope: Scope = Scope(0, 0, {})
    sums: JudgementSums = field(default_factory=JudgementSums)
    malformed: list[Malformed] = empty_default(list)
    counts: Counter[str] = empty_default(Counter)
    labels: Counter[tuple[Task, Label]] = empty_default(Counter)
    token_f1: dict[str, list[float]] = empty_default(dict)
    needs: str = ""
    usage: Usage = Usage()
    skipped: str = ""
    _failures: Counter[tuple[Task, str]] = empty_default(Counter)
    _sessions: int = 0
    _expected: int = 0

    @cached_property
    def metrics(self) -> MemoryMetrics:
        """Return the metrics; call it once all judgements are added."""
        return compute_metrics(self.sums, self.scope.not_measured, seed=self.seed)

    @property
    def complete(self) -> bool:
        """Check whether all sessions were processed and every judgement was tried (failed ones
        count), without a limit stopping the evaluation."""
        done = self._sessions == self.scope.sessions and not self.skipped
        return done and self._expected == sum(self.counts.values())

    @property
    def published_f1(self) -> dict[str, dict[str, float]]:
        """Return the mean token F1 (`value`) and the number of answers (`of`), of all and by type
        of question."""
        return {kind: {"value": fmean(f1), "of": len(f1)} for kind, f1 in self.token_f1.items()}

    @property
    def failures(self) -> list[tuple[Task, str, int]]:
        """Return the reasons of failed judgements with their numbers by task, most frequent
        first."""
        return [(task, reason, number) for (task, reason), number in self._failures.most_common()]

    def take(self, record: EvaluationRecord) -> None:
        match record:
            case Scope():
                self.scope = record
            case Malformed():
                self.malformed.append(record)
                self.malformed.sort(key=lambda line: line.line)
            case SessionTimes():
                self._sessions += not record.stopped
                self.skipped = record.stopped or self.skipped
                self._expected += record.judgements
                self.sums.add_time(record.user, adding=record.adding, searching=record.searching)
            case MemoryJudgement():
                self._take(record)

    def _take(self, judgement: MemoryJudgement) -> None:
        task = judgement.subject.task
        outcome = judgement.outcome
        self.sums.add(judgement)
        self.usage += judgement.usage
        self._compare_words(judgement.subject)

        if isinstance(outcome, Failure):
            self.counts[outcome.kind] += 1
            if outcome.kind == "skipped":
                self.skipped = outcome.reason
            else:
                self._failures[task, outcome.reason] += 1
        else:
            self.counts["judged"] += 1
            self.labels[task, outcome.label] += 1

    def _compare_words(self, subject: Subject) -> None:
        """Add the token F1 of an answer to a question of LoCoMo, whatever a judge says of it."""
        kind = subject.question_type
        if kind not in LOCOMO_TYPES.values() or "answer" not in subject.texts or subject.failure:
            return
        try:
            score_answer = import_module("textevolve.memory_eval.token_f1").score_answer
        except ModuleNotFoundError as error:
            self.needs = str(error.name)
            return
        texts = subject.texts
        score = score_answer(kind, texts["answer"], texts["reference"])
        for part in ("all", kind):
            self.token_f1.setdefault(part, []).append(score)


def collect(records: Iterable[EvaluationRecord], seed: int = 0) -> MemoryEvaluation:
    evaluation = MemoryEvaluation(seed)
    for record in records:
        evaluation.take(record)
    return evaluation


def score_of(judgement: MemoryJudgement) -> float | None:
    """Return a score in [0, 1]: half the label, inverted for points that must not be stored; for
    classes 1 for Correct and 0 for the others. None without a verdict."""
    outcome = judgement.outcome
    if isinstance(outcome, Failure):
        return None
    if isinstance(outcome.label, str):
        return float(outcome.label == "Correct")
    share = outcome.label / 2

    return 1 - share if judgement.subject.source == "interference" else share


def clip_texts(judgement: MemoryJudgement) -> MemoryJudgement:
    """Return the judgement with long texts truncated and marked as such."""
    texts = map_values(_clip, judgement.subject.texts)
    return replace(judgement, subject=replace(judgement.subject, texts=texts))


def _clip(text: str) -> str:
    excess = len(text) - TEXT_KEPT
    return text if excess <= 0 else f"{text[:TEXT_KEPT]}… ({excess:,} more characters)"


def to_row(judgement: MemoryJudgement) -> dict[str, Any]:
    """Convert a judgement into a row of a table."""
    subject = judgement.subject
    outcome = judgement.outcome
    return {
        "user": subject.user,
        "session": subject.session,
        "task": subject.task,
        "item": subject.item,
        "type": subject.type,
        "source": subject.source,
        "importance": subject.importance,
        "question_type": subject.question_type,
        "difficulty": subject.difficulty,
        "by_rule": subject.by_rule is not None,
        "score": score_of(judgement),
        "verdict": asdict(outcome) if isinstance(outcome, MemoryVerdict) else None,
        "failure": asdict(outcome) if isinstance(outcome, Failure) else None,
        "texts": dict(subject.texts),
        "usage": asdict(judgement.usage),
    }
