"""The open-source package mem0 as a memory system, with a local store, and models at any
OpenAI-compatible endpoint.

Only this module imports mem0, and only for the first operation. By default mem0 writes into the
home folder and reports its use to its makers; here it does neither.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from textevolve.errors import (
    AnswerError,
    InputError,
    SettingsError,
    UnavailableError,
    describe_error,
)
from textevolve.json_texts import is_mapping, is_object
from textevolve.llm.model import text_hash
from textevolve.llm.providers import LOCAL, resolve
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.systems import Capabilities, MemorySystem, Worker, read_memories
from textevolve.rows import read_text
from textevolve.settings import Settings, folder_beside
from textevolve.texts.yaml_lines import parse_yaml

T = TypeVar("T")

MODEL = "TEXTEVOLVE_MEM0_MODEL"
EMBEDDER = "TEXTEVOLVE_MEM0_EMBEDDER"
"""The environment variables that name mem0's two models, by their specs."""
DEFAULT_EMBEDDER = "text-embedding-3-small"
TURNS = 20
"""The number of turns that mem0 gets at once. For a longer dialogue its `max_tokens` would truncate
the list of extracted memories."""
CLOSING = 5.0
"""The maximum number of seconds for closing a store."""
LOGGER = logging.getLogger("mem0")
LOSSES = ("Error parsing", "Failed to embed", "Failed to insert")
"""The beginnings of mem0's log messages when it drops an answer or a memory that it could not
store."""


def read_configuration(path: str | None, settings: Settings) -> dict[str, Any]:
    """Return mem0's configuration: that of a file, or our models at their endpoints.

    Raises:
        InputError: the file cannot be used. SettingsError: no model is named for mem0, or its key
            is missing.
    """
    if path:
        _, file = parse_yaml(read_text(path), path)
        if not is_object(file) or not all(
            isinstance(file.get(part), dict) for part in ("llm", "embedder")
        ):
            raise InputError(f"{path}: must be mem0's configuration, with llm and embedder in it")

        return file

    chat = os.environ.get(MODEL) or settings.model
    embedder = os.environ.get(EMBEDDER)
    config: dict[str, Any] = {}
    models = {"llm": (MODEL, chat), "embedder": (EMBEDDER, embedder or chat)}

    for part, (variable, spec) in models.items():
        if spec is None or spec.strip().split("/")[0] == LOCAL:
            missing = "none is named" if spec is None else f"{spec} runs inside this program"
            raise SettingsError(
                f"mem0: {part}: {missing}; set {variable} to a model at an address, such as"
                " openai/NAME"
            )

        endpoint = resolve(spec, settings)
        endpoint = endpoint.members[0] if endpoint.members else endpoint
        key = endpoint.key
        config[part] = {
            "provider": "openai",
            "config": {
                "model": endpoint.model,
                "openai_base_url": endpoint.base_url,
                "api_key": key.secret.get_secret_value().strip() if key else "none",
            },
        }

    if embedder is None:
        config["embedder"]["config"]["model"] = DEFAULT_EMBEDDER

    return config


def keys_in(value: Any) -> list[str]:
    """Return each `api_key` in a configuration that has at least 8 characters."""
    if not is_mapping(value):
        return []
    keys = [key for part in value.values() for key in keys_in(part)]
    key = value.get("api_key")
    return [*keys, key] if isinstance(key, str) and len(key) >= 8 else keys


class _Losses(logging.Handler):
    """Collects the losses of memories that mem0 only logs, in the current thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and record.getMessage().startswith(LOSSES):
            self.messages.append(record.getMessage())


class Mem0System(MemorySystem):
    """The package mem0 as a memory system. Each user has a store in a separate folder, next to the
    store of runs, and a thread that alone uses it. If the configuration names a vector store, all
    users share it."""

    capabilities = Capabilities(durable=True)

    def __init__(self, path: str | None, settings: Settings) -> None:
        """Read mem0's configuration, and check that the package is installed.

        Raises:
            InputError: the file cannot be used. SettingsError: the package is missing, or no model
                is named for it.
        """
        if importlib.util.find_spec("mem0") is None:
            raise SettingsError('mem0: the package is missing: pip install "textevolve[mem0]"')
        self._config = read_configuration(path, settings)
        self._keys = keys_in(self._config)
        text = json.dumps(self._config, sort_keys=True, default=str)
        for key in self._keys:  # another key is no other system
            text = text.replace(key, "")
        self._hash = text_hash(text)[:12]
        self.name = f"mem0:{self._hash}"
        self._settings = settings
        self._workers: dict[str, Worker] = {}
        self._memories: dict[str, Any] = {}

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        memories: list[str] = []
        for start in range(0, len(dialogue), TURNS):
            memories += await self._use(user, self._add, dialogue[start : start + TURNS])
        return memories

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return await self._use(user, self._search, query, limit)

    async def aclose(self) -> None:
        """Close all stores without waiting for calls in flight; earlier memories are on disk."""
        for key, worker in self._workers.items():
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await worker.run(self._close, key)
            worker.stop()

    async def _use(self, user: str, job: Callable[..., T], *arguments: object) -> T:
        """Run a job in the thread of the user's store. Errors are raised outside the `except`
        block, since errors of mem0 may contain what its client sent."""
        key = "" if "vector_store" in self._config else _short(user)
        worker = self._workers.setdefault(key, Worker("mem0"))

        try:
            return await worker.run(job, key, user, *arguments)
        except Exception as error:  # noqa: BLE001  mem0 and its stores may raise anything
            text = one_line(f"{self.name}: {describe_error(error)}", self._keys)
            lost = isinstance(error, AnswerError)
            failure = AnswerError(text) if lost else UnavailableError(text)

        raise failure

    def _add(self, key: str, user: str, turns: Sequence[DialogueTurn]) -> tuple[str, ...]:
        """Return the added memories. mem0 assumes that the dialogue is of today, so an instruction
        states its date.

        Raises:
            AnswerError: mem0 lost a part of the memories.
        """
        memory = self._open(key)
        losses = _Losses()
        roles = ("user", "assistant", "system")
        messages = [
            {"role": turn.role if turn.role in roles else "user", "content": turn.content}
            for turn in turns
        ]
        day = f"The messages are of {turns[0].timestamp}: this is the date of observation."
        parts = (day if turns[0].timestamp else "", memory.custom_instructions)
        prompt = "\n".join(filter(None, parts)) or None
        LOGGER.addHandler(losses)
        try:
            answer = memory.add(messages, user_id=_short(user), prompt=prompt)
        finally:
            LOGGER.removeHandler(losses)

        if losses.messages:
            raise AnswerError(losses.messages[0])

        return read_memories(answer, "add")

    def _search(self, key: str, user: str, query: str, limit: int) -> tuple[str, ...]:
        answer = self._open(key).search(query, filters={"user_id": _short(user)}, top_k=limit)
        return read_memories(answer, "search")

    def _open(self, key: str) -> Any:
        """Open mem0, in the thread that will use it."""
        if key in self._memories:
            return self._memories[key]
        home = folder_beside(self._settings.store) / "mem0"
        folder = home / self._hash / key
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["MEM0_TELEMETRY"] = "False"  # read when it is imported, as the folder is
        os.environ.setdefault("MEM0_DIR", str(home))
        LOGGER.addHandler(logging.NullHandler())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mem0 import Memory
            from mem0.utils.factory import EmbedderFactory

        config: dict[str, Any] = {"history_db_path": str(folder / "history.db"), **self._config}
        embedder_config = config["embedder"]
        options: dict[str, Any] = embedder_config.get("config") or {}
        factory: Any = EmbedderFactory
        embedder: Any = factory.create(embedder_config["provider"], dict(options), None)

        if "vector_store" not in config:
            store: dict[str, Any] = {"collection_name": "memories", "on_disk": True}
            store["path"] = str(folder / "qdrant")
            store["embedding_model_dims"] = len(embedder.embed("How many numbers?", "search"))
            config["vector_store"] = {"provider": "qdrant", "config": store}

        memory: Any = Memory.from_config(config)
        memory.embedding_model = embedder

        if hasattr(getattr(memory.llm, "client", None), "with_options"):
            memory.llm.client = memory.llm.client.with_options(
                timeout=self._settings.timeouts.total,
                max_retries=self._settings.retries.attempts - 1,
                base_url=memory.llm.config.openai_base_url,  # an OPENROUTER_API_KEY changes both
                api_key=memory.llm.config.api_key,
            )

        self._memories[key] = memory

        return memory

    def _close(self, key: str) -> None:
        if (memory := self._memories.pop(key, None)) is not None:
            for part in (memory.llm, memory.embedding_model, memory.vector_store):
                if (close := getattr(getattr(part, "client", None), "close", None)) is not None:
                    close()
            memory.close()


def _short(user: str) -> str:
    """Return a hash of a user's id, since mem0 forbids white space in ids and folder names some
    characters."""
    return text_hash(user)[:24]
