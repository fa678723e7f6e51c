"""Modules that some options of a command need, and that are imported when one of them is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textevolve.loading import late_module

if TYPE_CHECKING:
    from textevolve.llm.batches import gathering as gathering
    from textevolve.remote import runs as remote_runs  # pyright: ignore[reportUnusedImport]
    from textevolve.remote import trackers as trackers
    from textevolve.runs import estimate as estimate
else:
    gathering = late_module("textevolve.llm.batches.gathering")
    remote_runs = late_module("textevolve.remote.runs")
    trackers = late_module("textevolve.remote.trackers")
    estimate = late_module("textevolve.runs.estimate")
