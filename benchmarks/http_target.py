"""A comparison over an application behind HTTP, by TextEvolve and by promptfoo: requests and time.

    python benchmarks/http_target.py [--rows 20] [--latency 0.2] [--repeats 3] [--promptfoo COMMAND]

Both ask the same server on loopback for the same rows, in turns, each from the command line with an
empty store or without a cache. Requests are counted by the server. `--promptfoo` is the path of an
installed promptfoo (npm install --prefix FOLDER promptfoo, then
FOLDER/node_modules/.bin/promptfoo); without one TextEvolve alone is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

from sitting import describe_machine

REQUESTS: list[str] = []


class App(BaseHTTPRequestHandler):
    """Doubles a number, after `latency` seconds."""

    latency = 0.0
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        REQUESTS.append(self.command)
        time.sleep(self.latency)
        body = json.dumps({"answer": str(2 * int(sent["question"]))}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def time_command(command: list[str], folder: Path, env: Mapping[str, str]) -> tuple[int, float]:
    """Run a command, and return the requests that it made and its seconds."""
    REQUESTS.clear()
    began = time.perf_counter()
    process = subprocess.run(
        command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {process.stdout}{process.stderr}")
    return len(REQUESTS), seconds


def write_files(folder: Path, url: str, rows: int) -> None:
    """Write the same rows for both, and promptfoo's configuration."""
    lines = [f"{n},{2 * n}\n" for n in range(rows)]
    (folder / "rows.csv").write_text("question,expected\n" + "".join(lines), encoding="utf-8")
    config = {
        "prompts": ["{{question}}"],
        "providers": [
            {
                "id": url,
                "config": {
                    "method": "POST",
                    "headers": {"Content-Type": "application/json"},
                    "body": {"question": "{{prompt}}"},
                    "transformResponse": "json.answer",
                },
            }
        ],
        "tests": [
            {"vars": {"question": str(n)}, "assert": [{"type": "equals", "value": str(2 * n)}]}
            for n in range(rows)
        ],
    }
    (folder / "promptfooconfig.json").write_text(json.dumps(config), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of each answer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--promptfoo", default=shutil.which("promptfoo"))
    options = parser.parse_args()
    App.latency = options.latency
    measured: dict[str, list[tuple[int, float]]] = {}
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), App) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        folder, url = Path(name), f"http://127.0.0.1:{server.server_port}/ask"
        write_files(folder, url, options.rows)
        ours = [sys.executable, "-m", "textevolve", "compare", "--target", url, "-d", "rows.csv"]
        ours += ["--label", "expected", "--metric", "exact"]
        commands = {"textevolve": ours, "textevolve, 4 at once": [*ours, "--concurrency", "4"]}
        if options.promptfoo:
            theirs = [options.promptfoo, "eval", "-c", "promptfooconfig.json", "--no-cache"]
            commands["promptfoo, 4 at once"] = [*theirs, "--no-table", "-o", "out.json"]
        for turn in range(options.repeats):
            for label, command in commands.items():
                env = {
                    "TEXTEVOLVE_STORE": str(folder / f"{label}-{turn}.db"),
                    "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo"),
                    "PROMPTFOO_DISABLE_TELEMETRY": "1",
                    "PROMPTFOO_DISABLE_UPDATE": "1",
                    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
                }
                measured.setdefault(label, []).append(time_command(command, folder, env))
        server.shutdown()
    print(f"{options.rows} rows, {App.latency:g} s an answer, medians of {options.repeats} turns")
    print(describe_machine())
    middle = {w: tuple(map(median, zip(*runs, strict=True))) for w, runs in measured.items()}
    for label, (requests, seconds) in middle.items():
        print(f"{label:24} {requests:5g} requests {seconds:6.2f} s")
    if not options.promptfoo:
        print("promptfoo is not installed here: name one with --promptfoo; nothing to compare with")
        return
    base = middle["promptfoo, 4 at once"]
    for label in list(middle)[:2]:
        ratios = [mine / theirs for mine, theirs in zip(middle[label], base, strict=True)]
        print(f"{label:24} {ratios[0]:.2f} times the requests, {ratios[1]:.2f} times the time")


if __name__ == "__main__":
    main()
