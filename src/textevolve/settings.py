"""One frozen `Settings`, read at the edges (command line, Python API, server) and passed down.

Order, later wins: defaults, the user's `config.toml`, `textevolve.toml` in the working folder, the
environment (`TEXTEVOLVE_MODEL`, `TEXTEVOLVE_STORE`, ...), what the caller says. Keys are not
settings: see `textevolve.llm.providers`.
"""

from __future__ import annotations

import datetime
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import parse_qs

from platformdirs import user_cache_path, user_config_path, user_data_path
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
)

from textevolve.errors import SettingsError

LARGEST_ANSWER = 16
"""MiB of one answer's body, unpacked: 5000 tokens with 20 alternatives each fit."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Timeouts(_Frozen):
    """Seconds. `total` bounds one attempt, `deadline` the waits between attempts in all.
    With a local model, `read` bounds the time without progress, and `total` does not count.
    """

    connect: float = Field(default=10.0, gt=0)
    read: float = Field(default=180.0, gt=0)
    total: float = Field(default=300.0, gt=0)
    deadline: float = Field(default=900.0, gt=0)


class Retries(_Frozen):
    """`attempts` counts the first; a wait is drawn from [0, min(longest, first x 2^n)] seconds."""

    attempts: int = Field(default=6, ge=1)
    first: float = Field(default=0.5, ge=0)
    longest: float = Field(default=30.0, ge=0)


class Price(_Frozen):
    """US dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)


Decisions: TypeAlias = Literal["systemone", "decisions"]
"""The wire on which a provider decides; see `textevolve.llm.decisions`."""

WireName: TypeAlias = Literal["chat", "responses"]
"""How a provider's models are asked for text; see `textevolve.llm.wire`."""


PromptCache: TypeAlias = Literal["none", "breakpoints", "key"]
"""How an endpoint is told which beginnings of prompts come again: not at all, by marks at their
ends (`cache_control`), or by a key that requests with the same beginning share
(`prompt_cache_key`)."""


BatchWire: TypeAlias = Literal["openai", "none"]
"""How a provider takes batch jobs: by OpenAI's protocol, by one of the others, or not at all."""


class Provider(_Frozen):
    """An OpenAI-compatible address. `key_env` names the environment variable that holds its key.

    `wire`: chats, or OpenAI's responses. `reasoning_effort`: how much a model thinks before it
    answers, in the provider's own words, such as "low". The journal knows a model by its name:
    where one is asked in two ways, give each a provider of its own.

    `headers`: sent with each request, such as a gateway's own; the value `env:NAME` stands for a
    variable of the environment.

    `reports_cost`: its answers say what they cost, so a limit of cost needs no price. `deciders`:
    beginnings of the names of those models that decide by `decisions`, where the others only chat;
    none are all. `chats`: False where no model does. `context`: tokens that a state and a question
    may have together; a state that is longer is cut, and the result says so. `cache_hinted`:
    beginnings of the names of those models that `prompt_cache` is for; none are all.
    `requests_per_minute`, `tokens_per_minute`: what all models of the provider may take together.
    `batches`: how it takes batch jobs; `batch_discount`: what part of the price is taken off in
    them, from 0 to 1; where that is not known, the cost is as the endpoint reports it, or unknown.
    """

    base_url: str
    key_env: str | None = None
    default_model: str | None = None
    headers: dict[str, SecretStr] = {}
    max_tokens_field: str = "max_tokens"
    keyless: bool = False
    reports_cost: bool = False
    decisions: Decisions | None = None
    deciders: tuple[str, ...] = ()
    chats: bool = True
    context: int | None = Field(default=None, ge=64)
    batches: BatchWire = "openai"
    batch_discount: float | None = Field(default=None, ge=0, le=1)
    wire: WireName = "chat"
    reasoning_effort: str | None = Field(default=None, min_length=1)
    prompt_cache: PromptCache = "none"
    cache_hinted: tuple[str, ...] = ()
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)


class PoolMember(_Frozen):
    """One endpoint of a pool. `model`: its spec. `weight`: its share of the calls beside the other
    members'. `concurrency`: calls in flight, at most. The limits a minute are its own, and take the
    place of its provider's."""

    model: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1e6)
    concurrency: int | None = Field(default=None, ge=1, le=4096)
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)


class PoolSettings(_Frozen):
    """Several endpoints of one model."""

    members: tuple[PoolMember, ...] = Field(min_length=1)


class Batches(_Frozen):
    """How calls are gathered into batch jobs. `requests` and `megabytes`: the most that one job
    holds; `in_flight`: pieces of work that wait at once. `quiet`: seconds without a new call after
    which a wave is complete. `poll`: seconds between two looks at a job, at first and at most."""

    requests: int = Field(default=50_000, ge=1)
    megabytes: float = Field(default=90.0, gt=0)
    in_flight: int = Field(default=10_000, ge=1, le=100_000)
    quiet: float = Field(default=2.0, gt=0)
    poll: tuple[float, float] = (10.0, 120.0)


class MemoryOptions(_Frozen):
    """`graph`: what associates memories that share entities: a recursive query of the database that
    holds them ("sql"), or the embedded graph database of the extra `ladybug`, in a folder beside
    it, which one process at a time may use."""

    graph: Literal["sql", "ladybug"] = "sql"


class Local(_Frozen):
    """The model served inside the process. `context` is in tokens for each slot. `threads`: None is
    as many as there are idle cores when the server starts."""

    slots: int = Field(default=2, ge=1, le=64)
    context: int = Field(default=8192, ge=512)
    threads: int | None = Field(default=None, ge=1)


NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,99}$"
"""Of the names of namespaces, and of what is in them."""


@dataclass(frozen=True)
class StoreAddress:
    """The address of a PostgreSQL database. Shown, it has neither password nor parameters."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        user, _, place = self.url.partition("://")[2].rpartition("@")
        place, _, query = place.partition("?")
        user, (server, slash, database) = user.partition(":")[0], place.partition("/")
        server = server or parse_qs(query).get("host", [""])[0]
        return f"postgresql://{user}{'@' if user else ''}{server}{slash}{database}"


StoreLocation: TypeAlias = Path | StoreAddress
"""Where a store is: an SQLite file, or a PostgreSQL database."""


def store_location(location: str | StoreLocation) -> StoreLocation:
    """The path of a file, or the address behind `postgresql://` or `postgres://`.

    Raises:
        ValueError: there is no store at such addresses.
    """
    if not isinstance(location, str):
        return location
    scheme, marked, address = location.partition("://")
    if not marked:
        return Path(location)
    if scheme not in ("postgresql", "postgres"):
        raise ValueError(
            f"there is no store at {scheme}:// addresses; give a path or a postgresql:// address"
        )
    return StoreAddress(f"postgresql://{address}")


def folder_beside(location: StoreLocation) -> Path:
    """Return the folder for files on this machine that belong to a store but are not in it."""
    if isinstance(location, Path):
        return location.parent
    return user_data_path("textevolve")


_Location = Annotated[
    StoreLocation,
    BeforeValidator(lambda given: store_location(given) if isinstance(given, str) else given),
    PlainSerializer(str),
]


class Settings(_Frozen):
    """`store`: the SQLite file or postgresql:// address that keeps everything. `memory_store`: the
    one that keeps namespaces, agents and memories, where that is another one. `namespace`: that of
    names without one. `embedder`: the model that embeds the memories of new collections. `batch`:
    studies ask in batch jobs. `on`: the cluster that studies are spread over, "ray" or
    ray://HOST:PORT. `server`: the address of a server that runs studies in place of this
    machine; none: this machine does. `traces`: the file that spans of runs are written to, or the
    address of a collector."""

    model: str | None = Field(default=None, min_length=1)
    profile: str = Field(default="general", min_length=1)
    store: _Location = Field(default_factory=lambda: user_data_path("textevolve") / "textevolve.db")
    memory_store: _Location | None = None
    namespace: str = Field(default="default", pattern=NAME_PATTERN)
    embedder: str = Field(default="local/minilm", min_length=1)
    server: str | None = Field(default=None, min_length=1)
    traces: str | None = Field(default=None, min_length=1)
    weights_folder: Path = Field(default_factory=lambda: user_cache_path("textevolve") / "weights")
    concurrency: int | None = Field(default=None, ge=1, le=4096)
    largest_answer: int = Field(default=LARGEST_ANSWER, ge=1, le=1024)
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    batch: bool = False
    batches: Batches = Batches()
    on: str | None = Field(default=None, pattern=r"^(ray|ray://[^/\s]+:[0-9]+|none)$")
    local: Local = Local()
    memory: MemoryOptions = MemoryOptions()
    providers: dict[str, Provider] = {}
    prices: dict[str, Price] = {}
    pools: dict[Annotated[str, Field(pattern=NAME_PATTERN)], PoolSettings] = {}

    @property
    def memory_location(self) -> StoreLocation:
        """Return the store of namespaces, agents and memories."""
        return self.memory_store or self.store

    @property
    def graph_folder(self) -> Path | None:
        """The folder of the graph database of memories; None: the database associates them."""
        if self.memory.graph == "sql":
            return None
        return folder_beside(self.memory_location) / "memory-graph"


ENVIRONMENT = {
    "TEXTEVOLVE_MODEL": "model",
    "TEXTEVOLVE_PROFILE": "profile",
    "TEXTEVOLVE_STORE": "store",
    "TEXTEVOLVE_MEMORY_STORE": "memory_store",
    "TEXTEVOLVE_NAMESPACE": "namespace",
    "TEXTEVOLVE_EMBEDDER": "embedder",
    "TEXTEVOLVE_SERVER": "server",
    "TEXTEVOLVE_TRACES": "traces",
    "TEXTEVOLVE_WEIGHTS": "weights_folder",
    "TEXTEVOLVE_CONCURRENCY": "concurrency",
    "TEXTEVOLVE_BATCH": "batch",
    "TEXTEVOLVE_ON": "on",
}


def today() -> str:
    """The date that prompts name, such as 2025-01-31: of `TEXTEVOLVE_TODAY`, or else this day's.

    Raises:
        SettingsError: the variable holds no such date.
    """
    value = os.environ.get("TEXTEVOLVE_TODAY")
    try:
        day = datetime.date.fromisoformat(value) if value else datetime.date.today()
    except ValueError:
        raise SettingsError(
            f"TEXTEVOLVE_TODAY: '{value}' is no date of the form YYYY-MM-DD"
        ) from None
    return day.isoformat()


def settings_files() -> tuple[Path, ...]:
    """The files that may hold settings, the weakest first; they need not exist."""
    path = os.environ.get("TEXTEVOLVE_CONFIG")
    if path:
        return (Path(path),)
    return (user_config_path("textevolve") / "config.toml", Path("textevolve.toml"))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read ({error}); mend or remove it") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error


def read_settings(**overrides: Any) -> Settings:
    """Read the current settings, as `read_settings_sources`."""
    return read_settings_sources(**overrides)[0]


def read_settings_sources(**overrides: Any) -> tuple[Settings, dict[str, str]]:
    """Read the current settings, and for each that was set where it came from. Overrides win,
    unless they are None.

    Raises:
        SettingsError: a file cannot be read, or a value is not allowed; names the source.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(section: Mapping[str, Any], source: str) -> None:
        for name, value in section.items():
            if isinstance(value, dict) and isinstance(values.get(name), dict):
                values[name] = {**values[name], **value}
            else:
                values[name] = value
            sources[name] = source

    for path in settings_files():
        take(_read_file(path), str(path))
    for variable, name in ENVIRONMENT.items():
        if os.environ.get(variable):
            take({name: os.environ[variable]}, variable)
    take({k: v for k, v in overrides.items() if v is not None}, "given")
    return _validate(values, sources), sources


def _validate(values: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in problem["loc"])
        source = sources.get(name.partition(".")[0], "settings")
        message = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{source}: {name}: {message}") from error


def override_settings(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """The settings with some of them as the caller says.

    Raises:
        SettingsError: a value is not allowed.
    """
    return _validate({**dict(settings), **overrides}, dict.fromkeys(overrides, "given"))
