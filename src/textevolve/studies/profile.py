"""The profile study: a model writes the profile of a debate (its agents, and the components of
their scores with weights and reasons) for a subject.

A draft that is no usable profile is requested once more, like every structured answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from textevolve.debate.profile import Profile, parse_profile
from textevolve.errors import BudgetError, CallError, InputError
from textevolve.evaluation import Case, Failure, Result, Usage, error_of, failure_of
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Request, text_request
from textevolve.llm.prompts import draw_nonce, fenced, load_template, prompt_versions
from textevolve.llm.structured import ask_structured
from textevolve.loops.attempt import open_step
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    last_record,
    note_step,
    row_of,
)
from textevolve.spans import loop_span
from textevolve.spec import Frozen, option
from textevolve.texts.numbers import take_decimal
from textevolve.wiring import Workbench

SOURCE = "as generated"

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


class ProfileSpec(ProfilePlan, StudySpec):
    """Have a model write a profile for a subject to judge: agents, components and weights."""

    kind: ClassVar[str] = "profile"
    scored: ClassVar[bool] = False

    subject: str = option(
        description="The subject to judge, and the purpose; @FILE reads it from a file, - from"
        " standard input.",
        argument=True,
        text="argument",
        identity=False,
    )

    @model_validator(mode="after")
    def _usable(self) -> ProfileSpec:
        if not self.subject.strip():
            raise InputError("the subject is blank: describe what is to be judged")
        return self


@dataclass(frozen=True, slots=True)
class WrittenProfile:
    """The debate's profile that a model wrote. `text`: the profile as YAML. `draft`: the model's
    answer."""

    text: str
    draft: Draft
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True)
class GeneratedProfile(Result):
    """The profile that a model wrote (`written`), or the `failure` to write one."""

    model: str
    written: WrittenProfile | None
    failure: Failure | None = None

    @property
    def text(self) -> str:
        return self.written.text if self.written is not None else ""

    @property
    def profile(self) -> Profile:
        return _check(self.require().text)

    def require(self) -> WrittenProfile:
        """Return the written profile.

        Raises:
            AnswerError: no profile was written; has the reason. BudgetError: a limit was reached
                first.
        """
        if self.written is not None:
            return self.written
        assert self.failure is not None
        raise error_of(self.failure)

    @property
    def usage(self) -> Usage:
        return self.written.usage if self.written is not None else Usage()


def ask(_spec: ProfileSpec) -> Asks:
    return Asks(writes=True, prompts=prompt_versions("loops"))


def read_cases(spec: ProfileSpec) -> list[Case]:
    return [Case(spec.subject, (), "1")]


async def run(
    spec: ProfileSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[GeneratedProfile]:
    (case,) = cases
    request = ask_draft(case.input, spec)
    meter = UsageMeter(bench.model)
    if bench.is_rehearsal:  # made-up drafts are no usable profiles
        await meter(request)
        return
    try:
        with loop_span("profile"), open_step(bench.listener, "generate", "draft"):
            draft = (await ask_structured(meter, request, _draft_type(spec.agents))).value
    except (CallError, BudgetError) as error:
        yield GeneratedProfile(bench.default_model, None, failure_of(error))
        return

    written = WrittenProfile(render_profile(draft), draft, meter.usage, meter.seconds)
    yield GeneratedProfile(bench.default_model, written)


def _draft_type(agents: int) -> type[Draft]:
    """Return the type of a draft with this number of agents, from which a valid profile results."""

    def find_fault(draft: Draft) -> Draft:
        try:
            _check(render_profile(draft))
        except InputError as error:
            raise ValueError(str(error)) from None

        return draft

    listed: Any = Annotated[list[DraftedAgent], Field(min_length=agents, max_length=agents)]
    checks: Any = {"find_fault": model_validator(mode="after")(find_fault)}

    return create_model(
        f"Draft{agents}", __base__=Draft, __validators__=checks, agents=(listed, ...)
    )


def _check(text: str) -> Profile:
    return parse_profile(text, SOURCE)


def ask_draft(subject: str, spec: ProfileSpec) -> Request:
    """Return the request that asks a model to draft the profile of a debate. `subject`: a
    description of what the debate judges."""
    nonce = draw_nonce((subject,), spec.seed)
    text = load_template("textevolve.loops", "profile").render(
        agents=spec.agents, subject=fenced("subject", subject, nonce)
    )
    return text_request(text, MOST_TOKENS, spec.seed)


def render_profile(draft: Draft) -> str:
    """Return the YAML of the debate's profile that a model drafted."""
    components = [
        {
            "name": part.name,
            "meaning": part.meaning,
            "rubric": {0: part.low, 5: part.middle, 10: part.high},
            "question": part.question,
        }
        for part in draft.components
    ]
    profile = {
        "name": draft.name,
        "description": draft.description,
        "agents": [{"name": agent.name, "persona": agent.persona} for agent in draft.agents],
        "components": components,
        "weights": {part.name: part.weight for part in draft.components},
    }

    return yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=92)


def find_row(generated: GeneratedProfile) -> Row:
    return row_of("1", 0, generated.failure, "1")


def report(spec: ProfileSpec, generated: GeneratedProfile) -> Report:
    title = f"A profile for: {wording.shorten(spec.subject, 120)}"
    if generated.written is None:
        reason = generated.failure.reason if generated.failure is not None else ""
        return Report(title, f"No profile was written: {reason}", [])
    draft = generated.written.draft
    profile = generated.profile
    agents = [(agent.name, agent.role) for agent in draft.agents]
    parts = [(part.name, part.weight, part.meaning, part.reason) for part in draft.components]
    columns = (
        "component",
        Column("weight", "number"),
        "meaning",
        "reason for the weight",
    )
    sentence = (
        f"{profile.name}: {len(profile.agents)} agents, {len(profile.components)} components."
    )
    blocks = [
        Table("Agents", ("agent", "role"), agents),
        Table("Components", columns, parts),
        Texts("The profile", [("", generated.text)]),
    ]

    return Report(title, sentence, blocks)


def data(_spec: ProfileSpec, generated: GeneratedProfile) -> Mapping[str, Any]:
    if generated.written is None:
        return {"profile": None, "failure": generated.failure and asdict(generated.failure)}
    draft = generated.written.draft
    return {
        "profile": generated.profile.model_dump(mode="json"),
        "reasons": {part.name: part.reason for part in draft.components},
        "roles": {agent.name: agent.role for agent in draft.agents},
        "text": generated.text,
    }


def flatten(generated: GeneratedProfile) -> Iterator[Mapping[str, Any]]:
    """Yield a table row for each component of the profile."""
    for part in generated.written.draft.components if generated.written is not None else ():
        yield part.model_dump(mode="json")


STUDY = Study(
    aggregates=True,
    spec=ProfileSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(GeneratedProfile),
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    texts=dict.fromkeys((".yaml", ".yml"), lambda _spec, generated: generated.text),
)
