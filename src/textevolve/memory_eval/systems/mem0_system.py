"""The open-source package mem0 as a memory system, on a local store, at any OpenAI-like endpoint.

The only place that imports mem0, and not before the first operation. Imported carelessly it writes
into the home folder and reports its use; here it does neither.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, TypeVar, cast

from textevolve.errors import (
    AccessError,
    AnswerError,
    InputError,
    ModelError,
    SettingsError,
    UnavailableError,
)
from textevolve.llm.providers import LOCAL, resolve
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.system import Capabilities, MemorySystem
from textevolve.memory_eval.systems.adapter import Worker, read_memories
from textevolve.rows import read_text
from textevolve.settings import Settings, folder_beside
from textevolve.texts.yaml_lines import parse_yaml

T = TypeVar("T")

MODEL = "TEXTEVOLVE_MEM0_MODEL"
EMBEDDER = "TEXTEVOLVE_MEM0_EMBEDDER"
"""Variables that name mem0's two models, as any model is named."""
DEFAULT_EMBEDDER = "text-embedding-3-small"
TURNS = 20
"""Given at once. In a long dialogue the list of what it found would be cut at its `max_tokens`."""
MOST_OPEN = 32
CLOSING = 5.0
"""Seconds."""


class Mem0Config:
    """mem0's configuration: our models, under what the user's file says.

    A part of the file that names a `provider` stands for itself. `hash` stands for everything but
    the keys: another configuration is another system.

    Raises:
        InputError: the file cannot be used. SettingsError: no model is named for mem0.
    """

    def __init__(self, path: str | None, settings: Settings) -> None:
        self.file = _read_file(path) if path else {}
        self.shared = "vector_store" in self.file
        self._settings = settings
        chat, embedder = os.environ.get(MODEL) or settings.model, os.environ.get(EMBEDDER)
        parts = json.dumps([chat, embedder, _without_keys(self.file)], sort_keys=True, default=str)
        self.hash = hashlib.sha256(parts.encode()).hexdigest()[:12]
        models = {"llm": (MODEL, chat), "embedder": (EMBEDDER, embedder or chat)}
        self._models: dict[str, str] = {}
        for part, (variable, spec) in models.items():
            if "provider" in self.file.get(part, {}):
                continue
            if spec is None or spec.strip().split("/")[0] == LOCAL:
                missing = "none is named" if spec is None else f"{spec} runs inside this program"
                raise SettingsError(
                    f"mem0: {part}: {missing}; set {variable} to a model behind an address"
                )
            self._models[part] = spec
        self._embeds_by_default = embedder is None

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The whole configuration, with keys.

        Raises:
            SettingsError: a model cannot be used, or its key is missing.
        """
        config = dict(self.file)
        for part, spec in self._models.items():
            endpoint = resolve(spec, self._settings)
            endpoint = endpoint.members[0] if endpoint.members else endpoint
            key = endpoint.key
            ours = {
                "model": endpoint.model,
                "openai_base_url": endpoint.base_url,
                "api_key": key.secret.get_secret_value().strip() if key else "none",
            }
            if part == "embedder" and self._embeds_by_default:
                ours["model"] = DEFAULT_EMBEDDER
            theirs: dict[str, Any] = self.file.get(part, {}).get("config") or {}
            config[part] = {"provider": "openai", "config": {**ours, **theirs}}
        return config


def _read_file(path: str) -> dict[str, Any]:
    _, file = parse_yaml(read_text(path), path)
    if not isinstance(file, dict):
        raise InputError(f"{path}: must be a mapping with parts of mem0's configuration")
    parts = cast("dict[str, Any]", file)
    for name in ("llm", "embedder", "vector_store", "reranker"):
        part: Any = parts.get(name, {})
        if not isinstance(part, Mapping) or not isinstance(
            cast("Mapping[str, Any]", part).get("config", {}), dict
        ):
            raise InputError(f"{path}: {name} must be a mapping with provider and config")
    return parts


def _without_keys(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    parts = cast("dict[str, Any]", value)
    return {name: _without_keys(part) for name, part in parts.items() if name != "api_key"}


def keys_in(value: Any) -> list[str]:
    """Return every key in a configuration that is long enough to be one."""
    if not isinstance(value, Mapping):
        return []
    parts = cast("Mapping[str, Any]", value)
    keys = [key for part in parts.values() for key in keys_in(part)]
    key = parts.get("api_key")
    return [*keys, key] if isinstance(key, str) and len(key) >= 8 else keys


class Mem0System(MemorySystem):
    """Each user has a store in a folder of its own, beside the store of runs, unless the
    configuration names a vector store; then all share it, and are served one after the other."""

    capabilities = Capabilities(durable=True)

    def __init__(self, path: str | None, settings: Settings) -> None:
        """
        Raises:
            InputError: the file cannot be used. SettingsError: the package is missing, or no model
                is named for it.
        """
        if importlib.util.find_spec("mem0") is None:
            raise SettingsError('mem0: the package is missing: pip install "textevolve[mem0]"')
        self._config = Mem0Config(path, settings)
        self.name = f"mem0:{self._config.hash}"
        self._settings = settings
        self._home = folder_beside(settings.store) / "mem0"
        self._stores: dict[str, _UserStore] = {}
        self._spent: dict[str, int | None] = {}

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        custom = str(self._config.file.get("custom_instructions") or "")
        memories: list[str] = []
        tokens: list[int | None] = []
        for start in range(0, len(dialogue), TURNS):
            turns = dialogue[start : start + TURNS]
            texts, used = await self._use("add", user, _UserStore.add, turns, custom)
            memories += texts
            tokens += used
        known = [number for number in tokens if number is not None]
        self._spent[user] = sum(known) if known and len(known) == len(tokens) else None
        return memories

    def spent(self, user: str) -> int | None:
        """Return the chat model's tokens of the user's last `add`, without embeddings."""
        return self._spent.get(user)

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return await self._use("search", user, _UserStore.search, query, limit)

    async def aclose(self) -> None:
        await asyncio.gather(*(self._close(key) for key in list(self._stores)))

    async def _use(self, verb: str, user: str, method: Callable[..., T], *arguments: object) -> T:
        """Call a method of the user's store in its thread. The store that was idle longest is
        closed where many are open. An error is raised after the `except`, for mem0's may hold what
        its client sent."""
        key = "" if self._config.shared else user
        if key not in self._stores and len(self._stores) >= MOST_OPEN:
            await self._close(next(iter(self._stores)))
        store = self._stores.pop(key, None) or _UserStore(partial(self._open, key))
        self._stores[key] = store
        try:
            return await store.worker.run(method, store, _short(user), *arguments)
        except (ModelError, InputError, SettingsError):
            raise
        except Exception as error:  # noqa: BLE001  mem0 and its stores may raise anything
            secrets = keys_in(self._config.whole)
            failure = _failure(f"{self.name}: {verb}", error, secrets)
        raise failure

    async def _close(self, key: str) -> None:
        """A call that is still in flight is not waited for: all that came before is on disk."""
        store = self._stores.pop(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await store.worker.run(store.close)
        store.worker.stop()

    def _open(self, key: str) -> Any:
        """Open mem0 for one user, in the thread that will use it."""
        folder = self._home / self._config.hash / _short(key)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["MEM0_TELEMETRY"] = "False"  # read when it is imported, as the folder is
        os.environ.setdefault("MEM0_DIR", str(self._home))
        logging.getLogger("mem0").addHandler(logging.NullHandler())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mem0 import Memory
            from mem0.utils.factory import EmbedderFactory
        config: dict[str, Any] = {
            "history_db_path": str(folder / "history.db"),
            **self._config.whole,
        }
        if not self._config.shared:
            store: dict[str, Any] = {"collection_name": "memories", "on_disk": True}
            store["path"] = str(folder / "qdrant")
            store["embedding_model_dims"] = _measure(EmbedderFactory, config["embedder"])
            config["vector_store"] = {"provider": "qdrant", "config": store}
        memory: Any = Memory.from_config(config)
        for name, part in (("llm", memory.llm), ("embedder", memory.embedding_model)):
            if hasattr(getattr(part, "client", None), "with_options"):
                said: dict[str, Any] = config[name].get("config") or {}
                part.client = part.client.with_options(
                    timeout=self._settings.timeouts.total,
                    max_retries=self._settings.retries.attempts - 1,
                    base_url=said.get("openai_base_url"),  # an OPENROUTER_API_KEY would change both
                    api_key=said.get("api_key"),
                )
        return memory


def _measure(embedders: Any, config: Mapping[str, Any]) -> int:
    """Return the size of an embedder's vectors."""
    model: Any = embedders.create(config["provider"], dict(config["config"]), None)
    try:
        return len(model.embed("How many dimensions?", "search"))
    finally:
        _close_client(model)


class _UserStore:
    """A user's mem0 and the one thread that uses it.

    mem0 passes over what fails inside it, and keeps nothing: answers of its model that ended at
    their limit of tokens, and errors that kept a memory from being embedded, are noted here.
    """

    def __init__(self, open_memory: Callable[[], Any]) -> None:
        self.worker = Worker("mem0")
        self._open = open_memory
        self._memory: Any = None
        self._embed: Any = None
        self._tokens: list[int | None] = []
        self._failures: list[Exception] = []

    @property
    def memory(self) -> Any:
        if self._memory is None:
            memory = self._open()
            if hasattr(memory.llm.config, "response_callback"):
                memory.llm.config.response_callback = self._note_response
            self._embed = memory.embedding_model.embed
            memory.embedding_model.embed = self._embed_noting
            self._memory = memory
        return self._memory

    def add(
        self, user: str, turns: Sequence[DialogueTurn], custom: str
    ) -> tuple[tuple[str, ...], list[int | None]]:
        """Return the memories added, and the tokens of each answer of mem0's model.

        mem0 takes the day of now for that of the dialogue, so it is told in an instruction.
        """
        memory, self._tokens, self._failures = self.memory, [], []
        roles = ("user", "assistant", "system")
        messages = [
            {"role": turn.role if turn.role in roles else "user", "content": turn.content}
            for turn in turns
        ]
        day = f"The messages are of {turns[0].timestamp}: this is the date of observation."
        prompt = "\n".join(filter(None, (day if turns[0].timestamp else "", custom)))
        answer = memory.add(messages, user_id=user, prompt=prompt or None)
        if self._failures:
            raise self._failures[0]
        return read_memories(answer, "mem0: add"), self._tokens

    def search(self, user: str, query: str, limit: int) -> tuple[str, ...]:
        answer = self.memory.search(query, filters={"user_id": user}, top_k=limit)
        return read_memories(answer, "mem0: search")

    def close(self) -> None:
        if self._memory is not None:
            for part in (self._memory.llm, self._memory.embedding_model, self._memory.vector_store):
                _close_client(part)
            self._memory.close()

    def _note_response(self, llm: Any, response: Any, _sent: Any) -> None:
        self._tokens.append(getattr(getattr(response, "usage", None), "total_tokens", None))
        if response.choices[0].finish_reason == "length":
            self._failures.append(
                AnswerError(
                    f"mem0: add: the answer of {llm.config.model} was cut at its limit of tokens;"
                    " raise max_tokens in the configuration of llm"
                )
            )

    def _embed_noting(self, *arguments: Any, **named: Any) -> Any:
        try:
            return self._embed(*arguments, **named)
        except Exception as error:
            self._failures.append(error)
            raise


def _close_client(part: Any) -> None:
    if (close := getattr(getattr(part, "client", None), "close", None)) is not None:
        close()


def _short(user: str) -> str:
    """mem0 takes no id with white space, and a folder's name not every character."""
    return hashlib.sha256(user.encode()).hexdigest()[:24]


def _failure(where: str, error: Exception, secrets: Sequence[str]) -> ModelError:
    """Return the error of ours that stands for one of mem0, by the status that an endpoint gave."""
    said = f"{where}: {one_line(f'{type(error).__name__}: {error}', secrets)}"
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    statuses = [getattr(cause, "status_code", None) for cause in causes]
    status = next((number for number in statuses if isinstance(number, int)), None)
    unreachable = ("APIConnectionError", "APITimeoutError", "ConnectError", "ConnectTimeout")
    if status in (401, 403, 404):
        return AccessError(f"{said} (its endpoint refuses: {status})")
    if (status and (status == 429 or status >= 500)) or any(
        type(cause).__name__ in unreachable for cause in causes
    ):
        return UnavailableError(said, status=status)
    return AnswerError(said)
