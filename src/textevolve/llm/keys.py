"""Where a key is found: the environment, the system's keyring, or a file only its owner can read.

What stands in the environment or the file may also say where the key is: `cmd:pass show openai`
(what a program prints), `file:/run/secrets/openai`, `env:NAME`, `keyring:SERVICE/USER`. So a key
that is renewed where it is kept is read anew once an endpoint refuses the old one.
A key is a `SecretStr` from here on. It is never a setting, and no message says a part of it.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from platformdirs import user_config_path
from pydantic import SecretStr

from textevolve.errors import SettingsError

SERVICE = "textevolve"
"""The name under which a keyring holds our keys; the user name there is the provider's name."""
COMMAND_LIMIT = 120.0
"""Seconds that a program may take to print a key: it may ask its user first."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and, in words, where it was found. `again` looks there anew; see `find_key`."""

    secret: SecretStr
    source: str
    again: Callable[[], Key | None] | None = None


def keys_file() -> Path:
    """`keys.toml` in the folder of settings: one line `provider = "key"` for each."""
    return user_config_path("textevolve") / "keys.toml"


def find_key(provider: str, variable: str, *, ask_keyring: bool = True) -> Key | None:
    """The key of `provider`, or None. `variable` is looked up in the environment first.

    Raises:
        SettingsError: the file of keys cannot be used, or others than its owner may read it; or
            there is no key where one of them says that it is.
    """
    again = partial(_find_again, provider, variable, ask_keyring)
    if found := os.environ.get(variable, "").strip():
        return _follow(found, variable, again)
    if ask_keyring and (found := _from_keyring(SERVICE, provider)):
        return Key(SecretStr(found), "the keyring", again)
    path = keys_file()
    if found := _from_file(path, provider):
        return _follow(found, str(path), again)
    return None


SETTINGS = "the settings"


def find_headers(headers: Mapping[str, SecretStr]) -> dict[str, Key]:
    """The values of a provider's headers, those that are kept elsewhere from there.

    Raises:
        SettingsError: there is none where a header says that it is.
    """
    return {
        name: _follow(value.get_secret_value(), SETTINGS, lambda: None)
        for name, value in headers.items()
    }


def _find_again(provider: str, variable: str, ask_keyring: bool) -> Key | None:
    _printed_key.cache_clear()
    return find_key(provider, variable, ask_keyring=ask_keyring)


def _follow(found: str, where: str, again: Callable[[], Key | None]) -> Key:
    """The key in `found`, or that which it points to."""
    form, colon, place = found.partition(":")
    readers = {"cmd": _printed_key, "file": _key_in_file, "env": _key_in_variable}
    if not colon or form not in (*readers, "keyring"):
        return Key(SecretStr(found), where, again)
    # Of a command only the program is named: its arguments may hold a token.
    named = " ".join(found.split(maxsplit=1)[:1]) if form == "cmd" else found
    source = f"{named} (as {where} says)"
    if form == "keyring":
        service, _, user = place.strip().rpartition("/")
        key = _from_keyring(service or SERVICE, user)
    else:
        key = readers[form](place.strip(), source)
    if not key:
        raise SettingsError(f"{source}: there is no key; put one there, or mend what is said")
    return Key(SecretStr(key), source, again)


@lru_cache(maxsize=64)
def _printed_key(command: str, source: str) -> str:
    """The first line that a program prints, which is run once for each process. Without a shell."""
    try:
        parts = shlex.split(command)
        done = subprocess.run(
            parts, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{source}: no key in {COMMAND_LIMIT:g} s") from None
    except (OSError, ValueError, IndexError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"{source}: cannot be run: {said}") from None
    printed = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        # What it says may hold a part of what it knows: it is shown only where nothing was printed.
        lines = [] if printed else done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        raise SettingsError(f"{source}: ended with exit code {done.returncode}{said}")
    return printed.splitlines()[0].strip() if printed else ""


def _key_in_file(place: str, source: str) -> str:
    try:
        return Path(place).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a text file"
        raise SettingsError(f"{source}: cannot be read: {said}") from None


def _key_in_variable(place: str, source: str) -> str:
    return os.environ.get(place, "").strip()


def _from_keyring(service: str, user: str) -> str | None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(service, user)
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
