"""The files of an evaluation of a memory system: a folder with names that never differ."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from textevolve.cli import say
from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.memory_eval.figures import Figures
    from textevolve.runs.memory_records import Collection

RECORDS, SUMMARY, REPORT, PAGES = "records.jsonl", "summary.json", "report.html", "judgements"


def open_records(folder: Path | None, stack: ExitStack) -> IO[bytes] | None:
    """The file of records in a folder, which is made; None where nothing is to be written."""
    from textevolve.export.files import open_target

    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None
    return stack.enter_context(open_target(folder / RECORDS))


def write_folder(
    folder: Path,
    title: str,
    collected: Collection,
    figures: Figures,
    summary: Mapping[str, Any],
    facts: Mapping[str, str],
) -> None:
    """The summary, the report and, where it has but some judgements, pages with all of them; the
    records are there already."""
    from textevolve.cli.measuring import write_json
    from textevolve.export.memory_page import write_judgement_pages, write_memory_page
    from textevolve.memory_eval.judgement import TASKS
    from textevolve.runs.memory_records import read_in_order

    write_json(str(folder / SUMMARY), summary)
    left = collected.judged - sum(len(collected.worst(name)) for name in TASKS)
    found = read_in_order(folder / RECORDS) if left else ()
    pages = write_judgement_pages(found, folder / PAGES, report=REPORT, title=title)
    write_memory_page(
        figures,
        {name: collected.worst(name) for name in TASKS},
        folder / REPORT,
        title=title,
        facts=facts,
        failures=[(f"{name}: {why}", n) for (name, why), n in collected.failures.most_common(20)],
        whole=summary["whole"],
        pages=pages,
    )
    say(f"written to {folder}: {RECORDS}, {SUMMARY}, {REPORT}")
