"""Searching a text by a regular expression that may take for ever on it.

A pattern with two repeats, or a repeated group, can need time that grows with a power of the text's
length, or doubles with each character; Python's engine cannot be interrupted. Such a pattern runs
in a process of its own, which is ended after `SECONDS`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from functools import lru_cache

from textevolve.errors import InputError, TextEvolveError

SECONDS = 2.0
TEXT_SEARCHED = 100_000
"""Of a longer text only the first so many characters are searched."""

_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}")
_GROUP_REPEATED = re.compile(r"\)(?:[*+]|\{\d+(?:,\d*)?\})")
_SCRIPT = """
import re, sys
pattern, flags, text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").split("\\0", 2)
print(re.search(pattern, text, int(flags)) is not None)
"""


class SlowPatternError(TextEvolveError):
    """A pattern took longer on a text than it may."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, ignore_case: bool = False) -> re.Pattern[str]:
    """The pattern, in which `^` and `$` are the ends of a line.

    Raises:
        InputError: it is not a regular expression, or has a NUL character.
    """
    if "\0" in pattern:
        raise InputError("the pattern has a NUL character")
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        with warnings.catch_warnings(action="ignore"):  # of what other versions may read otherwise
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"the pattern '{pattern[:60]}' cannot be used: {error}") from None


def may_be_slow(pattern: re.Pattern[str]) -> bool:
    """Whether a text can be thought of on which the pattern takes more than linear time; said of
    some that are quick, too."""
    bare = _ESCAPED.sub("a", pattern.pattern)
    return len(_REPEAT.findall(bare)) > 1 or _GROUP_REPEATED.search(bare) is not None


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Whether the pattern is found in the first `TEXT_SEARCHED` characters.

    Blocks, for up to `SECONDS`, where the pattern `may_be_slow`.

    Raises:
        SlowPatternError: it took longer.
    """
    text = text[:TEXT_SEARCHED]
    if not may_be_slow(pattern) or not sys.executable:
        return pattern.search(text) is not None
    given = f"{pattern.pattern}\0{int(pattern.flags)}\0{text}".encode("utf-8", "surrogatepass")
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            input=given,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise SlowPatternError(
            f"the pattern '{pattern.pattern[:60]}' took more than {SECONDS:g} s on a text of"
            f" {len(text):,} characters; write it without repeats inside repeats"
        ) from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise SlowPatternError(f"the pattern '{pattern.pattern[:60]}': {error}") from None
    return ran.stdout.strip() == b"True"
