"""Whether a debate pays: the rule on hand cases, the sentence, and what a first round is."""

import math

from hypothesis import given
from hypothesis import strategies as st

from textevolve.bench.ablation import describe_payoff, weigh_debate
from textevolve.bench.agreement import summarise
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict, gather_outcomes
from textevolve.evaluation import Failure, Usage


def items_with(number, human=(1.0, 0.0)):
    return [Item(f"i{n}", f"question {n}", ("a", "longer"), human) for n in range(number)]


def verdicts_of(judge, credits, tokens=100):
    """A verdict an item: 1 right, 0 wrong, 0.5 a tie, None a failure."""
    made = []
    for n, credit in enumerate(credits):
        usage = Usage(1, tokens, 0, 0)
        if credit is None:
            failure = Failure("failed", "no use")
            made.append(Verdict(judge, f"i{n}", "given", (None, None), usage, failure=failure))
        else:
            made.append(Verdict(judge, f"i{n}", "given", (credit, 1 - credit), usage))
    return made


def weigh(debate, *rivals, minimum_effect=0.05):
    items = items_with(len(debate))
    names = [f"rival {n}" for n in range(len(rivals))]
    verdicts = verdicts_of("debate", debate, 500)
    for name, credits in zip(names, rivals, strict=True):
        verdicts += verdicts_of(name, credits)
    summary = summarise(items, verdicts)
    return weigh_debate(
        items,
        summary,
        gather_outcomes(items, verdicts),
        "debate",
        names,
        minimum_effect=minimum_effect,
    )


def mixed(right, wrong):
    return [1] * right + [0] * wrong


def test_a_debate_that_is_better_pays():
    payoff = weigh([1] * 40, mixed(20, 20))
    assert payoff.answer == "pays"
    assert payoff.tokens == 5
    assert payoff.difference.value == 0.5
    answer = describe_payoff(payoff, {"debate": "the debate", "rival 0": "the jury"})
    assert answer.startswith(
        "On these 40 items the debate was right in 100 % and the jury in 50 %: "
    )
    assert "the debate pays here: +50.0 points (+" in answer
    assert answer.endswith("and the debate took 5.0 times the tokens.")


def test_a_debate_that_changes_nothing_on_many_items_does_not_pay():
    credits = mixed(100, 100)
    payoff = weigh(credits, credits)
    assert payoff.answer == "does not pay"
    assert (payoff.difference.value, payoff.p) == (0, 1)
    assert 0 < payoff.difference.interval.high < 0.05
    assert "does not pay here: +0.0 points (-1.9 to +1.9), p 1" in describe_payoff(payoff, {})


@given(st.lists(st.tuples(*[st.sampled_from([0, 0.5, 1])] * 2), min_size=1, max_size=30))
def test_the_answer_follows_from_the_figures(credits):
    payoff = weigh(*(list(column) for column in zip(*credits, strict=True)))
    low, high = payoff.difference.interval.low, payoff.difference.interval.high
    assert low <= payoff.difference.value <= high
    if payoff.answer == "pays":
        assert low > 0
        assert payoff.p <= 0.05
    elif payoff.answer == "does not pay":
        assert high < payoff.minimum_effect
    else:
        assert high >= payoff.minimum_effect
        assert not math.isnan(payoff.items_needed)
