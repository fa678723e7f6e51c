"""What differs between the databases that keep runs and their calls; all other code is the same.

A backend opens connections, says what an error means, and has the two ways that are taken for each
call: a group of finished calls goes in, and answers are looked up. `store/dialects.py` has the SQL
that is written differently in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.settings import StoreLocation

T = TypeVar("T")

CALL_COLUMNS = (
    "run_id, key, model, started, seconds, attempts, prompt_tokens, cached_tokens, "
    "completion_tokens, cost, parts, request, error, response, saved"
)

Spoiled: TypeAlias = Literal["store", "group", "row"]
"""What an error spoils: all that is written from now on, the group that was to be written, or only
the row that cannot be kept."""


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What goes in together. `calls` has the values of `CALL_COLUMNS`; of `texts` and `reuses` some
    may be there already."""

    texts: Sequence[tuple[bytes, int, bytes]]
    calls: Sequence[tuple[Any, ...]]
    reuses: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """`rows`: of each key the best answer for the run last: key, id, prompt, cached and completion
    tokens, cost, saved, response, and whether it is the run's own or was found by it before.
    `claimed`: keys that another process or run is asking."""

    rows: Sequence[tuple[Any, ...]]
    claimed: Collection[str] = ()


class Reader(Protocol):
    """A connection that only reads; one thread at a time may use it."""

    @property
    def closed(self) -> bool: ...

    def read(self, query: Callable[[Connection], T]) -> T:
        """The query may be made again where the connection is lost."""
        ...

    def close(self) -> None: ...


class WriteSession(Protocol):
    """The connection that writes; one thread at a time may use it."""

    def change(self, change: Callable[[Connection], T], run_id: str | None) -> T:
        """Make a change in a transaction of its own; it is kept when this returns. Of changes with
        the same `run_id` one is made after the other, and of those without one nothing else is
        written meanwhile."""
        ...

    def insert(self, fill: Callable[[int], GroupRows]) -> None:
        """Keep rows in one transaction. `fill` is told the number of the last sweep of texts, and
        may be called again."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """`location`: shown, it holds no password. `errors`: what may be raised by its connections.
    `remote`: a question may take as long as a network does, so no event loop may wait for it."""

    @property
    def location(self) -> StoreLocation: ...
    @property
    def errors(self) -> tuple[type[Exception], ...]: ...
    @property
    def remote(self) -> bool: ...

    def open_reader(self) -> Reader: ...

    def open_session(self) -> WriteSession: ...

    def explain(self, error: Exception, run_id: str = "") -> StoreError:
        """What an error means for the user, in one line; `run_id`: whose data were read."""
        ...

    def judge(self, error: Exception) -> Spoiled: ...

    def find_answers(
        self, connection: Connection, run_id: str, keys: Sequence[str], done: Sequence[str]
    ) -> FoundAnswers:
        """The answers that are kept under the keys, and what others are asking just now. `done`:
        questions that this process asks no more."""
        ...

    def close(self) -> None: ...
