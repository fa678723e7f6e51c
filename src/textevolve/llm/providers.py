"""Resolve a model's spec such as `openai/gpt-6-luna` to an `Endpoint` (address, key and
properties).

A spec is `PROVIDER/MODEL`, a provider's name alone if it has a default model, or an address
`http://host:8000/v1#MODEL`. The settings extend and override the table of providers. Prices here
are those of the settings; other prices are found by `llm.prices`.

Keys are read from the environment or the system's keyring. A key is a `SecretStr`, never a setting,
and no message contains a part of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from textevolve.addresses import KEY_FORM, is_loopback
from textevolve.contents import digest_data
from textevolve.errors import InputError, SettingsError, TextEvolveError
from textevolve.evaluation import empty_default
from textevolve.llm.catalogue import PROVIDER as LOCAL
from textevolve.llm.catalogue import locate
from textevolve.llm.gguf import read_header
from textevolve.mappings import omit, read_fields
from textevolve.reach import check_known_model, check_model, confine
from textevolve.settings import (
    BatchWire,
    ChatWireName,
    Decisions,
    Login,
    Price,
    PromptCache,
    Provider,
    Settings,
)
from textevolve.spec import suggest

SERVICE = "textevolve"
"""The service name of our keys in a keyring; the user name there is the provider's name."""


@dataclass(frozen=True, slots=True)
class Key:
    """A provider's key. `source`: a description of where it was found. `renew`: returns a
    short-lived key instead of `secret`; it may block, and raises the errors of its login."""

    secret: SecretStr
    source: str
    renew: Callable[[], str] | None = None


def find_key(provider: str, variable: str, *, ask_keyring: bool = True) -> Key | None:
    """Return the key of a provider from the environment, or else from the keyring; None without a
    key.

    Raises:
        SettingsError: it is a reference to a file or a command, which nothing follows.
    """
    text = os.environ.get(variable, "").strip()
    source = variable
    if not text and ask_keyring:
        text = _from_keyring(provider) or ""
        source = "the keyring"
    if text.startswith(("file:", "cmd:")):
        raise SettingsError(
            f"{source}: a key cannot be a reference to a file or a command any more; store the key"
            " itself"
        )

    return Key(SecretStr(text), source) if text else None


def log_in(name: str, login: Login, base_url: str) -> Key:
    """Return the key of a provider that is reached by a login: Microsoft Entra's (an environment, a
    managed identity, `az login`), or that of AWS (an environment, a profile, a role).

    Raises:
        SettingsError: the package of the login is not installed.
    """
    try:
        if login == "bedrock":
            renew = import_module("aws_bedrock_token_generator").provide_token
        else:
            identity: Any = import_module("azure.identity")
            hub = "cognitiveservices"
            if base_url.endswith(".services.ai.azure.com/anthropic/v1"):
                hub = "ai"
            renew = identity.get_bearer_token_provider(
                identity.DefaultAzureCredential(), f"https://{hub}.azure.com/.default"
            )
    except ImportError as error:
        raise SettingsError(
            f"{name} needs a key or a login: the login needs the package {error.name};"
            f" pip install 'textevolve[{login}]'"
        ) from error

    return Key(SecretStr(""), f"the login of {login}", renew)


def fill_address(name: str, address: str) -> str:
    """Return a provider's address with environment variables instead of names such as `${NAME}`.

    Raises:
        SettingsError: a variable is not set.
    """
    filled = os.path.expandvars(address)
    if "$" in filled:
        raise SettingsError(
            f"{name}: set the variables of its address in the environment: {filled}"
        )

    return filled.replace("//openai/", "/openai/")  # Azure's own addresses end with a slash


SETTINGS = "the settings"


def find_headers(headers: Mapping[str, SecretStr]) -> dict[str, Key]:
    """Return a provider's headers; a value `env:NAME` is replaced by that environment variable's
    value.

    Raises:
        SettingsError: the variable is not set.
    """
    values: dict[str, Key] = {}

    for name, value in headers.items():
        form, _, variable = value.get_secret_value().partition(":")
        key = Key(value, SETTINGS)
        if form == "env" and (key := find_key(name, variable, ask_keyring=False)) is None:
            raise SettingsError(f"the header {name}: set {variable} in the environment")
        values[name] = key

    return values


def _from_keyring(provider: str) -> str | None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None

    try:
        return keyring.get_password(SERVICE, provider)
    except (KeyringError, RuntimeError, OSError):
        return None  # no keyring runs here, or it stays locked


ADDRESS_KEY = "TEXTEVOLVE_API_KEY"
"""The environment variable of the key for an address; no other key is sent to an address that is
used instead of a provider."""

POOL = "pool"
"""The word instead of a provider's name in the spec of a pool: several endpoints of one model,
which share its calls."""

CONTEXT = 16_384
"""The assumed context of an endpoint in tokens if it is unknown: less than most models have."""

FORMS = (
    "PROVIDER/MODEL such as openai/gpt-6-luna, http://host:8000/v1#MODEL, or local/FILE.gguf for a"
    " file of weights"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model, its address and its properties.

    Attributes:
        spec: The full name of the model, used in the journal and everywhere else.
        model: The name of the model at the endpoint.
        base_url: The address of the API; empty for `local`, whose server `llm.local` starts in this
            process.
        key: The provider's key; None if it needs none.
        embeds: Whether the model only returns embeddings; None: unknown.
        requests_per_minute: The provider's limit, shared by all of its models; None: no limit.
        tokens_per_minute: The provider's limit, shared by all of its models; None: no limit.
        members: The endpoints of a pool, which has no address itself.
        headers: The provider's additional headers, whose values are secrets.

    The other fields mean the same as in `Provider`.
    """

    spec: str
    provider: str
    model: str
    base_url: str
    key: Key | None = None
    price: Price | None = None
    max_tokens_field: str = "max_tokens"
    reports_cost: bool = False
    decisions: Decisions | None = None
    chats: bool = True
    context: int | None = None
    embeds: bool | None = None
    reasoning_effort: str | None = None
    prompt_cache: PromptCache = "none"
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    members: tuple[Endpoint, ...] = ()
    batches: BatchWire = "openai"
    batch_discount: float | None = None
    wire: ChatWireName = "chat"
    headers: Mapping[str, Key] = empty_default(dict)

    @property
    def is_local(self) -> bool:
        return self.provider == LOCAL


OF_PROVIDER = (
    "max_tokens_field",
    "reports_cost",
    "reasoning_effort",
    "batch_discount",
    "wire",
    "requests_per_minute",
    "tokens_per_minute",
)
"""The fields of an endpoint that are copied from its provider."""


def known_providers(settings: Settings) -> dict[str, Provider]:
    """Return the user's own providers, and then the built-in ones that they do not override."""
    built_in = omit(PROVIDERS, settings.providers)
    return settings.providers | built_in


def resolve(spec: str, settings: Settings, *, asks: bool = True) -> Endpoint:
    """Return the endpoint of `spec`, with its key. `asks`: whether the endpoint will be called; if
    not, for example to read prices, a missing key is no error.

    Raises:
        SettingsError: the provider is unknown, the model is not named, or a key is missing.
    """
    spec = spec.strip()
    if KEY_FORM.search(spec):
        raise SettingsError(
            "a key stands in the place of a model's name, and is not shown; name the model, and set"
            " the key in the environment"
        )
    if "://" in spec:
        return _address(spec, settings)
    name, _, model = spec.partition("/")
    if name == POOL:
        return _pool(model, settings, asks)
    providers = known_providers(settings)
    provider = providers.get(name)
    check_known_model(spec, provider is not None)
    if provider is None:
        raise SettingsError(_unknown(spec, name, providers))
    model = model or provider.default_model or ""
    if not model:
        raise InputError(f"{name}: no model is named; write {name}/MODEL")
    full = f"{name}/{model}"
    check_model(full)
    address = fill_address(name, provider.base_url)
    if provider is PROVIDERS.get(name) and provider.key_env == OPENAI_KEY:
        address = os.environ.get(OPENAI_ADDRESS) or address
    base_url = "" if name == LOCAL else normalise_url(address)
    key = _key(full, name, provider, asks=asks)
    if key is None and asks and provider.login is not None:
        key = log_in(full, provider.login, base_url)
    decider = _local_decider(model, settings) if name == LOCAL else _decider(provider, model)

    return Endpoint(
        spec=full,
        provider=name,
        model=model,
        base_url=base_url,
        key=key,
        price=_price(full, model, settings, free=name == LOCAL),
        prompt_cache=_prompt_cache(provider, model),
        **read_fields(provider, *OF_PROVIDER),
        batches=provider.batches if provider.wire == "chat" else "none",
        **decider,
        headers=find_headers(provider.headers) if asks else {},
    )


def identify_address(spec: str, settings: Settings) -> str:
    """Return the digest of the address behind a model's name, which distinguishes its calls from
    calls of another endpoint with the same name. Empty if the name says all: it is an address, a
    local model, or one of a provider at its usual address."""
    try:
        endpoint = resolve(spec, settings, asks=False)
    except SettingsError:  # told when the model is opened
        return ""
    if endpoint.members:
        return digest_data([[member.spec, member.base_url] for member in endpoint.members])
    if "://" in spec or endpoint.is_local:
        return ""
    usual = PROVIDERS.get(endpoint.provider)
    # An address with a variable is another one for each account.
    if usual is None or "$" in usual.base_url:
        return digest_data(endpoint.base_url)
    if endpoint.base_url == normalise_url(usual.base_url):
        return ""

    return digest_data(endpoint.base_url)


def context_of(spec: str, settings: Settings) -> int:
    """Return how many tokens a prompt and its answer may have together; `CONTEXT` if unknown."""
    try:
        endpoint = resolve(spec, settings, asks=False)
    except SettingsError:  # told when the model is opened
        return CONTEXT

    if endpoint.is_local:
        return min(settings.local.context, endpoint.context or settings.local.context)
    return endpoint.context or CONTEXT


def _prompt_cache(provider: Provider, model: str) -> PromptCache:
    hinted = not provider.cache_hinted or model.startswith(provider.cache_hinted)
    return provider.prompt_cache if hinted else "none"


def _pool(name: str, settings: Settings, asks: bool) -> Endpoint:
    """Return the endpoint of a pool from its members. `prices` derives its price from theirs."""
    spec = f"{POOL}/{name}"
    pool = settings.pools.get(name)
    check_known_model(spec, pool is not None)
    if pool is None:
        names = ", ".join(f"{POOL}/{pool_name}" for pool_name in settings.pools) or "none"
        raise SettingsError(f"{spec}: the settings have no such pool; there are: {names}")
    check_model(spec)
    with confine(None):  # whoever may ask the pool need not know its members
        members = [_member(spec, member.model, settings, asks) for member in pool.members]

    def common(field: str) -> Any:
        values = {getattr(member, field) for member in members}
        return values.pop() if len(values) == 1 else None

    contexts = [member.context for member in members if member.context is not None]

    return Endpoint(
        spec=spec,
        provider=POOL,
        model=name,
        base_url="",
        price=settings.prices.get(spec),
        reports_cost=all(member.reports_cost for member in members),
        decisions=common("decisions"),
        chats=all(member.chats for member in members),
        context=min(contexts, default=None),
        embeds=common("embeds"),
        members=tuple(members),
        batches="none",
    )


def _member(pool: str, spec: str, settings: Settings, asks: bool) -> Endpoint:
    if spec.strip().startswith(f"{POOL}/"):
        raise SettingsError(
            f"{pool}: its member {spec} is a pool; name the members of that pool instead"
        )

    try:
        return resolve(spec, settings, asks=asks)
    except SettingsError as error:
        raise SettingsError(f"{pool}: {error}") from error


def _decider(provider: Provider, model: str) -> dict[str, Any]:
    """Return the endpoint's fields for decisions, copied from the provider; empty, for the
    defaults, if the provider names its decision models and this is none of them."""
    if provider.deciders and not model.startswith(provider.deciders):
        return {}
    return read_fields(provider, "decisions", "chats", "context")


def _local_decider(model: str, settings: Settings) -> dict[str, Any]:
    """Return a local model's fields for decisions from the catalogue or the file's header. Errors
    in the file are reported when it is loaded."""
    try:
        located = locate(model, settings.weights_folder)
        if (entry := located.weights) is None:
            header = read_header(located.path)
            decides = header.decides
            context = header.trained_context
        elif entry.embeds:
            return {"chats": False, "embeds": True}
        else:
            decides = entry.decides
            context = entry.context
    except SettingsError:
        return {}

    if decides:
        return {"decisions": "systemone", "chats": False, "context": context, "embeds": False}

    return {"embeds": False}


def _unknown(spec: str, name: str, providers: Mapping[str, Provider]) -> str:
    full = {value.default_model: f"{key}/{value.default_model}" for key, value in providers.items()}
    hint = f"; did you mean '{full[spec]}'?" if spec in full else suggest(name, tuple(providers))
    return (
        f"{spec}: there is no provider {name!r}{hint} (write {FORMS}, or add it to the settings"
        f" under [providers.{name}])"
    )


def _key(spec: str, name: str, provider: Provider, *, asks: bool) -> Key | None:
    if provider.key_env is None:
        return None
    key = find_key(name, provider.key_env, ask_keyring=not provider.keyless)
    if key is None and asks and not provider.keyless and provider.login is None:
        raise SettingsError(
            f"{spec} needs a key: set {provider.key_env} in the environment, or run: keyring set "
            f"textevolve {name}"
        )

    return key


def _address(spec: str, settings: Settings) -> Endpoint:
    address, _, model = spec.partition("#")
    base_url = normalise_url(address)
    if not model:
        raise InputError(f"{base_url}: no model is named; write {base_url}#MODEL")
    full = f"{base_url}#{model}"
    host = urlsplit(base_url).netloc
    check_model(full)
    key = find_key(host, ADDRESS_KEY, ask_keyring=not is_loopback(base_url))

    return Endpoint(
        spec=full,
        provider=host,
        model=model,
        base_url=base_url,
        key=key,
        price=_price(full, model, settings, free=False),
    )


def _price(spec: str, model: str, settings: Settings, free: bool) -> Price | None:
    price = settings.prices.get(spec) or settings.prices.get(model)
    return Price(input=0, output=0) if free and price is None else price


def normalise_url(address: str) -> str:
    """Return the base URL of the API: `http://host:8000`, `http://host:8000/v1/` and
    `http://host:8000/v1/chat/completions` give the same.

    Raises:
        SettingsError: the address contains a user name or password. InputError: it is not an
            http(s) address.
    """
    parts = _split(address)

    refuse_login(parts, f"set a key in {ADDRESS_KEY} instead", SettingsError)
    path = parts.path.rstrip("/")
    for endpoint in ("/chat/completions", "/completions", "/responses", "/systemone", "/decisions"):
        path = path.removesuffix(endpoint)
    path = path.rstrip("/") or "/v1"

    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}"


def split_address(address: str) -> SplitResult | None:
    """Return the parts of an http(s) address without a query; None if it is invalid. No reason is
    given, since an invalid address may hold a password."""
    try:
        parts = urlsplit(address.strip())
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        return parts if usable and parts.port != 0 and not parts.query else None
    except ValueError:
        return None


def has_login(parts: SplitResult) -> bool:
    """Return whether an address contains a user name or password."""
    return parts.username is not None or parts.password is not None


def refuse_login(
    parts: SplitResult, advice: str, error: type[TextEvolveError] = InputError
) -> None:
    """Raise the error for an address with a user name or password."""
    if has_login(parts):
        raise error(
            f"the address of {parts.hostname} has a user name or password; remove it, and {advice}"
        )


def _split(address: str) -> SplitResult:
    if (parts := split_address(address)) is None:
        if "?" in address:
            raise InputError(
                "the endpoint's address has a part after ?, which is not sent with calls; leave it"
                " out: Azure's is https://NAME.openai.azure.com/openai/v1, without api-version"
            )
        raise InputError("the endpoint's address is not of the form http(s)://host[:port]/v1")
    return parts


# The addresses are those of the providers' own pages on OpenAI compatibility (read in 2026), the
# ports those that the servers listen on when nothing else is said. Where nothing is said of
# decisions, it depends on the model or the server's version, and the endpoint is asked. Those
# without `prompt_cache` find recurring beginnings of prompts by themselves, or cache none
# (docs/models.md).
# Default models are those that the providers' pages named on 24 November 2026:
# developers.openai.com/api/docs/deprecations has gpt-6-luna in the place of the small GPT-4 models
# (gpt-5-mini is shut down on 11 December 2026), ai.google.dev/gemini-api/docs/deprecations has
# gemini-3.5-flash-lite in that of gemini-2.5-flash (1 December), api-docs.deepseek.com names
# deepseek-flash (deepseek-chat was withdrawn on 24 July). genai-prices 0.2.3 has prices of all.
# Discounts of batch jobs are those that the providers' pages say of all models (read in 2026).
OPENAI = "openai"
OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_ADDRESS = "OPENAI_BASE_URL"
"""The environment variable by which OpenAI's own clients replace its address; they then send their
calls and keys to the new address."""
PROVIDERS: Mapping[str, Provider] = {
    OPENAI: Provider(
        base_url="https://api.openai.com/v1",
        key_env=OPENAI_KEY,
        default_model="gpt-6-luna",
        max_tokens_field="max_completion_tokens",
        decisions="decisions",
        deciders=("gpt-6-luna",),
        prompt_cache="key",
        batch_discount=0.5,
    ),
    "openai-responses": Provider(
        base_url="https://api.openai.com/v1",
        wire="responses",
        key_env=OPENAI_KEY,
        max_tokens_field="max_completion_tokens",
        prompt_cache="key",
        batches="none",
    ),
    "anthropic": Provider(
        base_url="https://api.anthropic.com/v1",
        wire="messages",
        key_env="ANTHROPIC_API_KEY",
        prompt_cache="breakpoints",
        batches="none",
    ),
    "azure": Provider(
        base_url="${AZURE_OPENAI_ENDPOINT}/openai/v1",
        key_env="AZURE_OPENAI_API_KEY",
        login="azure",
        max_tokens_field="max_completion_tokens",
        batches="none",
    ),
    "azure-anthropic": Provider(
        base_url="https://${ANTHROPIC_FOUNDRY_RESOURCE}.services.ai.azure.com/anthropic/v1",
        wire="messages",
        key_env="ANTHROPIC_FOUNDRY_API_KEY",
        login="azure",
        prompt_cache="breakpoints",
        batches="none",
    ),
    "bedrock": Provider(
        base_url="https://bedrock-mantle.${AWS_REGION}.api.aws/v1",
        key_env="AWS_BEARER_TOKEN_BEDROCK",
        login="bedrock",
        batches="none",
    ),
    "bedrock-anthropic": Provider(
        base_url="https://bedrock-mantle.${AWS_REGION}.api.aws/anthropic/v1",
        wire="messages",
        key_env="AWS_BEARER_TOKEN_BEDROCK",
        login="bedrock",
        prompt_cache="breakpoints",
        batches="none",
    ),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
        default_model="gemini-3.5-flash-lite",
        batches="none",
    ),
    "mistral": Provider(
        base_url="https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        default_model="mistral-small-latest",
        prompt_cache="key",
        batches="none",
    ),
    "deepseek": Provider(
        base_url="https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        default_model="deepseek-flash",
        batches="none",
    ),
    "groq": Provider(base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        reports_cost=True,
        prompt_cache="breakpoints",
        cache_hinted=("anthropic/", "google/gemini", "qwen/"),
        batches="none",
    ),
    "together": Provider(
        base_url="https://api.together.ai/v1",
        key_env="TOGETHER_API_KEY",
        batches="none",
    ),
    "fireworks": Provider(
        base_url="https://api.fireworks.ai/inference/v1",
        key_env="FIREWORKS_API_KEY",
        prompt_cache="key",
        batches="none",
    ),
    "xai": Provider(base_url="https://api.x.ai/v1", key_env="XAI_API_KEY", batches="none"),
    "cerebras": Provider(
        base_url="https://api.cerebras.ai/v1",
        key_env="CEREBRAS_API_KEY",
        batch_discount=0.5,
    ),
    "typesafe": Provider(
        base_url="https://api.typesafe.ai/v1",
        key_env="TYPESAFE_API_KEY",
        default_model="jev-latest",
        decisions="systemone",
        chats=False,
        context=32_000,
    ),
    "upstage": Provider(
        base_url="https://api.upstage.ai/v1",
        key_env="UPSTAGE_API_KEY",
        decisions="systemone",
        deciders=("solar-decide",),
        context=524_288,
    ),
    "digitalocean": Provider(
        base_url="https://inference.do-ai.run/v1", key_env="MODEL_ACCESS_KEY", batches="none"
    ),
    "ollama": Provider(base_url="http://127.0.0.1:11434/v1", keyless=True, batches="none"),
    "sglang": Provider(
        base_url="http://127.0.0.1:30000/v1", key_env="SGLANG_API_KEY", keyless=True
    ),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1", key_env="VLLM_API_KEY", keyless=True),
    "llamacpp": Provider(
        base_url="http://127.0.0.1:8080/v1", key_env="LLAMA_API_KEY", keyless=True, batches="none"
    ),
    "lmstudio": Provider(base_url="http://127.0.0.1:1234/v1", keyless=True, batches="none"),
    LOCAL: Provider(base_url="", default_model="qwen2.5-coder-1.5b", keyless=True, batches="none"),
}
