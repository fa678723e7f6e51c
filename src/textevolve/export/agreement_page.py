"""How far judges agree with people as one self-contained HTML file: no script, nothing loaded.

Figures and disagreements are found elsewhere; here they are only laid out. Each text is there once,
however many judges it divides from people, and is cut where it is long. Everything from an item or
a judge passes through the templates' escaping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from textevolve.export import wording
from textevolve.export.files import open_target
from textevolve.export.pages import open_template

if TYPE_CHECKING:
    from textevolve.bench.disagreements import Disagreements
    from textevolve.bench.summary import AgreementSummary, JudgeSummary
    from textevolve.bench.verdicts import Outcome
    from textevolve.statistics.intervals import Interval

TEXT_SHOWN = 4000


def write_agreement_page(
    summary: AgreementSummary,
    found: Disagreements,
    path: str | Path,
    *,
    title: str,
    sentence: str = "",
    samples: Mapping[str, int] | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write the page. `sentence` is said on top of it, `facts` are shown as given, each under its
    name; `samples`: how many each judge gave.

    Raises:
        InputError: the file cannot be written.
    """
    parts = open_template("agreement.html").generate(
        title=title,
        sentence=sentence,
        summary=summary,
        found=found,
        samples=samples or {},
        facts=facts or {},
        places={disputed.item.id: n for n, disputed in enumerate(found.items, 1)},
        ends=_ends,
        accuracy_ends=_accuracy_ends,
        chose=_chose,
        stated=_stated,
        cut=_cut,
        p_value=_p_value,
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))


def _ends(interval: Interval, digits: int = 0) -> str:
    if math.isnan(interval.low):
        return "–"
    return f"{100 * interval.low:.{digits}f} to {100 * interval.high:.{digits}f}"


def _accuracy_ends(judge: JudgeSummary) -> str:
    drawn = judge.accuracy.interval
    return _ends(judge.wilson if math.isnan(drawn.low) else drawn)


def _chose(winner: int | None) -> str:
    """A winner as a letter; below 0 it is a tie."""
    if winner is None:
        return "–"
    return "tie" if winner < 0 else wording.letter(winner)


def _stated(outcome: Outcome, order: str, candidate: int) -> str:
    """What a judge gave a candidate in one order, in its own unit."""
    scores = dict(outcome.means).get(order)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return "–" if scores is None else f"{scores[candidate]:.3g}"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else wording.figure(p, 3)


def _cut(text: str) -> str:
    if len(text) <= TEXT_SHOWN:
        return text
    return f"{text[:TEXT_SHOWN]}… ({len(text) - TEXT_SHOWN:,} more characters)"
