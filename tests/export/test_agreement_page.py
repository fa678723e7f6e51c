"""The page of disagreements: nothing in it is obeyed or fetched, and it stays small."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pages import ALLOWED, HOSTILE, Outline
from textevolve.bench.agreement import summarise
from textevolve.bench.disagreements import find_disagreements
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict
from textevolve.evaluation import Failure, Usage
from textevolve.export.agreement_page import TEXT_SHOWN, write_agreement_page


def page_of(path: Path, text: str = "plain", number: int = 3, **more: Any) -> str:
    """A page with the text in every field that can hold any: one item each right, wrong and
    turning with the order, a judge that fails, and so on round."""
    items = [
        Item(f"{n} {text}", f"input {text}", (f"a {text}", f"b {text}"), (1.0, 0.0), "", text)
        for n in range(number)
    ]
    items[0] = Item(items[0].id, items[0].input, items[0].candidates, (0.5, 0.5), "", "other")
    verdicts: list[Verdict] = []
    for n, item in enumerate(items):
        for order in ("given", "reversed"):
            turned = n % 3 == 2 and order == "reversed"
            scores = (0.2, 0.7) if n % 3 == 1 or turned else (0.7, 0.2)
            verdicts.append(Verdict(f"one {text}", item.id, order, scores, Usage(1, 10)))
            failure = Failure("failed", f"no use {text}")
            made = Verdict(f"two {text}", item.id, order, (None, None), failure=failure)
            verdicts.append(made if n else Verdict(made.judge, item.id, order, (0.7, 0.2)))
    summary = summarise(items, verdicts)
    write_agreement_page(
        summary,
        find_disagreements(items, verdicts, **more),
        path,
        title=text,
        sentence=text,
        samples={f"one {text}": 2},
        facts={f"fact {text}": text},
    )
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_element_and_no_attribute(tmp_path: Path, text: str) -> None:
    plain = Outline(page_of(tmp_path / "p.html"))
    attacked = Outline(page_of(tmp_path / "a.html", text))
    assert attacked.elements == plain.elements
    assert {tag for tag, _ in attacked.elements} <= ALLOWED
    for name, value in attacked.attributes:
        assert not name.startswith("on")
        assert name not in ("style", "src", "srcset", "action", "fill")
        assert name != "href" or re.fullmatch(r"#(item|judge)-\d+", value or "")
    assert not {"\x1b", "\x00", "\u202e"} & set(attacked.text)


def test_disagreements_and_flips_can_be_read(tmp_path: Path) -> None:
    page = page_of(tmp_path / "p.html")
    outline = Outline(page)
    assert "not as people say on 3 items 1 flip by order" in outline.text
    assert "people tie, judge A" in outline.text
    assert "people A, judge B" in outline.text
    assert "flips with the order" in outline.text
    assert "flips: A as given, B reversed" in outline.text
    assert "no use plain" in outline.text
    assert "always the shorter text" in outline.text
    targets = {value for name, value in outline.attributes if name == "id"}
    links = {str(value)[1:] for name, value in outline.attributes if name == "href"}
    assert links <= targets
    assert "//" not in page


def test_a_page_of_many_items_stays_small_and_says_so(tmp_path: Path) -> None:
    long = "word " * 2000
    page = page_of(tmp_path / "p.html", number=3000, most=20)
    assert len(page) < 200_000
    assert "Listed here: 20 of them, the worst first" in Outline(page).text
    cut = Outline(page_of(tmp_path / "p.html", long)).text
    assert f"({len('a ' + long) - TEXT_SHOWN:,} more characters)" in cut
