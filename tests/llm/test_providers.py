import sys

import pytest

from textevolve.addresses import is_loopback
from textevolve.errors import InputError, SettingsError
from textevolve.llm.providers import PROVIDERS, identify_address, normalise_url, resolve
from textevolve.settings import Price, Provider, Settings

SETTINGS = Settings()


def test_every_provider_of_the_table_is_an_address_or_local() -> None:
    for name, provider in PROVIDERS.items():
        if name == "local":
            continue
        address = provider.base_url.replace("${AZURE_OPENAI_ENDPOINT}", "https://my")
        address = address.replace("${ANTHROPIC_FOUNDRY_RESOURCE}", "my")
        address = address.replace("${AWS_REGION}", "us-east-1")
        assert normalise_url(address) == address
        assert provider.keyless or provider.key_env, name
        assert is_loopback(address) == provider.keyless
        assert provider.keyless or address.startswith("https://")


def test_an_address_of_an_account_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k" * 20)
    with pytest.raises(
        SettingsError,
        match=r"azure: set the variables of its address .*\$\{AZURE_OPENAI_ENDPOINT\}",
    ):
        resolve("azure/gpt", SETTINGS)
    identities = set[str]()
    for account in ("one", "two"):
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"https://{account}.openai.azure.com/")
        endpoint = resolve("azure/gpt", SETTINGS)
        assert endpoint.base_url == f"https://{account}.openai.azure.com/openai/v1"
        identities.add(identify_address("azure/gpt", SETTINGS))
    assert len(identities - {""}) == 2
    assert not identify_address("anthropic/claude", SETTINGS)


def test_a_login_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setitem(sys.modules, "aws_bedrock_token_generator", None)
    with pytest.raises(SettingsError, match=r"pip install 'textevolve\[bedrock\]'"):
        resolve("bedrock/m", SETTINGS)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "k" * 20)
    endpoint = resolve("bedrock-anthropic/anthropic.claude", SETTINGS)
    assert endpoint.base_url == "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1"
    assert (endpoint.wire, endpoint.key and endpoint.key.renew) == ("messages", None)


def test_a_provider_and_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-1")
    endpoint = resolve(" openrouter/meta-llama/llama-3.1-8b ", SETTINGS)
    assert endpoint.spec == "openrouter/meta-llama/llama-3.1-8b"
    assert endpoint.model == "meta-llama/llama-3.1-8b"
    assert endpoint.base_url == "https://openrouter.ai/api/v1"
    assert endpoint.key is not None
    assert endpoint.key.secret.get_secret_value() == "sk-or-1"
    assert endpoint.key.source == "OPENROUTER_API_KEY"


def test_openai_is_where_its_own_clients_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
    endpoint = resolve("openai/gpt-6-luna", Settings())
    assert (endpoint.base_url, endpoint.spec) == ("http://127.0.0.1:9/v1", "openai/gpt-6-luna")
    own_settings = Settings.model_validate(
        {"providers": {"openai": {"base_url": "http://127.0.0.1:8/v1"}}}
    )
    assert resolve("openai/gpt-6-luna", own_settings).base_url == "http://127.0.0.1:8/v1"


@pytest.mark.parametrize(
    "spec",
    ["http://host:8000#m", "http://HOST:8000/v1/#m", "http://host:8000/v1/chat/completions#m"],
)
def test_an_address_has_one_spec(spec: str) -> None:
    endpoint = resolve(spec, SETTINGS)
    assert endpoint.spec == "http://host:8000/v1#m"
    assert (endpoint.base_url, endpoint.model) == ("http://host:8000/v1", "m")


def test_only_its_own_key_is_sent_to_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    assert resolve("https://host.example/v1#gpt-6-luna", SETTINGS).key is None
    monkeypatch.setenv("TEXTEVOLVE_API_KEY", "sk-for-you")
    key = resolve("https://host.example/v1#gpt-6-luna", SETTINGS).key
    assert key is not None
    assert key.secret.get_secret_value() == "sk-for-you"


def test_settings_extend_and_override_the_table() -> None:
    settings = Settings(
        providers={
            "openai": Provider(base_url="http://127.0.0.1:9/v1", keyless=True),
            "cluster": Provider(base_url="http://node7:8000", keyless=True, default_model="big"),
        },
        prices={"cluster/big": Price(input=1, output=2), "other": Price(input=3, output=4)},
    )
    assert resolve("openai/x", settings).base_url == "http://127.0.0.1:9/v1"
    assert resolve("cluster", settings).base_url == "http://node7:8000/v1"
    assert resolve("cluster", settings).price == Price(input=1, output=2)
    assert resolve("cluster/other", settings).price == Price(input=3, output=4)
    assert resolve("cluster/unknown", settings).price is None


def test_a_missing_key_says_how_to_give_it() -> None:
    with pytest.raises((InputError, SettingsError)) as caught:
        resolve("anthropic/some-model", SETTINGS)
    message = str(caught.value)
    for way in ("ANTHROPIC_API_KEY", "keyring set textevolve anthropic"):
        assert way in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("opnai/gpt-6-luna", "did you mean 'openai'"),
        ("gpt-6-luna", "did you mean 'openai/gpt-6-luna'"),
        ("anthropic", "anthropic/MODEL"),
        ("http://host/v1?key=abc#m", "http"),
    ],
)
def test_what_cannot_be_resolved(spec: str, said: str) -> None:
    with pytest.raises((InputError, SettingsError), match=said) as caught:
        resolve(spec, SETTINGS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec", ["http://user:hunter2@host/v1#m", "https://hunter2@host/v1#m", "http://hunter2@:x#m"]
)
def test_an_address_with_a_password_is_refused_without_repeating_it(spec: str) -> None:
    with pytest.raises((InputError, SettingsError)) as caught:
        resolve(spec, SETTINGS)
    assert "hunter2" not in str(caught.value)
