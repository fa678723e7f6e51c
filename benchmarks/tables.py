"""Make the tables of docs/measurements.md anew, all on one commit, day and machine.

    python benchmarks/tables.py --list              which table needs what
    python benchmarks/tables.py                     all that need nothing but this project
    python benchmarks/tables.py recall import       those whose title has one of the words
    python benchmarks/tables.py --with model embedder data --folder DATA

The commands are those of `tables.yaml`. Each prints its own figures, among them ratios whose parts
come from one run; behind it stand its seconds, and how it ended if that was with an error. A table
that was left out is named at the end, with what it needs.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from sitting import describe_machine

HERE = Path(__file__).parent
NEEDS = ("model", "embedder", "data", "promptfoo")


class Table(BaseModel):
    """A table of the page. `run`: the scripts that make it, with their options; `needs`: what they
    need besides this project."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    run: tuple[str, ...]
    needs: tuple[str, ...] = ()


def read_tables() -> list[Table]:
    rows = yaml.safe_load((HERE / "tables.yaml").read_text(encoding="utf-8"))
    return [Table.model_validate(row) for row in rows]


def choose_tables(tables: Iterable[Table], words: Sequence[str]) -> list[Table]:
    """Return the tables whose title has one of the words; all of them without words."""
    return [
        table
        for table in tables
        if not words or any(word.lower() in table.title.lower() for word in words)
    ]


def run_command(command: str) -> None:
    """Run a script, and print its seconds behind what it prints."""
    script, *options = shlex.split(command)
    print(f"$ python benchmarks/{command}", flush=True)

    began = time.monotonic()
    process = subprocess.run([sys.executable, str(HERE / script), *options], check=False)
    ending = f", exit status {process.returncode}" if process.returncode else ""
    print(f"({time.monotonic() - began:.0f} s{ending})\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="parts of titles")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--with", dest="present", nargs="+", default=[], choices=NEEDS)
    parser.add_argument("--folder", default="", help="has the data (LoCoMo, LLMBar)")
    options = parser.parse_args()
    tables = choose_tables(read_tables(), options.words)
    ready = [table for table in tables if set(table.needs) <= set(options.present)]

    if options.list:
        for table in tables:
            print(f"{table.title}: needs {', '.join(table.needs) or 'nothing else'}")
            for command in table.run:
                print(f"  python benchmarks/{command}")
        return

    commit = ["git", "describe", "--always", "--dirty"]
    version = subprocess.run(commit, cwd=HERE, capture_output=True, text=True, check=False).stdout
    print(f"{time.strftime('%Y-%m-%d')}, commit {version.strip() or 'unknown'}")
    print(f"{describe_machine()}\n")
    for table in ready:
        print(f"## {table.title}\n", flush=True)
        for command in table.run:
            run_command(command.replace("FOLDER", shlex.quote(options.folder)))

    for table in tables:
        if table not in ready:
            print(f"left out: {table.title}, which needs {', '.join(table.needs)}")


if __name__ == "__main__":
    main()
