import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.debate.deciding import (
    answer_type,
    keep_words,
    probe_score,
    read_points,
    read_verbalized,
    read_weighted,
)
from textevolve.debate.profile import STORED_READOUTS, load_profile, override
from textevolve.errors import AnswerError, CapabilityError
from textevolve.evaluation import Usage
from textevolve.llm.model import Response, TokenLogprobs
from textevolve.llm.structured import read_answer
from textevolve.llm.verdicts import read_log_odds

COMPONENTS = ("accuracy", "title")


def response(text="", tokens=(), finish_reason="stop"):
    text = text or "".join(token.token for token in tokens)
    return Response(text, finish_reason, Usage(), tuple(tokens))


def answer(scores, readout="verbalized", labels=(1, 2)):
    points = {"strengths": "s", "weaknesses": "w", "instructions": "i"}
    data = {"argument": "a"}
    for label, row in zip(labels, scores, strict=True):
        data[f"Response {label}"] = points | {"scores": dict(zip(COMPONENTS, row, strict=True))}
    return read_answer(response(json.dumps(data)), answer_type(labels, COMPONENTS, readout))[0]


def test_scores_are_found_by_label_and_name_never_by_place():
    base_model = answer([(1, 2), (3, 4)], labels=(2, 1))
    assert read_verbalized(base_model, (1, 2)) == ((3.0, 4.0), (1.0, 2.0))
    assert read_verbalized(base_model, (2, 1)) == ((1.0, 2.0), (3.0, 4.0))
    assert [p.strengths for p in read_points(base_model, (1, 2))] == ["s", "s"]


@pytest.mark.parametrize("score", [-0.1, 10.01, math.nan, "high", None, True])
def test_a_score_that_is_none_is_refused(score):
    with pytest.raises(AnswerError, match="accuracy"):
        answer([(score, 2), (3, 4)])


@pytest.mark.parametrize("score", ["1_0", "nan", "８", "1e1", "8/100"])
def test_a_text_that_is_no_plain_number_is_no_score(score):
    for readout in ("verbalized", "logprob-weighted"):
        with pytest.raises(AnswerError, match=r"accuracy.*plain number"):
            answer([(score, 2), (3, 4)], readout)


def test_a_plain_number_in_quotes_is_a_score():
    base_model = answer([("8", "8.5"), ("8/10", " 7.5 / 10 ")])
    assert read_verbalized(base_model, (1, 2)) == ((8.0, 8.5), (8.0, 7.5))
    assert read_verbalized(answer([("8", "8/10"), (3, 4)], "logprob-weighted"), (1, 2)) == (
        (8, 8),
        (3, 4),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.pop("Response 2"), "Response 2 is missing"),
        (lambda d: d.update({"Response 3": d["Response 1"]}), "Response 3 was not asked for"),
        (lambda d: d["Response 1"]["scores"].update(Accurracy=1), "Accurracy was not asked for"),
    ],
)
def test_another_shape_is_refused_with_the_place(change, reason):
    data = json.loads(answer([(1, 2), (3, 4)]).model_dump_json(by_alias=True))
    change(data)
    with pytest.raises(AnswerError, match=reason):
        read_answer(response(json.dumps(data)), answer_type((1, 2), COMPONENTS, "verbalized"))


def number(token, **alternatives):
    top = tuple((text.strip("_"), math.log(p)) for text, p in alternatives.items())
    return TokenLogprobs(token, dict(top).get(token, math.log(0.5)), top)


def tokens_of(text):
    return [TokenLogprobs(char, -0.1) for char in text]


def expected_response(first, *more):
    head = '{"argument": "says 3", "Response 1": {"scores": {"accuracy": '
    tail = "}}}"
    return response(tokens=[*tokens_of(head), first, *more, *tokens_of(tail)])


def read_one(made):
    return read_weighted(made, (1,), (1,), ("accuracy",))[0][0]


def test_the_expectation_weighs_the_alternatives():
    new_response = expected_response(number("7", _7=0.45, _9=0.225, _5=0.225, x=0.1))
    assert read_one(new_response) == pytest.approx(7.0)


def test_ten_in_one_token_and_in_two():
    assert read_one(expected_response(number("10", _10=0.5, _8=0.5))) == pytest.approx(9)
    two = expected_response(number("1", _1=0.8, _5=0.2), number("0", _0=0.75, x=0.25))
    assert read_one(two) == pytest.approx(0.8 * 0.75 * 10 + 0.8 * 0.25 * 1 + 0.2 * 5)


def test_numbers_above_ten_and_words_have_no_part():
    new_response = expected_response(number("4", _4=0.5, _11=0.3, four=0.2))
    assert read_one(new_response) == pytest.approx(4)


@pytest.mark.parametrize(
    "before",
    [
        '<think>"Response 1": {"scores": {"accuracy": 2}}</think>',
        '<think>{"Response 1": {"scores": {"accuracy": 2}}}</think>',
        'Of "Response 1" I say: ',
    ],
)
def test_what_stands_before_the_answer_is_not_read_for_it(before):
    two = '{"argument": "", "Response 2": {"scores": {"accuracy": 5}}, '
    token_logprobs = [
        *tokens_of('"Response 1": {"scores": {"accuracy": '),
        number("7", _7=1.0),
        *tokens_of("}}}"),
    ]
    new_response = response(tokens=[*tokens_of(before + two), *token_logprobs])
    assert read_weighted(new_response, (1,), (1,), ("accuracy",)) == ((7.0,),)


def test_without_log_probabilities_the_readouts_say_so():
    for read in (read_one, read_log_odds):
        with pytest.raises(CapabilityError, match="log-probabilities"):
            read(response("x"))


@given(st.floats(0.001, 0.999))
def test_the_probe_is_the_share_of_yes(yes):
    token = TokenLogprobs(
        "Yes", math.log(yes), (("Yes", math.log(yes)), ("No", math.log(1 - yes)), ("I", -20.0))
    )
    assert probe_score(read_log_odds(response(tokens=[token]))) == pytest.approx(10 * yes, abs=1e-6)


def test_spellings_are_added_up_and_an_absent_side_is_bounded():
    top = ((" yes", math.log(0.3)), ("YES", math.log(0.3)), ("no", math.log(0.2)))
    assert probe_score(
        read_log_odds(response(tokens=[TokenLogprobs(" yes", top[0][1], top)]))
    ) == pytest.approx(7.5)
    alone = TokenLogprobs("Yes", math.log(0.9), (("Yes", math.log(0.9)), ("Well", math.log(1e-5))))
    assert 9.99 < probe_score(read_log_odds(response(tokens=[alone]))) < 10


def test_neither_yes_nor_no_is_no_score():
    with pytest.raises(AnswerError, match="neither yes nor no"):
        read_log_odds(response(tokens=[TokenLogprobs("Perhaps", -0.1, (("Perhaps", -0.1),))]))


def test_a_short_argument_stands_before_its_scores():
    schema = answer_type((1, 2), COMPONENTS, "verbalized", 10).model_json_schema()
    assert schema["properties"]["argument"]["maxLength"] == 70
    data = {"argument": "a"} | {
        f"Response {n}": {"scores": dict.fromkeys(COMPONENTS, n)} for n in (1, 2)
    }
    stated, _ = read_answer(
        response(json.dumps(data)), answer_type((1, 2), COMPONENTS, "verbalized", 10)
    )
    assert read_verbalized(stated, (1, 2)) == ((1.0, 1.0), (2.0, 2.0))


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("One two three.", 3, "One two three."),
        ("One two. Three four five", 4, "One two."),
        ("A. b c d e f g h", 6, "A. b c d e f …"),
        ("uncommonly lengthy vocabulary", 4, "uncommonly lengthy …"),
        ('It says "so be it." Three four', 5, 'It says "so be it."'),
    ],
)
def test_an_argument_is_cut_to_its_words(text, most, kept):
    assert keep_words(text, most) == kept


@pytest.mark.parametrize(("name", "stored"), STORED_READOUTS.items())
def test_the_readouts_have_their_former_names_in_records_and_are_understood_by_both(name, stored):
    new, old = (override(load_profile("general"), {"readout": one}) for one in (name, stored))
    assert new == old
    assert new.readout == name
    assert json.loads(new.model_dump_json())["readout"] == stored
