"""Read prompt templates of LangChain: its objects, and what it saved of them as JSON or YAML.

Templates in Python's format (f-strings) and in Jinja become texts and slots. What a template here
cannot hold is refused: formats, logic, placeholders for whole messages, pictures. Neither LangChain
nor any code of the template is run.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import Any, cast

import jinja2
from jinja2 import nodes

from textevolve.errors import InputError
from textevolve.json_texts import as_array, as_object
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    TemplatePart,
    check_role,
    merge,
)
from textevolve.texts.yaml_lines import parse_yaml

_ROLES = {"Human": "user", "AI": "assistant", "System": "system"}


def find_langchain_prompt(source: object, name: str = "prompt") -> ChatTemplate | None:
    """Return the template in a LangChain object, or in the text or data of a saved one; None if the
    source is none. `name`: of the source, in messages.

    Raises:
        InputError: the prompt has something that a template here cannot hold.
    """
    if isinstance(source, str):
        # Every saved prompt has one of these fields, and hardly any other text does.
        if '"lc"' not in source and "_type" not in source and "lc:" not in source:
            return None
        try:
            source = json.loads(source)
        except (ValueError, RecursionError):
            try:
                source = parse_yaml(source, name)[1]
            except InputError:
                return None

    kind, fields = _open(source)
    if not kind:
        return None
    try:
        held = as_object(fields.get("partial_variables"))
        return ChatTemplate(tuple(_read_messages(kind, fields, held)))
    except InputError as error:
        raise InputError(f"{name}: the LangChain prompt cannot be read: {error}") from None


def _open(source: object) -> tuple[str, Mapping[str, Any]]:
    """Return the class of a LangChain object, or of a saved one, and its fields; empty if the
    source is none."""
    if type(source).__module__.startswith("langchain_core.") and hasattr(source, "to_json"):
        source = cast("Any", source).to_json()
    data = as_object(source)
    if data.get("lc") is not None:
        names = as_array(data.get("id"))
        return (str(names[-1]) if names else "object"), as_object(data.get("kwargs"))
    if "_type" in data and ("input_variables" in data or "template" in data):
        return str(data["_type"]).replace("prompt", "PromptTemplate"), data

    return "", {}


def _read_messages(
    kind: str, fields: Mapping[str, Any], held: Mapping[str, Any]
) -> list[TemplateMessage]:
    if kind == "PromptTemplate":
        return [TemplateMessage("user", _read_prompt(fields, held))]
    if kind != "ChatPromptTemplate":
        raise InputError(f"the type {kind} is none of PromptTemplate and ChatPromptTemplate")
    messages: list[TemplateMessage] = []

    for message in as_array(fields.get("messages")):
        kind, inner = _open(message)
        role = _ROLES.get(kind.removesuffix("PromptTemplate").removesuffix("Message"))
        content = inner.get("content")
        prompt_kind, prompt = _open(inner.get("prompt"))
        if isinstance(content, str):
            parts = merge([content])
        elif prompt_kind == "PromptTemplate":
            parts = _read_prompt(prompt, held)
        else:
            raise InputError(f"{kind or 'a message'} has no text with placeholders alone")
        messages.append(TemplateMessage(check_role(role or inner.get("role", kind)), parts))

    return messages


def _read_prompt(fields: Mapping[str, Any], held: Mapping[str, Any]) -> tuple[TemplatePart, ...]:
    """Return the parts of a prompt's text, with the values that it or its chat holds filled in."""
    text = fields.get("template")
    if not isinstance(text, str):
        raise InputError("it has no text in the field template; put the text of its file there")
    form = fields.get("template_format", "f-string")
    if form == "f-string":
        parts = _read_f_string(text)
    elif form == "jinja2":
        parts = _read_jinja(text)
    else:
        raise InputError(f"the format {form} is none of f-string and jinja2")

    values = {**held, **as_object(fields.get("partial_variables"))}
    filled: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) or part.name not in values:
            filled.append(part)
            continue
        value = values[part.name]
        if not isinstance(value, str):
            raise InputError(f"the value that it holds for '{part.name}' is no text")
        filled.append(value)

    return merge(filled)


def _read_f_string(text: str) -> list[TemplatePart]:
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"not an f-string: {error}") from None

    parts: list[TemplatePart] = []
    for plain, name, spec, conversion in pieces:
        parts.append(plain)
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise InputError(f"the braces of '{name}' hold no plain name; format the value before")
        parts.append(Slot(name))

    return parts


def _read_jinja(text: str) -> list[TemplatePart]:
    try:
        template = jinja2.Environment().parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"line {error.lineno}: {error.message}") from None

    parts: list[TemplatePart] = []
    for output in template.body:
        if not isinstance(output, nodes.Output):
            raise InputError(f"line {output.lineno}: has logic ({type(output).__name__})")
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                parts.append(node.data)
            else:
                parts.append(Slot(_name_of(node)))

    return parts


def _name_of(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{_name_of(node.node)}.{node.attr}"
    raise InputError(
        f"line {node.lineno}: braces hold more than a name ({type(node).__name__}); compute the"
        " value before"
    )
