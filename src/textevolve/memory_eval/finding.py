"""Open the memory system that a spec such as `context` names: a shipped one, or the user's own.

none                     stores nothing
context                  stores every turn
http:URL                 a service over HTTP; a bare http(s):// address is one, too
mem0, mem0:CONFIG.yaml   the open-source package mem0
textevolve               TextEvolve's own memories, which a run opens (`studies`)
MODULE:ATTRIBUTE         a class or a function that creates one; also FILE.py:ATTRIBUTE
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, TextEvolveError, describe_error
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.systems import Adapted, MemorySystem, NoMemory, WholeContext
from textevolve.reach import check_code
from textevolve.settings import Settings, read_settings
from textevolve.spec import suggest
from textevolve.user_code import load_object

SHIPPED = ("none", "context", "http", "textevolve", "mem0", "recorded")
"""The names with which the specs of shipped systems begin."""


def names_code(spec: str) -> bool:
    """Tell whether a spec names a memory system of the user: a module, a file, or an object."""
    name, colon, _ = spec.strip().partition(":")
    return bool(colon) and name.lower() not in (*SHIPPED, "https")


def open_system(spec: str, settings: Settings | None = None) -> MemorySystem:
    """Open the memory system that a spec names, without sending requests. `settings`: the current
    ones by default.

    Raises:
        InputError: the system does not exist or cannot be created.
        SettingsError: a configuration, a key or a package that it needs is wrong or missing.
    """
    spec = spec.strip()
    if spec == "none":
        return NoMemory()
    if spec == "context":
        return WholeContext()
    if spec == "recorded":
        raise InputError(
            "recorded: this system only reads results from the data; it takes no dialogues"
        )

    settings = settings or read_settings()
    name, _, argument = spec.partition(":")

    if name.lower() in ("http", "https"):
        from textevolve.memory_eval.http_system import open_http

        address = argument if argument.lower().startswith(("http://", "https://")) else spec
        return open_http(address, settings)

    if name == "mem0":  # its configuration names files and addresses
        check_code(spec)
        from textevolve.memory_eval.mem0_system import Mem0System

        return Mem0System(argument or None, settings)

    return Adapted(_make(spec), spec, settings.timeouts.deadline)


def _make(spec: str) -> object:
    """Call the class or factory that a spec names; return an object that is a system unchanged."""
    try:
        if ":" not in spec:
            choices = (*SHIPPED, "MODULE:ATTRIBUTE", "FILE.py:ATTRIBUTE")
            raise InputError(f"no memory system '{spec}'{suggest(spec, choices)}")
        target: Any = load_object(spec, Path())
        if not inspect.isclass(target) and hasattr(target, "add"):
            return target
        if not callable(target) or inspect.iscoroutinefunction(target):
            raise InputError(
                f"system '{spec}': there is no such class or function"
                if target is None
                else f"system '{spec}': is neither a memory system nor a plain function"
            )

        return target()
    except TextEvolveError:
        raise
    except Exception as error:
        message = one_line(describe_error(error))
        raise InputError(f"system '{spec}': cannot be created ({message})") from error
