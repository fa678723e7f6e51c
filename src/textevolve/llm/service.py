"""A client of any HTTP service that takes and gives JSON, such as a memory system; no model.

The connections are those of `client`, with its time-outs, its proxies and its care for the key. One
call is one attempt: who wants another wraps it, as with models.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Self

from pydantic import SecretStr
from yarl import URL

from textevolve.errors import AccessError, ModelError, RejectedError, UnavailableError
from textevolve.llm.connections import Http
from textevolve.llm.keys import Key
from textevolve.llm.refusals import Refusal, one_line, read_refusal, retry_after
from textevolve.llm.wire import encode
from textevolve.settings import LARGEST_ANSWER, Timeouts


class JsonService:
    """A service at an address. Use it in `async with`, or call `aclose` at the end.

    Until something was answered, a 404 is an `AccessError`, for the address is wrong; later it is a
    `RejectedError`, for it may mean what was asked for.
    """

    def __init__(
        self,
        base_url: str,
        *,
        name: str,
        key: Key | SecretStr | None = None,
        timeouts: Timeouts | None = None,
        largest_answer: int = LARGEST_ANSWER,
        connections: int = 128,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.name = name
        limits = timeouts or Timeouts()
        self._http = Http(name, self.base_url, key, limits, connections, largest_answer)
        self._reached = False

    def __repr__(self) -> str:
        return f"JsonService({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        """What the service answers to a JSON body, read from JSON.

        Raises:
            UnavailableError: worth another try, also an answer that is no JSON.
            AccessError: the key or the address is wrong.
            RejectedError: the service refuses this one request.
            AnswerError: more than `largest_answer` MiB came.
        """
        url = URL(self.base_url + path)
        status, said, raw = await self._http.exchange("POST", url, encode(body), headers)
        if not 200 <= status < 300:
            refusal, wait = read_refusal(raw), retry_after(said)
            raise self._failure(path, status, refusal, wait, self._http.secrets)
        self._reached = True
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            pass  # raised below, so that no error of ours refers to one that holds the answer
        raise UnavailableError(f"{self.name}{path}: answered no JSON: {self._http.say(raw)}")

    def _failure(
        self,
        path: str,
        status: int,
        refusal: Refusal,
        wait: float | None,
        secrets: Collection[str],
    ) -> ModelError:
        where = f"{self.name}{path}"
        said = one_line(refusal.message, secrets) or "no reason given"
        if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
            return UnavailableError(f"{where}: {status}: {said}", status=status, retry_after=wait)
        if status in (401, 403):
            return AccessError(f"{where}: the service refuses the key ({status}): {said}")
        if 300 <= status < 400:
            return AccessError(f"{where}: it has moved ({status}); give the new address")
        if status in (404, 405, 501) and not self._reached:
            return AccessError(f"{where}: no such address ({status}): {said}; check it")
        return RejectedError(f"{where}: the service rejects the request ({status}): {said}")
