"""The report: nothing in it is obeyed or fetched, everything is in it, and it stays small."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pages import ALLOWED, HOSTILE, Outline
from textevolve.debate.profile import Agent, Component, load_profile
from textevolve.debate.result import DebateResult
from textevolve.evaluation import Case
from textevolve.report.files import open_target
from textevolve.report.html import write_html
from textevolve.studies.evaluate import Evaluations, find_row, report_evaluations

Make = Callable[..., DebateResult]


def hostile(make: Make, text: str, **more: object) -> DebateResult:
    """A result with the text in every field that can hold any."""
    agents = tuple(
        Agent.model_construct(name=f"{text} {n}", persona=text, model=None, collections=())
        for n in range(3)
    )
    components = tuple(
        Component.model_construct(name=f"{text} {n}", meaning=text, rubric={}, question=text)
        for n in range(5)
    )
    profile = load_profile("general").model_copy(
        update={
            "name": text,
            "agents": agents,
            "components": components,
            "weights": {c.name: 1.0 for c in components},
        }
    )
    result = make(text, profile=profile, failed=((1, 1),), summaries=(text,), **more)
    return replace(result, case=Case(text, (text,) * 3, text), nonce=text, sanitized=2)


def add_up(results: Iterable[DebateResult]) -> Evaluations:
    evaluations = Evaluations()
    for result in results:
        evaluations.add(result, find_row(result))
    return evaluations


def page_of(path: Path, results: Iterable[DebateResult], text: str = "plain") -> str:
    report = report_evaluations(add_up(results), {f"a {text}": text, f"b {text}": text})
    with open_target(path) as target:
        write_html(report, target)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_element_and_no_attribute(
    tmp_path: Path, make_result: Make, text: str
) -> None:
    def build(text: str) -> str:
        results = [hostile(make_result, text, index=n) for n in range(2)]
        nobody = ((0, 0), (0, 1), (0, 2))
        results.append(make_result(text, rounds=1, failed=nobody, index=9, stopped="failed"))
        return page_of(tmp_path / "r.html", results, text)

    plain, attacked = Outline(build("plain")), Outline(build(text))
    assert attacked.elements == plain.elements
    assert {tag for tag, _ in attacked.elements} <= ALLOWED
    for name, value in attacked.attributes:
        assert not name.startswith("on")
        assert name not in ("style", "src", "srcset", "action", "xlink:href")
        assert name != "href" or re.fullmatch(r"#[a-z0-9-]+", value or "")
        assert name != "fill" or re.fullmatch(r"url\(#missing-\d+\)", value or "")
    assert not {"\x1b", "\x00", "\u202e"} & set(attacked.text)


def test_a_run_of_many_has_an_overview(tmp_path: Path, make_result: Make) -> None:
    nobody = ((0, 0), (0, 1), (0, 2))
    results = [make_result(f"text {n}", index=n, rounds=1) for n in range(4)]
    results.append(make_result(index=4, rounds=1, failed=nobody, stopped="failed"))
    page = page_of(tmp_path / "r.html", results)
    outline = Outline(page)
    assert "1 failed without a score" in outline.text
    assert page.count('href="#matrix-1-') == 5
    ids = {value for name, value in outline.attributes if name == "id" and value}
    links = {value[1:] for name, value in outline.attributes if name == "href" and value}
    assert links <= ids
