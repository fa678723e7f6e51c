"""How many of our own functions a command crosses, in how many files, all threads counted.

    python benchmarks/crossings.py [--list]

`textevolve evaluate` judges three rows of a CSV by a scripted model, which runs in a process of its
own. The command runs twice, each time on a new store; the second run is counted, so that what
imports call is not. A function counts once, however often it is called; comprehensions and lambdas
belong to the function that they stand in. `--list` names the functions by file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import textevolve
from textevolve.cli import main as run_command
from textevolve.llm.testing import serve_in_process

PACKAGE = str(Path(textevolve.__file__).parent)
ROWS = "input,output_1,output_2\n" + "".join(
    f"Why is {n} odd?,It is not a multiple of 2.,I do not know.\n" for n in (3, 5, 7)
)


class Crossings:
    """The functions that were called, by their files."""

    def __init__(self) -> None:
        self.by_file: defaultdict[str, set[str]] = defaultdict(set)

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            name = code.co_qualname.split(".<locals>.<")[0]
            if not name.startswith("<"):
                self.by_file[code.co_filename[len(PACKAGE) + 1 :]].add(name)

    @property
    def functions(self) -> int:
        return sum(map(len, self.by_file.values()))


def evaluate(folder: Path, model: str, name: str) -> None:
    """Run the command on a store of this name."""
    os.environ["TEXTEVOLVE_STORE"] = str(folder / f"{name}.db")
    sys.argv = ["textevolve", "evaluate", str(folder / "rows.csv"), "-j", "probe", "-m", model]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        run_command()


def count(folder: Path) -> Crossings:
    (folder / "rows.csv").write_text(ROWS)
    crossings = Crossings()
    with serve_in_process() as url:
        evaluate(folder, f"{url}#scripted", "first")
        threading.setprofile(crossings.note)
        sys.setprofile(crossings.note)
        try:
            evaluate(folder, f"{url}#scripted", "second")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return crossings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the functions by file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        crossings = count(Path(folder))
    if options.list:
        for file, names in sorted(crossings.by_file.items(), key=lambda pair: -len(pair[1])):
            print(f"{len(names):4} {file}: {', '.join(sorted(names))}")
    print(f"{crossings.functions} functions in {len(crossings.by_file)} files")


if __name__ == "__main__":
    main()
