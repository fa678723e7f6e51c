"""Style sheets and scripts of pages: sizes come from tokens, and there are few lines of both."""

import re
from pathlib import Path

import textevolve

ROOT = Path(textevolve.__file__).parent
REPORT = ROOT / "report/templates"
SERVER = ROOT / "server/pages/static"
MOST_LINES = 600


def lines_of(ending, *folders):
    files = [file for folder in folders for file in folder.glob(f"*{ending}")]
    own = [file for file in files if ".min." not in file.name]
    assert own
    return sum(len(file.read_text("utf-8").splitlines()) for file in own)


def test_style_sheets_take_their_sizes_from_tokens():
    """Sizes of type and corners are named once; `em` is a share of the size around it."""
    tokens, *rest = (REPORT / "style.css").read_text("utf-8").partition("background: var(--page)")
    assert all(f"--{name}-1:" in tokens for name in ("type", "space", "round"))
    for text in ("".join(rest), (SERVER / "style.css").read_text("utf-8")):
        for size in re.findall(r"font-size: ([^;}]+)", text):
            assert re.fullmatch(r"var\(--type-\d\)|[\d.]+em|10pt", size), size
        for radius in re.findall(r"border-radius: ([^;}]+)", text):
            assert re.fullmatch(r"(0 ?|var\(--round-\d\) ?)+|99px|50%", radius), radius
        for colour in re.findall(r"(?<![-\w])color: ([^;}]+)", text):
            assert re.fullmatch(r"var\(--[a-z0-9-]+\)|inherit", colour), colour


def test_styles_and_scripts_stay_small():
    assert lines_of(".css", REPORT, SERVER) < MOST_LINES
    assert lines_of(".js", REPORT) < MOST_LINES
    assert lines_of(".js", SERVER) < MOST_LINES
