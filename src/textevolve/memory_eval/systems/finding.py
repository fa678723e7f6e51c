"""From a spec such as `context:last=50` to a memory system: those shipped, and the user's own.

none                     keeps nothing
context, context:last=N  keeps every turn, or the last N
http:URL                 a service over HTTP; a bare http(s):// address is one, too
mem0, mem0:CONFIG.yaml   the open-source package mem0
textevolve               TextEvolve's own memories, which a run opens (`studies`)
MODULE:ATTRIBUTE         a class or a function that makes one; also FILE.py:ATTRIBUTE
NAME                     an entry point of the group `textevolve.memory_systems`
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, TextEvolveError
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.system import MemorySystem
from textevolve.memory_eval.systems.adapter import Adapted
from textevolve.memory_eval.systems.baselines import NoMemory, WholeContext
from textevolve.reach import check_code
from textevolve.settings import Settings, read_settings
from textevolve.user_code import load_file, load_point

GROUP = "textevolve.memory_systems"
SHIPPED: Mapping[str, str] = {
    "none": "keeps nothing: the floor to compare with",
    "context": "keeps every turn; context:last=N the last N turns",
    "http": "a service over HTTP: http:URL, or a bare http(s):// address",
    "textevolve": "our own memories; textevolve:NAME=VALUE,... with options",
    "mem0": "the open-source package mem0; mem0:CONFIG.yaml with a configuration",
    "recorded": "results that the data holds already: nothing is fed",
}


def describe_systems() -> dict[str, str]:
    """A line on each system that can be named, those of installed packages included."""
    installed = {point.name: f"installed: {point.value}" for point in entry_points(group=GROUP)}
    return {**installed, **SHIPPED}


def open_system(spec: str, settings: Settings | None = None) -> MemorySystem:
    """The memory system that a spec names. Nothing is sent yet. `settings`: those in force, unless
    given.

    Raises:
        InputError: there is no such system, or it cannot be made.
        SettingsError: a configuration, a key or a package that it needs is wrong or missing.
    """
    spec = spec.strip()
    name, colon, rest = spec.partition(":")
    if name == "none" and not colon:
        return NoMemory()
    if name == "context":
        return WholeContext(_read_last(spec, rest) if colon else None)
    if name == "recorded" and not colon:
        raise InputError("recorded: no system to feed, its results are in the data")
    settings = settings or read_settings()[0]
    if name.lower() in ("http", "https"):
        from textevolve.memory_eval.systems.http_system import open_http

        address = rest if rest.lower().startswith(("http://", "https://")) else spec
        return open_http(address, settings)
    if name == "mem0":  # its configuration names files and addresses
        check_code(spec)
        from textevolve.memory_eval.systems.mem0_system import open_mem0

        return open_mem0(rest or None, settings)
    return Adapted(_make(spec, _find(spec)), spec, settings.timeouts.deadline)


def _read_last(spec: str, rest: str) -> int:
    key, _, number = rest.partition("=")
    if key != "last" or not re.fullmatch("[0-9]+", number) or int(number) < 1:
        raise InputError(f"system '{spec}': give context, or context:last=N with N of 1 or more")
    return int(number)


def _find(spec: str) -> object:
    """What a spec of the user's own names."""
    module, colon, attribute = spec.rpartition(":")
    if colon:
        check_code(spec)
    try:
        if not colon:
            return _find_installed(spec)
        loaded = load_file(Path(module)) if module.endswith(".py") else None
        found: object = loaded or importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        missing = f" (there is no module '{error.name}')"
        raise InputError(f"system '{spec}': cannot be loaded{missing}{_suggest(spec)}") from None
    except Exception as error:
        raise InputError(f"system '{spec}': cannot be loaded ({_said(error)})") from error
    return found


def _find_installed(name: str) -> object:
    for point in entry_points(group=GROUP, name=name):
        return load_point(point)
    raise InputError(f"no memory system '{name}'{_suggest(name)}")


def _suggest(spec: str) -> str:
    known = list(describe_systems())
    near = difflib.get_close_matches(spec.partition(":")[0], known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are {', '.join(known)}, MODULE:ATTRIBUTE and FILE.py:ATTRIBUTE"


def _make(spec: str, found: object) -> object:
    """Calls a class or a factory; what is a system already stays as it is."""
    if not inspect.isclass(found) and hasattr(found, "add"):
        return found
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise InputError(f"system '{spec}': is neither a memory system nor a plain function")
    make: Any = found
    try:
        return make()
    except TextEvolveError:
        raise
    except Exception as error:
        raise InputError(f"system '{spec}': cannot be made ({_said(error)})") from error


def _said(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}").rstrip(": ")
