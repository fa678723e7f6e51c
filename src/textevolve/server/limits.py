"""How much a key and a namespace may take: requests, tokens, streams. Here without limits."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from textevolve.server.access import Caller


class UsageLimits:
    """A caller without a limit is never held."""

    async def check_tokens(self, caller: Caller, namespace: str = "") -> None:
        """
        Raises:
            ApiError: 429, the tokens of the key's minute or of the namespace's day are spent.
        """

    def note_tokens(self, caller: Caller, tokens: int, namespace: str = "") -> None:
        """What models read and wrote for a caller."""

    @contextmanager
    def stream_place(self, caller: Caller) -> Generator[None]:
        """Around an answer that comes as a stream.

        Raises:
            ApiError: 429, the key holds as many as it may.
        """
        yield
