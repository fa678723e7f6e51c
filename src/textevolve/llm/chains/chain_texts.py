"""Prompts by name as a file, and a chain's file with other texts in it: all else in the file stays
as its author wrote it, remarks, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

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
    """The text of a chain's file with the prompts `after` in the place of those `before`, by the
    names of its steps; None where it cannot be had so, as where a prompt stands in another file."""
    try:
        text = read_text(file)
        root = parse_yaml(text, file)[0]
        changed = {name: new for name, new in after.items() if new != before[name]}
        cuts = [
            (node, after[name], flat)
            for name, node, flat in _prompt_nodes(root)
            if name in changed and node.value.strip() == before[name].strip()
        ]
        if len(cuts) != len(changed):
            return None
        for node, new, flat in sorted(cuts, key=lambda cut: -cut[0].start_mark.index):
            start, end = node.start_mark.index, node.end_mark.index
            ending = "\n" if text[start:end].endswith("\n") else ""
            text = text[:start] + _scalar(new, flat, node) + ending + text[end:]
        read_chain(text, file, Path(file).parent)
        return text
    except InputError:
        return None


def _prompt_nodes(node: Any, flat: bool = False) -> Iterator[tuple[str, yaml.ScalarNode, bool]]:
    """Each step's name, and where the text stands that is its user's; whether within brackets."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _prompt_nodes(one, flat or bool(node.flow_style))
    if not isinstance(node, yaml.MappingNode):
        return
    flat = flat or bool(node.flow_style)
    found = {str(key.value): value for key, value in node.value}
    if "ask" in found:
        name = str(found.get("name", found["ask"]).value)
        last = found.get("prompt") or _last_user(found.get("messages"))
        if isinstance(last, yaml.ScalarNode):
            yield name, last, flat or last is not found.get("prompt")
        return
    for value in found.values():
        yield from _prompt_nodes(value, flat)


def _last_user(messages: Any) -> Any:
    told = [{str(k.value): v for k, v in one.value} for one in getattr(messages, "value", ())]
    users = [one for one in told if "role" in one and one["role"].value == "user"]
    return users[-1].get("content") if users else None


def _scalar(text: str, flat: bool, node: yaml.ScalarNode) -> str:
    """A text as YAML: a block below its key where it has lines and may stand so, else quoted."""
    plain = all(line == line.rstrip() and line.isprintable() for line in text.splitlines())
    if flat or "\n" not in text or not plain or text[:1].isspace():
        return json.dumps(text, ensure_ascii=False)
    key = node.start_mark.buffer
    before = "" if key is None else key[: node.start_mark.pointer].rpartition("\n")[2]
    dash = len(before) - len(before.lstrip(" -"))
    lines = (f"{' ' * (dash + 2)}{line}" if line else "" for line in text.split("\n"))
    return "\n".join(["|-", *lines])
