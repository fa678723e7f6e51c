"""One judgement of a memory, by its texts: what `judge_memory` asks.

Whole data sets are judged by `memory_eval.py`, whose records these are.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError, model_validator

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.memory_eval.dataset import DialogueTurn, write_turn
from textevolve.memory_eval.evaluation import to_row
from textevolve.memory_eval.judgement import MemoryJudgement, Subject, Task
from textevolve.memory_eval.judging import (
    MAX_TOKENS,
    OWN,
    SHARED,
    judge_by_evaluator,
    judge_subject,
    settle,
)
from textevolve.report.blocks import Report, Texts
from textevolve.spec import explain, option
from textevolve.studies.memory_eval import find_row, flatten, name_prompts
from textevolve.studies.study import Asks, Study, StudySpec, json_codec, last_record
from textevolve.wiring import Workbench

TextsToJudge: TypeAlias = Mapping[str, str | Sequence[str | DialogueTurn | Mapping[str, str]]]
"""Texts by their names: one text, or several, a line each; or the turns of a dialogue."""

REQUIRED = ("expected", "memory", "dialogue", "question", "reference")
"""Texts that must not be blank; the others may be left out."""
BY_RULE: Mapping[str, int | str] = {"integrity": 0, "update": "Omission"}
"""Labels of tasks where no memories were kept, for which nobody is asked."""

_LINES = TypeAdapter(list[str | DialogueTurn])


class MemoryJudgementSpec(StudySpec):
    """Judge one memory, update or answer by the texts that the judgement is made of."""

    kind: ClassVar[str] = "memory-judgement"

    task: Task = option(description="What is judged: integrity, accuracy, update or question.")
    texts: Mapping[str, str] = option(
        description="The texts by name. integrity: expected, memories. accuracy: dialogue, gold,"
        " memory. update: expected, original, memories. question: question, reference, evidence,"
        " answer.",
        identity=False,
    )
    judge: str | None = option(
        None,
        "The judge, such as debate or probe+rules. Where none is named, --model judges with one"
        " structured call.",
        short="-j",
        group="Judging",
    )
    seed: int = option(0, "Seed of the structured call.", group="Judging")
    max_tokens: int = option(
        MAX_TOKENS, "Most tokens of the structured call's answer.", group="Judging", ge=1
    )

    @model_validator(mode="before")
    @classmethod
    def _write_texts(cls, fields: Any) -> Any:
        """Join lists of texts, write dialogues as texts, and fill in what may be left out."""
        task, texts = fields.get("task"), fields.get("texts")
        if task not in SHARED or not isinstance(texts, Mapping):
            return fields
        names = (*SHARED[task], *OWN[task])
        given = cast("Mapping[str, object]", texts)
        if not set(given) <= set(names):
            raise InputError(f"texts: {task} is judged by {', '.join(names)}")
        return {**fields, "texts": {name: _write(name, given.get(name, "")) for name in names}}

    def settle(self) -> MemoryJudgement | None:
        """The judgement where no memories were kept; None where a judge has to be asked."""
        by_rule = None if self.texts.get("memories", " ") else BY_RULE.get(self.task)
        return settle(Subject(self.task, "1", 0, 1, self.texts, by_rule=by_rule))


def _write(name: str, value: object) -> str:
    """A text as it is judged; blank ones of several are left out."""
    try:
        lines = _LINES.validate_python([value] if isinstance(value, str) else value)
    except ValidationError as error:
        expected = "a text, a list of texts, or a list of turns with role and content"
        raise InputError(f"{name} is not {expected}: {explain(error)}") from None
    written = (line if isinstance(line, str) else write_turn(line) for line in lines)
    text = "\n".join(line for line in written if line.strip())
    if name in REQUIRED and not text.strip():
        raise InputError(f"{name} is blank")
    return text


def ask(spec: MemoryJudgementSpec) -> Asks:
    judges = () if spec.judge is None else (spec.judge,)
    return Asks(judges, writes=not judges, prompts=name_prompts())


def read_cases(spec: MemoryJudgementSpec) -> Iterator[Case]:
    yield Case(json.dumps(dict(spec.texts), sort_keys=True), (), "1")


async def run(
    spec: MemoryJudgementSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[MemoryJudgement]:
    for case in cases:
        subject = Subject(spec.task, case.id, 0, 1, json.loads(case.input))
        if spec.judge is not None:
            yield await judge_by_evaluator(bench.whole_judge_of(spec.judge), subject)
        else:
            yield await judge_subject(
                bench.model, subject, max_tokens=spec.max_tokens, seed=spec.seed
            )


def report(_spec: MemoryJudgementSpec, found: MemoryJudgement) -> Report:
    outcome = found.outcome
    verdict = outcome.kind if isinstance(outcome, Failure) else outcome.label
    texts = [("reason", outcome.reason), *found.subject.texts.items()]
    sentence = f"{found.subject.task.capitalize()}: {verdict}."
    return Report("A memory judged", sentence, [Texts("", texts)])


def data(_spec: MemoryJudgementSpec, found: MemoryJudgement) -> Mapping[str, Any]:
    return to_row(found)


encode, decode = json_codec(MemoryJudgement)

STUDY = Study(
    spec=MemoryJudgementSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
)
