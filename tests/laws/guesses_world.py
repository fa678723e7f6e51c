"""Models that know what they think, and say it in each of the ways that servers have published.

A *verdict* is what a model thinks: a share for each word that it may choose, or a text. A *way* is
a form in which servers send verdicts. The body of an answer is written here from the request alone,
not by the scripted server, so that reader and writer share no code.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from laws.studies import answer as study_answer
from textevolve.llm.testing import Answer, instance

Shares = Mapping[str, float]
Pieces = dict[str, Any]
"""What an answer holds: `content`, `tokens`, `finish_reason`, and further fields of the message."""

LABELS = re.compile(r"Answer (?:with one \w+, )?((?:\w+, )*\w+) or (\w+)\.\s*$")
FENCED = re.compile(r"\[\[\w+ (response \d+)\]\]\n(.*?)\n?\[\[/", re.DOTALL)
LABELLED = re.compile(r"^(Response \d+): .*Which level is reached", re.MULTILINE)
PIECES = re.compile(r"\d+| ?[^\W\d_]+|\s+|[^\w\s]|_")
BAD_TEXT = "Bergen, I think."
GOOD_SHARE = 0.9
BAD_SHARE = 0.2
GOOD_SCORE = 10
BAD_SCORE = 2


@dataclass(frozen=True)
class Verdict:
    """What a model thinks: the share of each word among which it chooses, or a text."""

    shares: Shares | None = None
    text: str = ""


def form_of(body: Mapping[str, Any]) -> str:
    """Return how a request wants its answer: as a `choice` of words, an `object` or a `text`."""
    if labels_of(body) and body.get("max_tokens", body.get("max_completion_tokens")) == 1:
        return "choice"
    return "object" if wants_object(body) else "text"


def wants_object(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for JSON, by a schema or in words alone."""
    if "response_format" in body:
        return True
    # The words stand before the question that repairs an answer, too.
    contents = [text_of(message) for message in body["messages"]]
    return any("JSON" in content for content in contents)


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def labels_of(body: Mapping[str, Any]) -> list[str]:
    """Return the words among which the end of the last message lets the model choose."""
    match = LABELS.search(text_of(body["messages"][-1]))
    return [*match[1].split(", "), match[2]] if match else []


# What the models know ---------------------------------------------------------------------------


def judge_row(body: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a model that takes `BAD_TEXT` for bad and any other text for good."""
    form = form_of(body)
    if form == "choice":
        return Verdict(shares=_weigh(body, labels_of(body)))
    if form == "object":
        return Verdict(text=json.dumps(_fill(body)))
    return Verdict(text="It names a city.\nIt is brief.\nIt is right.")


def _weigh(body: Mapping[str, Any], labels: list[str]) -> Shares:
    last = text_of(body["messages"][-1])
    # A debate shows all responses, and asks about one of them by its label.
    if label := LABELLED.search(last):
        last = dict(FENCED.findall(last))[label[1].lower()]
    is_bad = BAD_TEXT in last
    if labels[0] == "A":
        is_first = last.find("Oslo.") < last.find(BAD_TEXT)
        is_turned = "A: second" in last
        share = GOOD_SHARE if is_first != is_turned else 1 - GOOD_SHARE
        return {"A": share, "B": 1 - share}
    if labels[0] == "Yes":
        share = BAD_SHARE if is_bad else GOOD_SHARE
        return {"Yes": share, "No": 1 - share}
    # Levels: the highest or the lowest is the most likely.
    levels = sorted(labels)
    likely = levels[0] if is_bad else levels[-1]
    remaining_value = (1 - GOOD_SHARE) / (len(levels) - 1)
    return {level: GOOD_SHARE if level == likely else remaining_value for level in labels}


def _fill(body: Mapping[str, Any]) -> Any:
    schema = schema_of(body)
    assert schema is not None, "the schema of this prompt was never sent"
    return _score_responses(body, instance(schema, Random(0)))


SCHEMAS: dict[str, Mapping[str, Any]] = {}
"""The last schema that a model saw for each prompt, so that it can follow the prompt alone."""


def schema_of(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of a request; where an endpoint refused it, that of the same prompt."""
    prompt = text_of(body["messages"][1 if len(body["messages"]) > 1 else 0])
    if "response_format" in body:
        SCHEMAS[prompt] = body["response_format"]["json_schema"]["schema"]
    return SCHEMAS.get(prompt)


def _score_responses(body: Mapping[str, Any], value: Any) -> Any:
    texts: dict[str, str] = {}
    for message in body["messages"]:
        texts |= dict(FENCED.findall(text_of(message)))
    for name, part in value.items():
        if not isinstance(part, dict) or "scores" not in part:
            continue
        text = texts[name.lower()]
        score = BAD_SCORE if BAD_TEXT in text else GOOD_SCORE
        part["scores"] = dict.fromkeys(part["scores"], score)
    return value


def _draft_agent(name: str) -> dict[str, str]:
    persona = f"You look at replies as a {name} does. You check the facts first."
    return {"name": name, "role": f"the view of a {name}", "persona": persona}


def _draft_component(name: str) -> dict[str, str | int]:
    words = {"low": "none", "middle": "some", "high": "all", "reason": "It matters."}
    question = f"Does the response have {name}?"
    meaning = f"how much {name} it has"
    return {"name": name, "meaning": meaning, **words, "question": question, "weight": 1}


PROFILE = {
    "name": "replies",
    "description": "Judges replies to customers.",
    "agents": [_draft_agent(name) for name in ("customer", "clerk", "editor")],
    "components": [_draft_component(name) for name in ("accuracy", "kindness")],
}
"""The profile that the model drafts: one that passes all checks of the product."""


def answer_study(body: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict of the model that every law asks in studies; None where the scripted
    server answers by itself."""
    schema = schema_of(body)
    if "response_format" not in body and wants_object(body) and schema is not None:
        # Without its schema the same prompt gets the same answer.
        answer_format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        body = {**body, "response_format": answer_format}
    if form_of(body) == "choice":
        # A verdict does not depend on how the limit of tokens is called, nor on the seed.
        body = {**body, "max_tokens": 1, "seed": 0}
    reply = study_answer(body, 0)
    if isinstance(reply, str):
        return Verdict(text=reply)
    if form_of(body) == "choice":
        labels = labels_of(body)
        yes = 0.5 if reply is None else reply.yes
        shares = dict.fromkeys(labels, (1 - yes) / (len(labels) - 1))
        return Verdict(shares={**shares, labels[0]: yes})
    if reply is not None and reply.text is not None:
        return Verdict(text=reply.text)
    if schema is None:
        return None
    if "agents" in schema["properties"]:
        return Verdict(text=json.dumps(PROFILE))
    return Verdict(text=json.dumps(instance(schema, Random(0))))


# How a body is written --------------------------------------------------------------------------


def token(text: str, shares: Sequence[tuple[str, float]] = (), **fields: Any) -> Pieces:
    """Return a token with its alternatives, each with its probability; the token itself is the most
    likely one unless it is among them."""
    listed = [_entry(word, share) for word, share in shares or [(text, 0.99)]]
    logprob = next((entry["logprob"] for entry in listed if entry["token"] == text), math.log(0.5))
    full_fields = {**_entry(text, 1.0), "logprob": logprob, "top_logprobs": listed}
    return {**full_fields, **fields}


def _entry(text: str, share: float) -> Pieces:
    logprob = math.log(max(share, 1e-12))
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def tokens_of(text: str) -> list[Pieces]:
    """Return the tokens of a text; a number has two smaller ones as alternatives."""
    return [_number(piece) if piece.isdecimal() else token(piece) for piece in PIECES.findall(text)]


def _number(piece: str) -> Pieces:
    below = [str(max(int(piece) - step, 0)) for step in (1, 2)]
    return token(piece, [(piece, 0.7), (below[0], 0.2), (below[1], 0.1)])


def likely(shares: Shares) -> str:
    """Return the word with the largest share."""
    return max(shares, key=shares.__getitem__)


def spread(shares: Shares, mass: float = 0.98) -> list[tuple[str, float]]:
    """Return the shares as alternatives, the most likely first; another word has the rest."""
    listed = sorted(shares.items(), key=lambda pair: -pair[1])
    return [*((word, mass * share) for word, share in listed), ("Maybe", 1 - mass)]


def turned(shares: Shares, mass: float) -> list[tuple[str, float]]:
    """Return alternatives that hold `mass` of the whole, by which the least likely word is the most
    likely: what is read if the wrong token is taken for the verdict."""
    words = sorted(shares, key=shares.__getitem__)
    values = sorted(shares.values(), reverse=True)
    return [(word, mass * value) for word, value in zip(words, values, strict=True)]


def say(word: str, shares: Sequence[tuple[str, float]], **pieces: Any) -> Pieces:
    """Return the pieces of an answer of one token."""
    return {"content": word, "tokens": [token(word, shares)], **pieces}


def write(pieces: Pieces, body: Mapping[str, Any]) -> Answer:
    """Return the answer to a request that holds these pieces."""
    pieces = dict(pieces)
    tokens = pieces.pop("tokens", None)
    logprobs = pieces.pop("logprobs", {"content": tokens})
    streamed = pieces.pop("streamed", False)
    finish_reason = pieces.pop("finish_reason", "stop")
    message = {"role": "assistant", **pieces}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    if body.get("logprobs") and logprobs != "absent":
        choice["logprobs"] = logprobs
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    completion = {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted"}
    completion |= {"choices": [choice], "usage": usage}
    if not streamed and not body.get("stream"):
        return Answer(body=json.dumps(completion).encode())
    chunk = {**completion, "object": "chat.completion.chunk", "usage": None}
    deltas = [{"index": 0, "delta": delta, "finish_reason": None} for delta in split(message)]
    # The last chunk has the log-probabilities of all tokens, and the usage.
    deltas[-1] |= {"finish_reason": finish_reason, "logprobs": choice.get("logprobs")}
    chunks = [{**chunk, "choices": [delta]} for delta in deltas]
    chunks[-1]["usage"] = usage
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in chunks]
    return Answer(body=b"", events=(*events, b"data: [DONE]\n\n"))


def split(message: Pieces) -> list[Pieces]:
    """Return the parts in which a message is streamed: its reasoning, then the text in pieces of a
    few characters, so that marks are split between them."""
    parts: list[Pieces] = []
    for name, value in sorted(message.items(), reverse=True):
        if name == "role":
            continue
        if not isinstance(value, str):
            parts.append({name: value})
            continue
        parts += [{name: value[place : place + 5]} for place in range(0, len(value), 5)]
    return parts or [{"content": ""}]
