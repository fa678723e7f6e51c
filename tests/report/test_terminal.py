"""The terminal: every block at every width, and nothing that a text could steer it with."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from rich.cells import cell_len

from textevolve.report.blocks import Report

from .conftest import as_terminal, hostile, make_blocks, report_of


def drawn(*blocks: Any, width: int = 100, **options: Any) -> str:
    return as_terminal(Report("", "", blocks), width, **options)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_every_block_fits_the_width(width: int, colour: bool) -> None:
    options = {"force_terminal": True, "color_system": "truecolor"} if colour else {}
    answer = as_terminal(report_of(make_blocks("words here"), "title"), width, **options)
    assert ("\x1b[" in answer) == colour
    plain = re.sub(r"\x1b\[[\d;]*m", "", answer)
    assert max(map(cell_len, plain.split("\n"))) <= width
    for word in ("71.0 %", "[62.0, 80.0]", "7.2", "< 0.001", "12,000", "$0.020", "No rows."):
        assert word in plain
    assert "None" not in plain
    assert plain.count("–") >= 8 + 1


@given(hostile, hostile)
def test_no_text_steers_the_terminal(one: str, two: str) -> None:
    for options in ({}, {"force_terminal": True, "color_system": "truecolor"}):
        answer = as_terminal(report_of(make_blocks(one, two), one), 60, **options)
        ours = re.sub(r"\x1b\[[\d;]*m", "", answer) if options else answer
        # The texts have no letters before such a code that would make it ours: \x1b is written out.
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", ours)
        answer.encode()
