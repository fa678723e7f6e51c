"""The settings, read once at the entry points (command line, Python API, server) and passed down.

Later sources override earlier ones: defaults, the user's `config.toml`, `textevolve.toml` in the
working folder (or, instead of both files, the file that `TEXTEVOLVE_CONFIG` names), environment
variables (`TEXTEVOLVE_MODEL`, `TEXTEVOLVE_STORE`, ...), and the caller's values. Keys are not
settings: `textevolve.llm.providers` finds them. The file of the working folder may come from
somebody else, so it says where texts and keys go only after its user has allowed it.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import parse_qs

from platformdirs import user_cache_path, user_config_path, user_data_path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    SecretStr,
    ValidationError,
)

from textevolve.addresses import hide_secrets, is_loopback
from textevolve.errors import SettingsError, UnallowedFileError
from textevolve.mappings import drop_none, omit
from textevolve.spec import Concurrency, Count, NonEmpty, Share, suggest

LARGEST_ANSWER = 16
"""The default limit on the body of one answer, in MiB after decompression. It is enough for 5,000
tokens with 20 alternatives each."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Timeouts(_Frozen):
    """Limits on time, in seconds. `connect` and `read` apply to the connection, `total` to one
    attempt, and `deadline` to the sum of all waits between attempts. With a local model, `read`
    limits the time without progress, and `total` is ignored."""

    connect: PositiveFloat = 10.0
    read: PositiveFloat = 180.0
    total: PositiveFloat = 300.0
    deadline: PositiveFloat = 900.0


class Retries(_Frozen):
    """The retries of a call. `attempts` includes the first attempt. The wait before retry n is
    drawn from [0, min(longest, first x 2^n)] seconds."""

    attempts: Count = 6
    first: NonNegativeFloat = 0.5
    longest: NonNegativeFloat = 30.0


class Price(_Frozen):
    """The price of a model in US dollars per million tokens. `cached_input`, `cache_write`: for
    prompt tokens that are read from the provider's cache, and written into it; None: the price of
    other prompt tokens."""

    input: NonNegativeFloat
    output: NonNegativeFloat
    cached_input: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None


Decisions: TypeAlias = Literal["systemone", "decisions"]
"""The protocol by which a provider answers typed questions; see `textevolve.llm.decisions`."""


PromptCache: TypeAlias = Literal["none", "breakpoints", "key"]
"""How requests mark prompt prefixes for caching: not at all, by marks at their ends
(`cache_control`), or by a key that requests with the same prefix share (`prompt_cache_key`)."""


BatchWire: TypeAlias = Literal["openai", "none"]
"""The protocol by which a provider takes batch jobs: OpenAI's, or none."""


ChatWireName: TypeAlias = Literal["chat", "messages", "responses"]
"""The protocol by which a provider chats: OpenAI's chat completions, Anthropic's Messages, or
OpenAI's Responses."""


Login: TypeAlias = Literal["azure", "bedrock"]
"""The login that gives a provider's short-lived keys: Microsoft Entra's or that of AWS."""


class Provider(_Frozen):
    """A provider of models. `key_env` names the environment variable that holds its key.

    `base_url`: `${NAME}` stands for an environment variable. `wire`: the protocol by which
    it chats. `login`: used without a key, to get short-lived ones.

    `reasoning_effort`: how much a model thinks before it answers, in the provider's own words, such
    as "low". The journal identifies a model by its name: to use one model in two ways, define two
    providers.

    `headers`: sent with each request, such as a gateway's own; a value `env:NAME` stands for an
    environment variable.

    `reports_cost`: answers include their cost, so a limit of cost needs no price. `decisions`: how
    models answer typed questions; `deciders`: prefixes of the names of models that can do so;
    empty: all models. `chats`: False if no model of the provider chats. `context`: the most tokens
    of a state and a question together; a longer state is cut, and the result says so.
    `prompt_cache`: how prompts are marked for caching; `cache_hinted`: prefixes of the names of
    models to mark them for; empty: all models. `requests_per_minute`, `tokens_per_minute`: limits
    for all models of the provider together. `batches`: how the provider takes batch jobs.
    `batch_discount`: the discount on batch jobs, from 0 to 1; if unknown, the cost is the one that
    the endpoint reports, or unknown.
    """

    base_url: str
    wire: ChatWireName = "chat"
    login: Login | None = None
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
    batch_discount: Share | None = None
    reasoning_effort: NonEmpty | None = None
    prompt_cache: PromptCache = "none"
    cache_hinted: tuple[str, ...] = ()
    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None


class PoolMember(_Frozen):
    """One endpoint of a pool. `model`: its spec. `weight`: its share of the calls, relative to the
    other members. `concurrency`: the maximum number of calls in flight. The limits per minute
    replace those of its provider."""

    model: NonEmpty
    weight: float = Field(default=1.0, gt=0, le=1e6)
    concurrency: Concurrency | None = None
    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None


class PoolSettings(_Frozen):
    """A pool of endpoints that serve the same model, among which its calls are divided."""

    members: tuple[PoolMember, ...] = Field(min_length=1)


class Batches(_Frozen):
    """How calls are collected into batch jobs. `requests` and `megabytes`: the maximum size of one
    job. `in_flight`: the number of cases that may wait at once. `quiet`: the job is sent after this
    many seconds without a new call. `poll`: seconds between two requests for a job's status, at
    first and at most."""

    requests: Count = 50_000
    megabytes: PositiveFloat = 90.0
    in_flight: int = Field(default=10_000, ge=1, le=100_000)
    quiet: PositiveFloat = 2.0
    poll: tuple[float, float] = (10.0, 120.0)


Rerank: TypeAlias = Literal["auto", "late", "cross", "off"]
"""How recall orders the memories that it found."""


class MemoryOptions(_Frozen):
    """The options of memories. `rerank`: how recall orders the memories that it found: by late
    interaction of their tokens with the query's ("late"), then the best by a cross-encoder
    ("cross"), by their embeddings alone ("off"), or by late interaction where a local model embeds
    them ("auto"). `graph`: the search for memories that share entities: by a
    recursive query of the store ("sql"), or with the embedded graph database of the extra
    `ladybug`, in a separate folder, which only one process at a time can use. `vectors_mb`: the
    most megabytes of embeddings that a process holds in memory for searches in SQLite; those of a
    larger collection are read from the file at each search."""

    rerank: Rerank = "auto"
    graph: Literal["sql", "ladybug"] = "sql"
    vectors_mb: Count = Field(default=1024)


class Local(_Frozen):
    """The model server inside this process. `slots`: the number of concurrent requests. `context`:
    the number of tokens for each slot. `threads`: the number of threads; None: the number of idle
    cores when the server starts."""

    slots: int = Field(default=2, ge=1, le=64)
    context: int = Field(default=8192, ge=512)
    threads: Count | None = None


NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,99}$"
"""The pattern of names of namespaces, agents, collections and users."""


@dataclass(frozen=True)
class StoreAddress:
    """The address of a PostgreSQL database. As text it hides password and parameters."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        user, _, place = self.url.partition("://")[2].rpartition("@")
        place, _, query = place.partition("?")
        user = user.partition(":")[0]
        (server, slash, database) = place.partition("/")
        server = server or parse_qs(query).get("host", [""])[0]
        return f"postgresql://{user}{'@' if user else ''}{server}{slash}{database}"


StoreLocation: TypeAlias = Path | StoreAddress
"""Where a store is: an SQLite file, or a PostgreSQL database."""


def store_location(location: str | StoreLocation) -> StoreLocation:
    """Parse the location of a store: a file's path, or a `postgresql://` or `postgres://` address.

    Raises:
        ValueError: the address has another scheme.
    """
    if not isinstance(location, str):
        return location
    scheme, marked, address = location.partition("://")
    if not marked:
        return Path(location).expanduser()
    if scheme not in ("postgresql", "postgres"):
        raise ValueError(
            f"there can be no store at {scheme}:// addresses; give a path or a postgresql://"
            " address"
        )

    return StoreAddress(f"postgresql://{address}")


def folder_beside(location: StoreLocation) -> Path:
    """Return the folder on this machine for files that belong to a store but are not in it: the
    folder of an SQLite file, or the user's data folder for a PostgreSQL database."""
    if isinstance(location, Path):
        return location.parent
    return user_data_path("textevolve")


_Location = Annotated[
    StoreLocation,
    BeforeValidator(lambda given: store_location(given) if isinstance(given, str) else given),
    PlainSerializer(str),
]


_Folder = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path in which `~` stands for the user's folder, as no shell expands it in a file."""


def _expand_file(value: str | None) -> str | None:
    return os.path.expanduser(value) if value else value


class Settings(_Frozen):
    """All settings. `store`: the SQLite file or postgresql:// address of the store. `memory_store`:
    a separate store for namespaces, agents and memories; None: the same. `namespace`: the namespace
    of names without one. `embedder`: the model that embeds the memories of new collections.
    `batch`: send the calls of studies as batch jobs. `on`: the Ray cluster that runs the cases of
    studies, "ray" or ray://HOST:PORT. `server`: the address of a server that runs the studies;
    None: this machine. `traces`: the file to which spans are written, or the address of a
    collector."""

    model: str | None = Field(default=None, min_length=1)
    profile: Annotated[str, AfterValidator(_expand_file)] = Field(default="general", min_length=1)
    store: _Location = Field(default_factory=lambda: user_data_path("textevolve") / "textevolve.db")
    memory_store: _Location | None = None
    namespace: str = Field(default="default", pattern=NAME_PATTERN)
    embedder: NonEmpty = "local/bge-small"
    server: str | None = Field(default=None, min_length=1)
    traces: Annotated[str | None, AfterValidator(_expand_file)] = Field(default=None, min_length=1)
    weights_folder: _Folder = Field(
        default_factory=lambda: user_cache_path("textevolve") / "weights"
    )
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
        """Return the location of the store of namespaces, agents and memories."""
        return self.memory_store or self.store

    @property
    def graph_folder(self) -> Path | None:
        """Return the folder of the graph database of memories; None if the store itself associates
        memories."""
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
"""The environment variables that set a setting, with its name."""


PROJECT_FILE = Path("textevolve.toml")
"""The settings file of the working folder."""


def today() -> str:
    """Return the date for prompts, such as 2025-01-31: the variable `TEXTEVOLVE_TODAY`, or else the
    current date.

    Raises:
        SettingsError: the variable holds no date.
    """
    value = os.environ.get("TEXTEVOLVE_TODAY")

    try:
        day = datetime.date.fromisoformat(value) if value else datetime.date.today()
    except ValueError:
        raise SettingsError(
            f"TEXTEVOLVE_TODAY: '{value}' is not a date of the form YYYY-MM-DD"
        ) from None

    return day.isoformat()


def settings_files() -> tuple[Path, ...]:
    """Return the paths of possible settings files, which need not exist; later ones override
    earlier ones. If `TEXTEVOLVE_CONFIG` names a file, it is the only one."""
    path = os.environ.get("TEXTEVOLVE_CONFIG", "").strip()
    if path:
        return (Path(path).expanduser(),)
    return (user_config_path("textevolve") / "config.toml", PROJECT_FILE)


BACKSLASHES = (
    "; put a path with backslashes into single quotes, since they begin escapes in double quotes"
)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        section = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.environ.get("TEXTEVOLVE_CONFIG", "").strip():
            return {}
        # A file that was named must be there: without it another store and model would be used.
        raise SettingsError(
            f"TEXTEVOLVE_CONFIG: {path}: there is no such file; correct or unset the variable"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: cannot be read ({error}); correct or remove the file"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}{BACKSLASHES}") from error

    if not str(section.get("store")).isprintable():  # such as that of "C:\new.db"
        raise SettingsError(f"{path}: store has a control character{BACKSLASHES}")

    return section


def read_settings(**overrides: Any) -> Settings:
    """Read the current settings. Raises as `read_settings_sources`."""
    return read_settings_sources(**overrides)[0]


def read_settings_sources(
    check: bool = True, /, **overrides: Any
) -> tuple[Settings, dict[str, str]]:
    """Read the current settings, and return them with the source of each setting that was set, by
    its name. A later source replaces a setting; of a mapping it replaces only the keys that it
    sets. `overrides` win unless they are None. `check`: whether the file of the working folder has
    to be allowed, which is not necessary for showing the settings.

    Raises:
        UnallowedFileError: the file of the working folder sends something somewhere without being
            allowed.
        SettingsError: a file cannot be read, or a value is not allowed; names the source.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    places: dict[str, str] = {}

    def take(section: Mapping[str, Any], source: str) -> None:
        for name, value in section.items():
            if isinstance(value, dict) and isinstance(values.get(name), dict):
                values[name] = {**values[name], **value}
            else:
                values[name] = value

            sources[name] = places[name] = source
            places.update({f"{name}.{key}": source for key, _ in _values(value)})

    later_values: dict[str, Any] = {}
    for variable, name in ENVIRONMENT.items():
        # Files of variables may have ends of lines of another system.
        if value := os.environ.get(variable, "").strip():
            later_values[name] = value

    for path in settings_files():
        section = _read_file(path)
        if section and path == PROJECT_FILE and check:
            _check_allowed(section, values, {*later_values, *drop_none(overrides)})
        take(section, str(path))
    for variable, name in ENVIRONMENT.items():
        if name in later_values:
            take({name: later_values[name]}, variable)
    take(drop_none(overrides), "option")

    return _validate(values, places), sources


# Files of the working folder


def _allowed_files() -> Path:
    return user_config_path("textevolve") / "allowed-files.txt"


def _identify_file(path: Path) -> str:
    """Return the line that allows a file: its place and a digest of its content, so that a changed
    file has to be allowed again."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.resolve()}"


def allow_file(path: Path) -> None:
    """Allow a settings file, as it is now, to say where texts, keys and variables go."""
    line = _identify_file(path)
    allowed_files = _allowed_files()
    allowed_files.parent.mkdir(parents=True, exist_ok=True)
    with allowed_files.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _check_allowed(
    section: Mapping[str, Any], user_values: Mapping[str, Any], replaced: set[str]
) -> None:
    """Check that the user has allowed where the working folder's file sends anything.
    `user_values`: the values of the user's own file. `replaced`: settings that later sources set.

    Raises:
        UnallowedFileError: names the file and the places.
    """
    user_places = set(_places(user_values))
    own_section = omit(section, replaced)
    places = [place for place in _places(own_section) if place not in user_places]
    if not places:
        return
    try:
        lines = _allowed_files().read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []

    if _identify_file(PROJECT_FILE) not in lines:
        raise UnallowedFileError(
            f"{PROJECT_FILE.resolve()}: this file decides where your texts, keys and variables go,"
            f" and you have not allowed it: {'; '.join(places)}. If you trust it, run: textevolve"
            " config allow, or name it in TEXTEVOLVE_CONFIG",
            lambda: allow_file(PROJECT_FILE),
        )


def _places(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield each place to which a section of settings sends texts, keys or variables. A model on
    this machine that gets no key is none."""
    for name in ("server", "traces", "store", "memory_store", "on"):
        value = section.get(name)
        if isinstance(value, str) and "://" in value:
            yield f"{name} = {hide_secrets(value)}"

    models = [(name, section.get(name)) for name in ("model", "embedder")]
    for name, pool in _tables(section.get("pools")):
        members: list[Any] = pool["members"] if isinstance(pool.get("members"), list) else []
        models += [(f"pools.{name}", dict(_values(member)).get("model")) for member in members]
    for name, value in models:
        address = str(value)
        gets_key = bool(os.environ.get("TEXTEVOLVE_API_KEY"))
        if "://" in address and (gets_key or not is_loopback(address)):
            yield f"{name} = {hide_secrets(address)}"

    profile = Path(str(section.get("profile", ""))).expanduser()
    if profile.is_file() and b"://" in profile.read_bytes():
        yield f"profile = {profile}, which names addresses"

    for name, provider in _tables(section.get("providers")):
        address = str(provider.get("base_url", ""))
        variables = [f"{provider['key_env']}"] if provider.get("key_env") else []
        for _, value in _values(provider.get("headers")):
            if str(value).startswith("env:"):
                variables.append(str(value).removeprefix("env:"))
        if variables or not is_loopback(address):
            sent = f", which gets {', '.join(variables)}" if variables else ""
            yield f"providers.{name} = {hide_secrets(address)}{sent}"


def _values(value: Any) -> list[tuple[str, Any]]:
    """Return the entries of a table; none if it is no table, which is reported elsewhere."""
    return list(value.items()) if isinstance(value, dict) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _tables(value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(name, table) for name, table in _values(value) if isinstance(table, dict)]


def _validate(values: Mapping[str, Any], places: Mapping[str, str]) -> Settings:
    """Return the settings in these values. `places`: the sources of settings and of the entries of
    mappings, by their names with dots.

    Raises:
        SettingsError: a value is not allowed; names its source.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        parts = list(map(str, problem["loc"]))
        name = ".".join(parts)
        source = places.get(".".join(parts[:2])) or places.get(parts[0], "settings")
        message = problem["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
        message = message.partition(", unable to")[0]
        if problem["type"] == "extra_forbidden":
            message = "there is no such setting" + (
                "" if "." in name else suggest(name, tuple(Settings.model_fields))
            )

        raise SettingsError(f"{source}: {name}: {message}") from error


def override_settings(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """Return a copy of the settings with the values in `overrides`.

    Raises:
        SettingsError: a value is not allowed.
    """
    return _validate({**dict(settings), **overrides}, dict.fromkeys(overrides, "option"))
