"""How long imports and the first help take, beside bare Python, and what an installation weighs.

    python benchmarks/import_time.py [--runs 15] [--unweighed]

CPU and wall time of whole processes, taken in turn so that the machine's moods hit all alike; the
least of each over the runs, and the median of the wall time. Modules are compiled beforehand, as an
installation has them, whatever `PYTHONDONTWRITEBYTECODE` says.
Weights are those of the package with all that it needs and no extras: what pip fetches, and what
lies on the disk afterwards.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from processes import Spent, run_program
from sitting import describe_machine

COMMANDS = {
    "bare python": [sys.executable, "-c", "pass"],
    "import textevolve": [sys.executable, "-c", "import textevolve"],
    "from textevolve import evaluate": [sys.executable, "-c", "from textevolve import evaluate"],
    "textevolve --help": [sys.executable, "-m", "textevolve", "--help"],
}
KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def peak_memory(command: list[str]) -> float:
    """Peak resident memory in MB of one process, asked in a child that runs nothing else."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return int(run_program([sys.executable, "-c", code, *command]).output) / unit


def megabytes(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6


def weigh() -> None:
    """Fetches and installs the package from this folder into a temporary one."""
    root = str(Path(__file__).parent.parent)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as name:
        fetched, installed = Path(name, "fetched"), Path(name, "installed")
        run_program([*pip, "wheel", "-w", str(fetched), root])
        wheels = [str(wheel) for wheel in fetched.iterdir()]
        install = [*pip, "install", "--no-deps", "--no-compile", "--target", str(installed)]
        run_program([*install, *wheels])
        print(
            f"fetched {megabytes(fetched):6.1f} MB, on disk {megabytes(installed):6.1f} MB, of it:"
        )
        for folder in ("numpy", "numpy.libs", "sqlalchemy", "aiohttp", "pygments", "pydantic_core"):
            print(f"  {folder:16} {megabytes(installed / folder):6.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--unweighed", action="store_true", help="leave out the installation")
    options = parser.parse_args()
    print(describe_machine())
    times: dict[str, list[Spent]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        run_program(command, environment=KEPT)
    for _ in range(options.runs):
        for name, command in COMMANDS.items():
            times[name].append(run_program(command, environment=KEPT))
    for name, runs in times.items():
        cpu = min(run.cpu for run in runs) * 1000
        walls = [run.wall * 1000 for run in runs]
        print(
            f"{name:34} CPU {cpu:5.0f} ms, wall {min(walls):5.0f} ms (median"
            f" {statistics.median(walls):5.0f}), {peak_memory(COMMANDS[name]):4.0f} MB peak"
        )
    if not options.unweighed:
        weigh()


if __name__ == "__main__":
    main()
