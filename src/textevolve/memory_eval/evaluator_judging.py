"""Any evaluator as a judge of memories: a debate, a jury, a rule, one of the user's own.

The possible verdicts, written out, are the candidates of a case; the one with the highest score is
the verdict. A tie of the best or a missing score is a failure: nothing invents a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import yaml

from textevolve.errors import AnswerError, BudgetError, FatalModelError, ModelError
from textevolve.evaluation import Case, Evaluator, Failure, Usage, check_results
from textevolve.llm.fence import draw_nonce, sanitize
from textevolve.memory_eval.judgement import Label, MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.judging import OWN, SHARED, TITLES, clean, prompt, read_verdicts, settle

TIE = 1e-9


async def judge_by_evaluator(evaluator: Evaluator, subject: Subject) -> MemoryJudgement:
    """The verdict that an evaluator scores highest, or why there is none.

    For accuracy a second case asks whether the memory is included. What needs no judge is settled
    without one.

    Raises:
        FatalModelError: no call can succeed. BudgetError: a limit was reached.
    """
    known = settle(subject)
    if known is not None:
        return known
    usage = Usage()
    found: list[tuple[Label, str]] = []
    for asked in (subject.task, *(("included",) if subject.task == "accuracy" else ())):
        try:
            label, reason, spent = await _ask(evaluator, subject, asked)
        except FatalModelError:
            raise
        except ModelError as error:
            spent = error.usage if isinstance(error, _NoVerdict) else Usage()
            return MemoryJudgement(subject, Failure("failed", str(error)), usage + spent)
        usage += spent
        found.append((label, reason))
    (label, reason), *more = found
    if not more:
        return MemoryJudgement(subject, MemoryVerdict(label, reason), usage)
    ((included, why),) = more
    reasons = "\n".join(part for part in (reason, why) if part)
    return MemoryJudgement(subject, MemoryVerdict(label, reasons, bool(included)), usage)


def case_of(subject: Subject, asked: str) -> Case:
    """The rules and the texts as input, the verdicts as candidates. `asked`: the subject's task, or
    "included"."""
    id = f"{subject.user}/{subject.session}/{asked}/{subject.item}"
    return Case(_write_input(subject, asked), tuple(read_statements(asked).values()), id)


class _NoVerdict(AnswerError):
    """Scores came, but no verdict follows from them; `usage` is what they cost."""

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


async def _ask(evaluator: Evaluator, subject: Subject, asked: str) -> tuple[Label, str, Usage]:
    labels = tuple(read_statements(asked))
    made = await evaluator(case_of(subject, asked))
    results = check_results(made.result, len(labels))
    failures = [one for one in results if isinstance(one, Failure)]
    if any(failure.kind == "skipped" for failure in failures):
        raise BudgetError(next(one.reason for one in failures if one.kind == "skipped"))
    if failures:
        missing = f"{len(failures)} of {len(labels)} verdicts have no score"
        raise _NoVerdict(f"{missing}: {failures[0].reason}", made.usage)
    scored = [
        (one.score, label, one.feedback)
        for one, label in zip(results, labels, strict=True)
        if not isinstance(one, Failure)
    ]
    highest = max(score for score, _, _ in scored)
    best = [(label, feedback) for score, label, feedback in scored if score >= highest - TIE]
    if len(best) > 1:
        tied = " and ".join(str(label) for label, _ in best)
        raise _NoVerdict(f"tied: {asked} {tied} share the highest score, {highest:.3g}", made.usage)
    return *best[0], made.usage


def _write_input(subject: Subject, asked: str) -> str:
    """Marks of their own: a judge's own fences would break up marks of the usual form."""
    names = (*SHARED[subject.task], *OWN[subject.task])
    texts = {TITLES[name]: clean(subject.texts[name]) or "(nothing)" for name in names}
    code = draw_nonce(texts.values(), 0)
    material = "\n".join(
        f"begin {code} {title}\n{sanitize(text, code)[0]}\nend {code} {title}"
        for title, text in texts.items()
    )
    return prompt("choose").render(
        rules=prompt(subject.task).render(), code=code, material=material, asked=asked
    )


@cache
def read_statements(asked: str) -> Mapping[Label, str]:
    """The possible verdicts, each written out. `asked`: as of `case_of`."""
    return yaml.safe_load(read_verdicts())[asked]
