"""`textevolve compare` beside promptfoo: the same rows, prompts, checks and loopback server.

    npm install --prefix build/promptfoo promptfoo
    python benchmarks/compare.py --promptfoo build/promptfoo/node_modules/.bin/promptfoo

Two prompts over the rows, each answer compared with the right one. The scripted server, a process
of its own, takes `--latency` seconds for every answer: what is measured is what the programs add.
Each program is run as a user runs it, from its start to its end, with nothing in its cache: with
its default concurrency, and with the same for both. Times are wall seconds and CPU seconds (user
and system, with all children); the best of `--repeats`. promptfoo's telemetry, update checks and
cache are switched off by its own variables, and all requests go to loopback.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.request import urlopen

from textevolve.llm.testing.server import serve_in_process

QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_CACHE_ENABLED": "false",
    "NO_UPDATE_NOTIFIER": "1",
    "OPENAI_API_KEY": "none",
}
PROMPTS = {"short": "What is {n} and {n} more?", "careful": "Answer exactly: {n} and {n} more?"}


Make = Callable[[str], tuple[list[str], dict[str, str]]]
"""From the server's address to a command and its environment."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--promptfoo", default=shutil.which("promptfoo"), help="its program")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds for each answer")
    parser.add_argument("--concurrency", type=int, default=4, help="that promptfoo has by default")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{options.rows} rows, 2 prompts, {options.latency * 1000:.0f} ms a call,"
        f" {os.cpu_count()} cores, load {load:.1f} before the start"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_inputs(folder, options.rows)
        results = dict[str, tuple[float, float]]()
        for label, concurrency in (("default", None), ("equal", options.concurrency)):
            results[f"textevolve, {label}"] = _best(
                options, lambda url, n=concurrency: _textevolve(folder, url, n), folder
            )
            if options.promptfoo:
                results[f"promptfoo, {label}"] = _best(
                    options,
                    lambda url, n=concurrency: _promptfoo(options.promptfoo, folder, url, n),
                    folder,
                )
        _tell(results, options)


def _write_inputs(folder: Path, rows: int) -> None:
    values = [{"n": n, "sum": 2 * n} for n in range(rows)]
    with open(folder / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["n", "sum"])
        writer.writeheader()
        writer.writerows(values)
    for name, text in PROMPTS.items():
        (folder / f"{name}.txt").write_text(text)
    tests = [
        {"vars": {"n": str(row["n"])}, "assert": [{"type": "equals", "value": str(row["sum"])}]}
        for row in values
    ]
    (folder / "tests.json").write_text(json.dumps(tests))


def _textevolve(
    folder: Path, url: str, concurrency: int | None
) -> tuple[list[str], dict[str, str]]:
    prompts = [word for name in PROMPTS for word in ("-p", f"{name}.txt")]
    command = [sys.executable, "-m", "textevolve", "compare", *prompts, "-m", f"{url}#scripted"]
    command += ["-d", "rows.csv", "--label", "sum", "--metric", "exact", "-o", "matrix.html"]
    command += [] if concurrency is None else ["--concurrency", str(concurrency)]
    return command, {"TEXTEVOLVE_STORE": str(folder / "state" / "store.db")}


def _promptfoo(
    program: str, folder: Path, url: str, concurrency: int | None
) -> tuple[list[str], dict[str, str]]:
    config = {
        "prompts": [{"raw": t.replace("{n}", "{{n}}"), "label": n} for n, t in PROMPTS.items()],
        "providers": [
            {
                "id": "openai:chat:scripted",
                "config": {"apiBaseUrl": url, "temperature": 0, "max_tokens": 512, "seed": 0},
            }
        ],
        "tests": "file://tests.json",
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = [
        program,
        "eval",
        "-c",
        "config.json",
        "--no-cache",
        "--no-progress-bar",
        "--no-table",
    ]
    command += ["-o", "matrix.html"]
    command += [] if concurrency is None else ["--max-concurrency", str(concurrency)]
    return command, {**QUIET, "PROMPTFOO_CONFIG_DIR": str(folder / "state")}


def _best(options: argparse.Namespace, make: Make, folder: Path) -> tuple[float, float]:
    times: list[tuple[float, float]] = []
    for _ in range(options.repeats):
        shutil.rmtree(folder / "state", ignore_errors=True)
        (folder / "state").mkdir()
        with serve_in_process("--latency", str(options.latency)) as url:
            times.append(_time(*make(url), folder))
            _check_calls(url, 2 * options.rows)
    return min(times)


def _check_calls(url: str, expected: int) -> None:
    with urlopen(url.removesuffix("/v1") + "/stats") as answer:
        calls = json.load(answer)["calls"]
    if calls != expected:
        raise SystemExit(f"{calls} calls were made, {expected} were to be")


def _time(command: Sequence[str], environment: dict[str, str], folder: Path) -> tuple[float, float]:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(
        command, cwd=folder, env={**os.environ, "HOME": str(folder), **environment},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 100):  # promptfoo: 100 where a test has failed
        output = f"{process.stderr[-2000:]}{process.stdout[-2000:]}"
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {output}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not (folder / "matrix.html").stat().st_size:
        raise SystemExit(f"{command[0]} wrote no page")
    (folder / "matrix.html").unlink()
    return wall, cpu


def _tell(results: dict[str, tuple[float, float]], options: argparse.Namespace) -> None:
    ideal = 2 * options.rows * options.latency
    for name, (wall, cpu) in results.items():
        print(f"{name:22} {wall:7.2f} s wall  {cpu:7.2f} s CPU")
    print(f"waiting alone, {options.concurrency} at a time: {ideal / options.concurrency:.2f} s")
    for label in ("default", "equal"):
        if f"promptfoo, {label}" in results:
            ours, theirs = results[f"textevolve, {label}"], results[f"promptfoo, {label}"]
            print(
                f"{label} concurrency: promptfoo takes {theirs[0] / ours[0]:.1f} times the seconds,"
                f" {theirs[1] / ours[1]:.1f} times the CPU"
            )


if __name__ == "__main__":
    main()
