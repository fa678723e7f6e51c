"""What may be asked of `evaluate`; how it is done is in `evaluate.py`.

Apart from that, so that whoever imports the verb alone loads no more than its signature needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias, cast

from pydantic import BeforeValidator, WithJsonSchema, field_validator

from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.judges.shipped_rubrics import expand_rubric
from textevolve.spec import Several, option
from textevolve.studies.datasets import ImagesSpec
from textevolve.studies.debate_parameters import DebateParameters


def _take_profile(given: object) -> object:
    if not isinstance(given, str | Path | Profile | Mapping):
        raise InputError(f"a profile is a name, a YAML file's path or a Profile, not {given!r:.40}")
    return str(given) if isinstance(given, Path) else cast(object, given)


def _expand(rubric: str | None) -> str | None:
    """A shipped rubric's text in place of its name: a run is gone on with as it was begun."""
    return None if rubric is None else expand_rubric(rubric)


WholeProfile: TypeAlias = Annotated[
    str | Profile,
    BeforeValidator(_take_profile),
    WithJsonSchema({"type": ["string", "object"]}),
]


class EvaluateSpec(DebateParameters, ImagesSpec):
    """Judge candidate texts by a debate of agents, or by any other judge.

    Exit codes: 0 all scored; 1 a model or the store failed; 2 bad input; 3 some cases have no
    score; 4 a gate fails; 130 interrupted (the run can be resumed).
    """

    kind: ClassVar[str] = "evaluate"

    cases: Several = option(
        (),
        "The input, then the candidate texts; @FILE reads a text from a file, - from standard"
        " input. Or one file of cases: .jsonl, .json, .csv, .tsv or .parquet; a folder or a pattern"
        " of such files; hf:OWNER/NAME[/CONFIG][:SPLIT], a data set of the Hugging Face hub; -"
        " alone is JSON lines from standard input.",
        argument=True,
        identity=False,
        reads=True,
        metavar="INPUT CANDIDATE... | CASES",
    )
    candidate_images: Several = option(
        (),
        "The column with images that are the candidates, or belong to them: one column with a list"
        " has one for each candidate, of several columns each has those of one. Repeatable.",
        group="Data",
        identity=False,
        metavar="COLUMN",
    )
    each_reply: bool = option(
        False,
        "Of a chat, judge each reply of the assistant as a case of its own, not the last alone.",
        group="Data",
        identity=False,
    )
    profile: WholeProfile | None = option(
        None,
        "Who debates, about what and how: a shipped profile, or a YAML file.",
        short="-p",
        group="Judging",
    )
    judge: str | None = option(
        None,
        "Any judge in place of the profile's debate: probe+rules, pairwise+rules, jury:general,"
        " rules:FILE.yaml, hybrid:FILE.yaml:probe, cascade:0.9:probe,debate, ...",
        short="-j",
        group="Judging",
    )
    rubric: str | None = option(
        None,
        "What to judge by, in place of the judge's own components or questions: a text, @FILE, or a"
        " shipped rubric (`textevolve rubrics list`). Each line is a criterion of a checklist.",
        group="Judging",
        text="argument",
    )
    _expanded = field_validator("rubric")(_expand)

    recall: str | None = option(
        None, "What the agents recall with; for programs, which put it in.", group="Debate"
    )
