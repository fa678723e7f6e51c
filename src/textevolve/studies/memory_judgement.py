"""One judgement of a memory, by its texts: what `judge_integrity` and its like ask.

Whole data sets are judged by `memory_eval.py`, whose records these are.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.memory_eval.evaluation import to_row
from textevolve.memory_eval.judgement import MemoryJudgement, Subject, Task
from textevolve.memory_eval.judging import (
    MAX_TOKENS,
    OWN,
    SHARED,
    judge_by_decider,
    judge_by_evaluator,
    judge_subject,
)
from textevolve.report.blocks import Report
from textevolve.spec import option
from textevolve.studies.memory_eval import check_judges, find_row, flatten, name_prompts
from textevolve.studies.memory_report import describe_verdict, show_texts
from textevolve.studies.study import Asks, Study, StudySpec, json_codec, last_record
from textevolve.wiring import Workbench


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
    decider: str | None = option(
        None,
        "The decision model that judges in place of both, with one request of typed questions.",
        group="Judging",
        metavar="MODEL",
    )
    seed: int = option(0, "Seed of the structured call, or of the decision.", group="Judging")
    max_tokens: int = option(
        MAX_TOKENS, "Most tokens of the structured call's answer.", group="Judging", ge=1
    )

    @model_validator(mode="after")
    def _complete(self) -> MemoryJudgementSpec:
        names = (*SHARED[self.task], *OWN[self.task])
        if sorted(names) != sorted(self.texts):
            raise InputError(f"texts: {self.task} is judged by {', '.join(names)}")
        check_judges(self.judge, self.decider)
        return self


def ask(spec: MemoryJudgementSpec) -> Asks:
    judges = () if spec.judge is None else (spec.judge,)
    models = () if spec.decider is None else (spec.decider,)
    return Asks(judges, models, writes=not (judges or models), prompts=name_prompts(spec.decider))


def read_cases(spec: MemoryJudgementSpec) -> Iterator[Case]:
    yield Case(json.dumps(dict(spec.texts), sort_keys=True), (), "1")


async def run(
    spec: MemoryJudgementSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[MemoryJudgement]:
    for case in cases:
        subject = Subject(spec.task, case.id, 0, 1, json.loads(case.input))
        if spec.judge is not None:
            yield await judge_by_evaluator(bench.whole_judge_of(spec.judge), subject)
        elif spec.decider is not None:
            yield await judge_by_decider(bench.model_of(spec.decider), subject, seed=spec.seed)
        else:
            yield await judge_subject(
                bench.model, subject, max_tokens=spec.max_tokens, seed=spec.seed
            )


def report(_spec: MemoryJudgementSpec, found: MemoryJudgement) -> Report:
    sentence = f"{found.subject.task.capitalize()}: {describe_verdict(found)}."
    return Report("A memory judged", sentence, [show_texts(found)])


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
