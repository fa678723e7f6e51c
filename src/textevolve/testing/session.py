"""One test session: its options, its current test, and the run that stores its judgements.

Nothing heavy is imported or created before the first text is judged, since most sessions judge
none.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textevolve.errors import InputError

if TYPE_CHECKING:
    from textevolve.settings import Settings
    from textevolve.testing.judging import AssertionRun


@dataclass(frozen=True)
class SessionOptions:
    """The options of a test session.

    Attributes:
        start: The working folder at the start of the session.
        judge: The judge for tests that name none.
        model: The model that judges call.
        min_score: The score in [0, 1] that texts must reach if a test sets none.
        max_cost: The limit on the cost, in US dollars.
        store: The address of the store.
    """

    start: Path
    judge: str | None = None
    model: str | None = None
    min_score: float | None = None
    max_cost: float | None = None
    store: str | None = None


class JudgingSession:
    """A test session that judges texts. `key`: the key of the session, the same in all its
    processes. `run_id`: the id of its run, which another process may have created; empty until a
    text is judged."""

    def __init__(self, key: str, options: SessionOptions) -> None:
        self.options = options
        self.run_id = ""
        self._key = key
        self._guard = threading.Lock()
        self._run: AssertionRun | None = None
        self._test = "outside of a test"
        self._judged = 0
        self._all = 0

    def begin_test(self, name: str) -> None:
        """Set the test to which the following judgements belong."""
        with self._guard:
            self._test = name
            self._judged = 0

    def name_next(self) -> tuple[str, int]:
        """Return the id of the next judgement, such as `test_tides.py::test_cause #2`, and its
        number in the session."""
        with self._guard:
            self._judged += 1
            self._all += 1
            again = f" #{self._judged}" if self._judged > 1 else ""
            return f"{self._test}{again}", self._all

    def read_settings(self) -> Settings:
        """Return the settings, read in the folder where the session was started.

        Raises:
            SettingsError: a file or a value cannot be used.
        """
        from textevolve.settings import read_settings

        with contextlib.chdir(self.options.start):  # a test may be in another folder by now
            settings = read_settings(model=self.options.model, store=self.options.store)
            if isinstance(settings.store, Path):
                store = settings.store.expanduser().absolute()
                settings = settings.model_copy(update={"store": store})
            return settings

    def open(self) -> AssertionRun:
        """Return the run of the session, which opens models and the store with its first text."""
        from textevolve.testing.judging import AssertionRun, Limits

        with self._guard:
            if self._run is None:
                limits = Limits(cost=self.options.max_cost)
                self._run = AssertionRun(
                    self._key, self.read_settings(), self.options.judge, limits
                )

            return self._run

    def find_run(self) -> str:
        """Return the id of the run; empty before a text is judged."""
        self.run_id = (self._run.id if self._run is not None else "") or self.run_id
        return self.run_id

    def close(self) -> None:
        """Close the models and the store, which keeps the run."""
        if self._run is not None:
            self._run.kept.close()


sessions: list[JudgingSession] = []
"""The running sessions. If pytest runs inside pytest, the last one is the current one."""


def find_session() -> JudgingSession:
    """Return the current (innermost) test session.

    Raises:
        InputError: no test session is running.
    """
    if not sessions:
        raise InputError(
            "assertions of texts need a running session of pytest; elsewhere judge texts with"
            " textevolve.evaluate(input, output, judge=...)"
        )

    return sessions[-1]
