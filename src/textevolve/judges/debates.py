"""Judges that hold a debate: each is a profile with some parameters set.

`single` replaces the profile's agents by one neutral agent; `jury` lets them judge alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from textevolve.debate.context import debate_prompts
from textevolve.debate.profile import (
    Agent,
    Component,
    Profile,
    build_profile,
    load_profile,
    override,
)
from textevolve.debate.protocol import Debate
from textevolve.evaluation import Evaluator
from textevolve.judges.judge import (
    AskingJudge,
    Judge,
    ModelOfJudge,
    judge,
    judge_argument,
    judge_aside,
    judge_option,
    parse_options,
)
from textevolve.judges.opening import Judges
from textevolve.mappings import map_values
from textevolve.settings import today as this_day

LONE_JUDGE = Agent(
    name="Judge",
    persona="You judge alone, fairly and exactly, by what each response does for the input.",
)
"""The agent that replaces the profile's agents for the judge `single`."""


@judge("debate:PROFILE", help="the agents of a profile debate; the default")
@dataclass(frozen=True)
class DebateJudge(AskingJudge):
    """A debate of a profile's agents. `profile`: the name of a shipped profile, or a file; empty:
    `general`; or the fields of a profile as JSON. `parameters`: fields of the profile with other
    values. `fixed`: the fields that make this kind of debate."""

    profile: str = judge_argument("")
    rules: bool = judge_option(default=False, help="explicit rules in the prompts")
    rubric: str = judge_option("", "a rubric that replaces the components", file=True)
    parameters: Mapping[str, Any] = judge_aside(dict[str, Any])
    is_debate: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, Any]] = {}

    @property
    def is_swayed(self) -> bool:
        return True

    @property
    def threshold(self) -> float | None:
        return self.load().threshold

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return (self.load(),)

    @property
    def prompts(self) -> dict[str, str]:
        return debate_prompts(self.profiles)

    def models(self, model: ModelOfJudge) -> tuple[str | ModelOfJudge, ...]:
        return self.load().models(self.model or model)

    def load(self, rubric: str = "") -> Profile:
        """Return the complete profile. `rubric`: the result of `find_rubric`, which becomes the
        only component.

        Raises:
            InputError: there is no such profile, or a parameter cannot be used.
        """
        fields = read_mapping(self.profile or "general")
        profile = load_profile(fields) if isinstance(fields, str) else build_profile(fields)
        rules = {"rules": True} if self.rules else {}
        parameters = map_values(read_mapping, self.parameters)

        return override(with_rubric(profile, rubric), {**self.fixed, **rules, **parameters})

    def describe(self) -> Mapping[str, Any]:
        return {"profile": self.load(self.find_rubric()).model_dump(mode="json")}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        return Debate(
            profile=bench.fill(self.load(rubric)),
            model_of=lambda agent: bench.model_of(agent.model or self.model or bench.model),
            listener=bench.listener,
            concurrency=bench.concurrency,
            today=bench.today or this_day(),
            recall=bench.recall,
            recalls_all=False,
            put_agents=bench.fill,
        )

    @classmethod
    def read(cls, text: str) -> Judge:
        """Parse the text of a debate. Its parameters are checked when its profile is loaded."""
        argument, parameters, model = parse_options(cls, text)
        rubric = parameters.pop("rubric", "")
        # With a value, `rules` is a field of the profile as any other.
        rules = parameters.get("rules") is True
        if rules:
            del parameters["rules"]

        return cls(
            argument,
            rules=rules,
            rubric=rubric,
            parameters=parameters,
            model=model,
            source=text,
        )


@judge("jury:PROFILE", help="the same agents, each blind and alone")
class Jury(DebateJudge):
    fixed: ClassVar = {"protocol": "independent", "rounds": 1}


@judge("single", help="one neutral agent states its scores")
class Single(DebateJudge):
    fixed: ClassVar = {"protocol": "independent", "rounds": 1, "agents": (LONE_JUDGE,)}


@judge("escalation:PROFILE", help="a jury; a debate only if it is in doubt")
class Escalation(DebateJudge):
    fixed: ClassVar = {"protocol": "escalation"}


def read_mapping(value: Any) -> Any:
    """Return the mapping that a text holds as JSON; any other value as it is."""
    if not str(value).startswith("{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value  # whoever takes it refuses it


def with_rubric(profile: Profile, rubric: str) -> Profile:
    """Return the profile with the rubric as its only component; unchanged if the rubric is
    empty."""
    if not rubric:
        return profile
    component = Component(
        name="rubric",
        meaning=f"how far it does what this rubric asks: {rubric}",
        question=f"does it do all that this rubric asks? {rubric}",
    )

    return override(profile, {"components": (component,)})
