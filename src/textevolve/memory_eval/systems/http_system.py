"""A memory system behind HTTP, by a small contract: docs/memory-systems.md, and a reference server
in examples/memory_server.py.

    POST /add     {user, dialogue: [{role, content, timestamp}]}  ->  {memories: [text]}
    POST /search  {user, query, limit}                            ->  {memories: [text]}
    POST /answer  {question, memories}                            ->  {answer: text}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast
from urllib.parse import urlsplit

from textevolve.errors import InputError
from textevolve.evaluation import Usage
from textevolve.llm.connections import JsonService
from textevolve.llm.keys import find_key
from textevolve.llm.limiting import Limited
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.providers import is_loopback, split_address
from textevolve.llm.wrappers import Retrying
from textevolve.memory_eval.dialogues import DialogueTurn
from textevolve.memory_eval.system import Capabilities
from textevolve.memory_eval.systems.adapter import read_answer, read_memories
from textevolve.reach import check_address
from textevolve.settings import Settings

KEY = "TEXTEVOLVE_MEMORY_KEY"
"""The variable whose key is sent to a memory service, and to nothing else."""
IN_FLIGHT = 32
DURABLE = Capabilities(durable=True)


def open_http(address: str, settings: Settings) -> HttpSystem:
    """The service at `address`. A fragment says what it can, other than adding, searching and
    keeping: `#answers`, `#no-extracts`, `#no-searches`, `#no-durable`, with commas between.

    Raises:
        InputError: no such address or capability. SettingsError: its key cannot be used.
    """
    base, _, said = address.partition("#")
    base = _read_address(base)
    check_address(base)
    host = urlsplit(base).netloc
    key = find_key(host, KEY, ask_keyring=not is_loopback(base))
    capabilities = _read_flags(said) if said else DURABLE
    service = JsonService(
        base,
        name=f"http:{base}",
        key=key,
        timeouts=settings.timeouts,
        largest_answer=settings.largest_answer,
    )
    most = settings.concurrency or IN_FLIGHT
    model = Limited(_Posting(service), min(most, IN_FLIGHT), most=most)
    retrying = Retrying(model, settings.retries, settings.timeouts.deadline)
    return HttpSystem(service, retrying, capabilities)


@dataclass(frozen=True, slots=True)
class HttpSystem:
    """A call that fails for a while is tried again. What adds has an `Idempotency-Key`, a hash of
    what is sent, by which a service can know that it has done this already; what only asks has
    none, for the same question has another answer after the next session."""

    service: JsonService
    model: Model
    capabilities: Capabilities = DURABLE

    @property
    def name(self) -> str:
        return self.service.name

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        turns = [
            {"role": turn.role, "content": turn.content, "timestamp": turn.timestamp}
            for turn in dialogue
        ]
        given = await self._ask("/add", {"user": user, "dialogue": turns})
        if not self.capabilities.extracts:
            return ()
        return self._memories("/add", given)

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        given = await self._ask("/search", {"user": user, "query": query, "limit": limit})
        return self._memories("/search", given)[:limit]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        given = await self._ask("/answer", {"question": question, "memories": list(memories)})
        if isinstance(given, dict):
            given = cast("dict[str, Any]", given).get("answer")
        return read_answer(given, f"{self.name}/answer")

    async def aclose(self) -> None:
        await self.service.aclose()

    def _memories(self, path: str, given: Any) -> tuple[str, ...]:
        return read_memories(given, f"{self.name}{path}")

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        parts = (Message("system", (path,)), Message("user", (json.dumps(body),)))
        response = await self.model(Request(messages=parts))
        return json.loads(response.text)


@dataclass(frozen=True, slots=True)
class _Posting:
    """The service as a `Model`, so that retries and limits around models serve it, too: the path
    and the body are the messages, the answer is JSON."""

    service: JsonService

    @property
    def name(self) -> str:
        return self.service.name

    async def __call__(self, request: Request, /) -> Response:
        path, body = (message.text for message in request.messages)
        key = hashlib.sha256(f"{path}\n{body}".encode()).hexdigest()
        headers = {"Idempotency-Key": key} if path == "/add" else None
        given = await self.service.post(path, json.loads(body), headers)
        return Response(json.dumps(given), "stop", Usage())


def _read_address(address: str) -> str:
    if (parts := split_address(address)) is None:
        raise InputError("the memory service's address is not of the form http(s)://host[:port]")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of {parts.hostname} holds a user name or password; take it out and give"
            f" a key in {KEY} instead"
        )
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def _read_flags(text: str) -> Capabilities:
    known = [each.name for each in fields(Capabilities)]
    flags = {"durable": True}
    for word in text.split(","):
        name = word.strip().removeprefix("no-")
        if name not in known:
            raise InputError(
                f"#{text}: no capability '{name}'; there are {', '.join(known)}, and no-NAME"
            )
        flags[name] = not word.strip().startswith("no-")
    return Capabilities(**flags)
