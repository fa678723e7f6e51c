"""One structured call for one judgement: the subject's texts, fenced, under the rules of its task.

What a judgement counts for is worked out in `metrics.py`; other judges are asked in
`evaluator_judging.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from textevolve.errors import FatalModelError, ModelError
from textevolve.evaluation import Failure, mend_text
from textevolve.llm.fence import draw_nonce, fence, sanitize
from textevolve.llm.model import Message, Model, Request, text_hash
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory_eval.judgement import TASKS, MemoryJudgement, MemoryVerdict, Subject, Task

MAX_TOKENS = 800

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
"""The texts of a subject in the order of the prompt. What many subjects share comes first, so that
a server keeps it in its cache, and the journal keeps it once."""

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


def _as_score(given: object) -> object:
    """A score that came as text or as 2.0; a truth value is none, though Python has it equal 1."""
    if isinstance(given, bool):
        return None
    if isinstance(given, str) and given.strip() in ("0", "1", "2"):
        return int(given)
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _as_class(given: object) -> object:
    return given.strip(" .\"'*\n").capitalize() if isinstance(given, str) else given


_Score = Annotated[Literal[0, 1, 2], BeforeValidator(_as_score)]
UpdateClass = Literal["Correct", "Hallucination", "Omission", "Other"]
QuestionClass = Literal["Correct", "Hallucination", "Omission"]


class IntegrityAnswer(BaseModel):
    reason: str = Field(validation_alias=AliasChoices("reasoning", "reason"))
    score: _Score

    def verdict(self) -> MemoryVerdict:
        return MemoryVerdict(self.score, self.reason.strip())


class AccuracyAnswer(BaseModel):
    reason: str = Field(validation_alias=AliasChoices("reason", "reasoning"))
    accuracy_score: _Score
    is_included_in_golden_memories: bool

    def verdict(self) -> MemoryVerdict:
        included = self.is_included_in_golden_memories
        return MemoryVerdict(self.accuracy_score, self.reason.strip(), included)


class UpdateAnswer(BaseModel):
    reason: str = Field(validation_alias=AliasChoices("reason", "reasoning"))
    evaluation_result: Annotated[UpdateClass, BeforeValidator(_as_class)]

    def verdict(self) -> MemoryVerdict:
        return MemoryVerdict(self.evaluation_result, self.reason.strip())


class QuestionAnswer(BaseModel):
    reason: str = Field(validation_alias=AliasChoices("reasoning", "reason"))
    evaluation_result: Annotated[QuestionClass, BeforeValidator(_as_class)]

    def verdict(self) -> MemoryVerdict:
        return MemoryVerdict(self.evaluation_result, self.reason.strip())


_Answer = IntegrityAnswer | AccuracyAnswer | UpdateAnswer | QuestionAnswer
ANSWERS: Mapping[Task, type[_Answer]] = {
    "integrity": IntegrityAnswer,
    "accuracy": AccuracyAnswer,
    "update": UpdateAnswer,
    "question": QuestionAnswer,
}

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(TASKS, ()),
    "marks": (),
    "request": ("task",),
    "choose": ("rules", "code", "material", "asked"),
    "answer": ("memories", "question"),
}


@cache
def prompt(name: str) -> Template:
    return load_template("textevolve.memory_eval", name, _VARIABLES[name])


def prompts_version() -> dict[str, str]:
    """The version of each prompt; a change of one makes another measurement."""
    versions = {name: prompt(name).version for name in _VARIABLES}
    return {**versions, "verdicts": text_hash(read_verdicts())[:12]}


def read_verdicts() -> str:
    """The file of verdicts written out, as `evaluator_judging.py` puts them to a judge."""
    file = resources.files("textevolve.memory_eval") / "prompts" / "verdicts.yaml"
    return file.read_text(encoding="utf-8")


async def judge_subject(
    model: Model, subject: Subject, *, max_tokens: int = MAX_TOKENS, seed: int = 0
) -> MemoryJudgement:
    """The verdict of a model, or why there is none; then `usage` still says what was paid.

    A subject with a label by rule, or with a failure of the system, is not asked about.

    Raises:
        FatalModelError: no call can succeed. BudgetError: a limit was reached.
    """
    known = settle(subject)
    if known is not None:
        return known
    metered = UsageMeter(model)
    rules = (prompt(subject.task).render(), "\n", prompt("marks").render())
    asked = (*fence_texts(subject, seed), "\n", prompt("request").render(task=subject.task))
    request = Request(
        messages=(Message("system", rules), Message("user", asked)),
        temperature=0.0,
        max_tokens=max_tokens,
        seed=seed,
    )
    try:
        answer = await ask_structured(metered, request, ANSWERS[subject.task])
    except FatalModelError:
        raise
    except ModelError as error:
        return MemoryJudgement(subject, Failure("failed", str(error)), metered.usage)
    return MemoryJudgement(subject, answer.value.verdict(), metered.usage)


def settle(subject: Subject) -> MemoryJudgement | None:
    """The judgement of a subject that needs no judge; None where one has to be asked."""
    if subject.failure is not None:
        return MemoryJudgement(subject, subject.failure)
    if subject.by_rule is not None:
        return MemoryJudgement(subject, MemoryVerdict(subject.by_rule, "by rule, without a call"))
    return None


def fence_texts(subject: Subject, seed: int = 0) -> tuple[str, str]:
    """The fenced texts: what is shared with other subjects, and the subject's own.

    The code of the marks is drawn from the shared texts alone, so that subjects of one session
    begin alike. A text that has it nevertheless is sanitized like any other forged mark.
    """
    shared, own = SHARED[subject.task], OWN[subject.task]
    nonce = draw_nonce([clean(subject.texts[name]) for name in shared], seed)
    first, second = (
        "".join(fence_text(TITLES[name], subject.texts[name], nonce) for name in names)
        for names in (shared, own)
    )
    return first, second


def fence_text(title: str, text: str, nonce: str) -> str:
    return fence(title, sanitize(clean(text), nonce)[0] or "(nothing)", nonce)


def clean(text: str) -> str:
    """Without what no request and no store can hold: NUL, and halves of surrogate pairs."""
    whole = mend_text(text.replace("\0", "\ufffd"))
    return whole if whole.strip() else ""
