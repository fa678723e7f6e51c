"""`textevolve compare` beside promptfoo: the same rows, prompts, checks and loopback server.

    npm install --prefix build/promptfoo promptfoo
    python benchmarks/compare.py --promptfoo build/promptfoo/node_modules/.bin/promptfoo
    python benchmarks/compare.py --http --rows 20 --repeats 3 --promptfoo ...

Two prompts over the rows, each answer compared with the right one; with `--http` one prompt, whose
rows an application behind HTTP answers. The server, a process of its own, takes `--latency` seconds
for every answer: what is measured is what the programs add. Each program is run as a user runs it,
from its start to its end, with nothing in its cache: with its default concurrency, and with the
same for both. Times are wall seconds and CPU seconds (user and system, with all children): the
least of `--repeats`. Requests are counted by the server. promptfoo's telemetry, update checks and
cache are switched off by its own variables, and all requests go to loopback.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias
from urllib.request import urlopen

from processes import run_program
from sitting import describe_machine
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

Command: TypeAlias = tuple[list[str], Mapping[str, str]]
"""The words of a command, and its environment."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: wall seconds, CPU seconds, and the requests that it made."""

    wall: float
    cpu: float
    requests: int


class Application(BaseHTTPRequestHandler):
    """Doubles a number, after `latency` seconds."""

    latency = 0.0
    requests = 0
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Application.requests += 1
        time.sleep(self.latency)
        body = json.dumps({"answer": str(2 * int(row["n"]))}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_application(latency: float) -> Generator[tuple[str, Callable[[], int]]]:
    """Yield the address of an application, and the function that counts its requests."""
    Application.latency = latency
    Application.requests = 0

    with ThreadingHTTPServer(("127.0.0.1", 0), Application) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/ask", lambda: Application.requests
        server.shutdown()


@contextmanager
def serve_scripted(latency: float) -> Generator[tuple[str, Callable[[], int]]]:
    """Yield the address of a scripted model, and the function that counts its calls."""

    def count() -> int:
        with urlopen(url.removesuffix("/v1") + "/stats") as answer:
            return int(json.load(answer)["calls"])

    with serve_in_process("--latency", str(latency)) as url:
        yield url, count


def write_rows(folder: Path, rows: int) -> None:
    """Write the rows and prompts for both programs."""
    with open(folder / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n", "sum"])
        writer.writerows((n, 2 * n) for n in range(rows))

    for name, text in PROMPTS.items():
        (folder / f"{name}.txt").write_text(text)

    tests = [
        {"vars": {"n": str(n)}, "assert": [{"type": "equals", "value": str(2 * n)}]}
        for n in range(rows)
    ]
    (folder / "tests.json").write_text(json.dumps(tests))


def command_ours(folder: Path, url: str, concurrency: int | None, *, http: bool) -> Command:
    words = [sys.executable, "-m", "textevolve", "compare", "-d", "rows.csv", "--label", "sum"]
    words += ["--metric", "exact", "-o", "matrix.html"]

    if http:
        words += ["--target", url]
    else:
        words += [word for name in PROMPTS for word in ("-p", f"{name}.txt")]
        words += ["-m", f"{url}#scripted"]
    if concurrency is not None:
        words += ["--concurrency", str(concurrency)]

    return words, {"TEXTEVOLVE_STORE": str(folder / "state" / "store.db")}


def command_theirs(
    program: str, folder: Path, url: str, concurrency: int | None, *, http: bool
) -> Command:
    """Write promptfoo's configuration, and return its command."""
    if http:
        prompts: list[object] = ["{{n}}"]
        options: dict[str, object] = {
            "method": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": {"n": "{{prompt}}"},
            "transformResponse": "json.answer",
        }
        provider = {"id": url, "config": options}
    else:
        prompts = [{"raw": t.replace("{n}", "{{n}}"), "label": n} for n, t in PROMPTS.items()]
        options = {"apiBaseUrl": url, "temperature": 0, "max_tokens": 512, "seed": 0}
        provider = {"id": "openai:chat:scripted", "config": options}

    config = {"prompts": prompts, "providers": [provider], "tests": "file://tests.json"}
    (folder / "config.json").write_text(json.dumps(config))

    words = [program, "eval", "-c", "config.json", "-o", "matrix.html"]
    words += ["--no-cache", "--no-progress-bar", "--no-table"]
    if concurrency is not None:
        words += ["--max-concurrency", str(concurrency)]

    return words, {**QUIET, "PROMPTFOO_CONFIG_DIR": str(folder / "state")}


def measure(folder: Path, options: argparse.Namespace, make: Callable[[str], Command]) -> Run:
    """Return the fastest of some runs, each with an empty store or cache."""
    runs: list[Run] = []
    serve = serve_application if options.http else serve_scripted
    page = folder / "matrix.html"

    for _ in range(options.repeats):
        shutil.rmtree(folder / "state", ignore_errors=True)
        (folder / "state").mkdir()
        with serve(options.latency) as (url, count):
            words, more = make(url)
            environment = {**os.environ, "HOME": str(folder), **more}
            # promptfoo ends with 100 if a test has failed.
            spent = run_program(words, folder, environment, statuses=(0, 100))
            runs.append(Run(spent.wall, spent.cpu, count()))
        if not page.stat().st_size:
            raise SystemExit(f"{words[0]} wrote no page")
        page.unlink()

    return min(runs, key=lambda run: run.wall)


def report(runs: Mapping[str, Run], labels: Sequence[str]) -> None:
    for name, run in runs.items():
        print(f"{name:22} {run.wall:7.2f} s wall  {run.cpu:7.2f} s CPU  {run.requests} requests")

    for label in labels:
        theirs = runs.get(f"promptfoo, {label}")
        if theirs is not None:
            ours = runs[f"textevolve, {label}"]
            print(
                f"{label} concurrency: promptfoo takes {theirs.wall / ours.wall:.1f} times the"
                f" seconds, {theirs.cpu / ours.cpu:.1f} times the CPU"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--promptfoo", default=shutil.which("promptfoo"), help="its program")
    parser.add_argument("--http", action="store_true", help="an application behind HTTP answers")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds for each answer")
    parser.add_argument("--concurrency", type=int, default=4, help="that promptfoo has by default")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    requests = options.rows * (1 if options.http else len(PROMPTS))
    waiting = requests * options.latency / options.concurrency
    print(f"{requests} requests of {options.latency:g} s; {describe_machine()}")

    runs: dict[str, Run] = {}
    levels = {"default": None, "equal": options.concurrency}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, options.rows)
        for label, level in levels.items():
            runs[f"textevolve, {label}"] = measure(
                folder,
                options,
                lambda url, n=level: command_ours(folder, url, n, http=options.http),
            )
            if options.promptfoo:
                runs[f"promptfoo, {label}"] = measure(
                    folder,
                    options,
                    lambda url, n=level: command_theirs(
                        options.promptfoo, folder, url, n, http=options.http
                    ),
                )

    report(runs, list(levels))
    print(f"waiting alone, {options.concurrency} at a time: {waiting:.2f} s")
    if any(run.requests != requests for run in runs.values()):
        raise SystemExit(f"another number of requests than {requests} was made")


if __name__ == "__main__":
    main()
