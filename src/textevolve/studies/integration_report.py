"""What integrating memories found, and how it is told: records, figures, the report.

How a run works is in `integrate_memories.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from textevolve.evaluation import Failure, Usage
from textevolve.events import Event, StepStarted
from textevolve.memory.integration import DecidedInsight, RefusedInsight
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Column, Report, Table, Tree
from textevolve.studies.study import Row


@dataclass(frozen=True, slots=True)
class GatheredMemories:
    """What is new. `importance`: their sum. `questions`: those that they raise, if it is due."""

    memories: int
    importance: float
    threshold: float
    due: bool
    questions: tuple[str, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None
    step: Literal["gathered"] = "gathered"


@dataclass(frozen=True, slots=True)
class QuestionInsights:
    """What became of one question. `recalled`: how many memories were shown; `cited`: the texts of
    those that insights rest on, by id."""

    number: int
    question: str
    recalled: int = 0
    insights: tuple[DecidedInsight, ...] = ()
    refused: tuple[RefusedInsight, ...] = ()
    cited: Mapping[str, str] = field(default_factory=dict[str, str])
    usage: Usage = Usage()
    failure: Failure | None = None
    step: Literal["question"] = "question"


@dataclass(frozen=True, slots=True)
class IntegrationRecord:
    """One of the two."""

    made: GatheredMemories | QuestionInsights


@dataclass(frozen=True, slots=True)
class Integration:
    """What a run found: what had gathered, and what each question gave."""

    gathered: GatheredMemories | None
    questions: tuple[QuestionInsights, ...]

    @property
    def insights(self) -> tuple[DecidedInsight, ...]:
        """Those that were kept."""
        return tuple(
            one for each in self.questions for one in each.insights if one.decision != "drop"
        )

    def count(self, decision: str) -> int:
        return sum(one.decision == decision for each in self.questions for one in each.insights)

    @property
    def refused(self) -> tuple[RefusedInsight, ...]:
        return tuple(one for each in self.questions for one in each.refused)


def find_row(record: IntegrationRecord) -> Row:
    made = record.made
    key = "gathered" if isinstance(made, GatheredMemories) else f"question {made.number}"
    position = 0 if isinstance(made, GatheredMemories) else made.number
    if made.failure is None:
        return Row(key, position)
    return Row(key, position, status=made.failure.kind, reason=made.failure.reason)


def collect_integration(records: Iterable[IntegrationRecord]) -> Integration:
    gathered, questions = None, list[QuestionInsights]()
    for record in records:
        if isinstance(record.made, GatheredMemories):
            gathered = record.made
        else:
            questions.append(record.made)
    return Integration(gathered, tuple(questions))


def report_integration(whose: str, found: Integration) -> Report:
    title = f"Integration of {whose}"
    if found.gathered is None:
        return Report(title, "Nothing was read.", [])
    if not found.gathered.due:
        return Report(title, _say_not_due(found.gathered), [])
    facts = {"Memories": _say_gathered(found.gathered)}
    blocks: list[Block] = []
    if found.questions:
        blocks.append(Tree("Insights", [_branch(one) for one in found.questions]))
    if found.refused:
        columns = (Column("refused"), Column("why"))
        rows = [(one.text, one.reason) for one in found.refused]
        blocks.append(Table("What was refused", columns, rows))
    return Report(title, _say_found(found), blocks, facts)


def _say_gathered(gathered: GatheredMemories) -> str:
    return (
        f"{wording.count(gathered.memories, 'new one')}, importance"
        f" {gathered.importance:.1f} of {gathered.threshold:g}"
    )


def _say_not_due(gathered: GatheredMemories) -> str:
    if not gathered.memories:
        return "Not due: nothing is new since the last integration."
    return (
        f"Not due: {gathered.importance:.1f} of {gathered.threshold:g}"
        f" ({wording.count(gathered.memories, 'new memory').replace('memorys', 'memories')})."
        " Use --always to integrate all the same."
    )


def _say_found(found: Integration) -> str:
    assert found.gathered is not None
    if found.gathered.failure is not None:
        return f"No questions were found: {found.gathered.failure.reason}"
    failed = sum(one.failure is not None for one in found.questions)
    return (
        f"{wording.count(len(found.questions), 'question')}:"
        f" {wording.count(found.count('add'), 'insight')} added, {found.count('supersede')} in"
        f" place of earlier ones, {found.count('drop')} known already;"
        f" {len(found.refused)} refused"
        + (f"; {wording.count(failed, 'question')} without an answer." if failed else ".")
    )


def _branch(one: QuestionInsights) -> Branch:
    if one.failure is not None:
        return Branch(one.question, one.failure.reason, "bad")
    if not one.insights:
        return Branch(one.question, "no insight", "dim")
    return Branch(one.question, children=[_insight_branch(each, one) for each in one.insights])


_SAID = {"add": "added", "supersede": "takes the place of an earlier one", "drop": "dropped"}


def _insight_branch(one: DecidedInsight, of: QuestionInsights) -> Branch:
    why = f" ({one.reason})" if one.decision == "drop" else ""
    note = f"{_SAID[one.decision]}{why}, importance {one.insight.importance:.1f}"
    tone = "dim" if one.decision == "drop" else ""
    cited = [Branch(of.cited.get(id, id), tone="dim") for id in one.insight.cites]
    return Branch(one.insight.text, note, tone, cited)


def describe_integration(found: Integration) -> Mapping[str, Any]:
    return {
        "gathered": None if found.gathered is None else asdict(found.gathered),
        "questions": [asdict(one) for one in found.questions],
    }


def flatten(record: IntegrationRecord) -> Iterator[Mapping[str, Any]]:
    """A row for each insight."""
    made = record.made
    for one in made.insights if isinstance(made, QuestionInsights) else ():
        yield {
            "question": made.question if isinstance(made, QuestionInsights) else "",
            "insight": one.insight.text,
            "decision": one.decision,
            "reason": one.reason,
            "importance": one.insight.importance,
            "trust": one.insight.trust,
            "cites": list(one.insight.cites),
            "id": one.id,
            "other": one.other,
        }


def note_integration(event: Event) -> str | None:
    if isinstance(event, StepStarted) and event.step == "questions":
        return f"{event.details['memories']} new memories: questions are looked for"
    if isinstance(event, StepStarted) and event.step == "insights":
        return f"thinking about: {wording.shorten(str(event.details['question']), 100)}"
    return None
