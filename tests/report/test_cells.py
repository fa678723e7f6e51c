"""How figures are written, where the marks of charts go, and what is told of two texts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.report.blocks import (
    Cell,
    Column,
    Estimate,
    Format,
    cell_text,
    draw_bar,
    find_differences,
    shade,
)
from textevolve.report.wording import shorten_models, visible

from .conftest import hostile

FORMATS: tuple[Format, ...] = (
    *("text", "number", "percent", "score", "count", "money", "duration", "p_value"),
)


@pytest.mark.parametrize(
    ("cell", "format", "digits", "said"),
    [
        (0.8, "percent", None, "80.0 %"),
        (0.8, "percent", 0, "80 %"),
        (-0.001, "number", None, "0.00"),
        (1234.5, "number", 1, "1,234.5"),
        (12000, "count", None, "12,000"),
        (0.0004, "p_value", None, "< 0.001"),
        (0.04, "p_value", None, "0.040"),
        (0.0123, "money", None, "$0.012"),
        (-2.0, "money", None, "-$2.00"),
        (61, "duration", None, "1 min 01 s"),
        ("failed", "percent", None, "failed"),
        (Estimate(0.5, 0.4, 0.6), "percent", None, "50.0 % [40.0, 60.0]"),
        (Estimate(0.5, 0.4), "number", None, "0.50 [0.40, –]"),
        (Estimate(None, 0.4, 0.6), "number", None, "–"),
    ],
)
def test_cells_are_written_as_their_column_says(
    cell: Cell, format: Format, digits: int | None, said: str
) -> None:
    assert cell_text(cell, Column("c", format, digits)) == said


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("cell", [None, math.nan, math.inf, -math.inf, Estimate(math.nan, 0, 1)])
def test_what_is_missing_is_a_dash(cell: Cell, format: Format) -> None:
    assert cell_text(cell, Column("c", format)) == "–"


@given(st.floats() | st.integers(), st.sampled_from(FORMATS))
def test_every_number_can_be_written(value: float, format: Format) -> None:
    assert cell_text(value, Column("c", format))
    assert cell_text(10**400, Column("c", format))


@given(st.floats(), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_shades_stay_on_their_scale(value: float, low: float, high: float) -> None:
    found = shade(value, low, high)
    assert found is None or 0 <= found <= 10


def test_bars_of_intervals() -> None:
    assert draw_bar(Estimate(0.5, 0.25, 1.0), (0.0, 1.0)) == (25.0, 50.0, 100.0)
    assert draw_bar(Estimate(0.0, -0.5, 0.5), (-1.0, 1.0)) == (25.0, 50.0, 75.0)
    assert draw_bar(Estimate(0.5, None, None), (0.0, 1.0)) is None


@given(hostile, hostile)
def test_pieces_join_up_to_both_texts(old: str, new: str) -> None:
    pieces = find_differences(old, new)
    if visible(old) == visible(new):
        assert pieces == ()
    elif not any(piece.kind == "gap" for piece in pieces):
        before, after = (
            "".join(piece.text for piece in pieces if piece.kind in ("same", kind))
            for kind in ("removed", "added")
        )
        assert (before, after) == (visible(old), visible(new))


def test_models_that_are_addresses_have_short_names() -> None:
    answer = (
        "http://127.0.0.1:8080/v1#qwen2.5:7b beats https://me:key@api.example/v1, openai/gpt-6."
    )
    assert shorten_models(answer) == "qwen2.5:7b at 127.0.0.1:8080 beats api.example, openai/gpt-6."


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("Sum up {text}", "Sum up {text}\nBe brief.", [("added", "\nBe brief.")]),
        ("Sum up {text}", "One: 1\n\nSum up {text}", [("added", "One: 1\n\n")]),
        ("be brief and kind", "be short and kind", [("removed", "brief "), ("added", "short ")]),
    ],
)
def test_lines_added_change_no_word(
    before: str, after: str, changed: list[tuple[str, str]]
) -> None:
    pieces = find_differences(before, after)
    assert [(piece.kind, piece.text) for piece in pieces if piece.kind != "same"] == changed
