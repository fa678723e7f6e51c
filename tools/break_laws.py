"""Whether the laws can fail: faults that are put into a copy of the source by hand must be caught.

    python tools/break_laws.py               the faults of all laws
    python tools/break_laws.py missing       those of one law
    python tools/break_laws.py --workers 1   one after the other

The faults of a law stand in `law_faults/LAW.yaml`, each with a sentence that says what it does, the
file below `src/textevolve`, a text that occurs in it once, and the text in its place. Some take
back a mend, so that it stays watched. A fault is caught where a cell of `tests/laws/test_LAW.py`
fails that passes without it. A fault whose text is gone is reported too: the code was rebuilt, and
the fault has to be written anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml
from mutants import ROOT, Mutant, is_killed

FAULTS = Path(__file__).parent / "law_faults"
LAWS = sorted(path.stem for path in FAULTS.glob("*.yaml"))


class LawFault(NamedTuple):
    """A fault that a law must catch: `before` is replaced by `after` in `file`."""

    law: str
    sentence: str
    file: str
    before: str
    after: str


def read_faults(law: str) -> Iterator[LawFault]:
    entries = yaml.safe_load((FAULTS / f"{law}.yaml").read_text(encoding="utf-8"))
    for entry in entries:
        yield LawFault(law, **entry)


def try_fault(fault: LawFault) -> str:
    """Return what came of a fault: `caught`, `not seen`, or that its text is gone."""
    path = ROOT / "src" / "textevolve" / fault.file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    if source.count(fault.before) != 1:
        return f"its text occurs {source.count(fault.before)} times in {fault.file}"
    line = source[: source.index(fault.before)].count("\n") + 1
    changed = source.replace(fault.before, fault.after)
    mutant = Mutant(fault.file, line, fault.sentence, changed)
    caught = is_killed(mutant, [f"laws/test_{fault.law}.py"], marks="not alone")
    return "caught" if caught else "not seen"


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether the laws catch faults put in by hand.")
    parser.add_argument("laws", nargs="*", default=LAWS, help=", ".join(LAWS))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    faults = [fault for law in options.laws for fault in read_faults(law)]
    with ThreadPoolExecutor(options.workers) as pool:
        outcomes = list(pool.map(try_fault, faults))
    for fault, outcome in zip(faults, outcomes, strict=True):
        print(f"{fault.law}: {outcome}: {fault.file}: {fault.sentence}")
    caught = outcomes.count("caught")
    print(f"{caught} of {len(faults)} caught")
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
