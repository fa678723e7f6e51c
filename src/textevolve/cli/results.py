"""Where what a study found goes: files by their endings, and JSON on standard output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from textevolve.cli import say
from textevolve.errors import InputError
from textevolve.report.data import WRITERS, choose_writer, plain, write_rows
from textevolve.report.files import check_target, open_target
from textevolve.report.html import write_html
from textevolve.report.junit import write_junit
from textevolve.report.markdown import write_markdown
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.driver import Records, read_spec, read_stored
from textevolve.studies.gates import UNGATED, Gated
from textevolve.studies.junit_cases import junit_suites
from textevolve.studies.reporting import make_data, make_report
from textevolve.studies.study import AnyStudy

ROWS = (".jsonl", ".csv", ".parquet")
WHOLE = (".json", ".html", ".md")


def ending_of(output: str) -> str:
    """What says how a file is written; standard output gets JSON lines."""
    return ".jsonl" if output == "-" else Path(output).suffix.lower()


def check_outputs(study: AnyStudy, outputs: Sequence[str], *, turns: bool = False) -> None:
    """Raises InputError where a file's name does not say what is to be written, or where there are
    no turns to write, and SettingsError where a package is missing that writes it."""
    if turns and study.turns is None:
        raise InputError(f"--turns: a run of the kind '{study.kind}' has no turns of its own")
    known = (*WHOLE, *ROWS, *study.text_endings)
    for output in outputs:
        if ending_of(output) not in known:
            raise InputError(f"{output}: must end in {', '.join(known)}")
        check_target(output)
        if ending_of(output) in WRITERS:
            choose_writer(ending_of(output))


def refuse_overwriting(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raises InputError where what is written would take the place of what is read: a user's
    labels, for one, are kept nowhere else."""
    read = {Path(name).resolve() for name in inputs if name != "-"}
    for output in outputs:
        if output != "-" and Path(output).resolve() in read:
            raise InputError(f"{output}: is read and would be overwritten; write to another file")


def write_outputs(
    study: AnyStudy,
    store: Store,
    run: RunRecord,
    records: Records,
    outputs: Sequence[str],
    *,
    turns: bool = False,
    gated: Gated = UNGATED,
) -> None:
    """Write what was found to each file, by its ending. A text that there is not leaves a file as
    it was. `turns`: rows are those of single turns."""
    spec = read_spec(study, read_stored(run))
    for output in outputs:
        ending, texts = ending_of(output), dict[str, str]()
        if ending in study.text_endings:
            texts = dict(study.texts(spec, study.summarise(spec, records())))
            if ending not in texts:
                say(f"{output}: is not written, since there is no text for it")
                continue
        with open_target(output, binary=ending == ".parquet") as target:
            if ending in texts:
                target.write(texts[ending].encode("utf-8", "backslashreplace"))
            elif ending in ROWS:
                write_records(study, records, target, ending, turns=turns)
            elif ending == ".html":
                write_html(make_report(study, store, run, records, gated), target)
            elif ending == ".md":
                write_markdown(make_report(study, store, run, records, gated), target)
            else:
                target.write(_line(make_data(study, run, records, gated)))
        if output != "-":
            say(f"written to {output}")


def write_tests(study: AnyStudy, records: Records, path: str, gated: Gated) -> None:
    """Write the records and the gates as JUnit XML."""
    with open_target(path) as target:
        write_junit(junit_suites(study, records, gated), target)
    if path != "-":
        say(f"written to {path}")


def write_records(
    study: AnyStudy, records: Records, target: IO[bytes], ending: str, *, turns: bool = False
) -> None:
    """Write the records as lines of JSON, or the rows that they have in a table."""
    rows_of = study.turns if turns and study.turns is not None else study.flat
    if ending == ".jsonl" and study.line is not None and not turns:
        for record in records():
            target.write((study.line(record) + "\n").encode())
    else:
        write_rows(lambda: _flat(rows_of, records), target, ending)


def _flat(
    rows_of: Callable[[Any], Iterable[Mapping[str, Any]]], records: Records
) -> Iterator[Mapping[str, Any]]:
    for record in records():
        yield from rows_of(record)


def write_line(study: AnyStudy, record: Any) -> str:
    """A record as a line of JSON."""
    return study.encode(record).decode() if study.line is None else study.line(record)


def print_json(data: Any) -> None:
    """One line of JSON; a figure that does not exist is null."""
    print(_line(data).decode(), end="")


def _line(data: Any) -> bytes:
    text = json.dumps(plain(data), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")
