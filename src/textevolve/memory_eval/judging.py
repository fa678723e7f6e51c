"""Judge the outcomes of memory systems by one structured call, by any evaluator, or by a decision
model.

A structured call shows the subject's texts between marks, under the rules of its task. Evaluators
and decision models choose among the possible verdicts, written as sentences. If several verdicts
have the best score, or a score is missing, the judgement is a failure, so that no verdict is
invented. `metrics.py` computes the metrics from the judgements.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from textevolve.errors import AnswerError, BudgetError, FatalModelError, ModelError
from textevolve.evaluation import (
    Case,
    Evaluator,
    Failure,
    Usage,
    check_results,
    mend_text,
    select_failure,
)
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Message, Model, Request, Response, text_hash, text_request
from textevolve.llm.prompts import (
    Template,
    draw_nonce,
    fence,
    load_template,
    number_lines,
    prompt_versions,
    sanitize,
)
from textevolve.llm.structured import ask_structured, require_text
from textevolve.protocol.contents import as_count
from textevolve.texts.shipped import read_shipped

# The data types of subjects (units to judge) and judgements, without prompts, models or
# arithmetic.

Task = Literal["integrity", "accuracy", "update", "question"]
"""The question of a judgement: whether an expected memory was extracted (integrity), whether an
extracted memory is true (accuracy), whether an update was applied, or whether an answer is right
(question)."""
TASKS: tuple[Task, ...] = ("integrity", "accuracy", "update", "question")

Label: TypeAlias = int | str
"""The verdict: 0, 1 or 2 for integrity and accuracy, one of the classes for update and question."""

LABELS: Mapping[Task, tuple[Label, ...]] = {
    "integrity": (0, 1, 2),
    "accuracy": (0, 1, 2),
    "update": ("Correct", "Hallucination", "Omission", "Other"),
    "question": ("Correct", "Hallucination", "Omission"),
}
"""The possible labels of each task."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One unit to judge, with all texts that the judge sees, by name:

    integrity: `expected`, `memories`. accuracy: `dialogue`, `gold`, `memory`. update: `expected`,
    `original`, `memories`. question: `question`, `reference`, `evidence`, `answer`.

    `user`: the id in the data set. `session`: its index. `item`: the number within session and
    task. `type`, `source`, `importance`: of the expected memory; empty for accuracy and question.
    `question_type`, `difficulty`: of a question in the data set; empty if missing. `by_rule`: the
    label, if no judge is needed, for example because no memory was extracted from the session;
    otherwise None. `failure`: the system's failure, which leaves no outcome to judge.
    """

    task: Task
    user: str
    session: int
    item: int
    texts: Mapping[str, str]
    type: str = ""
    source: str = ""
    importance: float = 0.0
    question_type: str = ""
    difficulty: str = ""
    by_rule: Label | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """The verdict of a judge on a subject. `included`: only for accuracy, whether all content of
    the memory is in the expected memories; otherwise None."""

    label: Label
    reason: str
    included: bool | None = None


@dataclass(frozen=True, slots=True)
class MemoryJudgement:
    """A subject with its verdict or the failure that prevented it; a failure never counts as a
    label."""

    subject: Subject
    outcome: MemoryVerdict | Failure
    usage: Usage = Usage()

    @property
    def verdict(self) -> MemoryVerdict | None:
        return self.outcome if isinstance(self.outcome, MemoryVerdict) else None


MAX_TOKENS = 800
"""The maximum number of tokens of a judge's answer."""
VERDICTS = "verdicts.yaml"
"""The file of the verdicts, written as sentences for evaluators."""

SHARED: Mapping[Task, tuple[str, ...]] = {
    "integrity": ("memories",),
    "accuracy": ("dialogue", "gold"),
    "update": ("memories",),
    "question": ("question", "reference", "evidence"),
}
OWN: Mapping[Task, tuple[str, ...]] = {
    "integrity": ("expected",),
    "accuracy": ("memory",),
    "update": ("expected", "original"),
    "question": ("answer",),
}
"""The texts of a subject in the order of the prompt. Those that many subjects share (`SHARED`) come
before the subject's own (`OWN`), so that a server keeps them in its prefix cache, and the journal
stores them once."""

TITLES: Mapping[str, str] = {
    "memories": "memories",
    "expected": "expected memory",
    "dialogue": "conversation",
    "gold": "gold memories",
    "memory": "kept memory",
    "original": "original memory",
    "question": "question",
    "reference": "reference answer",
    "evidence": "key memories",
    "answer": "answer to be checked",
}
"""The names of the texts in prompts."""


def _as_score(value: object) -> object:
    """Convert a score given as text or as 2.0; reject booleans, though True equals 1 in Python."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip() in ("0", "1", "2"):
        return int(value)
    return as_count(value)


def _as_class(value: object) -> object:
    return value.strip(" .\"'*\n").capitalize() if isinstance(value, str) else value


_Score = Annotated[Literal[0, 1, 2], BeforeValidator(_as_score)]


_Reason = Annotated[str, Field(validation_alias=AliasChoices("reason", "reasoning"))]
_Reasoning = Annotated[str, Field(validation_alias=AliasChoices("reasoning", "reason"))]
"""The reason of an answer; both names are read, and the first is shown to the model."""


class _Answer(BaseModel):
    def verdict(self) -> MemoryVerdict:
        """Return the verdict. The fields are the reason, the label, and whether it is included."""
        reason, *values = dict(self).values()
        return MemoryVerdict(values[0], reason.strip(), *values[1:])


class IntegrityAnswer(_Answer):
    reason: _Reasoning
    score: _Score


class AccuracyAnswer(_Answer):
    reason: _Reason
    accuracy_score: _Score
    is_included_in_golden_memories: bool


class UpdateAnswer(_Answer):
    reason: _Reason
    evaluation_result: Annotated[
        Literal["Correct", "Hallucination", "Omission", "Other"], BeforeValidator(_as_class)
    ]


class QuestionAnswer(_Answer):
    reason: _Reasoning
    evaluation_result: Annotated[
        Literal["Correct", "Hallucination", "Omission"], BeforeValidator(_as_class)
    ]


ANSWERS: Mapping[Task, type[_Answer]] = {
    "integrity": IntegrityAnswer,
    "accuracy": AccuracyAnswer,
    "update": UpdateAnswer,
    "question": QuestionAnswer,
}
"""The type of a structured answer for each task."""


def prompt(name: str) -> Template:
    return load_template("textevolve.memory_eval", name)


def evaluation_prompts() -> dict[str, str]:
    """Return the version of each prompt that judges a memory system by its name, and that of the
    list of verdicts."""
    verdicts = text_hash(_read_file(VERDICTS))[:12]
    return {**prompt_versions("memory_eval"), "memory_eval.verdicts": verdicts}


@cache
def _read_file(name: str) -> str:
    return read_shipped("textevolve.memory_eval", f"prompts/{name}")


async def judge_subject(model: Model, subject: Subject, *, seed: int = 0) -> MemoryJudgement:
    """Ask a model for the verdict on a subject. Return the verdict or the failure, whose `usage`
    includes the cost of failed calls.

    The model is not called for a subject whose label a rule decides, or whose system failed; the
    same holds for the other judges below.

    Raises:
        FatalModelError: no call can succeed. BudgetError: a limit was reached.
    """
    meter = UsageMeter(model)

    async def ask() -> MemoryVerdict:
        rules = (prompt(subject.task).render(), "\n", prompt("marks").render())
        texts = (*fence_texts(subject, seed), "\n", prompt("request").render(task=subject.task))
        request = Request(
            messages=(Message("system", rules), Message("user", texts)),
            temperature=0.0,
            max_tokens=MAX_TOKENS,
            seed=seed,
        )

        return (await ask_structured(meter, request, ANSWERS[subject.task])).value.verdict()

    return await _judge(subject, meter, ask)


async def judge_integrity(
    model: Model, *, expected: str, memories: str | Sequence[str]
) -> MemoryVerdict | Failure:
    """Judge whether an expected memory is among the memories: 2 wholly, 1 in part, 0 not at all."""
    return await _judge_texts(model, "integrity", expected=expected, memories=memories)


async def judge_accuracy(
    model: Model, *, memory: str, dialogue: str, gold: str | Sequence[str] = ()
) -> MemoryVerdict | Failure:
    """Judge whether a memory is true by the dialogue and the expected memories: 2 wholly, 1 in
    part, 0 not at all; `included` tells whether the expected memories have all of it."""
    return await _judge_texts(model, "accuracy", memory=memory, dialogue=dialogue, gold=gold)


async def judge_update(
    model: Model, *, expected: str, original: str | Sequence[str], memories: str | Sequence[str]
) -> MemoryVerdict | Failure:
    """Judge whether the memories have the expected text instead of the original one."""
    return await _judge_texts(
        model, "update", expected=expected, original=original, memories=memories
    )


async def judge_answer(
    model: Model, *, question: str, answer: str, reference: str, evidence: str | Sequence[str] = ()
) -> MemoryVerdict | Failure:
    """Judge an answer by the reference answer and the memories that it should rest on."""
    return await _judge_texts(
        model, "question", question=question, answer=answer, reference=reference, evidence=evidence
    )


async def _judge_texts(
    model: Model, task: Task, **texts: str | Sequence[str]
) -> MemoryVerdict | Failure:
    """Judge texts of a script's own; several ones are lines. The verdict has the label and the
    reason, a failure the reason why there is none.

    Raises:
        FatalModelError: no call can succeed. BudgetError: a limit was reached.
    """
    joined = {
        name: text if isinstance(text, str) else "\n".join(text) for name, text in texts.items()
    }
    judgement = await judge_subject(model, Subject(task, "", 0, 1, joined))

    return judgement.outcome


async def _judge(
    subject: Subject, meter: UsageMeter | _Spent, ask: Callable[[], Awaitable[MemoryVerdict]]
) -> MemoryJudgement:
    if subject.failure is not None:
        return MemoryJudgement(subject, subject.failure)
    if subject.by_rule is not None:
        return MemoryJudgement(subject, MemoryVerdict(subject.by_rule, "by rule, without a call"))
    try:
        verdict = await ask()
    except FatalModelError:
        raise
    except ModelError as error:
        return MemoryJudgement(subject, Failure("failed", str(error)), meter.usage)

    return MemoryJudgement(subject, verdict, meter.usage)


def fence_texts(subject: Subject, seed: int = 0) -> tuple[str, str]:
    """Return the fenced texts: those shared with other subjects, and the subject's own.

    The nonce of the marks is drawn from the shared texts alone, so prompts of one session share a
    prefix. An own text with the same nonce is sanitized like any other forged mark.
    """
    shared = SHARED[subject.task]
    own_names = OWN[subject.task]
    nonce = draw_nonce([clean(subject.texts[name]) for name in shared], seed)
    shared_texts, own_texts = (
        "".join(fence_text(TITLES[name], subject.texts[name], nonce) for name in names)
        for names in (shared, own_names)
    )

    return shared_texts, own_texts


def fence_text(title: str, text: str, nonce: str) -> str:
    return fence(title, sanitize(clean(text), nonce)[0] or "(nothing)", nonce)


def clean(text: str) -> str:
    """Replace characters that no request and no store can hold: NUL and lone surrogates."""
    return mend_text(text) if text.strip() else ""


ANSWER_TOKENS = 400
"""The maximum number of tokens of an answer to a question."""


async def answer_question(
    model: Model,
    question: str,
    memories: Sequence[str],
    seed: int = 0,
) -> Response:
    """Return the model's answer from the memories, which may be none; "unknown" if they lack it.

    Raises:
        AnswerError: the answer is empty or truncated. ModelError: there is no answer.
    """
    numbered = number_lines(memories)
    nonce = draw_nonce((clean(numbered), clean(question)), seed)
    text = prompt("answer").render(
        memories=fence_text("memories", numbered, nonce),
        question=fence_text("question", question, nonce),
    )
    response = await model(text_request(text, ANSWER_TOKENS, seed))
    return replace(response, text=require_text(response, "the answer to a question"))


TIE = 1e-9
"""The largest difference of scores that counts as a tie."""
INCLUDED = "included"
"""The kind of verdict that says whether an extracted memory is included in the expected ones."""


@dataclass(slots=True)
class _Spent:
    """The usage so far of the model calls by which an evaluator judges one `Subject` (a memory, an
    update or an answer)."""

    usage: Usage = Usage()


async def judge_by_evaluator(evaluator: Evaluator, subject: Subject) -> MemoryJudgement:
    """Return the verdict that an evaluator scores highest, or the failure.

    For accuracy a second case asks whether the memory is included.

    Raises:
        FatalModelError: no call can succeed. BudgetError: a limit was reached.
    """
    spent = _Spent()

    async def ask() -> MemoryVerdict:
        label, reason = await _choose_by_score(evaluator, subject, subject.task, spent)
        if subject.task != "accuracy":
            return MemoryVerdict(label, reason)
        included, inclusion_reason = await _choose_by_score(evaluator, subject, INCLUDED, spent)
        reasons = "\n".join(part for part in (reason, inclusion_reason) if part)
        return MemoryVerdict(label, reasons, bool(included))

    return await _judge(subject, spent, ask)


def case_of(subject: Subject, verdict_kind: str) -> Case:
    """Build the case with rules and texts as input and the verdicts as candidates. `verdict_kind`:
    the subject's task, or "included"."""
    return Case(
        _write_input(subject, verdict_kind),
        tuple(read_statements(verdict_kind).values()),
        f"{subject.user}/{subject.session}/{verdict_kind}/{subject.item}",
    )


async def _choose_by_score(
    evaluator: Evaluator, subject: Subject, verdict_kind: str, spent: _Spent
) -> tuple[Label, str]:
    """Return the label with the highest score, and its feedback.

    Raises:
        AnswerError: a score is missing, or two labels share the highest.
    """
    labels = tuple(read_statements(verdict_kind))
    scoring = await evaluator(case_of(subject, verdict_kind))
    spent.usage += scoring.usage
    results = check_results(scoring.result, len(labels))
    scored = [result for result in results if not isinstance(result, Failure)]

    if failure := select_failure(results):
        if failure.kind == "skipped":
            raise BudgetError(failure.reason)
        without_score = f"{len(labels) - len(scored)} of {len(labels)} verdicts have no score"
        raise AnswerError(f"{without_score}: {failure.reason}")

    highest = max(r.score for r in scored)
    best = [place for place, r in enumerate(scored) if r.score >= highest - TIE]

    if len(best) > 1:
        tied = " and ".join(str(labels[place]) for place in best)
        raise AnswerError(
            f"tied: the {verdict_kind} labels {tied} share the highest score, {highest:.3g}"
        )

    return labels[best[0]], scored[best[0]].feedback


def _write_input(subject: Subject, verdict_kind: str) -> str:
    """Write the input with marks of a special form, since a judge's fences break up the usual
    ones."""
    names = (*SHARED[subject.task], *OWN[subject.task])
    texts = {TITLES[name]: clean(subject.texts[name]) or "(nothing)" for name in names}
    code = draw_nonce(texts.values(), 0)
    material = "\n".join(
        f"begin {code} {title}\n{sanitize(text, code)[0]}\nend {code} {title}"
        for title, text in texts.items()
    )

    return prompt("choose").render(
        rules=prompt(subject.task).render(), code=code, material=material, asked=verdict_kind
    )


@cache
def read_statements(verdict_kind: str) -> Mapping[Label, str]:
    """Return the possible labels, each with its verdict in words. `verdict_kind`: a task, or
    "included"."""
    return yaml.safe_load(_read_file(VERDICTS))[verdict_kind]
