"""What is sent of a study: its specification, and the files that it reads, by names that mean
something elsewhere.

Which files these are is found out by reading them here: whatever the specification's cases and
judges open is sent, and what is wrong with it is said before anything is.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.judge_texts import describe_judge
from textevolve.reach import is_file, is_plain_name, note_files
from textevolve.rows import STANDARD_INPUT, names_rows, read_text
from textevolve.rows.hub import PREFIX
from textevolve.spec import files_read, noted_of
from textevolve.studies.study import AnyStudy, StudySpec

SPOOLED = "standard-input.jsonl"
"""What standard input is called at the server."""


def write_study(
    study: AnyStudy,
    spec: StudySpec,
    run: Mapping[str, Any],
    cases: Iterable[Case] | None = None,
) -> dict[str, Any]:
    """The body that begins a study at a server. `run`: how it is run. `cases`: those of the
    program, in place of those that the specification names.

    Raises:
        InputError: a file cannot be read, or the specification names what is the program's own.
    """
    files = dict[str, str | dict[str, str]]()
    if STANDARD_INPUT in files_read(spec):
        files[SPOOLED] = read_text(STANDARD_INPUT)
        spec = _renamed_input(spec)
    given = None if cases is None else [_case_data(case) for case in cases]
    names = _find_files(study, spec, reads_cases=cases is None)
    moved = {name: plain_name(name) for name in names if not is_plain_name(name)}
    files |= {moved.get(name, name): _content(name) for name in names if name != SPOOLED}
    data = spec.model_dump(mode="json", exclude_defaults=True)
    part = {**run, "files": files} | ({} if given is None else {"cases": given})
    return {"kind": study.kind, **cast(dict[str, Any], _rename(data, moved)), "run": part}


def _find_files(study: AnyStudy, spec: StudySpec, *, reads_cases: bool) -> list[str]:
    """All files that the specification makes be read, each once."""
    with note_files() as found:
        for judge in study.asks(spec).judges:
            describe_judge(judge)
        elsewhere = any(one.startswith(PREFIX) or one == SPOOLED for one in files_read(spec))
        if reads_cases and not elsewhere and study.earlier(spec) is None:
            for _ in study.cases(spec):
                pass
    named = [one for one in files_read(spec) if is_file(one)]
    return [name for name in dict.fromkeys([*found, *named]) if name != STANDARD_INPUT]


def _renamed_input(spec: StudySpec) -> StudySpec:
    fields = [n for n, f in type(spec).model_fields.items() if noted_of(f).get("reads")]
    changed: dict[str, Any] = {}
    for name in fields:
        value = getattr(spec, name)
        if value == STANDARD_INPUT:
            changed[name] = SPOOLED
        elif isinstance(value, tuple) and STANDARD_INPUT in value:
            changed[name] = tuple(
                SPOOLED if one == STANDARD_INPUT else one for one in cast(tuple[str, ...], value)
            )
    return spec.model_copy(update=changed)


def _content(name: str) -> str | dict[str, str]:
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def plain_name(name: str) -> str:
    """A name within a folder, for one that leads out of it."""
    kept = ["up" if one == ".." else one.strip("/\\:~") for one in PurePath(name).parts]
    return "/".join(one for one in kept if one) or "file"


def _rename(data: Any, moved: Mapping[str, str]) -> Any:
    """With the new names of files wherever a field, or a part of a judge's text, names one, or the
    folder or pattern that it was found by."""
    if isinstance(data, Mapping):
        held = cast(Mapping[str, Any], data)
        return {name: _rename(value, moved) for name, value in held.items()}
    if isinstance(data, list):
        return [_rename(one, moved) for one in cast(list[Any], data)]
    if not isinstance(data, str) or not moved:
        return data
    if names_rows(data) and any(_found_by(data, name) for name in moved):
        return plain_name(data)
    for old, new in moved.items():
        data = re.sub(rf"(^|[:@,=]){re.escape(old)}(?=$|[,:])", lambda m, n=new: m[1] + n, data)
    return data


def _found_by(text: str, name: str) -> bool:
    """Whether a file is in the folder, or fits the pattern, that a text names."""
    return PurePath(name).is_relative_to(text) or fnmatchcase(name, text)


def _case_data(case: Case) -> dict[str, Any]:
    found = {"input": case.input, "candidates": list(case.candidates), "id": case.id}
    optional = {"parameters": dict(case.parameters), "reference": case.reference}
    return {**found, **{n: v for n, v in {**optional, "context": case.context}.items() if v}}
