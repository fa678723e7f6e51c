"""How the matrix of a law becomes tests, and which of its cells are known to fail.

A *cell* is one member of the product under one condition, such as a judge under a fault. It has a
name of its parts, joined by ` / `, and a value that its test takes. Failures that are known stand
in `known/LAW.yaml`, by classes: a sentence that says what is wrong, and the names of the cells that
show it. The list is strict: a cell of it that passes fails its test until it is taken out.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

KNOWN = Path(__file__).parent / "known"


def read_known(law: str) -> dict[str, str]:
    """Return the sentence for each cell of a law that is known to fail."""
    path = KNOWN / f"{law}.yaml"
    classes = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    sentences: dict[str, str] = {}
    for entry in classes or ():
        for cell in entry["cells"]:
            assert cell not in sentences, f"{cell} stands twice in {path.name}"
            sentences[cell] = " ".join(entry["sentence"].split())
    return sentences


def parametrize(law: str, argument: str, cells: Mapping[str, Any], quick: int):
    """Return the mark that runs a test on each cell of a matrix.

    `argument`: the test's parameter that takes a cell's value. `quick`: how many cells run in
    `make test`; the others are slow. Which ones depends on their names alone, so that a new cell
    changes at most one of them.
    """
    known_known = read_known(law)
    in_order = sorted(cells, key=lambda name: sha256(name.encode()).digest())
    quick_cells = set(in_order[:quick])
    return pytest.mark.parametrize(
        argument,
        [
            pytest.param(value, id=name, marks=_marks(name in quick_cells, known_known.get(name)))
            for name, value in cells.items()
        ],
    )


def _marks(quick: bool, sentence: str | None) -> list[pytest.MarkDecorator]:
    marks = [] if quick else [pytest.mark.slow]
    if sentence is not None:
        # Only a wrong value is a known failure: a cell that cannot be run is none.
        marks.append(pytest.mark.xfail(strict=True, reason=sentence, raises=AssertionError))
    return marks


def check_known(law: str, *matrices: Iterable[str]) -> None:
    """Assert that each known failure of a law names a cell, in a whole sentence."""
    names = {name for matrix in matrices for name in matrix}
    known_known = read_known(law)
    assert sorted(known_known.keys() - names) == [], "these cells are not in the matrix"
    assert [s for s in known_known.values() if len(s) < 30 or not s.endswith(".")] == []


def check_members(kind: str, members: Iterable[str], recipes: Iterable[str]) -> None:
    """Assert that there is a way to run each member of a registry, and no way for one that is gone.

    `kind`: the noun of a member, for the message.
    """
    missing = sorted(set(members) - set(recipes))
    assert not missing, f"no way to run {kind} {', '.join(missing)}: add it to its table"
    gone = sorted(set(recipes) - set(members))
    assert not gone, f"there is no {kind} {', '.join(gone)} any more: take it from its table"


def cover(*factors: Iterable[str], seed: int = 0) -> list[tuple[str, ...]]:
    """Return rows with one value of each factor, so that each pair of values of two factors occurs
    in at least one row.

    Each new row is the best of a few random ones that hold a pair which is still missing, so there
    are more rows than the least possible, but far fewer than in the product.
    """
    levels = [list(factor) for factor in factors]
    missing = {
        (count, a, other, b)
        for count, other in combinations(range(len(levels)), 2)
        for a, b in product(levels[count], levels[other])
    }
    rng = Random(seed)
    rows: list[tuple[str, ...]] = []
    while missing:
        count, a, other, b = min(missing)
        drawn: list[tuple[str, ...]] = []
        for _ in range(30):
            row = [rng.choice(values) for values in levels]
            row[count] = a
            row[other] = b
            drawn.append(tuple(row))
        best = max(drawn, key=lambda row: len(_pairs(row) & missing))
        rows.append(best)
        missing -= _pairs(best)
    return rows


def _pairs(row: tuple[str, ...]) -> set[tuple[int, str, int, str]]:
    return {
        (count, row[count], other, row[other]) for count, other in combinations(range(len(row)), 2)
    }
