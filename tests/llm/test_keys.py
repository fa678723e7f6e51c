from pathlib import Path

import pytest

from textevolve.errors import SettingsError
from textevolve.llm.providers import find_key, keys_file


@pytest.fixture
def file() -> Path:
    path = keys_file()
    path.parent.mkdir(parents=True)
    path.write_text('openai = "sk-from-file"\n"host:8000" = "sk-host"\nwrong = 3\n')
    path.chmod(0o600)
    return path


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    import keyring

    held: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: held.get((service, name)))
    return held


def test_the_environment_is_first_then_the_keyring_then_the_file(
    monkeypatch: pytest.MonkeyPatch, file: Path, ring: dict[tuple[str, str], str]
) -> None:
    def found() -> tuple[str, str]:
        key = find_key("openai", "OPENAI_API_KEY")
        assert key is not None
        return key.secret.get_secret_value(), key.source

    assert found() == ("sk-from-file", str(file))
    ring["textevolve", "openai"] = "sk-from-ring"
    assert found() == ("sk-from-ring", "the keyring")
    monkeypatch.setenv("OPENAI_API_KEY", " sk-from-environment\n")
    assert found() == ("sk-from-environment", "OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert found() == ("sk-from-ring", "the keyring")


def test_a_keyring_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    import keyring
    from keyring.errors import KeyringLocked

    def locked(service: str, name: str) -> str:
        raise KeyringLocked("locked")

    monkeypatch.setattr(keyring, "get_password", locked)
    key = find_key("openai", "OPENAI_API_KEY")
    assert key is not None
    assert key.source == str(file)


def test_a_host_has_its_line(file: Path) -> None:
    key = find_key("host:8000", "TEXTEVOLVE_API_KEY")
    assert key is not None
    assert key.secret.get_secret_value() == "sk-host"


@pytest.mark.parametrize("mode", [0o640, 0o601])
def test_a_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600") as caught:
        find_key("openai", "OPENAI_API_KEY")
    assert "sk-from-file" not in str(caught.value)


@pytest.mark.parametrize("content", ['openai = "sk-secret', b"\xff\xfe", 'openai = "sk-secret" x'])
def test_a_broken_file_is_named_and_not_quoted(file: Path, content: str | bytes) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError) as caught:
        find_key("openai", "OPENAI_API_KEY")
    assert str(file) in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_key_does_not_show(file: Path) -> None:
    assert "sk-from-file" not in repr(find_key("openai", "OPENAI_API_KEY"))
