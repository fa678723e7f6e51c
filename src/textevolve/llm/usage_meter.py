"""A model that adds up what is used through it: by a turn, a judge, a step of a loop."""

from __future__ import annotations

from textevolve.evaluation import Usage
from textevolve.llm.model import Model, Request, Response


class UsageMeter:
    """Passes requests on; `usage` and `seconds` are sums over all answers, unusable too."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.usage = Usage()
        self.seconds = 0.0

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        response = await self.model(request)
        self.usage += response.usage
        self.seconds += response.seconds
        return response
