"""What an evaluation of a memory system leaves behind: a line for each judgement, and a summary.

Judgements are taken in one by one and not kept: sums make the figures, and a few of each kind, the
worst first, are remembered for the page.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from textevolve.errors import InputError
from textevolve.evaluation import Failure, Usage
from textevolve.memory_eval.figures import Figures, figures_of
from textevolve.memory_eval.figures import to_json as figures_to_json
from textevolve.memory_eval.judgement import (
    LABELS,
    TASKS,
    Judgement,
    Label,
    Subject,
    Task,
    Verdict,
)
from textevolve.memory_eval.subjects import Timed
from textevolve.memory_eval.tally import Tally
from textevolve.rows import read_rows
from textevolve.runs.memory_evaluation import NotMeasured, Plan, Survey
from textevolve.store.runs import RunRecord

TEXT_KEPT = 20_000
"""Characters of a text that a record keeps; the journal has all of it."""
REMEMBERED = 250
REMEMBERED_TEXT = 4_000


@dataclass(slots=True)
class Collection:
    """Everything about an evaluation but its judgements' texts. `records`: where lines go."""

    records: IO[bytes] | None = None
    tally: Tally = field(default_factory=Tally)
    not_measured: dict[Task, str] = field(default_factory=dict[Task, str])
    counts: Counter[str] = field(default_factory=Counter[str])
    failures: Counter[tuple[Task, str]] = field(default_factory=Counter[tuple[Task, str]])
    labels: Counter[tuple[Task, Label]] = field(default_factory=Counter[tuple[Task, Label]])
    usage: Usage = field(default_factory=Usage)
    skipped: str = ""
    _worst: dict[Task, list[tuple[float, int, Judgement]]] = field(
        default_factory=dict[Task, list[tuple[float, int, Judgement]]]
    )

    @property
    def judged(self) -> int:
        return sum(self.counts.values())

    def take(self, item: NotMeasured | Judgement | Timed) -> None:
        """Take in whatever an evaluation yields."""
        if isinstance(item, Timed):
            times = {name: getattr(item, name) for name in ("adding", "searching", "answering")}
            self.tally.add_time(item.user, **times)
        elif isinstance(item, Judgement):
            self._take(item)
        else:
            self.not_measured.update(item)

    def _take(self, judgement: Judgement) -> None:
        task, outcome = judgement.subject.task, judgement.outcome
        self.tally.add(judgement)
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
        if self.records is not None:
            self.records.write(to_line(judgement))
        self._remember(judgement)

    def _remember(self, judgement: Judgement) -> None:
        kept = self._worst.setdefault(judgement.subject.task, [])
        entry = (badness(judgement), -self.judged, judgement)
        if len(kept) < REMEMBERED:
            heapq.heappush(kept, _clipped(entry))
        elif entry[:2] > kept[0][:2]:
            heapq.heapreplace(kept, _clipped(entry))

    def worst(self, task: Task) -> list[Judgement]:
        """Those that are remembered: what failed first, then from the worst to the best."""
        found = sorted(self._worst.get(task, ()), key=lambda entry: entry[:2], reverse=True)
        return sorted((j for _, _, j in found), key=lambda j: (-badness(j), _place(j)))

    def figures(self, seed: int = 0) -> Figures:
        return figures_of(self.tally, self.not_measured, seed=seed)


def badness(judgement: Judgement) -> float:
    """2 for what has no verdict, else 0 for the best label up to 1 for the worst."""
    subject, outcome = judgement.subject, judgement.outcome
    if isinstance(outcome, Failure):
        return 2.0
    labels = LABELS[subject.task]
    if isinstance(outcome.label, int):
        share = outcome.label / 2
        return share if subject.source == "interference" else 1 - share
    if outcome.label == "Correct":
        return 0.0
    return 1.0 - 0.1 * labels.index(outcome.label)


def _place(judgement: Judgement) -> tuple[str, int, int]:
    subject = judgement.subject
    return subject.user, subject.session, subject.item


def _clipped(entry: tuple[float, int, Judgement]) -> tuple[float, int, Judgement]:
    bad, number, judgement = entry
    subject = judgement.subject
    texts = {name: _clip(text, REMEMBERED_TEXT) for name, text in subject.texts.items()}
    return bad, number, replace(judgement, subject=replace(subject, texts=texts))


def _clip(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]}… ({left:,} more characters)"


def to_line(judgement: Judgement) -> bytes:
    """A judgement as a line of JSON. Long texts are cut, which the text then says."""
    subject, outcome = judgement.subject, judgement.outcome
    verdict = asdict(outcome) if isinstance(outcome, Verdict) else None
    record = {
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
        "verdict": verdict,
        "failure": asdict(outcome) if isinstance(outcome, Failure) else None,
        "texts": {name: _clip(text, TEXT_KEPT) for name, text in subject.texts.items()},
        "usage": asdict(judgement.usage),
    }
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")

    user: str
    session: int
    task: Task
    item: int
    type: str = ""
    source: str = ""
    importance: float = 0.0
    question_type: str = ""
    difficulty: str = ""
    texts: dict[str, str] = {}
    verdict: Verdict | None = None
    failure: Failure | None = None


def read_records(path: str) -> Iterator[Judgement]:
    """The judgements in a file of records, with their texts as far as it has them.

    Raises:
        InputError: the file cannot be read, or a line is no record; says which.
    """
    for where, row in read_rows(path, "record", lambda _: True):
        yield _to_judgement(where, row)


def read_in_order(path: Path) -> Iterator[Judgement]:
    """The judgements in a file of records by user, session, task and number; one at a time, for
    their texts may be more than fits memory."""
    with path.open("rb") as file:
        places: list[tuple[str, int, int, int, int]] = []
        offset = 0
        for line in file:
            row = json.loads(line)
            task = TASKS.index(row["task"])
            places.append((row["user"], row["session"], task, row["item"], offset))
            offset += len(line)
        for *_, offset in sorted(places):
            file.seek(offset)
            yield _to_judgement(str(path), json.loads(file.readline()))


def _to_judgement(where: str, row: object) -> Judgement:
    try:
        found = _Record.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: not a record: {place}: {first['msg']}") from None
    outcome = found.verdict or found.failure
    if outcome is None or (
        isinstance(outcome, Verdict) and outcome.label not in LABELS[found.task]
    ):
        raise InputError(f"{where}: not a record: it has no verdict of its task and no failure")
    subject = Subject(
        found.task,
        found.user,
        found.session,
        found.item,
        found.texts,
        found.type,
        found.source,
        found.importance,
        found.question_type,
        found.difficulty,
    )
    return Judgement(subject, outcome)


def summarise(
    collected: Collection,
    figures: Figures,
    run: RunRecord,
    plan: Plan,
    survey: Survey,
    *,
    whole: bool,
) -> dict[str, Any]:
    """Everything but the judgements as JSON-ready data. `whole`: all that was to be judged was."""
    return {
        "kind": "memory-eval",
        "run": run.id,
        "whole": whole,
        "data": run.source,
        "model": run.spec.get("model"),
        "plan": asdict(plan),
        "sessions": survey.sessions,
        "malformed": [asdict(line) for line in survey.malformed],
        "judgements": dict(collected.counts),
        "labels": _labels(collected.labels),
        "failures": [
            {"task": task, "reason": reason, "number": number}
            for (task, reason), number in collected.failures.most_common()
        ],
        "not_measured": dict(collected.not_measured),
        **figures_to_json(figures),
        "usage": asdict(collected.usage),
    }


def _labels(counts: Mapping[tuple[Task, Label], int]) -> dict[str, dict[str, int]]:
    """How often each label was given, by task."""
    found: dict[str, dict[str, int]] = {}
    for (task, label), number in counts.items():
        found.setdefault(task, {})[str(label)] = number
    return found
