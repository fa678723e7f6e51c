"""What any judge may take, before anything is spent; what a debate may take is in `debate.py`.

Counted in the same way: the least is short answers and as few questions as there may be, the most
is all of them with every answer as long as allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.estimates.debate import SHORT_ANSWER, PriceOf, UsageRange, estimate_debates
from textevolve.evaluation import Case, Usage, check_case, choose_candidates
from textevolve.judge_kinds import DECIDE, EMBEDDING, FITTED, LIKELIHOOD, NAMES
from textevolve.judge_specs import (
    EvaluatorSpec,
    parse_evaluator,
    read_options,
    read_profile,
    read_rubric,
    split_rules,
)
from textevolve.judge_texts import is_swayed
from textevolve.judges.context import Options, example_state, example_turns, prompt
from textevolve.judges.decide import ask_candidate, ask_options, ask_pair
from textevolve.judges.instruction_likelihood import cut_instruction
from textevolve.judges.pairwise import ask_better
from textevolve.judges.probe import MOST_CRITERIA, QUESTIONS
from textevolve.judges.statements import (
    ANSWER_TOKENS,
    CHECKS,
    MOST_STATEMENTS,
    StatementCheck,
    split_passages,
)
from textevolve.llm.case_images import images_as_text
from textevolve.llm.decisions import Question
from textevolve.llm.emulation import show
from textevolve.llm.fence import quote
from textevolve.llm.reported_usage import cost_of
from textevolve.settings import Price
from textevolve.texts.prose import split_sentences

FENCE = 50
CHARACTERS_A_TOKEN = 4
CRITERION = 60  # characters of one, as models write them
EMULATION = 300  # characters of the rules before a question that a chat model is to decide

Calls: TypeAlias = Iterator[tuple[int, int]]
"""For each call the characters of its prompt and the tokens of its answer."""


Part: TypeAlias = partial[Calls]
"""Called with `longest`."""


def estimate_judge(cases: Iterable[Case], judge: str, model: str, price_of: PriceOf) -> UsageRange:
    """The range for all cases; those that cannot be judged, such as blank texts, cost nothing.

    What several cases ask in the same words, as where the order of candidates alone differs, the
    journal answers the second time; the least counts it once.

    Raises:
        InputError: there is no such judge, or a case's own parameters are wrong.
    """
    spec = parse_evaluator(judge)
    if spec.name == FITTED:
        return _estimate_fitted(list(_usable(cases)), spec, model, price_of)
    if spec.parts:
        return _estimate_cascade(list(cases), spec, model, price_of)
    asked, usable = spec.model or model, _usable(cases)
    if spec.name not in NAMES:  # nothing for a metric; of another package's judge it is not known
        return UsageRange(sum(1 for _ in usable), Usage(), Usage())
    if spec.is_debate:
        return estimate_debates(usable, read_profile(spec), asked, price_of)
    price, decided = price_of(asked), price_of(spec.decider or asked)
    number, least, most = 0, Usage(), Usage()
    typed = _typed_questions(spec)
    seen = set[int]()
    for case in usable:
        number += 1
        for key, part in _parts(case, spec, typed):
            paid = decided if part.func in (_probe, _check_parts) else price
            if key not in seen:
                seen.add(key)
                least += _sum(part(longest=False), paid, 5.0)
            most += _sum(part(longest=True), paid, 3.0)
    return UsageRange(number, least, most)


def _estimate_cascade(
    cases: Sequence[Case], spec: EvaluatorSpec, model: str, price_of: PriceOf
) -> UsageRange:
    """The least: the first judge is sure of all. The most: both are asked about all."""
    nothing = UsageRange(sum(1 for _ in _usable(cases)), Usage(), Usage())
    found: list[UsageRange] = []
    for part in spec.parts:
        rules, judge = split_rules(part)
        one = nothing if judge is None else estimate_judge(cases, judge, model, price_of)
        found.append(one if rules is None else replace(one, least=Usage()))
    first, second = found
    return UsageRange(first.cases, first.least, first.most + second.most)


def _estimate_fitted(
    cases: Sequence[Case], spec: EvaluatorSpec, model: str, price_of: PriceOf
) -> UsageRange:
    """All signals together; those that the order may sway are asked twice."""
    least, most = Usage(), Usage()
    several = [case for case in cases if len(case.candidates) > 1]
    turned = [choose_candidates(case, range(len(case.candidates))[::-1]) for case in several]
    for part in spec.parts:
        _, judge = split_rules(part)
        if judge is not None:
            asked = [*cases, *turned] if is_swayed(part) else cases
            found = estimate_judge(asked, judge, model, price_of)
            least, most = least + found.least, most + found.most
    return UsageRange(len(cases), least, most)


def _usable(cases: Iterable[Case]) -> Iterator[Case]:
    for case in cases:
        try:
            check_case(case)
        except InputError:
            continue
        yield images_as_text(case)


def _typed_questions(spec: EvaluatorSpec) -> tuple[Question, ...]:
    """Those that are decided about each candidate, or each pair; none of other judges."""
    if spec.name != DECIDE or spec.choice:
        return ()
    rubric = read_rubric(spec)
    return (ask_pair(rubric),) if spec.pairwise else tuple(ask_candidate(rubric).values())


def _parts(
    case: Case, spec: EvaluatorSpec, typed: tuple[Question, ...]
) -> Iterator[tuple[int, Part]]:
    """What is asked for a case, in parts; parts with the same key are the same questions."""
    gold = case.reference if spec.reference else None
    own = hash((case.input, case.parameters.get("seed", Options().seed), gold))
    together = hash((own, *sorted(case.candidates)))
    if spec.name == EMBEDDING:
        for text in {*case.candidates, case.reference or ""}:
            yield hash(text), partial(_embed, text)
        return
    if spec.name in CHECKS:
        check = CHECKS[spec.name]
        for text in case.candidates:
            answer = text if check.answer == "response" else case.reference or text
            yield hash((own, answer)), partial(_list_parts, case, check, answer)
            yield hash((own, answer, "parts")), partial(_check_parts, case, spec, answer)
        return
    yield own, partial(_prepare, case, spec)
    if spec.choice:
        yield hash((own, *case.candidates)), partial(_decide_choice, case, spec)
        return
    if spec.pairwise:
        yield together, partial(_decide_pairs, case, spec, typed)
        return
    if spec.is_relative:
        yield together, partial(_compare, case, spec)
        return
    for text in case.candidates:
        if spec.instruction_likelihood:
            yield hash((together, text)), partial(_read, case, spec, text)
        if spec.name == DECIDE:
            yield hash((own, text)), partial(_decide, case, spec, typed, text)
        elif spec.name != LIKELIHOOD:
            yield hash((own, text)), partial(_probe, case, spec, text)


def _prepare(case: Case, spec: EvaluatorSpec, *, longest: bool) -> Calls:
    """What is asked of an input alone."""
    input, written = _fenced(case.input), _written(longest=longest)
    if spec.instruction_likelihood:
        yield len(prompt("backward").render(response="")) + FENCE, _read_back(case, spec)
    if spec.reference and case.reference is None:
        yield len(prompt("answer").render(instruction="")) + input, written
    if spec.name == "checklist":
        asking = len(prompt("criteria").render(instruction="", most=MOST_CRITERIA))
        for _ in range(2 if longest else 1):
            yield _rules(spec, quoted=False) + asking + input, written


def _compare(case: Case, spec: EvaluatorSpec, *, longest: bool) -> Calls:
    """What is asked of pairs of candidates."""
    bare = len(
        prompt("two").render(
            instruction="", reference="", first="", second="", question=ask_better("")
        )
    )
    shown = bare + _rules(spec, quoted=False) + _fenced(case.input)
    shown += _reference(case, spec, longest=longest)
    texts = [_fenced(text) for text in case.candidates]
    pair = round(2 * sum(texts) / len(texts))
    for _ in range(2 * _pairs(len(texts), spec, longest=longest)):
        yield shown + pair, 1


def _read(case: Case, spec: EvaluatorSpec, text: str, *, longest: bool) -> Calls:
    """What is asked of one candidate whose instruction is read back; all of it, however long."""
    yield len(prompt("backward").render(response="")) + _fenced(text), _read_back(case, spec)


def _probe(case: Case, spec: EvaluatorSpec, text: str, *, longest: bool) -> Calls:
    """What is asked of one candidate alone."""
    shown = _state(case, spec, (text,), longest=longest)
    questions = _questions(spec, longest=longest)
    if spec.decider and not longest:
        yield shown + sum(questions), 0
        return
    for question in questions:
        yield shown + question, 1


def _decide(
    case: Case, spec: EvaluatorSpec, typed: Sequence[Question], text: str, *, longest: bool
) -> Calls:
    """What is decided about one candidate alone."""
    shots = len(example_state(QUESTIONS[0])) if spec.examples else 0
    state = shots + _state(case, spec, (text,), longest=longest)
    yield from _decisions(state, typed, emulated=longest)


def _decide_pairs(
    case: Case, spec: EvaluatorSpec, typed: Sequence[Question], *, longest: bool
) -> Calls:
    """What is decided about pairs of candidates."""
    count = len(case.candidates)
    state = _state(case, spec, case.candidates, longest=longest)
    for _ in range(2 * _pairs(count, spec, longest=longest)):
        yield from _decisions(state, typed, emulated=longest)


def _decide_choice(case: Case, spec: EvaluatorSpec, *, longest: bool) -> Calls:
    """What is decided about all candidates at once; by a chat model in two orders."""
    question = ask_options(case.candidates, read_rubric(spec))
    told = len(case.input) + len(question.instructions) + sum(map(len, case.candidates))
    for _ in range(2 if longest else 1):
        yield told + (_rules(spec, quoted=True) + EMULATION if longest else 0), int(longest)


def _decisions(state: int, questions: Sequence[Question], *, emulated: bool) -> Calls:
    """One request of a model that decides by itself; a chat model is asked question by question."""
    if not emulated:
        yield state + sum(len(question.instructions) for question in questions), 0
        return
    for question in questions:
        for showing in show(question):
            yield EMULATION + state + len(showing.text), 1


def _state(case: Case, spec: EvaluatorSpec, candidates: Sequence[str], *, longest: bool) -> int:
    """Characters of what is shown: the rules, and candidates of a mean length for one or a pair."""
    bare = len(prompt("one").render(instruction="", reference="", response=""))
    shown = bare + _rules(spec, quoted=True) + _fenced(case.input)
    shown += _reference(case, spec, longest=longest)
    texts = [_fenced(text) for text in candidates]
    return shown + round(min(2, len(texts)) * sum(texts) / len(texts))


def _embed(text: str, *, longest: bool) -> Calls:
    yield len(text), 0


def _list_parts(case: Case, check: StatementCheck, answer: str, *, longest: bool) -> Calls:
    """What is asked where an answer is taken apart."""
    listing = len(prompt("statement_rules").render()) + len(
        prompt("statements").render(instruction="", text="", most=MOST_STATEMENTS)
    )
    needless = check.part == "Passage" or len(split_sentences(answer)) == 1
    for _ in range(0 if needless else 2 if longest else 1):
        yield listing + _fenced(case.input) + _fenced(answer), ANSWER_TOKENS if longest else 30


def _check_parts(case: Case, spec: EvaluatorSpec, answer: str, *, longest: bool) -> Calls:
    """What is asked about the parts of an answer, or of the context."""
    check = CHECKS[spec.name]
    passages = split_passages(case.context or "") if check.part == "Passage" else ()
    rules = len(prompt("statement_rules").render())
    texts = {"Context": case.context or "", "Instruction": case.input, "Answer": answer}
    shown = rules + len(prompt("question").render(question=check.question))
    shown += sum(_fenced(texts[name]) for name in check.shown)
    parts = [len(text) for text in passages] or [CRITERION] * (MOST_STATEMENTS if longest else 1)
    if check.part != "Passage" and len(split_sentences(answer)) == 1:
        parts = [len(answer)]
    if spec.decider and not longest:
        yield shown + sum(parts), 0
        return
    for part in parts:
        yield shown + part + FENCE, 1


def _reference(case: Case, spec: EvaluatorSpec, *, longest: bool) -> int:
    """Characters of the case's reference, or of the judge's own answer."""
    if not spec.reference:
        return 0
    if case.reference is not None:
        return _fenced(case.reference)
    return _written(longest=longest) * CHARACTERS_A_TOKEN


def _rules(spec: EvaluatorSpec, *, quoted: bool) -> int:
    return len(prompt("rules").render(rules=spec.rules, quoted=quoted))


def _fenced(text: str) -> int:
    """Characters of a text between marks, or quoted."""
    return len(quote(text)) + FENCE


def _written(*, longest: bool) -> int:
    return Options().max_answer_tokens if longest else SHORT_ANSWER


def _read_back(case: Case, spec: EvaluatorSpec) -> int:
    """Tokens of what is read of the input; ten for the object around it where there is one."""
    return len(cut_instruction(case.input, read_options(spec)[0].words)) // CHARACTERS_A_TOKEN + 10


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
    calls, prompts, completion, cost = 0, 0.0, 0, 0.0
    for characters, tokens in plan:
        calls, prompts, completion = calls + 1, prompts + characters / ratio, completion + tokens
        if price is not None:
            cost += cost_of(price, math.ceil(characters / ratio), 0, tokens)
    return Usage(calls, round(prompts), 0, completion, None if price is None else cost)
