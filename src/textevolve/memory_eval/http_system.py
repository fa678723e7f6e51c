"""A memory system that is a service over HTTP. docs/memory-eval.md describes the three requests;
examples/memory_server.py is a reference server.

    POST /add     {user, dialogue: [{role, content, timestamp}]}  ->  {memories: [text]}
    POST /search  {user, query, limit}                            ->  {memories: [text]}
    POST /answer  {question, memories}                            ->  {answer: text}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from textevolve.addresses import is_loopback
from textevolve.errors import InputError
from textevolve.evaluation import Usage
from textevolve.json_texts import is_object
from textevolve.llm.connections import JsonService
from textevolve.llm.limiting import Limited
from textevolve.llm.model import Message, Request, Response, text_hash
from textevolve.llm.providers import find_key, refuse_login, split_address
from textevolve.llm.wrappers import Retrying
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.systems import (
    Capabilities,
    MemorySystem,
    read_answer_text,
    read_capabilities,
    read_memories,
)
from textevolve.reach import check_address
from textevolve.settings import Settings

KEY = "TEXTEVOLVE_MEMORY_KEY"
"""The environment variable with the key for a memory service; the key is sent nowhere else."""
IN_FLIGHT = 32
"""The maximum number of concurrent requests."""


def open_http(address: str, settings: Settings) -> HttpSystem:
    """Open the service at `address`. The fragment of the address changes its capabilities:
    `#answers`, `#no-extracts`, `#no-searches`, `#no-durable`, separated by commas.

    Raises:
        InputError: no such address or capability. SettingsError: its key cannot be used.
    """
    base, _, fragment = address.partition("#")
    base = _read_address(base)
    check_address(base)
    flags = {"durable": True}
    for word in filter(None, (word.strip() for word in fragment.split(","))):
        flags[word.removeprefix("no-")] = not word.startswith("no-")
    service = JsonService(
        base,
        name=f"http:{base}",
        key=find_key(urlsplit(base).netloc, KEY, ask_keyring=not is_loopback(base)),
        timeouts=settings.timeouts,
        largest_answer=settings.largest_answer,
    )

    return HttpSystem(service, read_capabilities(flags, f"#{fragment}"), settings)


class HttpSystem(MemorySystem):
    """A memory system behind HTTP. Requests that fail temporarily are repeated.

    A request to `/add` has an `Idempotency-Key`, a hash of its content, by which the service can
    recognise a repetition. Other requests have none, since the same question may have another
    answer after the next session.
    """

    def __init__(self, service: JsonService, can: Capabilities, settings: Settings) -> None:
        self.name = service.name
        self.capabilities = can
        self._service = service
        most = settings.concurrency or IN_FLIGHT
        posting = Limited(_Posting(service), min(most, IN_FLIGHT), most=most)
        self._model = Retrying(posting, settings.retries, settings.timeouts.deadline)

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        answer = await self._ask("/add", {"user": user, "dialogue": list(map(asdict, dialogue))})
        return read_memories(answer, f"{self.name}/add") if self.capabilities.extracts else ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        answer = await self._ask("/search", {"user": user, "query": query, "limit": limit})
        return read_memories(answer, f"{self.name}/search")[:limit]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        answer = await self._ask("/answer", {"question": question, "memories": list(memories)})
        if is_object(answer):
            answer = answer.get("answer")
        return read_answer_text(answer, f"{self.name}/answer")

    async def aclose(self) -> None:
        await self._service.aclose()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        parts = (Message("system", (path,)), Message("user", (json.dumps(body),)))
        return json.loads((await self._model(Request(messages=parts))).text)


class _Posting:
    """The service as a `Model`, so that requests get the retries and limits of models: the messages
    are the path and the body of a request, and the answer is JSON."""

    def __init__(self, service: JsonService) -> None:
        self.name = service.name
        self._service = service

    async def __call__(self, request: Request, /) -> Response:
        path, body = (message.text for message in request.messages)
        key = text_hash(f"{path}\n{body}")
        headers = {"Idempotency-Key": key} if path == "/add" else None
        answer = await self._service.post(path, json.loads(body), headers)
        return Response(json.dumps(answer), "stop", Usage())


def _read_address(address: str) -> str:
    if (parts := split_address(address)) is None:
        raise InputError("the memory service's address is not of the form http(s)://host[:port]")
    refuse_login(parts, f"set a key in {KEY} instead")

    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
