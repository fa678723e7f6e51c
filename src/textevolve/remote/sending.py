"""What is sent of a study: its specification, and the files that it reads, by the names that they
have in it.

Which files these are is found out by reading them here: whatever the specification's cases and
judges open is sent, and what is wrong with it is said before anything is.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.judge_specs import describe_judge
from textevolve.llm.chains.chain_file import ENDINGS, load_chain
from textevolve.reach import is_file, note_files
from textevolve.remote.wire import MOST_FILES, CasePart
from textevolve.rows import STANDARD_INPUT
from textevolve.rows.hub import PREFIX
from textevolve.settings import Settings
from textevolve.spec import files_read
from textevolve.studies.study import AnyStudy, StudySpec


def write_study(
    study: AnyStudy,
    spec: StudySpec,
    settings: Settings,
    run: Mapping[str, Any],
    cases: Iterable[Case] | None = None,
) -> dict[str, Any]:
    """The body that begins a study at a server, with what the settings here say of it. `run`: how
    it is run. `cases`: those of the program, in place of those that the specification names.

    Raises:
        InputError: a file cannot be read, or the specification names what is the program's own.
    """
    if STANDARD_INPUT in files_read(spec):
        raise InputError("standard input cannot be sent to a server: name a file")
    given = None if cases is None else [_case_data(case) for case in cases]
    with note_files() as noted:
        spec = study.complete(spec, settings)
        _read_here(study, spec, reads_cases=cases is None)
    named = [one for one in files_read(spec) if is_file(one)]
    names = {**noted, **dict.fromkeys(named)}
    if len(names) > MOST_FILES:
        raise InputError(
            f"the study reads {len(names):,} files, and a server takes {MOST_FILES:,}: put images"
            " into the rows as data URLs, send fewer rows, or run it here"
        )
    files = {name: _content(name) for name in names}
    part = {**run, "files": files} | ({} if given is None else {"cases": given})
    data = spec.model_dump(mode="json", exclude_defaults=True)
    return {"kind": study.kind, **data, "run": part}


def _read_here(study: AnyStudy, spec: StudySpec, *, reads_cases: bool) -> None:
    """Read all that the specification names, but for what the server has to fetch."""
    asks = study.asks(spec)
    for judge in asks.judges:
        describe_judge(judge)
    for chain in asks.chains:
        if chain.lower().endswith(ENDINGS):
            load_chain(chain)
    elsewhere = any(name.startswith(PREFIX) for name in files_read(spec))
    if reads_cases and not elsewhere and spec.earlier_run is None:
        for _ in study.cases(spec):
            pass


def _content(name: str) -> str | dict[str, str]:
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _case_data(case: Case) -> dict[str, Any]:
    fields = {name: getattr(case, name) for name in CasePart.model_fields}
    required = ("input", "candidates", "id")
    return {name: value for name, value in fields.items() if value or name in required}
