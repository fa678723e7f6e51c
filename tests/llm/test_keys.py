import pytest

from textevolve.llm.providers import find_key


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    import keyring

    fields: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: fields.get((service, name)))
    return fields


def test_the_environment_is_first_then_the_keyring(
    monkeypatch: pytest.MonkeyPatch, ring: dict[tuple[str, str], str]
) -> None:
    def found() -> tuple[str, str]:
        key = find_key("openai", "OPENAI_API_KEY")
        assert key is not None
        assert "sk-" not in repr(key)
        return key.secret.get_secret_value(), key.source

    assert find_key("openai", "OPENAI_API_KEY") is None
    ring["textevolve", "openai"] = "sk-from-ring"
    assert found() == ("sk-from-ring", "the keyring")
    monkeypatch.setenv("OPENAI_API_KEY", " sk-from-environment\n")
    assert found() == ("sk-from-environment", "OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert found() == ("sk-from-ring", "the keyring")


def test_a_keyring_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.errors import KeyringLocked

    def locked(service: str, name: str) -> str:
        raise KeyringLocked("locked")

    monkeypatch.setattr(keyring, "get_password", locked)
    assert find_key("openai", "OPENAI_API_KEY") is None
