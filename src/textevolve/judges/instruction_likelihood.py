"""The judge `instruction-likelihood`: how well does a response tell its instruction?

The model sees a response alone and has to write its instruction. The true one is forced, and the
log-probabilities of its tokens say how much it surprised the model. A good answer to a neighbouring
instruction gives itself away, however well it is written, and the model never has to judge, which
small ones are bad at.

Where the endpoint forces tokens, as llama.cpp's server and so every local model, those of each read
are the instruction's own ("tokens"). Elsewhere a JSON schema allows nothing but the instruction
("schema"), and the model chooses the tokens: two reads may split a word differently, and what that
surprises is counted, too. The idea, with sampled instructions compared by
their words in place of log-probabilities: FLIP, arXiv 2602.13551, section 3.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Literal

from textevolve.errors import AnswerError, CapabilityError
from textevolve.evaluation import Case, EvaluationResult, Failure, attempt
from textevolve.judges.context import JudgeContext, Judgement, Options, prompt
from textevolve.llm.case_images import fence_with, image_rules, images_of, name_images
from textevolve.llm.choice_logprobs import probability
from textevolve.llm.fence import fence, sanitize
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.reasoning import why_without_text

WORDS = 20
"""Of an instruction that are read back: the fewest that changed no verdict when measured."""
LONGEST = 600
"""Characters that are read back; of more one half from each end."""
LEAST_SURPRISE = 0.1
"""Nats. An instruction that nothing was said about surprises more, unless what is reported was
computed after the schema had ruled everything else out."""
_BEFORE = re.compile(r'\{\s*"instruction"\s*:\s*"')
"""Searched for: servers that read the answer out of a code fence report the fence's tokens, too."""


@dataclass(frozen=True)
class InstructionLikelihood:
    """1 + j calls; no candidate is seen beside its rivals. Of the instruction the first `WORDS` are
    read.

    With L the surprise, in nats, of the instruction after a response, and N after an empty one,
    score = N / (N + L): 0.5 where the response says nothing about the instruction, towards 1 the
    more of it can be told from the response. Scores compare responses to the same input; a response
    that repeats its instruction scores high, whatever else it says.
    """

    model: Model
    options: Options = field(default_factory=Options)

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case or its parameters cannot be used.
            FatalModelError: no call can succeed; CapabilityError: without the log-probabilities of
                tokens before anything is ruled out, or without both forced tokens and schemas.
        """
        context = JudgeContext(case, self.model, self.options)
        results: list[EvaluationResult | Failure] = []
        for read in await read_likelihood(context):
            if isinstance(read, Failure):
                results.append(read)
                continue
            score, odds = probability(read.log_odds), read.log_odds
            result = context.result(score, [read.feedback], log_odds=odds, surprise=asdict(read))
            results.append(result)
        return context.judgement(results)


Read = Literal["tokens", "schema"]


@dataclass(frozen=True, slots=True)
class Surprise:
    """Nats that the instruction surprises by, after the response and after an empty one; `read`
    says how: in its own tokens, or in those that the model chose within a schema."""

    left: float
    alone: float
    read: Read

    @property
    def log_odds(self) -> float:
        # A certainty would make an infinite ratio.
        return math.log(self.alone) - math.log(max(self.left, 1e-6))

    @property
    def feedback(self) -> str:
        told = max(0.0, 1.0 - self.left / self.alone)
        return (
            f"{told:.0%} of the instruction can be told from the response: it should do all that is"
            " asked, and nothing else"
        )


async def read_likelihood(context: JudgeContext) -> list[Surprise | Failure]:
    """For each candidate how well it tells the instruction, or why that is not known.

    Raises:
        FatalModelError, CapabilityError: as `InstructionLikelihood`.
    """
    target = cut_instruction(context.case.input)
    # Under a code of the input alone, so that it is asked once for all.
    empty = fence("response", "", context.lone_nonce)
    read_alone = await attempt(_surprise(context, target, empty))
    if isinstance(read_alone, Failure):
        return [read_alone] * len(context.case.candidates)
    alone, way = read_alone
    if alone < LEAST_SURPRISE:
        raise CapabilityError(
            "the endpoint gives log-probabilities that leave out what the answer's schema or"
            " grammar rules out; instruction-likelihood needs those before it: use --judge probe"
        )

    # The input is what has to be told, so its images are not shown either.
    unasked = replace(context.case, images=())

    def shown(candidate: int) -> str:
        text, images = context.case.candidates[candidate], name_images(unasked, candidate)
        return fence_with("response", sanitize(text, context.nonce)[0], context.nonce, images)

    async def read(candidate: int) -> Surprise:
        images = images_of(unasked, (candidate,))
        left, read = await _surprise(context, target, shown(candidate), images)
        if read != way:
            raise AnswerError(f"read by {read}, and the empty response by {way}: no comparison")
        return Surprise(left, alone, way)

    return await context.each(range(len(context.case.candidates)), read)


def cut_instruction(text: str, words: int = WORDS) -> str:
    """The first words of a text, or all for 0; of more than `LONGEST` characters both ends."""
    text = text.strip()
    for last in islice(re.finditer(r"\S+", text), words - 1, words) if words else ():
        text = text[: last.end()]
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


def schema_for(target: str) -> str:
    """The JSON schema, as text, of an answer that gives `target` as the instruction."""
    return json.dumps(
        {
            "type": "object",
            "properties": {"instruction": {"type": "string", "enum": [target]}},
            "required": ["instruction"],
            "additionalProperties": False,
        }
    )


def request_read(
    response: str, target: str, seed: int, images: tuple[str, ...] = (), rules: tuple[str, ...] = ()
) -> Request:
    """Asks for the instruction of a response, as a fence shows it, and forces `target`. `images`:
    those of the response; `rules`: how to take them."""
    asked = prompt("backward").render(response=response)
    return Request(
        messages=(Message("user", (*rules, asked), images),),
        schema=schema_for(target),
        forced=target,
        temperature=0.0,
        max_tokens=len(json.dumps(target)) + 64,
        seed=seed,
        top_logprobs=1,
    )


async def _surprise(
    context: JudgeContext, target: str, response: str, images: tuple[str, ...] = ()
) -> tuple[float, Read]:
    rules = image_rules(context.case) if images else ()
    request = request_read(response, target, context.options.seed, images, rules)
    answer = await context.model(request)
    return read_surprise(answer, target)


def read_surprise(response: Response, target: str) -> tuple[float, Read]:
    """Minus the sum of the log-probabilities of the tokens that write `target`, in nats, and
    whether they are its own or were chosen within the schema.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is another than `target`, or ended before it.
    """
    if not response.logprobs:
        if not response.text:
            raise AnswerError(why_without_text(response))
        raise CapabilityError(
            "the endpoint gives no log-probabilities, which the judge"
            " 'instruction-likelihood' needs; use a judge that states its scores,"
            " such as --judge single"
        )
    if response.text == target:
        return -sum(token.logprob for token in response.logprobs), "tokens"
    text = "".join(token.token for token in response.logprobs)
    opening = _BEFORE.search(text)
    try:
        written = json.loads(response.text)["instruction"]
    except (ValueError, TypeError, KeyError):
        written = None
    if opening is None or written != target:
        raise AnswerError("the answer did not keep to its schema, which allows one text alone")
    surprise, start, closing = 0.0, 0, text.rfind('"')
    for token in response.logprobs:
        end = start + len(token.token)
        if end > opening.end() and start < closing:
            surprise -= token.logprob
        start = end
    return surprise, "schema"
