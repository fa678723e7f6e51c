"""A user who is played by a model, to test agents. The user has a persona and a goal, and writes
messages until the goal is reached or the user gives up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import BaseModel

from textevolve.errors import AnswerError
from textevolve.llm.model import Message, Model, Request, draw_sample
from textevolve.llm.prompts import draw_nonce, fenced, load_template
from textevolve.llm.structured import ask_structured
from textevolve.messages import split_thought
from textevolve.rows.chats import Chat, write_chat

LONGEST_MESSAGE = 800
"""The most tokens of the model's answer that contains a message of the user."""

ConversationEnd: TypeAlias = Literal["", "goal reached", "gave up", "turn limit"]
"""How a conversation ended: by its user, or at the limit of turns; empty while it continues, and
for conversations that were not simulated."""


@dataclass(frozen=True, slots=True)
class SimulatedUser:
    """A simulated user.

    Attributes:
        model: The spec of the model that plays the user.
        goal: What the user wants to reach.
        persona: Who the user is; may be empty.
        stop: A further condition, in words, under which the user ends the conversation.
        most_turns: The most messages that the user sends.
    """

    model: str
    goal: str
    persona: str = ""
    stop: str = ""
    most_turns: int = 10
    temperature: float | None = None
    seed: int = 0


_ENDINGS: Mapping[str, ConversationEnd] = {
    "continues": "",
    "reached": "goal reached",
    "gives_up": "gave up",
}


class _Move(BaseModel):
    state: Literal["continues", "reached", "gives_up"]
    message: str


async def write_message(
    user: SimulatedUser, model: Model, chat: Chat, sample: int, *, persists: bool
) -> tuple[str, ConversationEnd]:
    """Return the user's next message with an empty ending, or the user's last words, which may be
    empty, with the ending.
    `persists`: the user neither reaches the goal nor gives up, so only the limit of turns ends the
    conversation, for an estimate of the cost.

    Raises:
        AnswerError: the model's answer has no usable message.
        ModelError: the model did not answer.
    """
    prompt = load_template("textevolve.agents", "simulated_user")
    system = prompt.render(persona=user.persona, goal=user.goal, stop=user.stop)
    # Drawn without the conversation, so that the prompt's beginning stays in the server's cache.
    nonce = draw_nonce((system,), user.seed)
    conversation = (
        fenced("conversation", write_chat(chat), nonce) if chat else "It has not begun.\n"
    )
    task = f"You are the user, who wants: {user.goal}\nWrite the user's next message."
    request = Request(
        messages=(Message("system", (system,)), Message("user", (conversation, task))),
        temperature=user.temperature,
        max_tokens=LONGEST_MESSAGE,
        seed=user.seed,
    )
    move = (await ask_structured(model, draw_sample(request, sample), _Move)).value
    text = split_thought(move.message)[1]
    ending: ConversationEnd = "" if persists else _ENDINGS[move.state]
    if chat and ending:
        return text.strip(), ending
    if chat and len(chat) >= 2 * user.most_turns:
        return "", "turn limit"
    if not text.strip():
        raise AnswerError("the simulated user wrote no message")

    return text, ""
