"""The wording of a profile as texts by name, and a profile with other texts in it.

A persona is a text as it stands. A component's text is its meaning, then a line for each level of
its rubric, and one for its question:

    how correct its statements are
    0: wrong in what matters
    10: free of errors
    Question: is everything that it says correct?

Nothing here calls a model, or says which wording is better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from textevolve.debate.profile import Agent, Component, Profile, override
from textevolve.texts.yaml_lines import dump_yaml

PERSONA, COMPONENT = "persona ", "component "
"""What stands before the name of an agent, or of a component, in the name of its text."""
_LEVEL = re.compile(r"(10|[0-9])\s*[:=]\s*(.*\S)")
_QUESTION = re.compile(r"question\s*:\s*(.*\S)", re.IGNORECASE)


def profile_texts(profile: Profile) -> dict[str, str]:
    """The personas, and a text for each component."""
    personas = {PERSONA + agent.name: agent.persona for agent in profile.agents}
    return personas | {COMPONENT + one.name: _write(one) for one in profile.components}


def with_texts(
    profile: Profile, texts: Mapping[str, str], weights: Mapping[str, float] | None = None
) -> Profile:
    """The profile with these texts in the place of its own, by the names of `profile_texts`, and
    with these `weights`. What a text leaves out, such as a rubric, stays as it was.

    Raises:
        InputError: a weight is out of range, or of no component.
    """
    changed: dict[str, object] = {
        "agents": tuple(_speak(agent, texts.get(PERSONA + agent.name)) for agent in profile.agents),
        "components": tuple(
            _read(one, texts.get(COMPONENT + one.name)) for one in profile.components
        ),
        "weights": profile.weights if weights is None else dict(weights),
    }
    return override(profile, changed)


def dump_profile(profile: Profile) -> str:
    """The profile as a file, without what is as usual; remarks of a file are not kept."""
    return dump_yaml({"name": profile.name} | profile.model_dump(exclude_defaults=True))


def _speak(agent: Agent, persona: str | None) -> Agent:
    told = (persona or "").strip() or agent.persona
    return agent.model_copy(update={"persona": told})


def _write(component: Component) -> str:
    levels = [f"{level}: {' '.join(said.split())}" for level, said in component.rubric.items()]
    asked = [f"Question: {' '.join(component.question.split())}"] * bool(component.question)
    return "\n".join([component.meaning, *levels, *asked])


def _read(component: Component, text: str | None) -> Component:
    if text is None or text == _write(component):
        return component
    meaning, rubric, question = list[str](), dict[int, str](), ""
    for line in map(str.strip, text.splitlines()):
        plain = line.lstrip("-* ")
        if level := _LEVEL.fullmatch(plain):
            rubric[int(level[1])] = level[2]
        elif asked := _QUESTION.fullmatch(plain):
            question = asked[1]
        elif line:
            meaning.append(line)
    said = {
        "meaning": " ".join(meaning).rstrip("."),
        "rubric": dict(sorted(rubric.items())),
        "question": question,
    }
    return component.model_copy(update={name: value for name, value in said.items() if value})
