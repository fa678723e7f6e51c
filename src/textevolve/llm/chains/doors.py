"""What programs of others ask through: a chain, or a model, that somebody keeps open for them.

Who opens it is the business of `textevolve.api.chains`; `langchain_runnables` and `dspy_modules`
give it the shapes that their programs know.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from textevolve.llm.chains.chain import Chain, Values
from textevolve.llm.model import Request, Response
from textevolve.llm.streaming import PieceListener


class ChainDoor(Protocol):
    """A chain whose models are open. Errors are raised as they are, and who is cancelled cancels
    the chain."""

    @property
    def chain(self) -> Chain: ...

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The outputs, waited for; also where an event loop runs."""
        ...

    async def acall(self, **values: Any) -> dict[str, Any]: ...

    def astream(self, values: Values) -> AsyncGenerator[tuple[str, Any]]:
        """Pieces of the outputs as they are written, each with the name of its output; of what is
        not written bit by bit the whole at the end."""
        ...


class ModelDoor(Protocol):
    """A model that is open. Within a step of a running chain it is that chain's, with its journal,
    its limits and its count of calls."""

    @property
    def name(self) -> str: ...

    async def ask(self, request: Request, heard: PieceListener | None = None) -> Response: ...

    def wait(self, request: Request) -> Response:
        """The answer, waited for by plain code."""
        ...
