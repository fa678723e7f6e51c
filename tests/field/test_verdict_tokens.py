"""A server lists other tokens than those of the verdict, and puts something else first.

Reasoning models list the tokens of their thoughts; others write a line break, a mark or a sentence
before the verdict; two tokens may have one text; some servers list the chosen token alone. Each
right value is computed by hand from the probabilities of the token that is the verdict.
"""

import json
import math

import pytest

from textevolve.errors import AnswerError
from textevolve.evaluation import Usage
from textevolve.llm.model import Response, TokenLogprobs
from textevolve.llm.testing import Answer
from textevolve.llm.verdicts import expect_number, read_labels, read_log_odds
from textevolve.protocol.contents import align_tokens

YES = {"Yes": 0.9, "No": 0.05, "Well": 0.05}
NO = {"No": 0.9, "Yes": 0.05, "Well": 0.05}
THOUGHT = {"Okay": 0.97, "Yes": 0.02, "No": 0.01}


def token(text, shares=None):
    """Return a token with the alternatives as pairs or a mapping; alone it is nearly certain."""
    pairs = list((shares or {text: 0.99}).items()) if isinstance(shares, dict | None) else shares
    listed = tuple((word, math.log(share)) for word, share in pairs)
    return TokenLogprobs(text, dict(listed).get(text, math.log(0.01)), listed)


def answer(text, *tokens, finish_reason="length"):
    return Response(text, finish_reason, Usage(1), tuple(tokens))


def read(response):
    odds = read_log_odds(response)
    return 1 / (1 + math.exp(-odds))


@pytest.mark.parametrize(
    "response",
    [
        answer("No", token("Okay", THOUGHT), token(" then"), token("\n\n"), token("No", NO)),
        answer("No", token("Yes", YES), token("</think>"), token("\n"), token("No", NO)),
        answer("No", token("<think>"), token("</think>"), token("No", NO), token("<|end|>")),
        answer("\nNo", token("\n", {"\n": 0.97, "Yes": 0.03}), token("No", NO)),
        answer("**No**", token("**", {"**": 0.97, "Yes": 0.03}), token("No", NO), token("**")),
        answer("(No)", token("("), token("No", NO), token(")")),
        answer("“No.”", token("“"), token("No", NO), token(".”")),
        answer("No", token("▁No", {"▁No": 0.9, "▁Yes": 0.05})),
        answer("No, never.", token("No", NO)),
        answer("No, yes would be wrong.", token("No", NO), token(",")),
    ],
)
def test_verdict_after_other_tokens(response):
    assert read(response) == pytest.approx(0.05 / 0.95)


def test_one_text_is_summed():
    """Servers that decode each token alone write "Yes" and " Yes" as one text."""
    doubled = [("Yes", 0.7), ("Yes", 0.2), ("No", 0.09)]
    assert read(answer("Yes", token("Yes", doubled))) == pytest.approx(0.9 / 0.99)
    halves = [("No", 0.8), ("Yes", 0.05), ("Yes", 0.05), ("Well", 0.1)]
    assert read(answer("No", token("No", halves))) == pytest.approx(0.1 / 0.9)
    repeated = [("Yes", 0.6), ("No", 0.3), ("Well", 0.1), ("Yes", 0.6)]
    assert read(answer("Yes", token("Yes", repeated))) == pytest.approx(0.6 / 0.9)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (answer("<think>", token("<think>", {"<think>": 0.9998, "Yes": 0.0001})), "only 0.0001"),
        (answer("Yes", token("Okay", THOUGHT)), "tokens of another text, such as 'Okay'"),
        (answer(" ", token(" ", {" ": 0.97, "Yes": 0.03})), "was empty"),
        (answer("**", token("**", {"**": 0.97, "Yes": 0.03})), "neither yes nor no"),
        (answer("Hard", token("Hard", {"Hard": 0.99, "Yes": 0.009})), "only 0.009"),
        (answer("Y", token("Y", {"Y": 0.85, "No": 0.1, "Yes": 0.05})), "only 0.15"),
        (answer("Yes", token("Yes", {"Yes": 0.6})), "without no, which may have 40%"),
        (answer("Yes", token("Yes", {"Yes": 1.0, "No": 1.0})), "add up to 2.00"),
        (answer("Yes or No? No", token("Yes", YES), token(" or")), "several of the options"),
        (answer("Yes/No: No", token("Yes", YES), token("/")), "several of the options"),
        (answer("", token("Yes", YES), finish_reason="stop"), "was empty"),
        (answer("Yes", token("Yes", YES), finish_reason="content_filter"), "content filter"),
        (answer("", token("Yes", YES), finish_reason="refusal"), "refused"),
    ],
)
def test_no_verdict_has_reason(response, reason):
    with pytest.raises(AnswerError, match=reason):
        read_log_odds(response)


def test_half_of_mass_is_enough():
    just = answer("Yes", token("Yes", {"Yes": 0.3, "No": 0.25, "Well": 0.45}))
    assert read(just) == pytest.approx(0.3 / 0.55)
    few = answer("Well", token("Well", {"Well": 0.55, "Yes": 0.25, "No": 0.2}))
    with pytest.raises(AnswerError, match=r"at least 0\.5"):
        read_log_odds(few)


def test_letters_of_a_choice():
    shares = {"A": 0.2, "B": 0.7, "C": 0.1}
    logs = read_labels(answer("\nB", token("\n"), token("B", shares)), ("A", "B", "C"))
    assert [math.exp(log) for log in logs] == pytest.approx([0.2, 0.7, 0.1])


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((token("8", [("8", 0.5), ("8", 0.2), ("7", 0.3)]),), 7.7),
        ((token("1", {"1": 0.8, "5": 0.2}), token("0", {"0": 0.75, ",": 0.25})), 7.2),
        ((token("8", {"eight": 0.7, "8": 0.3}),), None),
    ],
)
def test_expected_number(tokens, expected):
    # By hand: .7 x 8 + .3 x 7; and .2 x 1 + .6 x 10 + .2 x 5.
    number = expect_number(tokens, 0, 10)
    assert number == (None if expected is None else pytest.approx(expected))


def test_alignment_needs_whole_words():
    assert align_tokens([token("pia"), token("no")], "no")
    assert not align_tokens([token("piano")], "no")


def test_judge_of_thinking_model(server, cli, home):
    """A thinking model says No after a thought whose first token would be read as Yes."""

    def think(body, _number):
        alternatives = [("Okay", 0.91), ("Yes", 0.08), ("No", 0.01)]
        verdict = [("No", 0.98), ("Yes", 0.01), ("Well", 0.01)]
        listed = [entry("Okay", alternatives), entry("\n\n", [("\n\n", 0.99)])]
        message = {"role": "assistant", "content": "No", "reasoning_content": "Okay"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        choice["logprobs"] = {"content": [*listed, entry("No", verdict)]}
        return Answer(body=json.dumps({"object": "chat.completion", "choices": [choice]}).encode())

    server.script = think
    model = f"{server.url}#thinker"
    outcome = cli("evaluate", "Is 4 a prime?", "Yes, it is.", "--judge", "probe", "-m", model)
    assert "0.010" in outcome.out, outcome.out + outcome.err


def entry(text, shares):
    listed = [{"token": word, "logprob": math.log(share)} for word, share in shares]
    return {**listed[0], "token": text, "top_logprobs": listed}


def test_doctor_knows_the_answer(server, cli, home):
    """An endpoint that gives log-probabilities, and says No to whether the sky is blue."""
    server.script = lambda body, _number: Answer(yes=0.03) if body.get("logprobs") else None
    report = json.loads(cli("doctor", f"{server.url}#m", "--json").out)
    capabilities = report["models"][0]["capabilities"]
    assert capabilities["log-probabilities"]["value"] is True
    assert capabilities["decisions"]["value"] is False
    assert "3% yes" in capabilities["decisions"]["note"]
