"""Draw the situations of a round: three from each corner of ROUNDS.md, by its seed."""

import random
import re
import sys
from pathlib import Path

ROUNDS = Path(__file__).with_name("ROUNDS.md")


def read_round(number: str) -> tuple[int, dict[str, list[str]]]:
    """Return the seed of a round and the names of its situations by corner."""
    _, _, text = ROUNDS.read_text(encoding="utf-8").partition(f"\n## Round {number}\n")
    text = text.partition("\n## ")[0]
    seed = int(re.search(r"^Seed: (\d+)$", text, re.MULTILINE)[1])
    corners: dict[str, list[str]] = {}
    for section in text.split("\n### ")[1:]:
        corner, _, lines = section.partition("\n")
        corners[corner] = re.findall(r"^- (\w+) ", lines, re.MULTILINE)
    return seed, corners


def draw(number: str) -> dict[str, list[str]]:
    """Return the names of the three drawn situations of each corner."""
    seed, corners = read_round(number)
    chance = random.Random(seed)
    return {corner: sorted(chance.sample(names, 3)) for corner, names in corners.items()}


if __name__ == "__main__":
    for drawn_corner, drawn_names in draw(sys.argv[1]).items():
        sys.stdout.write(f"{drawn_corner}: {', '.join(drawn_names)}\n")
