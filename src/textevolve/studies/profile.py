"""The profile study: a model writes the profile of a debate (its agents, and the components of
their scores) for a subject.

`textevolve.loops.profile_writing` requests drafts, and has them repaired.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.debate.profile import Profile, parse_profile
from textevolve.errors import AnswerError, BudgetError
from textevolve.evaluation import Case, Failure, Result, Usage, error_of, failure_of
from textevolve.loops.attempt import prompts_version
from textevolve.loops.profile_writing import (
    ProfilePlan,
    WrittenProfile,
    ask_draft,
    check_subject,
    write_profile,
)
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.spec import option
from textevolve.studies.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    last_record,
    note_step,
    row_of,
)
from textevolve.wiring import Workbench

SOURCE = "as generated"


class ProfileSpec(ProfilePlan, StudySpec):
    """Have a model write a profile for a subject to judge: agents, components and weights."""

    kind: ClassVar[str] = "profile"

    subject: str = option(
        description="The subject to judge, and the purpose; @FILE reads it from a file, - from"
        " standard input.",
        argument=True,
        text="argument",
        identity=False,
    )

    @model_validator(mode="after")
    def _usable(self) -> ProfileSpec:
        check_subject(self.subject)
        return self


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
    return Asks(writes=True, prompts=prompts_version())


def read_cases(spec: ProfileSpec) -> list[Case]:
    return [Case(spec.subject, (), "1")]


async def run(
    spec: ProfileSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[GeneratedProfile]:
    (case,) = cases
    if bench.mode == "rehearsed":  # made-up drafts are no usable profiles
        await bench.model(ask_draft(case.input, spec))
        return
    try:
        written = await write_profile(bench.model, case.input, _check, spec, bench.listener)
    except (AnswerError, BudgetError) as error:
        yield GeneratedProfile(bench.default_model, None, failure_of(error))
        return
    yield GeneratedProfile(bench.default_model, written)


def _check(text: str) -> Profile:
    return parse_profile(text, SOURCE)


def find_row(generated: GeneratedProfile) -> Row:
    return row_of("1", 0, generated.failure, "1")


def report(spec: ProfileSpec, generated: GeneratedProfile) -> Report:
    title = f"A profile for: {wording.shorten(spec.subject, 120)}"
    if generated.written is None:
        reason = generated.failure.reason if generated.failure is not None else ""
        return Report(title, f"No profile was written: {reason}", [])
    draft, profile = generated.written.draft, generated.profile
    agents = [(agent.name, agent.role) for agent in draft.agents]
    parts = [(part.name, part.weight, part.meaning, part.reason) for part in draft.components]
    columns = (
        Column("component"),
        Column("weight", "number"),
        Column("meaning"),
        Column("reason for the weight"),
    )
    sentence = (
        f"{profile.name}: {len(profile.agents)} agents, {len(profile.components)} components."
    )
    blocks = [
        Table("Agents", (Column("agent"), Column("role")), agents),
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
