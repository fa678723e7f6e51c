"""What the plugin costs a session of pytest that judges nothing: CPU time of `--collect-only` over
a file with one test, with the plugin and without it, in turns.

    python benchmarks/pytest_plugin.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from processes import run_program
from sitting import describe_machine

OFF = ("-p", "no:textevolve")
OTHERS = ("langsmith_plugin", "anyio", "hypothesispytest", "xdist", "asyncio", "cacheprovider")


def measure(folder: Path, *arguments: str) -> float:
    """Seconds of CPU that one session takes."""
    quiet = [word for name in OTHERS for word in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *quiet, *arguments]
    return run_program(command, folder).cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one.py").write_text("def test_one():\n    pass\n")
        measure(folder)  # so that all is compiled
        pairs = [(measure(folder), measure(folder, *OFF)) for _ in range(rounds)]
    with_it, without = (median(times) for times in zip(*pairs, strict=True))
    more = median(plugin - other for plugin, other in pairs)
    print(describe_machine())
    print(f"with the plugin {with_it * 1000:.0f} ms, without {without * 1000:.0f} ms")
    print(f"the plugin: {more * 1000:.0f} ms (median difference of {rounds} pairs)")


if __name__ == "__main__":
    main()
