"""Prompts by name as a file, and the data of a chain's file with other texts in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.llm.chains.chain_file import read_chain
from textevolve.rows import read_text
from textevolve.texts.yaml_lines import dump_yaml, parse_yaml


def write_prompts(prompts: Mapping[str, str]) -> str:
    """Prompts by name as YAML, which `read_prompts` reads."""
    return dump_yaml(dict(prompts))


def read_prompts(text: str, source: str) -> dict[str, str]:
    """Prompts by name, from YAML or JSON.

    Raises:
        InputError: it is no mapping of names to texts.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = parse_yaml(text, source)[1]
    wrong = f"{source}: several templates are a mapping of names to texts, as in 'draft: Write ...'"
    if not isinstance(found, Mapping) or not found:
        raise InputError(wrong)
    told = cast("Mapping[object, object]", found)
    for name, one in told.items():
        if not isinstance(name, str) or not isinstance(one, str) or not one.strip():
            raise InputError(f"{wrong}; not so: {name!r:.60}")
    return {str(name): str(one).replace("\r\n", "\n") for name, one in told.items()}


def write_chain_texts(file: str, before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """The YAML of a chain's file with the prompts `after` instead of `before`, by the names of its
    steps; None if that is impossible, as for a prompt in another file."""
    changed = {name: text for name, text in after.items() if text != before[name]}
    try:
        data = parse_yaml(read_text(file), file)[1]
        for step in _find_asks(data):
            message = step if "prompt" in step else _last_user(step)
            name, field = step.get("name", step["ask"]), "prompt" if "prompt" in step else "content"
            if name in changed and str(message.get(field)).strip() == before[name].strip():
                message[field] = changed.pop(name)
        text = dump_yaml(data)
        read_chain(text, file, Path(file).parent)
    except InputError:
        return None
    return None if changed else text


def _find_asks(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps that ask a model."""
    if isinstance(node, dict) and "ask" in node:
        yield cast("dict[str, Any]", node)
        return
    inner = cast("dict[str, Any]", node).values() if isinstance(node, dict) else node
    for part in cast("Iterable[Any]", inner) if isinstance(node, dict | list) else ():
        yield from _find_asks(part)


def _last_user(step: Mapping[str, Any]) -> dict[str, Any]:
    users = [one for one in step.get("messages") or () if one.get("role") == "user"]
    return users[-1] if users else {}
