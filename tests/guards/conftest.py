"""How what users can see is compared with what was frozen, and frozen anew."""

import difflib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "frozen"
RENEW = "make frozen"


@pytest.fixture
def frozen():
    """Compare a text with the frozen file of that name; `make frozen` writes the file anew, and a
    person reads the difference."""

    def compare(name, text):
        path = FOLDER / name
        if os.environ.get("RECORD_FIGURES"):
            path.write_text(text, encoding="utf-8")
            return
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines = difflib.unified_diff(before, text.splitlines(), "frozen", "now", lineterm="", n=1)
        difference = "\n".join(lines)
        assert not difference, f"{name} has changed; if on purpose: {RENEW}\n{difference[:20_000]}"

    return compare
