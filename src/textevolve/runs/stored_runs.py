"""Stored runs for the command line and for Python: find, read, export and continue them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from textevolve.errors import InputError
from textevolve.events import RecordsExpected
from textevolve.mappings import map_values
from textevolve.reach import add_files
from textevolve.report.files import check_target, open_target
from textevolve.runs import driver
from textevolve.runs.gates import UNGATED, Gated
from textevolve.runs.report import ROWS, WHOLE, ListedRun, check_format, list_studies, write_output
from textevolve.runs.stored import STANDING, Records, StudyRun, read_records
from textevolve.runs.study import AnyStudy
from textevolve.store import served
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, RunTotals
from textevolve.store.served import RunSearch, files_folder


def find_runs(store: Store, limit: int, *, everything: bool = False) -> list[ListedRun]:
    """Return the newest runs. `everything`: also runs that hold calls of servers, chats and
    memories."""
    search = RunSearch(hidden=() if everything else STANDING)
    return list_studies(store, store.read(served.search_runs, None, search, 0, limit).runs)


def run_data(listed: ListedRun, totals: RunTotals) -> dict[str, object]:
    """Return a run as JSON-ready data."""
    run = listed.run
    return {
        "id": run.id,
        "name": run.name,
        **({"aliases": run.aliases} if run.aliases else {}),
        "kind": study_kind(run),
        "status": run.status,
        "created": run.created,
        "updated": run.updated,
        "source": run.source,
        "cases": run.n_cases,
        "model": run.spec.get("model"),
        "calls": totals.spent.calls,
        "failed_calls": totals.failed,
        "reused_calls": totals.reused.calls,
        "tokens": totals.spent.tokens,
        "cost": totals.spent.cost,
        "cached_tokens": totals.spent.cached_tokens,
        "saved_by_caching": totals.spent.saved,
        "tags": list(listed.tags),
        "scores": map_values(asdict, listed.standing.scores),
    }


def study_kind(run: RunRecord) -> str:
    return str(run.spec.get("kind", "evaluate"))


def get_whole(store: Store, name: str) -> StudyRun:
    """Return a run. If a client sent the run's files to a server, its files are read
    from the server's folder from now on.

    Raises:
        InputError: the run lacks cases, since it was stopped while they were read. MismatchError:
            it was made by a version without studies.
    """
    run = StudyRun(store.get_run(name))
    if run.record.n_cases is None:
        raise InputError(
            f"run {run.id}: some of its cases are missing; start its command again, or delete the"
            " run"
        )

    served = store.get_served(run.id)
    if served is not None and served.launch.get("files"):
        add_files(files_folder(store.location) / served.launch["files"])

    return run


def is_complete(store: Store, run: StudyRun) -> bool:
    """Return whether a run is finished and each of its records has a score, so that nothing is left
    to do. Its files are checked if they are still there."""
    is_finished = run.record.status == "finished"
    if not is_finished or {*store.count_records(run.id)} != {"scored"}:
        return False
    with suppress(InputError):  # a file that is gone changes nothing of what is stored
        driver.require_unchanged(run, {})
    return True


async def reread(store: Store, run: StudyRun, launch: driver.Launch) -> AsyncGenerator[Any]:
    """Yield the stored records of a complete run, as if it were performed again."""
    launch.listener(RecordsExpected(store.count_records(run.id)["scored"]))
    for record in read_records(store, run)():
        yield record


# Files of results.


def ending_of(output: str) -> str:
    """Return the ending that determines the format of an output file; for standard output it is
    that of JSON lines."""
    return ".jsonl" if output == "-" else Path(output).suffix.lower()


def check_outputs(study: AnyStudy, outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raise InputError for a file with an unknown ending, one that cannot be written, or one of the
    run's `inputs`, and SettingsError if the package that writes its format is missing."""
    endings = (*WHOLE, *ROWS, *study.texts)
    for output in outputs:
        if ending_of(output) not in endings:
            raise InputError(f"{output}: must end in {', '.join(endings)}")
        check_target(output)
        check_format(ending_of(output))

    reject_overwriting(outputs, inputs)


def reject_overwriting(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raise InputError if an output would overwrite an input: a user's labels, for example, are
    stored nowhere else."""
    input_paths = {Path(name).resolve() for name in inputs if name != "-"}
    for output in outputs:
        if output != "-" and Path(output).resolve() in input_paths:
            raise InputError(f"{output}: is read and would be overwritten; write to another file")


def write_outputs(
    store: Store,
    run: StudyRun,
    records: Records,
    outputs: Sequence[str],
    *,
    gated: Gated = UNGATED,
) -> Iterator[str]:
    """Write the results to each file, in the format of its ending, and yield a sentence for each. A
    file whose content would be an empty text is not written."""
    study = run.study
    for output in outputs:
        ending = ending_of(output)
        text = ""
        if write_text := study.texts.get(ending):
            text = write_text(run.spec, study.summarise(run.spec, records()))
            if not text:
                yield f"{output}: was not written, since the run gave no text"
                continue

        with open_target(output, binary=ending == ".parquet") as target:
            if text:
                target.write(text.encode("utf-8", "backslashreplace"))
            else:
                write_output(store, run, records, ending, target, gated=gated)

        if output != "-":
            yield f"written to {output}"
