"""Where a key is found: the environment, the system's keyring, or a file only its owner can read.

A key is a `SecretStr` from here on. It is never a setting, and no message says a part of it.
"""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from pydantic import SecretStr

from textevolve.errors import SettingsError

SERVICE = "textevolve"
"""The name under which a keyring holds our keys; the user name there is the provider's name."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and, in words, where it was found."""

    secret: SecretStr
    source: str


def keys_file() -> Path:
    """`keys.toml` in the folder of settings: one line `provider = "key"` for each."""
    return user_config_path("textevolve") / "keys.toml"


def find_key(provider: str, variable: str, *, ask_keyring: bool = True) -> Key | None:
    """The key of `provider`, or None. `variable` is looked up in the environment first.

    Raises:
        SettingsError: the file of keys cannot be used, or others than its owner may read it.
    """
    if found := os.environ.get(variable, "").strip():
        return Key(SecretStr(found), variable)
    if ask_keyring and (found := _from_keyring(provider)):
        return Key(SecretStr(found), "the keyring")
    path = keys_file()
    if found := _from_file(path, provider):
        return Key(SecretStr(found), str(path))
    return None


def _from_keyring(provider: str) -> str | None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(SERVICE, provider)
    except (KeyringError, RuntimeError, OSError):
        return None  # no keyring runs here, or it stays locked: the file is next


def _from_file(path: Path, provider: str) -> str | None:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & 0o077:
                raise SettingsError(
                    f"{path}: others may read this file of keys (mode {stat.S_IMODE(mode):o}); "
                    f"run: chmod 600 {path}"
                )
            keys: dict[str, Any] = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{path}: cannot be read; mend or remove it") from None
    key = keys.get(provider)
    if key is not None and not isinstance(key, str):
        raise SettingsError(
            f'{path}: the key of {provider} is not a text; write {provider} = "..."'
        )
    return key.strip() if key else None
