"""Prompts by name as a file, and a chain's file with other texts in it: all else in the file stays
as its author wrote it, remarks, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
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
    changed = {name: new for name, new in after.items() if new != before[name]}
    try:
        text = read_text(file)
        nodes = [place for place in _prompt_nodes(parse_yaml(text, file)[0]) if place[0] in changed]
        nodes = [place for place in nodes if place[2].value.strip() == before[place[0]].strip()]
        if len(nodes) != len(changed):
            return None
        for name, key, node in sorted(nodes, key=lambda place: -place[2].start_mark.index):
            start, end = node.start_mark.index, node.end_mark.index
            ending = "\n" if text[start:end].endswith("\n") else ""
            text = text[:start] + _write_scalar(after[name], key, node) + ending + text[end:]
        read_chain(text, file, Path(file).parent)
        return text
    except InputError:
        return None


def _prompt_nodes(node: Any) -> Iterator[tuple[str, yaml.Node, yaml.ScalarNode]]:
    """Yield the name of each step that asks, and the key and the text of its user's message."""
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            yield from _prompt_nodes(part)
    if not isinstance(node, yaml.MappingNode):
        return
    fields = {str(key.value): (key, value) for key, value in node.value}
    if "ask" not in fields:
        for _, value in fields.values():
            yield from _prompt_nodes(value)
        return
    name = str(fields.get("name", fields["ask"])[1].value)
    messages = fields["messages"][1].value if "messages" in fields else []
    users = [{str(k.value): (k, v) for k, v in one.value} for one in messages]
    users = [one for one in users if "role" in one and one["role"][1].value == "user"]
    prompt = fields.get("prompt") or (users[-1].get("content") if users else None)
    if prompt is not None and isinstance(prompt[1], yaml.ScalarNode):
        yield name, *prompt


def _write_scalar(text: str, key: yaml.Node, node: yaml.ScalarNode) -> str:
    """A text as YAML: a block below its key if a block stood there, else quoted."""
    plain = all(line == line.rstrip() and line.isprintable() for line in text.splitlines())
    if node.style not in ("|", ">") or "\n" not in text or not plain or text[:1].isspace():
        return json.dumps(text, ensure_ascii=False)
    return "|-\n" + indent(text, " " * (key.start_mark.column + 2))
