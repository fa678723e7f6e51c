"""What the sources of weights have in common: reporting, stopping, and giving up on a source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from textevolve.errors import FatalModelError

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` and `total` in bytes. `note` is a sentence for the user; most reports have none."""

    name: str
    source: str
    done: int
    total: int
    note: str = ""


ReportProgress = Callable[[Progress], None]


def no_report(_progress: Progress) -> None:
    """Nobody is told."""


class SourceError(Exception):
    """This source cannot give the file; the next one is tried."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One attempt to get a file of `total` bytes from `source`, in words, and who is told.

    The reports may come from any thread. When `stop` is set, the work ends soon after; what has
    arrived stays.
    """

    name: str
    source: str
    total: int
    report: ReportProgress = no_report
    stop: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: int, note: str = "") -> None:
        self.report(Progress(self.name, self.source, min(done, self.total), self.total, note))

    def heed_stop(self) -> None:
        """Raises FatalModelError when the user has stopped the download."""
        if self.stop.is_set():
            raise FatalModelError(
                f"{self.name}: the download was stopped; what has arrived is kept for the next time"
            )
