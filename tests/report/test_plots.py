"""Plots: where their marks stand, and which figures are drawn at all."""

from __future__ import annotations

import re

import pytest

from textevolve.report.blocks import Estimate, Plot, Report
from textevolve.runs.aggregates import Aggregates, draw_histogram
from textevolve.runs.study import Row

from .conftest import as_html, as_markdown, as_terminal


def report_of_plot(plot: Plot) -> Report:
    return Report("Figures", "", [plot])


def test_bars_are_as_high_as_counts() -> None:
    bars = {"one": [0, 5, 10]}
    plot = Plot("Scores", "score", ["low", "mid", "top"], bars, top=10.0, bars=True)
    page = as_html(report_of_plot(plot))
    assert re.findall(r'y="([\d.]+)%" height="([\d.]+)%"', page) == [
        ("100.0", "0.0"),
        ("50.0", "50.0"),
        ("0.0", "100.0"),
    ]


def test_lines_have_their_intervals() -> None:
    figures = [Estimate(0.5, 0.25, 0.75), Estimate(None), Estimate(1.5)]
    plot = Plot("Trend", "", ["mon", "tue", "wed"], {"one": figures}, links=["/m", "/t", "/w"])
    page = as_html(report_of_plot(plot))
    assert re.findall(r'class="reach" .*?y1="([\d.]+)%" y2="([\d.]+)%"', page) == [("75.0", "25.0")]
    # A figure beyond the scale stands at its end, and a missing one nowhere.
    assert re.findall(r'<circle cx="([\d.]+)%" cy="([\d.]+)%"', page) == [
        ("16.67", "50.0"),
        ("83.33", "0.0"),
    ]
    assert page.count('class="step"') == 1
    assert [link for link in ("/m", "/t", "/w") if f'href="{link}"' in page] == ["/m", "/w"]


def test_texts_name_missing_plots() -> None:
    report = report_of_plot(Plot("Scores", "", ["a"], {"one": [Estimate(1)]}))
    assert "1 more part not shown here" in as_terminal(report)
    assert "A plot, which a page in HTML has." in as_markdown(report)


def scored(scores: list[float]) -> dict[str, Aggregates]:
    figures = Aggregates()
    for n, score in enumerate(scores):
        figures.add(Row(str(n), n, str(n), score))
    return {"": figures}


def test_histograms_count_scores() -> None:
    (plot,) = draw_histogram(scored([0.05] * 3 + [0.55] * 6 + [1.0]))
    assert isinstance(plot, Plot)
    assert plot.lines[""] == [3, 0, 0, 0, 0, 6, 0, 0, 0, 1]
    assert plot.top == 6


@pytest.mark.parametrize("scores", [[0.5] * 9, [0.0, 1.0] * 10, []])
def test_few_or_plain_scores_have_none(scores: list[float]) -> None:
    assert draw_histogram(scored(scores)) == []
