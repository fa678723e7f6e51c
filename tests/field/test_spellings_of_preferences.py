"""People's preferences between two texts are spelled as the tools of others spell them.

What each spelling means is taken from the documentation of the tool.
"""

import pytest

from textevolve.bench.items import items_of
from textevolve.errors import InputError

PAIR = {"input": "Name a prime.", "output_1": "Nine.", "output_2": "Seven."}
FIRST = (1.0, 0.0)
SECOND = (0.0, 1.0)
TIE = (0.5, 0.5)

WINNERS = {
    "model_a": FIRST,
    "model_b": SECOND,
    "Model B": SECOND,
    "response_2": SECOND,
    "A": FIRST,
    "A>B": FIRST,
    "b >> a": SECOND,
    "A=B": TIE,
    "tie": TIE,
    "tie (bothbad)": TIE,
    "Tie (both bad)": TIE,
    "both": TIE,
    "neither": TIE,
    1: FIRST,
    2.0: SECOND,
    "2.0": SECOND,
    1.5: TIE,
    "1.0": FIRST,
}


@pytest.mark.parametrize("winner", WINNERS)
def test_winners_are_read(winner):
    (item,) = items_of([{**PAIR, "winner": winner}])
    assert item.human == WINNERS[winner]


@pytest.mark.parametrize(
    ("preference", "human"),
    [(1.05, (0.95, 0.05)), (2, SECOND), ("1.5", TIE), (1, FIRST)],
)
def test_preferences_are_shares(preference, human):
    (item,) = items_of([{**PAIR, "preference": preference}])
    assert item.human == pytest.approx(human)


OUTCOMES = ("winner_model_a", "winner_model_b", "winner_tie")


@pytest.mark.parametrize(("place", "human"), [(0, FIRST), (1, SECOND), (2, TIE)])
@pytest.mark.parametrize("true", [1, True, "1", 1.0])
def test_columns_of_outcomes_are_read(place, human, true):
    outcomes = dict.fromkeys(OUTCOMES, 0) | {OUTCOMES[place]: true}
    (item,) = items_of([{**PAIR, **outcomes}])
    assert item.human == human


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ({"winner": "model_c"}, "must be a candidate's number from 1 to 2, its letter or 'tie'"),
        ({"winner": True}, "not True"),
        ({"winner": 2.5}, "must be a number from 1"),
        ({"preference": 3}, "must be a number from 1"),
        ({"preference": "a lot"}, "not 'a lot'"),
        ({"winner_model_a": 1, "winner_model_b": 1}, "needs one of winner, label, preference"),
        ({"winner": 1, "preference": 2}, "it has 'winner' and 'preference'"),
    ],
)
def test_other_spellings_are_refused(label, sentence):
    with pytest.raises(InputError, match=sentence):
        items_of([{**PAIR, **label}])


def test_texts_of_tables_stay_texts(cli, home):
    # `01` and `true` are answers, and no values of JSON.
    (home / "rows.csv").write_text("question,response,reference,label\n01,true,true,pass\n")
    outcome = cli("bench", "agreement", "rows.csv", "--judge", "metric:exact", "--json")
    assert outcome.code == 0, outcome.err
