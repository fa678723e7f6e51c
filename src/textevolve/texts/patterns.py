"""Searches of texts by the user's regular expressions, with a time limit.

The time of a search may grow with a power of the text's length if the pattern has repeats, or
exponentially if it has a repeated group or many alternatives; and Python's engine cannot be
interrupted. A search that may take more than `STEPS` steps is therefore run in a process of its
own, which is ended after `SECONDS`.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, lru_cache, partial
from typing import ParamSpec, TypeVar

from textevolve.errors import InputError, TextEvolveError
from textevolve.loading import late_re
from textevolve.texts.prose import compose

SECONDS = 2.0  # the time limit of a search in a process of its own
TEXT_SEARCHED = 100_000
"""The number of characters at the beginning of a text that are searched."""

STEPS = 20_000_000
"""The number of comparisons that a search may take within this process: less than a tenth of a
second."""
AT_ONCE = 4
"""The number of concurrent searches, so that slow patterns leave other threads free."""

P = ParamSpec("P")
T = TypeVar("T")

_ESCAPED = late_re(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEAT = late_re(r"[*+]|\{\d*,\}")
_REFERENCE = late_re(r"\\[1-9]|\(\?P=")
_TIMES = late_re(r"\{(?:\d*,)?(\d+)\}")
_OPTIONAL = late_re(r"(?<![(*+?}])\?")
_GROUP_REPEATED = late_re(r"\)(?:[*+]|\{\d*,?\d*\})|\(\?(?:#|[a-zA-Z]*x)")
"""A group that is repeated. A pattern in verbose mode counts as well, since comments or white space
may stand between a group and its repeat."""
_SCRIPT = """
import re, sys
pattern, flags, text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").split("\\0", 2)
print(re.search(pattern, text, int(flags)) is not None)
"""


class SlowPatternError(TextEvolveError):
    """The search for a pattern exceeded its time limit, or its process failed."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a regular expression in which `^` and `$` match at the ends of each line.

    Raises:
        InputError: it is not a regular expression, or has a NUL character.
    """
    if "\0" in pattern:
        raise InputError("the pattern has a NUL character")
    pattern = compose(pattern)
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)

    try:
        with warnings.catch_warnings(action="ignore"):  # of what other versions may read otherwise
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"the pattern '{pattern[:60]}' cannot be used: {error}") from None


def may_be_slow(pattern: str, length: int) -> bool:
    """Estimate whether a pattern may need more than `STEPS` steps on a text of this length. Some
    fast patterns count as slow, since the estimate assumes the worst case of each repeat and group.
    """
    bare = _ESCAPED.sub("a", pattern)
    repeats = 1 + len(_REPEAT.findall(bare)) + len(_REFERENCE.findall(pattern))
    groups = 1 + bare.count("(")
    steps = repeats * math.log(length + 1) + math.log(len(pattern) + 1)
    steps += groups * math.log(1 + bare.count("|") / groups)
    steps += math.log(2) * len(_OPTIONAL.findall(bare))
    steps += sum(math.log(float(times) + 1) for times in _TIMES.findall(bare))

    return steps > math.log(STEPS) or _GROUP_REPEATED.search(bare) is not None


async def search_apart(search: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that searches for patterns, and return its result. It runs in a thread pool
    that is reserved for searches, so that a slow pattern blocks neither the event loop nor other
    threads."""
    work = partial(copy_context().run, search, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), work)


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process; a forked process does not inherit the threads of its
    parent."""
    return ThreadPoolExecutor(AT_ONCE, "textevolve-pattern")


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether the pattern, which is in Unicode's composed form, matches anywhere in the
    first `TEXT_SEARCHED` characters of a text in any form.

    Blocks for up to `SECONDS` if the pattern `may_be_slow`; in async code, call it by
    `search_apart`.

    Raises:
        SlowPatternError: it took longer, or the process of the search failed.
    """
    text = compose(text[:TEXT_SEARCHED])
    if not may_be_slow(pattern.pattern, len(text)) or not sys.executable:
        return pattern.search(text) is not None
    key = f"{pattern.pattern}\0{int(pattern.flags)}\0{text}".encode("utf-8", "surrogatepass")

    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            input=key,
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
