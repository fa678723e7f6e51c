"""`compare_quants`, async and sync: what a quantised model loses, and what it gains."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from textevolve.api.running import arun, in_sync, split_keywords, takes_fields
from textevolve.studies.compare_quants import CompareQuantsSpec, QuantComparison


@takes_fields(CompareQuantsSpec)
async def acompare_quants(
    original: str | Path, quants: Iterable[str | Path], **fields: Any
) -> QuantComparison:
    """Compare quantised models with their original: perplexity, judgements, speed and size.

        found = compare_quants("m-f16.gguf", ["m-q8_0.gguf"], text="text.md", data="rows.jsonl")
        found.models[1].times, found.models[1].same_verdict, found.models[1].writing_times

    Models are files or names. The other names are those of `CompareQuantsSpec` and `RunKeywords`.
    The same call again is answered from the store.

    Raises:
        InputError: a file, a text or a row cannot be used.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    own, keywords = split_keywords(CompareQuantsSpec, fields)
    spec = CompareQuantsSpec(original=str(original), quants=tuple(map(str, quants)), **own)
    found: QuantComparison = await arun(spec, **keywords)
    return found


compare_quants = in_sync(acompare_quants)
