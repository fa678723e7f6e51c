"""Scripted debaters: agents that copy a sentence, give a reason, and find the first answer good."""

import json

from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.evaluation import Case
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer

INPUT = "The train is late. What can I do?"
CANDIDATES = (
    "Take the bus from stop four, which leaves at nine.",
    "Trains are late now and then, so be patient and wait.",
)
CASE = Case(INPUT, CANDIDATES, "train")
AGENTS = ("Critic", "Supporter", "Neutral Observer")
SENTENCES = {
    "Critic": (CANDIDATES[1], "I reject advice that leaves me where I am on a cold platform."),
    "Supporter": (CANDIDATES[0], "I would reach work by another way, and that helps at once."),
    "Neutral Observer": (CANDIDATES[0], "I weigh both: one names a time, the other only soothes."),
}


def speaker_of(body):
    text = json.dumps(body["messages"])
    return next(agent for agent in AGENTS if f"You are {agent}." in text)


def asks_for_words(body):
    return "after the sign >" in body["messages"][-1]["content"]


def is_argued(body):
    return body.get("max_tokens") != 1 and "response_format" not in body


def arguing(body, _number):
    """Agents that copy a sentence, give a reason of their own, and find the first answer good."""
    if body.get("max_tokens") == 1:
        return Answer(yes=0.9 if CANDIDATES[0] in body["messages"][-1]["content"] else 0.2)
    if not is_argued(body):
        return None
    words, reason = SENTENCES[speaker_of(body)]
    return Answer(text=words if asks_for_words(body) else reason)


async def debate(server, **parameters):
    parameters = {"readout": "pointwise", "convergence": None, "rounds": 1} | parameters
    profile = override(load_profile("general"), parameters)
    async with OpenAIClient(server.url, "local/small") as client:
        return await Debate(profile, lambda _agent: client, today="2026-01-01", concurrency=1)(CASE)
