"""Settings: defaults, files, environment, what the caller says; and errors that name the source."""

from pathlib import Path

import pytest

from textevolve import Settings, SettingsError
from textevolve import settings as settings_module
from textevolve.settings import read_settings, read_settings_sources, settings_files


@pytest.fixture
def config(home):
    path = home / "home" / "textevolve" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_defaults_lie_in_the_users_folders(home, monkeypatch):
    monkeypatch.delenv("TEXTEVOLVE_STORE")
    settings, sources = read_settings_sources()
    assert settings == Settings()
    assert sources == {}
    assert settings.store == home / "home" / "textevolve" / "textevolve.db"
    assert settings.weights_folder == home / "home" / "textevolve" / "weights"


def test_later_sources_win(home, config, monkeypatch):
    config.write_text('model = "ollama/a"\nprofile = "one"\nconcurrency = 1\n')
    Path("textevolve.toml").write_text('profile = "two"\nconcurrency = 2\n')
    monkeypatch.setenv("TEXTEVOLVE_CONCURRENCY", "3")
    settings, sources = read_settings_sources(store="given.db", model=None)
    assert (settings.model, settings.profile, settings.concurrency) == ("ollama/a", "two", 3)
    assert settings.store == Path("given.db")
    assert sources == {
        "model": str(config),
        "profile": "textevolve.toml",
        "concurrency": "TEXTEVOLVE_CONCURRENCY",
        "store": "option",
    }


def test_tables_of_two_files_are_laid_over_each_other(home, config):
    config.write_text('[providers.a]\nbase_url = "http://a/v1"\n[timeouts]\nread = 5\n')
    Path("textevolve.toml").write_text('[providers.b]\nbase_url = "http://127.0.0.1:9/v1"\n')
    settings = read_settings()
    assert set(settings.providers) == {"a", "b"}
    assert settings.timeouts.read == 5
    assert settings.timeouts.total == 300


def test_one_file_can_be_named_and_is_then_the_only_one(home, config, monkeypatch):
    config.write_text("concurrency = 1\n")
    (home / "mine.toml").write_text('profile = "mine"\n')
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(home / "mine.toml"))
    settings = read_settings()
    assert settings_files() == (home / "mine.toml",)
    assert (settings.profile, settings.concurrency) == ("mine", None)


def test_a_wrong_variable_is_named(home, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_CONCURRENCY", "0")
    with pytest.raises(SettingsError, match=r"TEXTEVOLVE_CONCURRENCY: concurrency.*greater than"):
        read_settings()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model =", "textevolve.toml: not valid TOML"),
        ("modle = 'x'", "textevolve.toml: modle: there is no such setting; did you mean 'model'"),
        ("[timeouts]\nread = -1", "textevolve.toml: timeouts.read: .*greater than 0"),
    ],
)
def test_a_wrong_file_is_named(home, text, reason):
    Path("textevolve.toml").write_text(text)
    with pytest.raises(SettingsError, match=reason):
        read_settings()


def test_a_file_that_cannot_be_read_is_named(home):
    Path("textevolve.toml").mkdir()
    with pytest.raises(SettingsError, match=r"textevolve.toml: cannot be read .*Is a directory"):
        read_settings()


FAULTS = {
    "providers": (
        "[providers.mine]\nbase_url = 3\n",
        '[providers.other]\nbase_url = "http://127.0.0.1:9/v1"\n',
    ),
    "timeouts": ("[timeouts]\nread = -1\n", "[timeouts]\nconnect = 2.0\n"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_file_with_a_fault_is_named(home, monkeypatch, name):
    """Both files set entries of one table, and the fault is in the user's own."""
    users_text, project_text = FAULTS[name]
    own_file = home / "own.toml"
    own_file.write_text(users_text)
    Path("textevolve.toml").write_text(project_text)
    files = (own_file, settings_module.PROJECT_FILE)
    monkeypatch.setattr(settings_module, "settings_files", lambda: files)
    with pytest.raises(SettingsError, match=f"^{own_file}: {name}"):
        read_settings()
