"""Check that each extra can be installed from wheels alone, on every system and Python.

    .venv/bin/python tools/platforms.py     the table of docs/install.md; exit code 1 if it differs

Nothing is installed: `uv pip compile` resolves each extra for the system and takes wheels only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "install.md"
UV = Path(sys.executable).with_name("uv")
SYSTEMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux arm64": "aarch64-manylinux_2_28",
    "macOS 13 Intel": "x86_64-apple-darwin",
    "macOS 13 Apple": "aarch64-apple-darwin",
    "Windows": "x86_64-pc-windows-msvc",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NOT_FOR_USERS = ("dev", "docs")


def resolves(extras: Sequence[str], platform: str, python: str) -> bool:
    """Whether the package with these extras has wheels for a system and a Python."""
    command = [str(UV), "pip", "compile", "pyproject.toml", "-q", "--only-binary", ":all:"]
    command += ["--python-platform", platform, "--python-version", python]
    command += [word for extra in extras for word in ("--extra", extra)]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "13.0"}
    return not subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode


def missing_pythons(extra: str, platform: str) -> list[str]:
    return [python for python in PYTHONS if not resolves([extra], platform, python)]


def draw_table() -> str:
    """A row for each extra: *yes*, or the Pythons for which a wheel is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name not in NOT_FOR_USERS]
    columns: list[list[str]] = []
    for system, platform in SYSTEMS.items():
        together = all(resolves(extras, platform, python) for python in PYTHONS)
        missing = {extra: [] if together else missing_pythons(extra, platform) for extra in extras}
        cells = [", ".join(missing[extra]) for extra in extras]
        columns.append([system, "---", *(f"not {cell}" if cell else "yes" for cell in cells)])
    head = ["extra", "---", *(f"`{extra}`" for extra in extras)]
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(head, *columns, strict=True))


if __name__ == "__main__":
    table = draw_table()
    print(table)
    sys.exit(table not in PAGE.read_text(encoding="utf-8"))
