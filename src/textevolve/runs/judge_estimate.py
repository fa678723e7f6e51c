"""What any judge may take, before anything is spent; what a debate may take is in `estimate.py`.

Counted in the same way: the least is short answers and as few questions as there may be, the most
is all of them with every answer as long as allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from textevolve.errors import InputError
from textevolve.evaluation import Case, Usage, check_case
from textevolve.evaluators import EvaluatorSpec, parse_evaluator, read_profile
from textevolve.judges.backward import LONGEST
from textevolve.judges.exam import Options, example_turns, prompt
from textevolve.judges.probe import MOST_CRITERIA, QUESTIONS
from textevolve.runs.estimate import SHORT_ANSWER, Estimate, PriceOf, estimate
from textevolve.settings import Price

FENCE = 50
CHARACTERS_A_TOKEN = 4
CRITERION = 60  # characters of one, as models write them


def estimate_judge(cases: Iterable[Case], judge: str, model: str, price_of: PriceOf) -> Estimate:
    """The range for all cases; those that cannot be judged, such as blank texts, cost nothing.

    Cases that differ in the order of their candidates alone are, but for a debate, the same
    questions, which the journal answers the second time; the least counts them once.

    Raises:
        InputError: there is no such judge, or a case's own parameters are wrong.
    """
    spec = parse_evaluator(judge)
    asked, usable = spec.model or model, _usable(cases)
    if spec.is_debate:
        return estimate(usable, read_profile(spec), asked, price_of)
    price = price_of(asked)
    number, least, most = 0, Usage(), Usage()
    seen, unnamed = set[int](), {"seed": Options().seed}
    for case in usable:
        number += 1
        own = hash((case.input, str({**unnamed, **case.parameters})))
        alike = hash((own, tuple(sorted(case.candidates))))
        for plan, key in ((_prepare, own), (_ask, alike)):
            if key not in seen:
                seen.add(key)
                least += _sum(plan(case, spec, longest=False), price, 5.0)
            most += _sum(plan(case, spec, longest=True), price, 3.0)
    return Estimate(number, least, most)


def _usable(cases: Iterable[Case]) -> Iterator[Case]:
    for case in cases:
        try:
            check_case(case)
        except InputError:
            continue
        yield case


def _prepare(case: Case, spec: EvaluatorSpec, *, longest: bool) -> Iterator[tuple[int, int]]:
    """What is asked of an input alone: for each call, the characters of its prompt and the tokens
    of its answer."""
    input, written = len(case.input) + FENCE, _written(longest=longest)
    if spec.backward:
        yield len(prompt("backward").render(response="")) + FENCE, _read_back(case)
    if spec.reference:
        yield len(prompt("answer").render(instruction="")) + input, written
    if spec.name == "checklist":
        asking = len(prompt("criteria").render(instruction="", most=MOST_CRITERIA))
        for _ in range(2 if longest else 1):
            yield _rules(spec) + asking + input, written


def _ask(case: Case, spec: EvaluatorSpec, *, longest: bool) -> Iterator[tuple[int, int]]:
    """What is asked of the candidates, in the same form."""
    own = _written(longest=longest) * CHARACTERS_A_TOKEN if spec.reference else 0
    shown = _rules(spec) + len(case.input) + FENCE + own
    texts = [len(text) + FENCE for text in case.candidates]
    if spec.backward:
        bare = len(prompt("backward").render(response=""))
        yield from ((bare + text, _read_back(case)) for text in texts)
    if spec.name == "backward":
        return
    if spec.name == "pairwise":
        bare = len(prompt("two").render(instruction="", reference="", first="", second=""))
        pair = round(2 * sum(texts) / len(texts))
        for _ in range(2 * _pairs(len(texts), spec, longest=longest)):
            yield shown + bare + pair, 1
        return
    bare = len(prompt("one").render(instruction="", reference="", response=""))
    for text in texts:
        for question in _questions(spec, longest=longest):
            yield shown + bare + text + question, 1


def _rules(spec: EvaluatorSpec) -> int:
    return len(prompt("rules").render(rules=spec.rules))


def _written(*, longest: bool) -> int:
    return Options().max_answer_tokens if longest else SHORT_ANSWER


def _read_back(case: Case) -> int:
    """Tokens of the input as an answer gives it."""
    return min(len(case.input), LONGEST) // CHARACTERS_A_TOKEN + 10


def _pairs(candidates: int, spec: EvaluatorSpec, *, longest: bool) -> int:
    if spec.parameters.get("comparisons") != "sorted" or candidates < 2:
        return candidates * (candidates - 1) // 2
    return candidates * math.ceil(math.log2(candidates)) if longest else candidates - 1


def _questions(spec: EvaluatorSpec, *, longest: bool) -> list[int]:
    """The length of each question on one candidate, with the examples before it."""
    if spec.name == "checklist":
        return [CRITERION] * (MOST_CRITERIA if longest else 1)
    if spec.examples:
        text = QUESTIONS[0]
        shots = sum(len(turn.text) for turn in example_turns(text))
        return [shots + len(prompt("question").render(question=text))]
    return [len(prompt("question").render(question=text)) for text in QUESTIONS]


def _sum(plan: Iterable[tuple[int, int]], price: Price | None, ratio: float) -> Usage:
    calls, prompts, completion = 0, 0.0, 0
    for characters, tokens in plan:
        calls, prompts, completion = calls + 1, prompts + characters / ratio, completion + tokens
    cost = None if price is None else (prompts * price.input + completion * price.output) / 1e6
    return Usage(calls, round(prompts), 0, completion, cost)
