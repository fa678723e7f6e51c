"""Have a model write a debate's profile for what is to be judged: agents, components, and weights
with reasons.

The caller passes the check of a profile, since this layer does not know profiles. A draft that
fails the check is requested once more, like every structured answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from textevolve.errors import InputError
from textevolve.evaluation import Usage
from textevolve.events import Listener, StepStarted
from textevolve.llm.fence import draw_nonce, fenced
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import load_template
from textevolve.llm.usage_meter import UsageMeter
from textevolve.spans import loop_span, step_span
from textevolve.spec import Frozen, option
from textevolve.texts.numbers import take_decimal

MOST_AGENTS = 12
"""The maximum number of agents of a written profile."""
MOST_TOKENS = 3000
"""The maximum number of tokens of a draft."""

Short = Annotated[str, Field(min_length=1, max_length=60)]
"""The type of names, and that of sentences (`Sentence`), in a draft."""
Sentence = Annotated[str, Field(min_length=1, max_length=300)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class DraftedAgent(_Strict):
    name: Short
    role: Sentence
    persona: str = Field(min_length=20, max_length=1200)


class DraftedComponent(_Strict):
    name: Short
    meaning: Sentence
    low: Sentence
    middle: Sentence
    high: Sentence
    question: Sentence
    weight: Annotated[float, BeforeValidator(take_decimal)] = Field(ge=0, le=1)
    reason: Sentence


class Draft(_Strict):
    """The answer that a model has to give: the agents and the weighted components of a debate, from
    which `render_profile` makes the profile."""

    name: Short
    description: Sentence
    agents: list[DraftedAgent]
    components: list[DraftedComponent] = Field(min_length=2, max_length=8)


class ProfilePlan(Frozen):
    """The options of having a model write a debate's profile."""

    agents: int = option(
        3, "The number of agents in the profile.", group="Profile", ge=2, le=MOST_AGENTS
    )
    seed: int = option(0, "The seed of the draft; another seed may give another profile.")


@dataclass(frozen=True, slots=True)
class WrittenProfile:
    """The debate's profile that a model wrote. `text`: the profile as YAML. `draft`: the model's
    answer."""

    text: str
    draft: Draft
    usage: Usage = Usage()
    seconds: float = 0.0


async def write_profile(
    model: Model,
    subject: str,
    check: Callable[[str], object],
    plan: ProfilePlan,
    listener: Listener,
) -> WrittenProfile:
    """Have a model write the profile of a debate. `subject`: a description of what the debate
    judges. `check`: a function that raises InputError if the YAML is not a valid profile.

    Raises:
        InputError: the subject is empty.
        AnswerError: the model gave no usable profile in two attempts; the message has the reason.
    """
    check_subject(subject)
    meter = UsageMeter(model)

    def find_fault(draft: Draft) -> Draft:
        try:
            check(render_profile(draft))
        except InputError as error:
            raise ValueError(str(error)) from None
        return draft

    listed: Any = Annotated[
        list[DraftedAgent], Field(min_length=plan.agents, max_length=plan.agents)
    ]
    checks: Any = {"find_fault": model_validator(mode="after")(find_fault)}
    expected = create_model(
        f"Draft{plan.agents}", __base__=Draft, __validators__=checks, agents=(listed, ...)
    )
    listener(StepStarted("", "draft"))
    with loop_span("profile"), step_span("generate", "draft"):
        answer = await ask_structured(meter, ask_draft(subject, plan), expected)
    return WrittenProfile(render_profile(answer.value), answer.value, meter.usage, meter.seconds)


def check_subject(subject: str) -> None:
    """Raise InputError if the subject to be judged is empty."""
    if not subject.strip():
        raise InputError("the subject is blank: describe what is to be judged")


def ask_draft(subject: str, plan: ProfilePlan) -> Request:
    """Return the request that asks a model to draft the profile of a debate. `subject`: a
    description of what the debate judges."""
    nonce = draw_nonce((subject,), plan.seed)
    text = load_template("textevolve.loops", "profile").render(
        agents=plan.agents, subject=fenced("subject", subject, nonce)
    )
    return Request(
        messages=(Message("user", (text,)),),
        temperature=0.0,
        max_tokens=MOST_TOKENS,
        seed=plan.seed,
    )


def render_profile(draft: Draft) -> str:
    """Return the YAML of the debate's profile that a model drafted."""
    profile = {
        "name": draft.name,
        "description": draft.description,
        "agents": [{"name": agent.name, "persona": agent.persona} for agent in draft.agents],
        "components": [
            {
                "name": part.name,
                "meaning": part.meaning,
                "rubric": {0: part.low, 5: part.middle, 10: part.high},
                "question": part.question,
            }
            for part in draft.components
        ],
        "weights": {part.name: part.weight for part in draft.components},
    }
    return yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=92)
