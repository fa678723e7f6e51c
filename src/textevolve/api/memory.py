"""Single judgements of memories: what was kept, whether it is true, updates, answers.

`evaluate_memory` measures a memory system on a whole data set. The four tasks and their labels are
those of `textevolve.memory_eval.judgement`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

from pydantic import TypeAdapter, ValidationError

from textevolve.api.running import (
    Objects,
    RunKeywords,
    arun,
    astream,
    in_sync,
    split_keywords,
    takes_fields,
)
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import EvaluationResult, Evaluator, Failure
from textevolve.judge_specs import parse_evaluator
from textevolve.memory_eval.dataset import DialogueTurn, write_dialogue
from textevolve.memory_eval.evaluation import MemoryEvaluation
from textevolve.memory_eval.judgement import Label, MemoryJudgement, Subject, Task
from textevolve.memory_eval.judging import judge_by_evaluator, settle
from textevolve.report.data import write_rows
from textevolve.report.files import open_target
from textevolve.spec import explain
from textevolve.studies.memory_eval import MemoryEvaluationSpec, flatten
from textevolve.studies.memory_judgement import MemoryJudgementSpec
from textevolve.user_code import OWN, name_object

_TURNS = TypeAdapter(list[DialogueTurn])
TextOrTexts: TypeAlias = str | Sequence[str]
"""One text, or several that stand one a line."""

Dialogue: TypeAlias = str | Sequence[DialogueTurn | Mapping[str, str]]
"""A text, or turns with `role`, `content` and, where there is one, `timestamp`."""


class JudgeKeywords(RunKeywords, total=False):
    """How a single judgement is made, and how its run is kept.

    `judge`: a judge's spec, such as "debate" or "probe+rules@MODEL", or an evaluator; without one
    the model is asked once for a structured answer; with a `decider`, that decision model is asked
    typed questions in one request. `seed` and `max_tokens` are those of this
    answer; a judge has its own in its spec (`probe+seed=7`). With an evaluator of your own nothing
    is kept, and the rest has no use.
    """

    judge: str | Evaluator | None
    decider: str | None
    model: str | None
    seed: int
    max_tokens: int


async def ajudge_integrity(
    expected: str, memories: TextOrTexts, **how: Unpack[JudgeKeywords]
) -> EvaluationResult:
    """Whether `memories`, all that was kept of a session, hold the memory that is `expected`.

    `metadata["label"]` is 2 (fully), 1 (partly) or 0, the score half of it. Without any memory it
    is 0 and nothing is asked. The same call again is answered from the store.

    Raises:
        InputError: a text, the judge or a number cannot be used.
        AnswerError: no verdict came; says why. BudgetError: a limit was reached.
        FatalModelError: no call can succeed.
    """
    texts = {"expected": _text("expected", expected), "memories": _lines("memories", memories)}
    return await _judge("integrity", texts, how, None if texts["memories"] else 0)


async def ajudge_accuracy(
    memory: str, dialogue: Dialogue, gold: TextOrTexts = (), **how: Unpack[JudgeKeywords]
) -> EvaluationResult:
    """Whether all that a kept `memory` says follows from the `dialogue` or the `gold` memories.

    `metadata["label"]` is 2 (all), 1 (some) or 0, the score half of it; `metadata["included"]` says
    whether the gold memories speak about the same. Raises as `ajudge_integrity`.
    """
    texts = {
        "memory": _text("memory", memory),
        "dialogue": _text("dialogue", _write(dialogue)),
        "gold": _lines("gold", gold),
    }
    return await _judge("accuracy", texts, how)


async def ajudge_update(
    expected: str, memories: TextOrTexts, original: TextOrTexts = (), **how: Unpack[JudgeKeywords]
) -> EvaluationResult:
    """Whether `memories` hold the `expected` memory in place of the `original`.

    `metadata["label"]` is Correct, Hallucination, Omission or Other; the score is 1 for Correct,
    else 0. Without any memory it is an Omission and nothing is asked. Raises as `ajudge_integrity`.
    """
    texts = {
        "expected": _text("expected", expected),
        "memories": _lines("memories", memories),
        "original": _lines("original", original),
    }
    return await _judge("update", texts, how, None if texts["memories"] else "Omission")


async def ajudge_answer(
    question: str,
    reference: str,
    answer: str,
    evidence: TextOrTexts = (),
    **how: Unpack[JudgeKeywords],
) -> EvaluationResult:
    """Whether an `answer` means the same as the `reference`, which follows from the `evidence`.

    `metadata["label"]` is Correct, Hallucination or Omission; the score is 1 for Correct, else 0. A
    blank answer goes to the judge too. Raises as `ajudge_integrity`.
    """
    texts = {
        "question": _text("question", question),
        "reference": _text("reference", reference),
        "evidence": _lines("evidence", evidence),
        "answer": _lines("answer", answer),
    }
    return await _judge("question", texts, how)


judge_integrity = in_sync(ajudge_integrity)
judge_accuracy = in_sync(ajudge_accuracy)
judge_update = in_sync(ajudge_update)
judge_answer = in_sync(ajudge_answer)


async def _judge(
    task: Task, texts: Mapping[str, str], how: JudgeKeywords, by_rule: Label | None = None
) -> EvaluationResult:
    judge, decider = how.get("judge"), how.get("decider")
    if judge is not None and decider is not None:
        raise InputError("judge and decider both say who judges: leave one of them out")
    subject = Subject(task, "1", 0, 1, texts, by_rule=by_rule)
    if judge is not None and not isinstance(judge, str):
        return _result(
            await judge_by_evaluator(judge, subject), name_object(judge).removeprefix(OWN)
        )
    if judge is not None:
        parse_evaluator(judge)  # a wrong one is an error also where nothing is to be asked
    judged = settle(subject) or await _ask(subject, judge, how)
    return _result(judged, judge or (f"decide@{decider}" if decider else "structured"))


async def _ask(subject: Subject, judge: str | None, how: JudgeKeywords) -> MemoryJudgement:
    """The judgement as a run of its own, which is kept."""
    own, keywords = split_keywords(MemoryJudgementSpec, {**how, "judge": judge})
    return await arun(
        MemoryJudgementSpec(task=subject.task, texts=subject.texts, **own), **keywords
    )


def _result(judged: MemoryJudgement, judge: str) -> EvaluationResult:
    outcome = judged.outcome
    if isinstance(outcome, Failure):
        raise AnswerError(f"no verdict on {judged.subject.task}: {outcome.reason}")
    label = outcome.label
    metadata: dict[str, Any] = {"label": label, "judge": judge}
    if outcome.included is not None:
        metadata["included"] = outcome.included
    score = 0.5 * label if isinstance(label, int) else float(label == "Correct")
    return EvaluationResult(score, score == 1, outcome.reason, metadata)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} is blank, or no text")
    return value


def _lines(name: str, value: object) -> str:
    """Join several texts by lines; blank ones are left out."""
    texts = cast(object, [value] if isinstance(value, str) else value)
    if not isinstance(texts, Sequence):
        raise InputError(f"{name} is neither a text nor a list of texts")
    for number, text in enumerate(cast(Sequence[object], texts), 1):
        if not isinstance(text, str):
            raise InputError(f"{name}, item {number}, is not a text but {type(text).__name__}")
    return "\n".join(text for text in cast(Sequence[str], texts) if text.strip())


def _write(dialogue: object) -> str:
    if isinstance(dialogue, str):
        return dialogue
    try:
        return write_dialogue(_TURNS.validate_python(dialogue))
    except ValidationError as error:
        wanted = "a text or a list of turns with role and content"
        raise InputError(f"dialogue is not {wanted}: {explain(error)}") from None


@takes_fields(MemoryEvaluationSpec)
async def aevaluate_memory(
    data: str | Path,
    system: str | object,
    *,
    judge: str | Evaluator | None = None,
    records: str | Path | None = None,
    **fields: Any,
) -> MemoryEvaluation:
    """Feed a memory system the sessions of a data set, and judge what it kept, made up, updated and
    answers.

    `system`: as on the command line (`context`, `http://...`, `mem0`, ...), or an object with `add`
    and `search`, sync or async. `records`: a file for a line of JSON for each judgement, with its
    texts and reason. The other names are those of `MemoryEvaluationSpec` and `RunKeywords`. The
    same call again goes on where it was stopped and asks nothing twice; an object is known by the
    name of its class, so where its code has changed, name another `fresh`.

    Raises:
        InputError: the data, the system or a number cannot be used.
        FatalModelError: no call can succeed, or the system fails again and again.
    """
    objects = Objects()
    own, keywords = split_keywords(MemoryEvaluationSpec, fields)
    named = objects.name(system) or ""
    spec = MemoryEvaluationSpec(data=str(data), system=named, judge=objects.name(judge), **own)
    evaluation = MemoryEvaluation(spec.seed)
    opened = nullcontext() if records is None else open_target(records)
    with opened as target:
        async with aclosing(astream(spec, objects=objects, **keywords)) as stream:
            async for record in stream:
                evaluation.take(record)
                if target is not None:
                    write_rows(lambda record=record: flatten(record), target, ".jsonl")
    return evaluation


evaluate_memory = in_sync(aevaluate_memory)
