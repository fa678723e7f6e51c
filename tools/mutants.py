"""What share of small faults the tests notice, for modules whose faults would cost the most.

    python tools/mutants.py                    60 mutants of each target, with its tests alone
    python tools/mutants.py gates --number 20 --seed 1

A mutant is the source with one small change: a comparison turned around, a sign or a number
changed, `and` for `or`, a condition denied, a returned value left out. It is killed where its
target's tests fail. The sample depends on the seed and on the source alone, so a share is to be
compared with that of the same target at other times, not with other targets. Mutants that change
nothing a user could notice are among those that survive: 100 % cannot be reached.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 180
"""Seconds of processor time after which the tests of a mutant are ended and it counts as killed: a
busy machine ends nothing."""
STUCK = 90
"""Seconds after which a test that waits without computing is ended; none takes a tenth of it."""


class Target(NamedTuple):
    """Modules below `src/textevolve`, and the tests that are to notice what changes in them."""

    modules: Sequence[str]
    tests: Sequence[str]


TARGETS: Mapping[str, Target] = {
    "tensor": Target(["debate/tensor.py"], ["debate/test_tensor.py", "debate/test_early_stop.py"]),
    "statistics": Target(
        ["statistics/intervals.py", "statistics/comparisons.py"],
        ["test_statistics.py", "test_compare_statistics.py", "test_sequential_statistics.py"],
    ),
    "parsing": Target(["llm/structured.py"], ["llm/test_structured.py", "llm/test_reasoning.py"]),
    "gates": Target(["runs/gates.py"], ["studies/test_gates.py"]),
    "journal": Target(
        ["store/journal.py", "store/writer.py"],
        [
            "store/test_disk_journal.py",
            "store/test_store_failures.py",
            "store/test_stored_calls.py",
        ],
    ),
    "namespaces": Target(
        ["store/kinds.py", "store/resource_rows.py"],
        ["guards/test_walls.py", "store/test_resources.py", "test_namespaces.py"],
    ),
    "recall": Target(["memory/recall.py"], ["memory/test_recall.py"]),
    "limiting": Target(
        ["llm/limiting.py"],
        [
            "llm/test_limited_calls.py",
            "llm/test_limiting.py",
            "llm/test_pacing.py",
            "llm/test_pool.py",
            "llm/test_pool_members.py",
            "llm/test_prompt_cache.py",
        ],
    ),
    "rows": Target(
        [
            "rows/__init__.py",
            "rows/cases.py",
            "rows/chats.py",
            "rows/columns.py",
            "rows/images.py",
            "rows/tables.py",
        ],
        ["test_rows.py", "test_cases.py", "test_images.py", "studies/test_columns.py"],
    ),
    "hill_climbing": Target(
        ["loops/calibration/hill_climbing.py"],
        ["loops/test_hill_climbing.py", "loops/test_strategies.py"],
    ),
}

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


class Mutant(NamedTuple):
    """A module with one change at a line."""

    module: str
    line: int
    change: str
    source: str


def list_mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its source."""
    tree = ast.parse((ROOT / "src" / "textevolve" / module).read_text(encoding="utf-8"))
    for number, node in enumerate(ast.walk(tree)):
        if mutate(copy.deepcopy(node)) is None:
            continue
        changed = copy.deepcopy(tree)
        aim = list(ast.walk(changed))[number]
        assert isinstance(aim, ast.expr | ast.stmt)
        before = ast.unparse(aim)
        mutate(aim)
        change = f"{before} -> {ast.unparse(aim)}".replace("\n", " ")
        yield Mutant(module, aim.lineno, change[:120], ast.unparse(changed))


def mutate(node: ast.AST) -> ast.AST | None:
    """Change a node in place; None where there is nothing to change."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in COMPARISONS:
            node.ops[0] = COMPARISONS[type(operator)]()
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            node.op = OPERATORS[type(operator)]()
        case ast.BoolOp():
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr()):
            node.value = ast.Constant(None)
        case _:
            return None
    return node


def is_killed(mutant: Mutant, tests: Sequence[str], marks: str = "not slow and not alone") -> bool:
    """Tell whether a test fails on a copy of the package with this change. `marks`: which tests
    run, as pytest's `-m` has it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "textevolve"
        shutil.copytree(ROOT / "src" / "textevolve", source)
        (source / mutant.module).write_text(mutant.source, encoding="utf-8")
        paths = [str(ROOT / "tests" / test) for test in tests]
        options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", marks]
        options += ["-o", f"faulthandler_timeout={STUCK}"]
        try:
            process = subprocess.run(
                [sys.executable, "-c", RUN, folder, *options, *paths],
                cwd=ROOT,
                capture_output=True,
                timeout=10 * LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
    return process.returncode != 0


RUN = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({LONGEST}, {LONGEST + 10}))
sys.path.insert(0, sys.argv[1])
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of small faults that tests notice.")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=", ".join(TARGETS))
    parser.add_argument("--number", type=int, default=60, help="mutants of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    for name in options.targets:
        target = TARGETS[name]
        mutants = [mutant for module in target.modules for mutant in list_mutants(module)]
        sample = random.Random(options.seed).sample(mutants, min(options.number, len(mutants)))
        with ThreadPoolExecutor(options.workers) as pool:
            killed = list(pool.map(partial(is_killed, tests=target.tests), sample))
        print(f"{name}: {sum(killed)} of {len(sample)} killed, of {len(mutants)} there are")
        for mutant, gone in sorted(zip(sample, killed, strict=True)):
            if not gone:
                print(f"  survives: {mutant.module}:{mutant.line} {mutant.change}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
