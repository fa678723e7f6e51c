"""docs/security.md names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "security.md"


def test_each_test_that_the_page_names_is_there():
    name = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)`", PAGE.read_text())
    assert len(name) > 20
    for file in name:
        path = TESTS.parent / file if "/" in file else TESTS / "server" / file
        assert path.exists(), file


def test_owasps_list_is_whole():
    rows = re.findall(r"^- \*\*API(\d+) ", PAGE.read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 11)]
