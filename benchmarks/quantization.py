"""How fast blocks are made: llama.cpp's own code beside the gguf package, and that both agree.

    python benchmarks/quantization.py

What quantisation costs a model is measured by `textevolve models compare-quants`.
"""

from __future__ import annotations

import time

import numpy as np

from textevolve.llm.hardware import describe_machine, load_per_core
from textevolve.llm.quantize import BLOCK_TYPES, BlockType, Bytes, Floats, Kernels, open_kernels

REPEATS = 7


def best(kernels: Kernels, rows: Floats, kind: BlockType) -> tuple[float, Bytes]:
    """Millions of numbers a second, in the best of the repeats, and what was made."""
    seconds: list[float] = []
    made = kernels.quantize(rows, kind)
    for _ in range(REPEATS):
        begun = time.perf_counter()
        kernels.quantize(rows, kind)
        seconds.append(time.perf_counter() - begun)
    return rows.size / min(seconds) / 1e6, made


def main() -> None:
    kernels = open_kernels()
    print(f"{describe_machine()}, load of each core {load_per_core() or 0:.1f}, one thread")
    if kernels.native is None:
        print("llama.cpp's own code cannot be called here")
        return
    rows = np.random.default_rng(0).normal(0, 0.05, (1024, 1536)).astype(np.float32)
    plain = Kernels(kernels.gguf, None)
    for kind in BLOCK_TYPES.values():
        if kind.is_float:
            continue
        native, ours = best(kernels, rows, kind)
        line = f"{kind.name}: {native:.0f} million numbers a second by llama.cpp's code"
        if plain.writes(kind):
            numpy, theirs = best(plain, rows, kind)
            same = "the same bytes" if np.array_equal(ours, theirs) else "OTHER BYTES"
            line += f", {numpy:.0f} by gguf ({native / numpy:.1f} times), {same}"
        print(line)


main()
