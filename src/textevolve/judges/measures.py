"""Judges that measure a model instead of asking it: by the probabilities of given tokens
(`instruction-likelihood`), or by vectors (`embedding`).

How likely is the instruction, given the response? The model sees a response alone and is asked for
its instruction. The true instruction is forced as the answer, and the log-probabilities of its
tokens measure the surprise of the model. A well-written answer to a similar but different
instruction scores low, and the model never has to judge, at which small models are bad.

The endpoint must be able to force tokens, as llama.cpp's server and therefore every local model is.
A JSON schema is no substitute: in it models split words into unusual tokens, which adds more
surprise than the text itself. The idea, with sampled instructions that are compared by their words
instead of log-probabilities, is FLIP, arXiv 2602.13551, section 3.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from textevolve.errors import AnswerError, CapabilityError, InputError
from textevolve.evaluation import EvaluationResult, Evaluator, reject_candidate_images
from textevolve.judges.context import JudgeContext, Judgement, ModelJudge, prompt, require_field
from textevolve.judges.judge import judge
from textevolve.judges.opening import Judges
from textevolve.llm.catalogue import PROVIDER, embedder_of
from textevolve.llm.decisions import probability
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.prompts import fence, image_rules, images_of, name_images
from textevolve.llm.structured import require_text
from textevolve.rows.columns import list_answers

WORDS = 20
"""The number of words of the instruction that are forced. When measured, 20 words gave the same
verdicts as the whole instruction, and 10 words did not."""
CERTAIN = 1e-6
"""The least surprise in nats; a surprise of 0 would make the ratio infinite."""
LONGEST = 600
"""The maximum number of characters that are forced; of a longer text half are taken from each
end."""


@judge("instruction-likelihood", help="how well the instruction can be guessed from a text")
@dataclass(frozen=True)
class InstructionLikelihood(ModelJudge):
    """A judge by the likelihood of the instruction given the response, with one call for each
    candidate and one for an empty response. No prompt shows more than one candidate. Only the first
    `WORDS` words of the instruction count.

    With L the surprise, in nats, of the instruction after a response, and N after an empty one,
    score = N / (N + L). It is 0.5 if the response says nothing about the instruction, and nearer to
    1 the better the response predicts it. Scores are comparable among responses to the same input.
    A response that repeats its instruction scores high, whatever else it says.
    """

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        target = cut_instruction(context.case.input)
        # Under a code of the input alone, so that it is asked once for all.
        empty = fence("response", "", context.lone_nonce)
        alone = max(await _surprise(context, target, empty), CERTAIN)
        # The input is what has to be told, so its images are not shown either.
        unasked = replace(case, images=())

        async def read(candidate: int) -> EvaluationResult:
            text = case.candidates[candidate]
            images = name_images(unasked, candidate)
            response = context.fenced("response", text, images)
            candidate_images = images_of(unasked, (candidate,))
            nats = max(await _surprise(context, target, response, candidate_images), CERTAIN)
            odds = math.log(alone) - math.log(nats)
            feedback = (
                f"{max(0.0, 1.0 - nats / alone):.0%} of the instruction can be told from the"
                " response: it should do all that is asked, and nothing else"
            )
            surprise = {"left": nats, "alone": alone}

            return context.result(probability(odds), [feedback], log_odds=odds, surprise=surprise)

        return context.judgement(await context.each_candidate(read))


def cut_instruction(text: str, words: int = WORDS) -> str:
    """Return the first `words` words of a text, or all for 0; if they have more than `LONGEST`
    characters, only their beginning and end."""
    text = text.strip()
    for last in islice(re.finditer(r"\S+", text), words - 1, words) if words else ():
        text = text[: last.end()]
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


async def _surprise(
    context: JudgeContext, target: str, response: str, images: tuple[str, ...] = ()
) -> float:
    """Ask for the instruction of a response, with `target` forced as the answer, and return its
    surprise. `images`: those of the response.

    Raises:
        FatalModelError: no call can succeed. CapabilityError: the endpoint cannot force tokens, or
            gives no log-probabilities.
    """
    rules = image_rules(context.case) if images else ()
    request = request_instruction(response, target, context.seed, images, rules)

    return read_surprise(await context.model(request), target)


def request_instruction(
    response: str, target: str, seed: int, images: tuple[str, ...], rules: tuple[str, ...]
) -> Request:
    """Return the request that asks for the instruction of a response, and forces `target` as the
    answer. `images`: those of the response; `rules`: how to treat them."""
    text = prompt("backward").render(response=response)
    schema = {
        "type": "object",
        "properties": {"instruction": {"type": "string", "enum": [target]}},
        "required": ["instruction"],
        "additionalProperties": False,
    }

    return Request(
        messages=(Message("user", (*rules, text), images),),
        schema=json.dumps(schema),
        forced=target,
        temperature=0.0,
        max_tokens=len(json.dumps(target)) + 64,
        seed=seed,
        top_logprobs=1,
    )


def read_surprise(response: Response, target: str) -> float:
    """Return the surprise of `target` in nats: the negative sum of the log-probabilities of its
    tokens.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities, or did not force the tokens.
        AnswerError: the answer is empty.
    """
    require_text(response, may_be_cut=True)
    if not response.logprobs or response.text != target:
        raise CapabilityError(
            "the endpoint does not force a text and give the log-probabilities of its tokens, which"
            " the judge 'instruction-likelihood' needs: use a local model, or another judge, such"
            " as --judge probe"
        )

    return -sum(token.logprob for token in response.logprobs)


# Similarity of embeddings.

DIGITS = 9
"""The number of digits to which a cosine is rounded, so that equal texts have exactly the cosine
1."""


@judge("embedding@MODEL", help="similarity of the embeddings of text and reference")
@dataclass(frozen=True)
class EmbeddingSimilarity(ModelJudge):
    """A judge that scores each candidate by the cosine of its embedding and that of the case's
    reference; negative cosines count as 0. Each text takes one call of an endpoint's
    `/v1/embeddings` or of `local/minilm`.

    Raises:
        InputError: the model is a local one that generates text and has no embeddings.
    """

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        name = bench.model_of(self.model or bench.model).name
        if name.startswith(f"{PROVIDER}/") and embedder_of(name) is None:
            raise InputError(
                f"{name} gives no embeddings: name a model that does, as in embedding@local/minilm"
                " or embedding@openai/text-embedding-3-small"
            )

        return super().open(bench, rubric)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("reference",)

    @property
    def reads_reference(self) -> bool:
        return True

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        reject_candidate_images(case, "a judge by embeddings")
        require_field(case, "reference")
        answers = list_answers(case.reference or "")
        references = [await embed(context.model, answer) for answer in answers]

        async def compare(text: str) -> EvaluationResult:
            vector = await embed(context.model, text)
            near = max(cosine(vector, reference) for reference in references)
            return context.result(max(0.0, near), ())

        return context.judgement(await context.each(case.candidates, compare))


def cosine(vector: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors, in [-1, 1].

    Raises:
        AnswerError: their lengths differ, or one of them has only zeros or too large numbers.
    """
    if len(vector) != len(other):
        raise AnswerError(f"the embeddings have {len(vector)} and {len(other)} numbers")
    size = math.hypot(*vector) * math.hypot(*other)
    if not size or not math.isfinite(size):
        raise AnswerError(
            "an embedding has only zeros or too large numbers, so it has no direction"
        )

    similarity = math.fsum(a * b for a, b in zip(vector, other, strict=True)) / size

    return min(1.0, max(-1.0, round(similarity, DIGITS)))
