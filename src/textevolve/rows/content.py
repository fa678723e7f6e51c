"""The text of files and standard input, and JSON parsed from text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError
from textevolve.reach import allowed_path, check_stdin

Row: TypeAlias = Mapping[str, Any]  # a row: the values of its columns by name
Placed: TypeAlias = tuple[str, Row]
"""The position of a row for messages, such as "cases.jsonl:3", and the row."""

STANDARD_INPUT = "-"  # the path that stands for standard input


# An escape of JSON from its backslash on. Of surrogates only one without its other half is a group.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def mend_halves(text: str) -> str:
    """Return JSON in which half a surrogate pair, which JSON can escape but no valid text contains,
    is replaced by U+FFFD. It is applied to all JSON from outside."""
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def import_pyarrow(module: str, purpose: str) -> Any:
    """Import a module of pyarrow, which is optional. `purpose`: what needs it, for the message.

    Raises:
        SettingsError: pyarrow is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise SettingsError(f'{purpose} needs pyarrow: pip install "textevolve[parquet]"') from None


def name_of(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_text(path: str, errors: str = "strict") -> Generator[IO[str]]:
    try:
        if path == STANDARD_INPUT:
            yield _standard_input(errors)
        else:
            with open(allowed_path(path), encoding="utf-8-sig", errors=errors, newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name_of(path)}: not UTF-8 text (byte {error.start}); convert it first"
        ) from None
    except OSError as error:
        raise InputError(f"{name_of(path)}: cannot be read ({error.strerror})") from None


def _standard_input(errors: str) -> IO[str]:
    """Read standard input as UTF-8, like files, and ignore the terminal's encoding."""
    check_stdin()
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed from the start
        raise InputError("standard input: is closed")
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors=errors)
    return sys.stdin


def parse_json(text: str, where: str, noun: str) -> Any:
    """Parse a text as JSON and return the value. `where`: its position for messages; `noun`: the
    word for it.

    Raises:
        InputError: it is not JSON, or an object has the same key twice (JSON would silently drop
            the first); names `where`.
    """

    def take_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            double = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{where}: the key '{double:.60}' is there twice in one object; keep one"
            )
        return row

    try:
        return json.loads(text, object_pairs_hook=take_pairs)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a {noun}: nested too deeply") from None


def take_object(row: Any, where: str, noun: str) -> Row:
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object with the fields of a {noun}")
    return cast(dict[str, Any], row)
