"""What no result depends on: the layout of a study file, names, folders and formats of files."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from laws.identity_contents import NO_FILES
from laws.identity_world import START, Desk
from laws.studies import write_rows


def write_study(desk: Desk, kind: str) -> dict[str, Any]:
    """Write the study file of a kind and return what it holds."""
    spec = json.dumps(dict(START[kind].spec)).replace("MODEL", desk.model)
    study = {"kind": kind, "model": desk.model, **json.loads(spec)}
    (desk.home / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    return study


def lay_out_anew(desk: Desk, kind: str) -> None:
    """Write the fields in another order, with all defaults, a comment, and lines that end as on
    Windows."""
    fields = dict(reversed(write_study(desk, kind).items()))
    schema = json.loads(desk.cli("run", "schema", kind).out)["properties"]
    defaults = {name: field["default"] for name, field in schema.items() if field.get("default")}
    text = "# nightly\n" + yaml.safe_dump(defaults | fields, sort_keys=False)
    (desk.home / "study.yaml").write_bytes(text.replace("\n", "\r\n").encode())


def move_folder(desk: Desk, kind: str) -> None:
    """Move the study and its files into another folder, and work there."""
    write_study(desk, kind)
    folder = desk.home / "moved"
    folder.mkdir()
    for path in list_files(desk):
        path.rename(folder / path.name)
    os.chdir(folder)


def rename_files(desk: Desk, kind: str) -> None:
    """Give each file another name, and name it so in the study."""
    write_study(desk, kind)
    study = desk.home / "study.yaml"
    for path in list_files(desk):
        if path != study:
            study.write_text(study.read_text().replace(path.name, f"renamed-{path.name}"))
            path.rename(desk.home / f"renamed-{path.name}")


def add_column(desk: Desk, kind: str) -> None:
    """Give each row a column that nothing reads."""
    write_study(desk, kind)
    for path in desk.home.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.write_text(write_rows([{**row, "remark": "seen"} for row in rows]), encoding="utf-8")


def turn_columns(desk: Desk, kind: str) -> None:
    """Write the columns of each row in another order."""
    write_study(desk, kind)
    for path in desk.home.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.write_text(write_rows([dict(reversed(row.items())) for row in rows]))


def write_as_json(desk: Desk, kind: str) -> None:
    """Write the rows as one JSON list."""
    write_study(desk, kind)
    study = desk.home / "study.yaml"
    for path in desk.home.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.with_suffix(".json").write_text(json.dumps(rows), encoding="utf-8")
        study.write_text(study.read_text().replace(path.name, f"{path.stem}.json"))


def end_lines_as_windows(desk: Desk, kind: str) -> None:
    """End the lines of all files as Windows does."""
    write_study(desk, kind)
    for path in list_files(desk):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def list_files(desk: Desk) -> list[Path]:
    """Return the files of a run, without the store's."""
    return [path for path in desk.home.iterdir() if path.is_file() and "store.db" not in path.name]


UNREAD: Mapping[str, Callable[[Desk, str], Any]] = {
    "layout of the study file": lay_out_anew,
    "options of the run": write_study,
    "folder": move_folder,
    "names of the files": rename_files,
    "column that nothing reads": add_column,
    "order of columns": turn_columns,
    "rows as a JSON list": write_as_json,
    "ends of lines": end_lines_as_windows,
}
RUN_OPTIONS = ("--name", "nightly", "--concurrency", "1", "-o", "report.md")
FILES = ("folder", "names of the files", "ends of lines")
ROWS = ("column that nothing reads", "order of columns", "rows as a JSON list")
SOME: Mapping[str, Sequence[str]] = {
    "folder": ("evaluate", "calibrate", "chain", "robustness", "nodes", "memory-eval", "summarize"),
    "options of the run": ("evaluate", "compare", "ablation", "rates", "optimize", "guide"),
    "order of columns": ("evaluate", "compare", "chain", "agreement", "nodes", "memory-eval"),
    "rows as a JSON list": ("evaluate", "compare", "calibrate", "agreement"),
    "ends of lines": ("compare", "calibrate", "chain", "robustness"),
}
"""Kinds on which a form is tried that is read in one place for all."""


def reads(kind: str, form: str) -> bool:
    """Tell whether a kind has what a form of not being read is about."""
    files = START[kind].files
    if form in SOME and kind not in SOME[form]:
        return False
    if kind == "read-corpus" and form in ("names of the files", "ends of lines"):
        return False  # the name identifies the document, whose bytes are the content
    if form in ROWS:
        return any(name.endswith(".jsonl") for name in files) and kind not in NO_FILES
    return form not in FILES or (bool(files) and kind not in NO_FILES)
