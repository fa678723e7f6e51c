"""What images cost: the same rows judged with an image each and without, in processes of their own.

    python benchmarks/images.py [CASES] [KILOBYTES]

Said of each: wall time, the most memory of the process, bytes of the store, and of the second time,
which is answered from the journal. The scripted server answers at once, so this is our own cost.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from textevolve.llm.testing import serve_in_process

CASES, KILOBYTES = 1000, 200

WORK = """
import json, resource, sys, time
sys.argv = ["textevolve", *json.loads(sys.argv[1])]
from textevolve.cli import main
start = time.perf_counter()
try:
    main()
except SystemExit as end:
    code = end.code or 0
used = resource.getrusage(resource.RUSAGE_SELF)
said = [code, time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]
print("MEASURED", json.dumps(said))
"""


def noise(size: int) -> bytes:
    """A PNG as far as its header tells, of so many bytes that do not compress."""
    header = struct.pack(">IIBBBBB", 1024, 1024, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    begin = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
    return begin + struct.pack(">I", zlib.crc32(chunk)) + os.urandom(size)


def write_rows(folder: Path, cases: int, size: int) -> None:
    lines: list[str] = []
    for number in range(cases):
        (folder / f"{number}.png").write_bytes(noise(size))
        row = {"input": f"What is in picture {number}?", "output": "A tree.", "p": f"{number}.png"}
        lines.append(json.dumps(row))
    (folder / "rows.jsonl").write_text("\n".join(lines))


def measure(folder: Path, url: str, store: str, *options: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and the most MiB."""
    command = ["evaluate", "rows.jsonl", "--judge", "probe", "--model", f"{url}#scripted"]
    command += ["--store", store, "-o", f"{store}.jsonl", *options]
    process = subprocess.run(
        [sys.executable, "-c", WORK, json.dumps(command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in process.stdout.splitlines() if line.startswith("MEASURED"))
    code, wall, cpu, most = json.loads(line.removeprefix("MEASURED "))
    assert code == 0, process.stderr
    return wall, cpu, most


def store_size(path: Path) -> float:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / 1e6


def time_reading(content: bytes) -> float:
    """Milliseconds to make a data URL of a file's bytes and look at it."""
    from textevolve.evaluation import Case, check_case
    from textevolve.images import image_reference, image_url

    url = image_url(content)
    start = time.perf_counter()
    for _ in range(20):
        check_case(Case("q", ("a",), images=(url,)))
        image_reference(url)
    return (time.perf_counter() - start) * 50


def main() -> None:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    size = int(sys.argv[2]) * 1000 if len(sys.argv) > 2 else KILOBYTES * 1000
    with tempfile.TemporaryDirectory() as place, serve_in_process() as url:
        folder = Path(place)
        write_rows(folder, cases, size)
        url_size = cases * len(base64.b64encode(bytes(size))) / 1e6
        print(f"{cases:,} cases, {size / 1000:g} kB each: {url_size:.0f} MB as data URLs")
        print(f"to check and name one: {time_reading(noise(size)):.2f} ms")
        print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'MiB':>8}{'store MB':>10}")
        for name, store, options in (
            ("texts alone", "plain.db", ()),
            ("with images", "images.db", ("--images", "p")),
            ("again, from the journal", "images.db", ("--images", "p")),
        ):
            wall, cpu, most = measure(folder, url, store, *options)
            stored_size = store_size(folder / store)
            print(f"{name:24}{wall:8.1f}{cpu:8.1f}{most:8.0f}{stored_size:10.1f}")


if __name__ == "__main__":
    main()
