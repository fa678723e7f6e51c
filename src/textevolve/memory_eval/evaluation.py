"""What an evaluation of a memory system gives: its records, and what is made of them all.

Records are taken in one by one and not kept: sums make the metrics, and a few judgements of each
task, the worst first, are remembered for people to look at.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from textevolve.evaluation import Failure, Usage
from textevolve.memory_eval.dataset import Malformed
from textevolve.memory_eval.judgement import (
    LABELS,
    TASKS,
    Label,
    MemoryJudgement,
    MemoryVerdict,
    Task,
)
from textevolve.memory_eval.metrics import JudgementSums, MemoryMetrics, compute_metrics

TEXT_KEPT = 20_000
"""Characters of a text that a record keeps; the journal has all of it."""
REMEMBERED = 250
REMEMBERED_TEXT = 4_000


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured: on how many users and sessions, and why tasks are not asked about at all.
    `run`: the id of the run."""

    users: int
    sessions: int
    not_measured: Mapping[Task, str]
    run: str = ""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """A session that was done, with so many judgements to be made of it, and the seconds that the
    system took and the tokens that its models used; None where they are not known. `stopped`: the
    limit that was reached in it, as its own models have limits, too; empty where none was."""

    user: str
    session: int
    judgements: int = 0
    adding: float | None = None
    searching: float | None = None
    answering: float | None = None
    tokens: int | None = None
    stopped: str = ""


EvaluationRecord: TypeAlias = Scope | Malformed | SessionTimes | MemoryJudgement


@dataclass(frozen=True)
class MemoryEvaluation:
    """`metrics` of what was judged; `skipped` says which limit kept the rest from being asked, and
    is empty where all was; `whole`: all that was to be judged was. `malformed`: lines of the data
    that are no users. `run`: its id. `worst`: of each task the judgements to look at
    first. `system_tokens`: what the system's own models used in the `sessions_fed`, None where it
    does not say."""

    metrics: MemoryMetrics
    usage: Usage
    skipped: str
    malformed: tuple[Malformed, ...]
    run: str
    whole: bool
    scope: Scope
    counts: Mapping[str, int]
    labels: Mapping[tuple[Task, Label], int]
    failures: Sequence[tuple[Task, str, int]]
    worst: Mapping[Task, Sequence[MemoryJudgement]]
    sums: JudgementSums
    system_tokens: int | None = None
    sessions_fed: int = 0


@dataclass(slots=True)
class CollectedEvaluation:
    """Everything about an evaluation but its judgements' texts."""

    scope: Scope = Scope(0, 0, {})
    sums: JudgementSums = field(default_factory=JudgementSums)
    malformed: list[Malformed] = field(default_factory=list[Malformed])
    counts: Counter[str] = field(default_factory=Counter[str])
    failures: Counter[tuple[Task, str]] = field(default_factory=Counter[tuple[Task, str]])
    labels: Counter[tuple[Task, Label]] = field(default_factory=Counter[tuple[Task, Label]])
    usage: Usage = field(default_factory=Usage)
    skipped: str = ""
    tokens: int | None = None
    adding: int = 0
    _sessions: int = 0
    _expected: int = 0
    _worst: dict[Task, list[tuple[float, int, MemoryJudgement]]] = field(
        default_factory=dict[Task, list[tuple[float, int, MemoryJudgement]]]
    )

    def take(self, record: EvaluationRecord) -> None:
        match record:
            case Scope():
                self.scope = record
            case Malformed():
                self.malformed.append(record)
            case SessionTimes():
                self._sessions += not record.stopped
                self.skipped = record.stopped or self.skipped
                if record.tokens is not None:
                    self.tokens = (self.tokens or 0) + record.tokens
                self.adding += record.adding is not None
                self._expected += record.judgements
                times = {n: getattr(record, n) for n in ("adding", "searching", "answering")}
                self.sums.add_time(record.user, **times)
            case MemoryJudgement():
                self._take(record)

    def _take(self, judgement: MemoryJudgement) -> None:
        task, outcome = judgement.subject.task, judgement.outcome
        self.sums.add(judgement)
        self.sums.add_time(judgement.subject.user, answering=judgement.answering)
        self.usage += judgement.usage
        if isinstance(outcome, Failure):
            self.counts[outcome.kind] += 1
            if outcome.kind == "skipped":
                self.skipped = outcome.reason
            else:
                self.failures[task, outcome.reason] += 1
        else:
            self.counts["judged"] += 1
            self.labels[task, outcome.label] += 1
        self._remember(judgement)

    def _remember(self, judgement: MemoryJudgement) -> None:
        kept = self._worst.setdefault(judgement.subject.task, [])
        entry = (badness(judgement), -sum(self.counts.values()), judgement)
        if len(kept) < REMEMBERED:
            heapq.heappush(kept, (*entry[:2], clip_texts(judgement, REMEMBERED_TEXT)))
        elif entry[:2] > kept[0][:2]:
            heapq.heapreplace(kept, (*entry[:2], clip_texts(judgement, REMEMBERED_TEXT)))

    def worst(self, task: Task) -> list[MemoryJudgement]:
        """Those that are remembered: what failed first, then from the worst to the best."""
        found = (judgement for _, _, judgement in self._worst.get(task, ()))
        return sorted(found, key=lambda j: (-badness(j), _place(j)))

    def conclude(self, seed: int = 0) -> MemoryEvaluation:
        done = self._sessions == self.scope.sessions
        failed: list[tuple[Task, str, int]] = [
            (task, why, number) for (task, why), number in self.failures.most_common()
        ]
        return MemoryEvaluation(
            metrics=compute_metrics(self.sums, self.scope.not_measured, seed=seed),
            usage=self.usage,
            skipped=self.skipped,
            malformed=tuple(sorted(self.malformed, key=lambda line: line.line)),
            run=self.scope.run,
            whole=done and not self.skipped and self._expected == sum(self.counts.values()),
            scope=self.scope,
            counts=dict(self.counts),
            labels=dict(self.labels),
            failures=failed,
            worst={task: self.worst(task) for task in TASKS},
            sums=self.sums,
            system_tokens=self.tokens,
            sessions_fed=self.adding,
        )


def collect(records: Iterable[EvaluationRecord], seed: int = 0) -> MemoryEvaluation:
    collected = CollectedEvaluation()
    for record in records:
        collected.take(record)
    return collected.conclude(seed)


def score_of(judgement: MemoryJudgement) -> float | None:
    """How well the system did, in [0, 1]: half the label, and the other way round where a point
    must not be kept; 1 for Correct, 0 for the other classes. None without a verdict."""
    outcome = judgement.outcome
    if isinstance(outcome, Failure):
        return None
    if isinstance(outcome.label, str):
        return float(outcome.label == "Correct")
    share = outcome.label / 2
    return 1 - share if judgement.subject.source == "interference" else share


def badness(judgement: MemoryJudgement) -> float:
    """2 for what has no verdict, else 0 for the best label up to 1 for the worst."""
    score, outcome = score_of(judgement), judgement.outcome
    if score is None or isinstance(outcome, Failure):
        return 2.0
    wrong = isinstance(outcome.label, str) and not score
    return 1 - (0.1 * LABELS[judgement.subject.task].index(outcome.label) if wrong else score)


def _place(judgement: MemoryJudgement) -> tuple[str, int, int]:
    subject = judgement.subject
    return subject.user, subject.session, subject.item


def clip_texts(judgement: MemoryJudgement, most: int = TEXT_KEPT) -> MemoryJudgement:
    """With long texts cut, which they then say."""
    texts = {name: _clip(text, most) for name, text in judgement.subject.texts.items()}
    return replace(judgement, subject=replace(judgement.subject, texts=texts))


def _clip(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]}… ({left:,} more characters)"


def to_row(judgement: MemoryJudgement) -> dict[str, Any]:
    """A judgement as a row of a table."""
    subject, outcome = judgement.subject, judgement.outcome
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
