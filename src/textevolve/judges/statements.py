"""Judges that split a text into parts, and ask one yes / no question about each part.

    faithfulness       statements of the response: do they follow from the context?
    answer-relevance   statements of the response: do they help to answer the instruction?
    context-recall     statements of the reference: are they found in the context?
    context-precision  passages of the context: are they of use for the answer?

The measures are those of Ragas (Es et al., arXiv 2309.15217, and its documentation); judging by
short statements follows FActScore (Min et al., arXiv 2305.14251). The prompts are our own, and a
share is a mean of probabilities, where Ragas counts verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError
from textevolve.evaluation import EvaluationResult, reject_candidate_images
from textevolve.judges.context import (
    AnswerOdds,
    DecidedJudge,
    JudgeContext,
    Judgement,
    StrictAnswer,
    prompt,
    require_field,
)
from textevolve.judges.judge import judge
from textevolve.judges.plain import find_facts
from textevolve.llm.decisions import probability
from textevolve.llm.model import Message
from textevolve.llm.prompts import image_rules
from textevolve.texts.prose import join_lines, split_sentences

MOST_STATEMENTS = 40
"""The maximum number of statements in a list that a model writes."""
ANSWER_TOKENS = 2000
"""The maximum number of tokens of such a list."""
CLAIMED = 0.6
"""The probability of yes from which a sentence is a claim; a small model gives refusals up to 0.59
(docs/measurements.md)."""
CLEAR = 0.5
"""The probability of yes from which a passage counts as relevant. `metadata["yes"]` is the number
of parts that reach it."""


@dataclass(frozen=True, slots=True)
class StatementCheck:
    """A check of a text by its parts. `question`: the yes / no question about each part. `part`:
    the word for a part in prompts. `shown`: the other texts that the prompt shows. `answer`: the
    text that is split or shown as the answer: the response, the reference, or (`either`) the
    reference if the case has one, otherwise the response. `score`: a function that computes the
    score in [0, 1] from P(yes) of each part, in order."""

    question: str
    part: str
    shown: tuple[str, ...]
    score: Callable[[Sequence[float]], float]
    answer: Literal["response", "reference", "either"] = "response"

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names of the fields that a case must have."""
        names: list[str] = []
        if "Context" in self.shown or self.part == "Passage":
            names.append("context")
        if self.answer == "reference":
            names.append("reference")

        return tuple(names)


def mean(shares: Sequence[float]) -> float:
    """Return the mean probability of yes: the expected share of parts that are answered with
    yes."""
    return sum(shares) / len(shares)


def average_precision(shares: Sequence[float]) -> float:
    """Return the mean of the precision at the rank of each relevant passage, in [0, 1]; 0 if no
    passage is relevant.

    That is Ragas' context precision, sum over k of (precision at k * relevant k) / relevant.
    """
    precisions: list[float] = []
    for rank, share in enumerate(shares, 1):
        if share >= CLEAR:
            precisions.append((len(precisions) + 1) / rank)

    return mean(precisions) if precisions else 0.0


@dataclass(frozen=True)
class StatementJudge(DecidedJudge):
    """The base of judges that run a `StatementCheck`.

    For each candidate it makes a call that lists the statements (passages of a context need none),
    and a call of one token for each statement, or, with a decision model, one request for all.
    Questions that depend on the reference alone are asked once for all candidates.
    """

    statement_check: ClassVar[StatementCheck]

    @property
    def needs(self) -> tuple[str, ...]:
        return self.statement_check.needs

    @property
    def reads_reference(self) -> bool:
        return self.statement_check.answer != "response"

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        check = self.statement_check
        reject_candidate_images(case, "a judge that takes texts apart")
        for name in check.needs:
            require_field(case, name)
        # What depends on the reference alone is the same for all candidates, and asked once.
        gold = None if check.answer == "response" else case.reference
        looked_at = [gold or text for text in case.candidates]
        distinct = tuple(dict.fromkeys(looked_at))
        outcomes = await context.each(distinct, lambda text: _examine(context, check, text))
        by_text = dict(zip(distinct, outcomes, strict=True))

        return context.judgement([by_text[text] for text in looked_at])


@judge("faithfulness", help="statements of the text that the context supports")
class Faithfulness(StatementJudge):
    statement_check = StatementCheck(
        "Does the statement follow from the context alone?", "Statement", ("Context",), mean
    )


@judge("answer-relevance", help="statements of the text that help to answer")
class AnswerRelevance(StatementJudge):
    statement_check = StatementCheck(
        "Does the statement help to answer the instruction?", "Statement", ("Instruction",), mean
    )


@judge("context-recall", help="statements of the reference in the context")
class ContextRecall(StatementJudge):
    statement_check = StatementCheck(
        "Does the context say what the statement says?",
        "Statement",
        ("Context",),
        mean,
        answer="reference",
    )


@judge("context-precision", help="passages of the context that the answer needs")
class ContextPrecision(StatementJudge):
    statement_check = StatementCheck(
        "Is the passage of use for arriving at this answer to the instruction?",
        "Passage",
        ("Instruction", "Answer"),
        average_precision,
        answer="either",
    )


_CLAIM = StatementCheck(
    "Does the text claim something that could be right or wrong?", "Text", (), mean
)


async def _examine(context: JudgeContext, check: StatementCheck, answer: str) -> EvaluationResult:
    """Check the parts of one answer, and return its result.

    Raises:
        ModelError, BudgetError: a part cannot be judged.
    """
    if check.part == "Passage":
        parts = split_passages(context.case.context or "")
    else:
        parts = await _list_statements(context, answer)

    reading = await _probe_parts(context, check, answer, parts)
    shares = list(map(probability, reading.log_odds))
    score = check.score(shares)
    lines = [f"{share:.0%} yes: {part}" for share, part in zip(shares, parts, strict=True)]
    questions = [f"{check.question} {part}" for part in parts]
    metadata = {
        "question": check.question,
        "answers": dict(zip(questions, reading.log_odds, strict=True)),
        "yes": sum(share >= CLEAR for share in shares),
        "parts": len(parts),
        **reading.told,
    }

    return context.result(score, lines, reading.cut, **metadata)


def split_passages(context: str) -> tuple[str, ...]:
    """Split a context at blank lines into its passages, in order and without duplicates."""
    return tuple(
        dict.fromkeys(text.strip() for text in re.split(r"\n[^\S\n]*\n", context) if text.strip())
    )


class _Statements(StrictAnswer):
    statements: list[Annotated[str, Field(max_length=600)]] = Field(max_length=MOST_STATEMENTS)


def _rules(context: JudgeContext, *, images: bool = True) -> Message:
    rules = image_rules(context.case) if images else ()
    return Message("system", (prompt("statement_rules").render(), *rules))


async def _list_statements(context: JudgeContext, text: str) -> tuple[str, ...]:
    """Ask for a list of the statements of a text, without duplicates. A text of one sentence that
    claims anything is its own statement, whatever a model makes of it. If no list can be parsed,
    the sentences are the statements; if it is empty, those that a second question calls claims.

    Raises:
        AnswerError: the text has no statements. ModelError: the call failed.
    """
    sentences = tuple(dict.fromkeys(split_sentences(text)))[:MOST_STATEMENTS]
    request_text = prompt("statements").render(
        instruction=context.quoted_instruction,
        text=context.quoted(text),
        most=MOST_STATEMENTS,
    )
    messages = (_rules(context), context.user(request_text))

    try:
        answer = await context.ask(messages, ANSWER_TOKENS, _Statements)
    except AnswerError:
        if not sentences:
            raise
        return sentences

    lines = [join_lines(line) for line in answer.statements]
    statements = tuple(dict.fromkeys(filter(None, lines)))
    if not statements:
        statements = await _find_claims(context, sentences)

    return sentences if len(sentences) == 1 else statements


async def _find_claims(context: JudgeContext, sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the claims among sentences in which a model found no statement. Small models find none
    in one plain sentence of eight, so each with a number or a name is asked about once more.

    Raises:
        AnswerError: no sentence claims anything, as in a greeting, a refusal or "I do not know."
        ModelError: a call failed.
    """
    claims: list[str] = []
    telling = [sentence for sentence in sentences if find_facts(sentence)]
    if telling:
        reading = await _probe_parts(context, _CLAIM, "", telling)
        for sentence, odds in zip(telling, reading.log_odds, strict=True):
            if probability(odds) >= CLAIMED:
                claims.append(sentence)

    if not claims:
        raise AnswerError("the text has no statement that could be scored")

    return tuple(claims)


async def _probe_parts(
    context: JudgeContext, check: StatementCheck, answer: str, parts: Sequence[str]
) -> AnswerOdds:
    """Return the log-odds of yes for each part. The other texts come first in the prompt, so that
    all calls share a prefix."""
    texts = {
        "Context": context.quoted(context.case.context or ""),
        "Instruction": context.quoted_instruction,
        "Answer": context.quoted(answer),
    }
    beside = [(name, texts[name]) for name in check.shown]
    sees = "Instruction" in check.shown
    rules = _rules(context, images=sees)
    material_text = prompt("material").render(material=beside)
    materials = [
        prompt("material").render(material=[(check.part, context.quoted(p))]) for p in parts
    ]
    if context.decides:
        state = (f"{rules.text}\n", material_text)
        questions = [text + check.question for text in materials]
        return await context.decide_all(state, questions, () if sees else None)

    question = prompt("question").render(question=check.question)

    async def probe(part: str) -> float:
        parts = (material_text, part, question)
        questions = context.user(*parts) if sees else Message("user", parts)
        return await context.choose((rules, questions), "yes", "no")

    odds = await gather_bounded([partial(probe, part) for part in materials], context.concurrency)

    return AnswerOdds(tuple(odds))
