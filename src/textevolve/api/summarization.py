"""Summarise texts of any length, async and sync."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textevolve.api.running import arun, in_sync, split_keywords, takes_fields
from textevolve.studies.summarize import SummarizeSpec, Summary, as_cases


@takes_fields(SummarizeSpec)
async def asummarize(texts: str | Iterable[str], budget: int = 400, **fields: Any) -> Summary:
    """One summary of all texts, in at most `budget` tokens, as `count_tokens` has them.

    What fits as it is comes back unchanged and without a call. The other names are those of
    `SummarizeSpec` and `RunKeywords`. The same call again is answered from the store.

    Raises:
        InputError: there is no text, or a number cannot be used.
        AnswerError: no part of the text has an answer. BudgetError: a limit was reached before.
    """
    own, keywords = split_keywords(SummarizeSpec, fields)
    cases = as_cases([texts] if isinstance(texts, str) else texts)
    spec = SummarizeSpec(budget=budget, **own)
    found: Summary = await arun(spec, cases=cases, **keywords)
    found.require()
    return found


summarize = in_sync(asummarize)
