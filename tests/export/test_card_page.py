"""The page of a robustness card: nothing in it is obeyed or fetched, and everything is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pages import ALLOWED, HOSTILE, Outline
from textevolve.bench.card import Card, make_card
from textevolve.bench.card_cases import FAMILIES, CardCase
from textevolve.bench.card_wording import explain_card, explain_check
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Case, EvaluationResult, Usage
from textevolve.export.card_page import write_card_page


@dataclass(frozen=True)
class Judged:
    result: tuple[EvaluationResult, ...]
    usage: Usage = Usage(1, 10, 0, 1, 0.0)
    coverage: float = 1.0


def cases_with(text: str) -> list[CardCase]:
    """A case of each family, and a control, with the text in every field that can hold any."""
    found: list[CardCase] = []
    for n, family in enumerate((*FAMILIES, "injection")):
        attack: dict[str, str] = {"attack": f"attack {text}"} if family == "injection" else {}
        fields: dict[str, Any] = {
            "id": f"{''.join(text.split())}-{n}",
            "family": family,
            "kind": "control" if n == len(FAMILIES) else f"kind {text}",
            "input": f"input {text}",
            "good": f"good {text}",
            "bad": f"bad {text} {n}",
            **attack,
        }
        found.append(CardCase(**fields))
    return found


async def card_with(text: str, *, failing: str = "", refused: str = "") -> Card:
    """Made by a judge that prefers what stands first."""

    async def judge(case: Case) -> Judged:
        if failing and failing in case.id:
            raise AnswerError(f"no use {text}")
        if refused and refused in case.id:
            raise InputError(f"not taken {text}")
        seed = int(case.parameters.get("seed", 0))
        scores = (0.9 - 0.1 * seed, 0.25)
        return Judged(tuple(EvaluationResult(s, s >= 0.5) for s in scores))

    return await make_card(judge, cases_with(text), name=f"judge {text}")


def page_of(card: Card, path: Path, text: str = "plain") -> str:
    said = {check.family: explain_check(check) for check in card.checks}
    facts = {f"a {text}": text, **{reason.kind: reason.reason for reason in card.reasons}}
    write_card_page(card, path, explain_card(card), said, facts)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_adds_no_element_and_no_attribute(tmp_path: Path, text: str) -> None:
    pages = [
        page_of(await card_with(word, failing="-1/", refused="-3/"), tmp_path / "c.html", word)
        for word in ("plain", text)
    ]
    plain, attacked = (Outline(page) for page in pages)
    assert attacked.elements == plain.elements
    assert {tag for tag, _ in attacked.elements} <= ALLOWED
    for name, value in attacked.attributes:
        assert not name.startswith("on")
        assert name not in ("style", "src", "srcset", "action", "href", "xlink:href")
        assert name != "id" or value in FAMILIES
    assert not {"\x1b", "\x00", "\u202e"} & set(attacked.text)


@pytest.mark.parametrize("text", HOSTILE[:6])
async def test_hostile_text_is_shown_as_it_is(tmp_path: Path, text: str) -> None:
    shown = Outline(page_of(await card_with(text, failing="-1/"), tmp_path / "c.html", text)).text
    for place in ("judge", "input", "good", "bad", "attack", "kind", "no use", "a"):
        assert f"{place} {text}" in shown, place


async def test_nothing_is_loaded_and_no_script_may_run(tmp_path: Path) -> None:
    page = page_of(await card_with("plain"), tmp_path / "c.html")
    outline = Outline(page)
    policy = next(v for n, v in outline.attributes if n == "content" and v and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "script" not in {tag for tag, _ in outline.elements}
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)


async def test_every_figure_is_there_with_its_interval_and_what_it_means(tmp_path: Path) -> None:
    card = await card_with("plain")
    page = page_of(card, tmp_path / "c.html")
    text = Outline(page).text
    for check in card.checks:
        assert explain_check(check) in text
        for rate in check.rates:
            if rate.interval is None or rate.rate is None:
                assert f"{rate.name} – nothing could be counted – 0 of 0 – {rate.wanted}" in text
                continue
            low, high = (f"{end * 100:.0f}" for end in rate.interval)
            row = f"{low} to {high} % {rate.hits} of {rate.count} 100 % {rate.wanted}"
            assert f"{row} {rate.meaning}" in text, rate.name
            assert f"{rate.name} {rate.rate * 100:.0f} %" in text, rate.name
        for figure in check.figures:
            assert f"{figure.name} {'–' if figure.value is None else f'{figure.value:.3f}'}" in text
        for example in check.examples:
            assert example.said in text
    assert "a fault: standing first is worth +0.650 here" in text
    assert "better one first 0.900 0.250" in text
    assert "with the attack, worse one first 0.250 0.900" in text
    assert "better one first, seed 2 0.700 0.250" in text


async def test_charts_are_well_formed_and_within_their_frame(tmp_path: Path) -> None:
    page = page_of(await card_with("plain"), tmp_path / "c.html")
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert charts
    for chart in charts:
        root = ElementTree.fromstring(chart)
        for part in root:
            for name in ("x", "cx", "x1", "x2"):
                assert 0 <= float(part.get(name, 0)) <= float(root.get("width", 0))


async def test_what_is_missing_has_no_number_and_no_mark(tmp_path: Path) -> None:
    card = await card_with("plain", failing="-1/", refused="-3/")
    assert (card.failed, card.refused) == (2, 2)
    page = page_of(card, tmp_path / "c.html")
    text = Outline(page).text
    assert "longer-wins –" in text
    assert "nothing could be counted" in page
    assert "Nothing can be said: every judgement of this family is missing." in text
    assert "Nothing can be said: every judgement of this family is refused by the judge." in text
    assert "0 answered, 2 missing; coverage 0 %" in text
    assert "0 answered, 2 refused; coverage –" in text


async def test_half_a_pair_says_nothing(tmp_path: Path) -> None:
    text = Outline(page_of(await card_with("plain", failing="-1/good"), tmp_path / "c.html")).text
    assert "Nothing can be said: of no case are all judgements there." in text


async def test_a_card_read_back_makes_the_same_page(tmp_path: Path) -> None:
    card = await card_with("plain")
    page = page_of(card, tmp_path / "a.html")
    assert page_of(Card.from_json(card.to_json()), tmp_path / "b.html") == page


async def test_long_texts_are_cut_and_it_says_so(tmp_path: Path) -> None:
    card = await card_with("plain")
    first = card.checks[0]
    long = replace(first.examples[0], bad="x" * 50_000)
    card = replace(card, checks=(replace(first, examples=(long,)),))
    assert "30,000 more characters" in page_of(card, tmp_path / "c.html")


async def test_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        page_of(await card_with("plain"), tmp_path / "none" / "c.html")
