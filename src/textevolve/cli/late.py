"""Modules that some options of a command need, and that are imported when one of them is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textevolve.loading import LateModule

if TYPE_CHECKING:
    from textevolve.llm.batches import gathering as gathering
    from textevolve.remote import runs as remote_runs  # pyright: ignore[reportUnusedImport]
    from textevolve.remote import trackers as trackers
    from textevolve.runs import estimate as estimate
else:
    gathering = LateModule("textevolve.llm.batches.gathering")
    remote_runs = LateModule("textevolve.remote.runs")
    trackers = LateModule("textevolve.remote.trackers")
    estimate = LateModule("textevolve.runs.estimate")
