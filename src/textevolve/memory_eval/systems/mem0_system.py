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
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml

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
from textevolve.memory_eval.dialogues import DialogueTurn
from textevolve.memory_eval.system import Capabilities
from textevolve.memory_eval.systems.adapter import Worker, read_memories
from textevolve.settings import Settings, folder_beside

MODEL = "TEXTEVOLVE_MEM0_MODEL"
EMBEDDER = "TEXTEVOLVE_MEM0_EMBEDDER"
"""Variables that name mem0's two models, as any model is named."""
DEFAULT_EMBEDDER = "text-embedding-3-small"
_PARTS = ("llm", "embedder", "vector_store", "reranker")


@dataclass(frozen=True, slots=True)
class Mem0Plan:
    """`given` is the file. `hash` stands for everything but the keys: another configuration is
    another system."""

    given: Mapping[str, Any]
    chat: str | None
    embedder: str | None
    hash: str

    @property
    def shared(self) -> bool:
        """Whether the file names a vector store, which all users then share."""
        return "vector_store" in self.given

    def needs(self, part: str) -> bool:
        """Whether our default is needed for a part: the file leaves it out, or changes only what it
        names. With a `provider` it stands for itself."""
        return "provider" not in self.given.get(part, {})


def read_plan(path: str | None, settings: Settings) -> Mem0Plan:
    """
    Raises:
        InputError: the file cannot be used. SettingsError: no model is named for mem0.
    """
    given = _read_file(path) if path else {}
    chat, embedder = os.environ.get(MODEL) or settings.model, os.environ.get(EMBEDDER)
    said = json.dumps([chat, embedder, _without_keys(given)], sort_keys=True, default=str)
    plan = Mem0Plan(given, chat, embedder, hashlib.sha256(said.encode()).hexdigest()[:12])
    if chat is None and plan.needs("llm"):
        raise SettingsError(f"mem0: no model is named for it; set {MODEL} to PROVIDER/MODEL")
    if chat is None and embedder is None and plan.needs("embedder"):
        raise SettingsError(f"mem0: no model for embeddings is named; set {EMBEDDER} to one")
    for part, variable, spec in (("llm", MODEL, chat), ("embedder", EMBEDDER, embedder or chat)):
        if plan.needs(part) and spec is not None and spec.strip().split("/")[0] == LOCAL:
            raise SettingsError(
                f"mem0: {spec} is served inside this program; set {variable} to a model behind an"
                " address"
            )
    return plan


def fill_in(plan: Mem0Plan, settings: Settings) -> dict[str, Any]:
    """mem0's configuration, with the keys.

    Raises:
        SettingsError: a model cannot be used, or its key is missing.
    """
    config = dict(plan.given)
    if plan.needs("llm"):
        assert plan.chat is not None
        config["llm"] = _over(_openai(plan.chat, settings), plan.given.get("llm", {}))
    if plan.needs("embedder"):
        spec = plan.embedder or plan.chat
        assert spec is not None
        ours = _openai(spec, settings, None if plan.embedder else DEFAULT_EMBEDDER)
        config["embedder"] = _over(ours, plan.given.get("embedder", {}))
    return config


def keys_in(value: Any) -> tuple[str, ...]:
    """Every key in a configuration that is long enough to be one."""
    if not isinstance(value, Mapping):
        return ()
    found: list[str] = []
    for name, part in cast("Mapping[str, Any]", value).items():
        if name == "api_key" and isinstance(part, str) and len(part) >= 8:
            found.append(part)
        found += keys_in(part)
    return tuple(found)


def _openai(spec: str, settings: Settings, model: str | None = None) -> dict[str, Any]:
    endpoint = resolve(spec, settings)
    endpoint = endpoint.members[0] if endpoint.members else endpoint
    said = {
        "model": model or endpoint.model,
        "openai_base_url": endpoint.base_url,
        "api_key": endpoint.key.secret.get_secret_value().strip() if endpoint.key else "none",
    }
    return {"provider": "openai", "config": said}


def _over(ours: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**ours, "config": {**ours["config"], **(given.get("config") or {})}}


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {name: _without_keys(part) for name, part in parts.items() if name != "api_key"}
    return value


def _read_file(path: str) -> dict[str, Any]:
    try:
        found: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise InputError(f"{path}: neither valid YAML nor JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must be a mapping with parts of mem0's configuration")
    given = cast("dict[str, Any]", found)
    for part in _PARTS:
        section = cast("dict[str, Any]", given.get(part, {}))
        if not isinstance(section, dict) or not isinstance(section.get("config", {}), dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{path}: {part} must be a mapping with provider and config")
    return given


TURNS = 20
"""Given at once. In a long dialogue the list of what it found would be cut at its `max_tokens`."""
MOST_OPEN = 32
CLOSING = 5.0
"""Seconds."""
_GONE = ("DELETE", "NONE")
_UNREACHABLE = ("APIConnectionError", "APITimeoutError", "ConnectError", "ConnectTimeout")


def open_mem0(path: str | None, settings: Settings) -> Mem0System:
    """mem0 with our defaults, or with a file that says otherwise: see `mem0_config`.

    Raises:
        InputError: the file cannot be used. SettingsError: the package is missing, or no model is
            named for it.
    """
    if importlib.util.find_spec("mem0") is None:
        raise SettingsError('mem0: the package is missing: pip install "textevolve[mem0]"')
    return Mem0System(read_plan(path, settings), settings)


@dataclass(slots=True)
class _Open:
    """A user's instance of mem0 and the one thread that uses it. mem0 passes over what fails inside
    it, and keeps nothing: `cut` are answers of its model that ended at their limit of tokens,
    `lost` what kept a memory from being embedded. `tokens`: of each answer of its model."""

    memory: Any
    worker: Worker
    cut: list[str] = field(default_factory=list[str])
    lost: list[Exception] = field(default_factory=list[Exception])
    tokens: list[int | None] = field(default_factory=list["int | None"])
    busy: int = 0


class Mem0System:
    """Each user has a store in a folder of its own, beside the store of runs, unless the
    configuration names a vector store; then all share it, and are served one after the other."""

    capabilities = Capabilities(durable=True)

    def __init__(self, plan: Mem0Plan, settings: Settings) -> None:
        self.name = f"mem0:{plan.hash}"
        self._plan = plan
        self._settings = settings
        self._home = folder_beside(settings.store) / "mem0"
        self._folder = self._home / plan.hash
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._opening = asyncio.Lock()
        self._config: dict[str, Any] | None = None
        self._spent: dict[str, int | None] = {}

    def __repr__(self) -> str:
        return f"Mem0System({self.name!r})"

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        found: list[str] = []
        self._spent[user] = 0
        for start in range(0, len(dialogue), TURNS):
            turns = dialogue[start : start + TURNS]
            found += await self._use(
                "add", user, lambda opened, t=turns: self._add(opened, t, user)
            )
        return tuple(found)

    def spent(self, user: str) -> int | None:
        """Tokens of the chat model in the user's last `add`; embeddings are not counted. None where
        mem0 or its endpoint does not say."""
        return self._spent.get(user)

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        def search(opened: _Open) -> tuple[str, ...]:
            found = opened.memory.search(query, filters={"user_id": _short(user)}, top_k=limit)
            return read_memories(found, f"{self.name}: search")

        return await self._use("search", user, search)

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        raise AnswerError(f"{self.name}: gives no answer of its own")

    async def aclose(self) -> None:
        await asyncio.gather(*(self._close(key) for key in list(self._open)))

    def _add(self, opened: _Open, turns: Sequence[DialogueTurn], user: str) -> tuple[str, ...]:
        """mem0 takes the day of now for that of the dialogue, so it is told in an instruction."""
        messages = [{"role": _role(turn.role), "content": turn.content} for turn in turns]
        custom = str((self._config or {}).get("custom_instructions") or "")
        day = f"The messages are of {turns[0].timestamp}: this is the date of observation."
        prompt = "\n".join(filter(None, (day if turns[0].timestamp else "", custom)))
        opened.cut.clear()
        opened.lost.clear()
        opened.tokens.clear()
        given: dict[str, Any] = opened.memory.add(
            messages, user_id=_short(user), prompt=prompt or None
        )
        so_far, tokens = self._spent.get(user), [one for one in opened.tokens if one is not None]
        whole = bool(tokens) and len(tokens) == len(opened.tokens) and so_far is not None
        self._spent[user] = so_far + sum(tokens) if whole and so_far is not None else None
        if opened.cut:
            raise AnswerError(
                f"{self.name}: add: the answer of {opened.cut[0]} was cut at its limit of tokens;"
                " raise max_tokens in the configuration of llm"
            )
        if opened.lost:
            raise opened.lost[0]
        kept = [each for each in given["results"] if each.get("event") not in _GONE]
        return read_memories(kept, f"{self.name}: add")

    async def _use(
        self, verb: str, user: str, work: Callable[[_Open], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Runs `work` in the user's thread; what mem0 raises becomes an error of ours. It is raised
        after the `except`, for mem0's may hold what its client sent."""
        failed: ModelError
        try:
            opened = await self._find(user)
            opened.busy += 1
            try:
                return await opened.worker.run(partial(work, opened))
            finally:
                opened.busy -= 1
        except (ModelError, InputError, SettingsError):
            raise
        except Exception as error:  # noqa: BLE001  mem0 and its stores may raise anything
            failed = self._failure(verb, error)
        raise failed

    async def _find(self, user: str) -> _Open:
        """The user's instance; the one that was idle longest is closed where many are open."""
        key = "" if self._plan.shared else user
        async with self._opening:
            if key not in self._open:
                idle = [name for name, each in self._open.items() if not each.busy]
                if len(self._open) >= MOST_OPEN and idle:
                    await self._close(idle[0])
                worker = Worker("mem0")
                try:
                    self._open[key] = await worker.run(partial(self._make, key, worker))
                except BaseException:
                    worker.stop()
                    raise
            self._open.move_to_end(key)
            return self._open[key]

    async def _close(self, key: str) -> None:
        """A call that is still in flight is not waited for: all that came before is on disk."""
        opened = self._open.pop(key)

        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await opened.worker.run(partial(_close_all, opened.memory))
        finally:
            opened.worker.stop()

    def _make(self, key: str, worker: Worker) -> _Open:
        folder = self._folder / _short(key)
        folder.mkdir(parents=True, exist_ok=True)
        with _quiet_import(self._home):
            from mem0 import Memory
            from mem0.utils.factory import EmbedderFactory

        with _hidden("OPENROUTER_API_KEY"):  # mem0 would ask there, whatever it is told
            if self._config is None:
                self._config = self._settle(EmbedderFactory)
            config = dict(self._config)
            config.setdefault("history_db_path", str(folder / "history.db"))
            if not key:
                memory: Any = Memory.from_config(config)
            else:
                store = {**config["vector_store"]["config"], "path": str(folder / "qdrant")}
                config["vector_store"] = {"provider": "qdrant", "config": store}
                memory = Memory.from_config(config)
        opened = _Open(memory, worker)
        if hasattr(memory.llm.config, "response_callback"):
            memory.llm.config.response_callback = _note_answer(opened)
        memory.embedding_model.embed = _note_lost(memory.embedding_model.embed, opened.lost)
        limits: dict[str, Any] = {"timeout": self._settings.timeouts.total}
        limits["max_retries"] = self._settings.retries.attempts - 1
        for part in (memory.llm, memory.embedding_model):
            if hasattr(getattr(part, "client", None), "with_options"):
                part.client = part.client.with_options(**limits)
        return opened

    def _settle(self, factory: Any) -> dict[str, Any]:
        """mem0's configuration, after asking how large the vectors are."""
        config = fill_in(self._plan, self._settings)
        if not self._plan.shared:
            embedder = config["embedder"]
            made: Any = factory.create(embedder["provider"], dict(embedder["config"]), None)
            try:
                size = len(made.embed("How many dimensions?", "search"))
            finally:
                _call_if_there(getattr(made, "client", None), "close")
            store: dict[str, Any] = {"collection_name": "memories", "on_disk": True}
            store["embedding_model_dims"] = size
            config["vector_store"] = {"provider": "qdrant", "config": store}
        return config

    def _failure(self, verb: str, error: Exception) -> ModelError:
        secrets = keys_in(self._config or self._plan.given)
        said = one_line(f"{type(error).__name__}: {error}", secrets)
        where = f"{self.name}: {verb}"
        status, unreachable = None, False
        cause: BaseException | None = error
        while cause is not None:
            status = status or getattr(cause, "status_code", None)
            unreachable = unreachable or type(cause).__name__ in _UNREACHABLE
            cause = cause.__cause__ or cause.__context__
        if status in (401, 403, 404):
            return AccessError(f"{where}: its endpoint refuses ({status}): {said}")
        if unreachable or (isinstance(status, int) and (status == 429 or status >= 500)):
            return UnavailableError(f"{where}: {said}", status=status)
        return AnswerError(f"{where}: {said}")


def _short(user: str) -> str:
    """mem0 takes no id with white space, and a folder's name not every character."""
    return hashlib.sha256(user.encode()).hexdigest()[:24]


def _role(role: str) -> str:
    return role if role in ("user", "assistant", "system") else "user"


def _note_answer(opened: _Open) -> Callable[[Any, Any, Any], None]:
    def note(llm: Any, response: Any, _sent: Any) -> None:
        opened.tokens.append(getattr(getattr(response, "usage", None), "total_tokens", None))
        if response.choices[0].finish_reason == "length":
            opened.cut.append(str(llm.config.model))

    return note


def _note_lost(embed: Callable[..., Any], lost: list[Exception]) -> Callable[..., Any]:
    def noting(*arguments: Any, **named: Any) -> Any:
        try:
            return embed(*arguments, **named)
        except Exception as error:
            lost.append(error)
            raise

    return noting


def _call_if_there(thing: Any, method: str) -> None:
    if (found := getattr(thing, method, None)) is not None:
        found()


def _close_all(memory: Any) -> None:
    for part in (memory.llm, memory.embedding_model):
        _call_if_there(getattr(part, "client", None), "close")
    _call_if_there(getattr(memory.vector_store, "client", None), "close")
    memory.close()


@contextmanager
def _quiet_import(home: Path) -> Generator[None]:
    """mem0 reads these two when it is imported."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ.setdefault("MEM0_DIR", str(home))
    logging.getLogger("mem0").addHandler(logging.NullHandler())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _hidden(variable: str) -> Generator[None]:
    value = os.environ.pop(variable, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[variable] = value
