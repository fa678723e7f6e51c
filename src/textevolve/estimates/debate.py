"""What a run may take, before anything is spent: a range of calls, tokens and cost.

The least is a run in which every debate ends after its first round (it converges, or an escalation
is certain) and answers are short; the most is all rounds with every answer as long as allowed and
asked for twice. Tokens are counted as characters / 3 to characters / 5, so they bound what
tokenisers make of ordinary prose; code, and languages without spaces, can lie above. Of agents with
memories the most is the whole budget in each turn, or as many memories as are recalled, at a length
that is seldom exceeded; the calls that embed what they search by are counted without a cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from textevolve.debate.context import read_rules
from textevolve.debate.deciding import ask_cell
from textevolve.debate.profile import Agent, Profile, override
from textevolve.debate.protocol import choose_readout
from textevolve.estimates.expected import Expected
from textevolve.evaluation import Case, Usage
from textevolve.llm.case_images import images_as_text
from textevolve.llm.decisions import Question
from textevolve.llm.emulation import show
from textevolve.llm.reported_usage import cost_of
from textevolve.llm.token_count import CHARACTERS_A_TOKEN
from textevolve.memory.recall import MOST_CANDIDATES, QUERY_CHARACTERS
from textevolve.settings import Price

SHORT_ANSWER = 40
SHORT_POINTS = 50
PROBE_CHARACTERS = 220
REQUEST_CHARACTERS = 700
CHARACTERS_SPOKEN = 4
MEMORY_CHARACTERS = 600
SOURCE_SHOWN = 250


@dataclass(frozen=True, slots=True)
class UsageRange:
    """The least and the most that the cases may use; a cost is None where a price is unknown.
    `parts`: what it is made of, each with its heading. `expected`: what they probably use."""

    cases: int
    least: Usage
    most: Usage
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    expected: Expected | None = None


PriceOf = Callable[[str], Price | None]


def estimate_debates(
    cases: Iterable[Case], profile: Profile, model: str, price_of: PriceOf
) -> UsageRange:
    """The range for all cases; they are read one by one.

    Raises:
        InputError: a case's own parameters are wrong.
    """
    number, least, most = 0, Usage(), Usage()
    for case in map(images_as_text, cases):
        own = override(profile, case.parameters, f"case {case.id}: ")
        number += 1
        least += _case(case, own, model, price_of, longest=False)
        most += _case(case, own, model, price_of, longest=True)
    return UsageRange(number, least, most)


def _case(case: Case, profile: Profile, model: str, price_of: PriceOf, *, longest: bool) -> Usage:
    readout = choose_readout(profile, [a.model or model for a in profile.agents])
    asks = readout in ("after-argument", "pointwise")
    probes = len(case.candidates) * len(profile.components) if asks else 0
    questions = _questions(case, profile) if readout == "decide" else ()
    texts = len(case.input) + sum(len(text) for text in case.candidates)
    opening = len(read_rules(profile, readout)) + texts + REQUEST_CHARACTERS
    short = SHORT_ANSWER + SHORT_POINTS * len(case.candidates)
    answer = profile.max_answer_tokens if longest else min(short, profile.max_answer_tokens)
    times = 2 if profile.order == "swap" and len(case.candidates) > 1 else 1
    early = profile.protocol == "escalation" or (
        profile.convergence is not None and profile.protocol != "independent"
    )
    total = Usage()
    for r in range(1 if early and not longest else profile.rounds):
        for i, agent in enumerate(profile.agents):
            heard = _turns_heard(profile, r, i) * answer * CHARACTERS_SPOKEN
            length = opening + heard + (_remembered(agent) if longest else 0)
            own = agent.model or model
            asked = (2 if longest else 1) if profile.argue else 0
            turn = _turn(length, answer, probes, price_of(own), longest, asked)
            if questions:
                price = price_of(profile.decider or own)
                shown = length + answer * CHARACTERS_SPOKEN if profile.argue else opening
                turn += _decide(shown, questions, price, longest=longest)
            total = sum([turn] * times, total)
            if longest:
                total += _search(agent, case)
        if profile.protocol == "simultaneous-summary" and r > 0:
            heard = r * len(profile.agents) * answer * CHARACTERS_SPOKEN
            price = price_of(profile.agents[0].model or model)
            summary = _turn(opening + heard, answer, 0, price, longest=False, asked=1)
            total += summary
    return total


def _remembered(agent: Agent) -> int:
    """The most characters that memories take in a prompt, with their sources and rules."""
    settings = agent.recall_settings
    if settings is None:
        return 0
    texts = settings.limit * MEMORY_CHARACTERS
    if settings.budget is not None:
        texts = min(texts, settings.budget * CHARACTERS_A_TOKEN)
    return texts + (settings.limit + 2) * SOURCE_SHOWN


def _search(agent: Agent, case: Case) -> Usage:
    """The most calls that embed what one turn searches by, in each of its collections."""
    settings = agent.recall_settings
    if settings is None:
        return Usage()
    calls = len(settings.collections) * (min(len(case.candidates), MOST_CANDIDATES) + 3)
    return Usage(calls, round(calls * QUERY_CHARACTERS / 3.0))


def _turn(
    length: float, answer: int, probes: int, price: Price | None, longest: bool, asked: int
) -> Usage:
    """`length` is the prompt's, in characters; the longest turn is `asked` for twice."""
    ratio = 3.0 if longest else 5.0
    one, probed = length / ratio, (length + PROBE_CHARACTERS) / ratio + answer
    prompt, completion = asked * one + probes * probed, asked * answer + probes
    cost = None
    if price is not None:
        cost = asked * cost_of(price, math.ceil(one), 0, answer)
        cost += probes * cost_of(price, math.ceil(probed), 0, 1)
    return Usage(asked + probes, round(prompt), 0, completion, cost)


def _questions(case: Case, profile: Profile) -> tuple[Question, ...]:
    return tuple(
        ask_cell(f"Response {n}", component)
        for n in range(1, len(case.candidates) + 1)
        for component in profile.components
    )


def _decide(
    length: float, questions: tuple[Question, ...], price: Price | None, *, longest: bool
) -> Usage:
    """All questions in one request that has no output; or, where a chat model has to emulate it,
    each by itself behind the same text."""
    sizes = [sum(len(option.description) for option in one.options) for one in questions]
    sizes = [n + len(one.instructions) for n, one in zip(sizes, questions, strict=True)]
    if not longest:
        prompts, said = [(length + sum(sizes)) / 5.0], 0
    else:
        calls = [len(show(one)) for one in questions]
        asked = zip(sizes, calls, strict=True)
        prompts = [(length + PROBE_CHARACTERS + n) / 3.0 for n, of in asked for _ in range(of)]
        said = 1
    cost = None
    if price is not None:
        cost = sum(cost_of(price, math.ceil(one), 0, said) for one in prompts)
    return Usage(len(prompts), round(sum(prompts)), 0, said * len(prompts), cost)


def _turns_heard(profile: Profile, r: int, i: int) -> int:
    """How many earlier turns stand in the prompt of turn i of round r."""
    agents = len(profile.agents)
    window = r if profile.history_rounds is None else min(r, profile.history_rounds)
    if profile.protocol == "independent":
        return 0
    if r == 0 and profile.protocol in ("blind-first", "escalation"):
        return 0
    if profile.protocol == "simultaneous-summary":
        return min(r, 1)
    heard = window * agents
    return heard if profile.protocol == "simultaneous" else heard + i
