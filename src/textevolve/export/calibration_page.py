"""A calibration as one self-contained HTML file: the search as a tree, no script, nothing loaded.

What was searched and found comes from elsewhere; here it is laid out. Templates, instructions and
everything else pass through the templates' escaping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textevolve.export.differences import find_differences
from textevolve.export.files import open_target
from textevolve.export.pages import open_template

if TYPE_CHECKING:
    from textevolve.loops.search_tree import CalibrationResult, Node


@dataclass(frozen=True, slots=True)
class Branch:
    """A template with those made from it; `depth` from the original, which has 0."""

    node: Node
    depth: int
    below: tuple[Branch, ...]


def write_calibration_page(
    found: CalibrationResult, path: str | Path, sentence: str, facts: Mapping[str, str]
) -> None:
    """Write the page; `-` is standard output. `sentence` is said on top, `facts` are shown as
    given, each under its name.

    Raises:
        InputError: the file cannot be written.
    """
    parts = open_template("calibration.html").generate(
        found=found,
        sentence=sentence,
        root=grow(found, 0),
        changes=find_differences(found.nodes[0].text, found.nodes[found.leader].text),
        facts=facts,
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))


def grow(found: CalibrationResult, number: int, depth: int = 0) -> Branch:
    """The tree from one template down; at most as deep as there were rounds."""
    below = [node.number for node in found.nodes if node.parent == number]
    return Branch(found.nodes[number], depth, tuple(grow(found, n, depth + 1) for n in below))
