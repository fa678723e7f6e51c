"""Arabic and Hebrew texts stand in reports and pages: their lines run from right to left.

By the CSS standard (Writing Modes 4, unicode-bidi: plaintext) each line then has the direction of
its first letter, and the alignment `start` follows it, while `left` does not.
"""

import re
from importlib.resources import files

import pytest

STYLES = {
    "reports": files("textevolve.report") / "templates" / "style.css",
    "pages": files("textevolve.server.pages") / "static" / "style.css",
}


def test_every_element_has_the_direction_of_its_text():
    style = STYLES["reports"].read_text(encoding="utf-8")
    rule = re.search(r"^  \*, \*::before \{([^}]*)\}", style, re.MULTILINE)
    assert "unicode-bidi: plaintext" in rule[1]


@pytest.mark.parametrize("name", STYLES)
def test_texts_begin_at_their_own_side(name):
    assert not re.search(r"text-align:\s*left", STYLES[name].read_text(encoding="utf-8"))
