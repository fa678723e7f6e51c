"""Decision endpoints that answer typed questions in each of the ways that are known of them."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from laws.guesses_ways import Way
from laws.guesses_world import BAD_SHARE, BAD_TEXT, GOOD_SHARE, Shares
from textevolve.llm.testing import Answer

WIRES = ("systemone", "decisions")
"""The protocols; the first one has answers by name, the second one a list of them."""


def judge_state(body: Mapping[str, Any], options: list[str]) -> Shares:
    """Return the share of each option by what the state or the option says."""
    state = body.get("state") or body["input"]
    if options == ["no", "yes"]:
        yes = BAD_SHARE if BAD_TEXT in state else GOOD_SHARE
        return {"no": 1 - yes, "yes": yes}
    is_turned = state.find(BAD_TEXT) < state.find("Oslo.")
    first_value = 1 - GOOD_SHARE if is_turned and BAD_TEXT not in options else GOOD_SHARE
    return dict(zip(options, (first_value, 1 - first_value), strict=True))


def answer_question(wire: str, shares: Shares) -> dict[str, Any]:
    """Return the plain answer to a question whose options have these shares."""
    if set(shares) == {"no", "yes"}:
        if wire == "systemone":
            return {"type": "noul", "noul": shares["yes"]}
        return {"type": "predicate", "probability": shares["yes"]}
    best = max(shares, key=shares.__getitem__)
    listed: Any = dict(shares)
    if wire == "decisions":
        listed = [{"value": option, "probability": share} for option, share in shares.items()]
    return {"type": "choice", "choice": best, "probabilities": listed, "confidence": shares[best]}


Change = Callable[[dict[str, Any]], Any]


def map_shares(change: Callable[[float], Any]) -> Change:
    """Return a function that changes each probability of an answer."""

    def apply(answer: dict[str, Any]) -> dict[str, Any]:
        changed = dict(answer)
        for name in ("noul", "probability"):
            if name in changed:
                changed[name] = change(changed[name])
        listed = changed.get("probabilities")
        if isinstance(listed, dict):
            changed["probabilities"] = {option: change(share) for option, share in listed.items()}
        elif listed is not None:
            changed["probabilities"] = [
                {**entry, "probability": change(entry["probability"])} for entry in listed
            ]
        return changed

    return apply


def _reverse(answer: dict[str, Any]) -> dict[str, Any]:
    changed = dict(reversed(answer.items()))
    listed = changed.get("probabilities")
    if isinstance(listed, dict):
        changed["probabilities"] = dict(reversed(listed.items()))
    elif listed is not None:
        changed["probabilities"] = listed[::-1]
    return changed


def _keep_verdict(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name in ("type", "choice")}


ANSWERS: Mapping[str, Way] = {
    "plain": Way(lambda answer: answer, readable=True),
    "fields in another order": Way(_reverse, readable=True),
    "further fields": Way(lambda answer: {**answer, "score": 1, "legend": {}}, readable=True),
    "rounded to two digits": Way(map_shares(lambda share: round(share, 2)), readable=True),
    "a confidence that differs": Way(lambda answer: {**answer, "confidence": 0.01}, readable=True),
    "as text": Way(map_shares(str)),
    "in percent": Way(map_shares(lambda share: 100 * share)),
    "as log-probabilities": Way(map_shares(math.log)),
    "truths": Way(map_shares(lambda share: share > 0.5)),
    "NaN": Way(map_shares(lambda _share: math.nan)),
    "null": Way(map_shares(lambda _share: None)),
    "the choice alone": Way(_keep_verdict),
    "a refusal": Way(lambda _answer: {"type": "refusal", "refusal": "I cannot judge this."}),
    "a refusal with numbers": Way(lambda answer: {**answer, "type": "refusal"}),
    "another type": Way(lambda answer: {**answer, "type": "score"}),
    "no answer": Way(lambda _answer: None),
    "a text": Way(lambda _answer: "Yes"),
}
"""The ways of answering one question."""


def decider(wire: str, way: str) -> Callable[[Mapping[str, Any], int], Answer]:
    """Return the script of a decision endpoint that says what it knows in one way."""

    def script(body: Mapping[str, Any], _number: int) -> Answer:
        questions = body["questions"]
        by_name = questions
        if wire == "decisions":
            by_name = {question["name"]: question for question in questions}
        answers: dict[str, Any] = {}
        for name, question in by_name.items():
            shares = judge_state(body, _options_of(question))
            answers[name] = ANSWERS[way].speak(answer_question(wire, shares))
        usage = {"input_tokens": 100, "output_tokens": 0, "total_tokens": 100}
        sent: Any = answers
        if wire == "decisions":
            sent = [_with_name(answer, name) for name, answer in answers.items()]
        return Answer(body=json.dumps({"usage": usage, "answers": sent}).encode())

    return script


def _with_name(answer: Any, name: str) -> Any:
    return {**answer, "name": name} if isinstance(answer, dict) else answer


def _options_of(question: Mapping[str, Any]) -> list[str]:
    if question["type"] in ("noul", "predicate"):
        return ["no", "yes"]
    if "criteria" in question:
        return list(question["criteria"])
    return [option["value"] for option in question["choices"]]
