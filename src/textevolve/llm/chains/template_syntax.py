"""Templates in the syntaxes of others: f-string and Jinja, to parts and back.

What is written is read again before it is given out, so a conversion is exact or refused. What has
logic (loops, conditions, filters, formats) is no template of ours and is refused, too: a chain has
branches and maps for that.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from textevolve.errors import InputError
from textevolve.llm.chains.chat_template import (
    NAME,
    Slot,
    TemplatePart,
    merge,
    read_text_template,
    write_text_template,
)

Syntax: TypeAlias = Literal["text", "f-string", "jinja2"]
"""`text` is ours: `{name}` and `{{ name }}`, other braces as they stand."""


def read_syntax(text: str, syntax: Syntax = "text") -> tuple[TemplatePart, ...]:
    """The parts of a template's text.

    Raises:
        InputError: there is something in it that no slot can stand for.
    """
    return _find(syntax)[0](text)


def write_syntax(parts: Sequence[TemplatePart], syntax: Syntax = "text") -> str:
    """The text of a template, which `read_syntax` makes the same parts of.

    Raises:
        InputError: the syntax has no way to write it.
    """
    parts = merge(parts)
    read, write = _find(syntax)
    text = write(parts)
    if syntax != "text" and read(text) != parts:  # that of ours sees to it
        raise InputError(f"the template holds braces as plain text that {syntax} cannot write")
    return text


class _Reader(Protocol):
    def __call__(self, text: str, /) -> tuple[TemplatePart, ...]: ...


class _Writer(Protocol):
    def __call__(self, parts: Sequence[TemplatePart], /) -> str: ...


def _find(syntax: str) -> tuple[_Reader, _Writer]:
    """How templates are read and written."""
    if syntax not in _SYNTAXES:
        raise InputError(f"no syntax '{syntax}'; there are: {', '.join(_SYNTAXES)}")
    return _SYNTAXES[syntax]


def _read_f_string(text: str) -> tuple[TemplatePart, ...]:
    parts: list[TemplatePart] = []
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"not an f-string template: {error}") from None
    for plain, name, spec, conversion in pieces:
        parts.append(plain)
        if name is None:
            continue
        shown = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}"
        if spec or conversion:
            raise InputError(f"{shown}: a format cannot be converted; format the value in a step")
        if not name.isidentifier():
            raise InputError(f"{shown}: only a plain name can be converted")
        parts.append(Slot(name))
    return merge(parts)


def _write_f_string(parts: Sequence[TemplatePart]) -> str:
    dotted = [part.name for part in parts if isinstance(part, Slot) and "." in part.name]
    if dotted:
        raise InputError(f"{{{dotted[0]}}}: the field of a value cannot stand in an f-string")
    return "".join(
        part.replace("{", "{{").replace("}", "}}") if isinstance(part, str) else f"{{{part.name}}}"
        for part in parts
    )


def _read_jinja(text: str) -> tuple[TemplatePart, ...]:
    from jinja2 import Environment, TemplateSyntaxError, nodes

    try:
        tree = Environment(autoescape=False).parse(text)  # only parsed, and never run
    except TemplateSyntaxError as error:
        raise InputError(f"line {error.lineno}: not a Jinja template: {error.message}") from None
    parts: list[TemplatePart] = []
    for node in tree.body:
        if not isinstance(node, nodes.Output):
            what = type(node).__name__.lower()
            raise InputError(f"line {node.lineno}: '{what}' of Jinja cannot be converted")
        for one in node.nodes:
            if isinstance(one, nodes.TemplateData):
                parts.append(one.data)
            elif isinstance(one, nodes.Const) and isinstance(one.value, str):
                parts.append(one.value)
            else:
                parts.append(Slot(_jinja_name(one)))
    return merge(parts)


def _jinja_name(node: Any) -> str:
    from jinja2 import nodes

    if isinstance(node, nodes.Name) and re.fullmatch(NAME, node.name):
        return node.name
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name | nodes.Getattr):
        return f"{_jinja_name(node.node)}.{node.attr}"
    what = type(node).__name__.lower()
    raise InputError(f"line {node.lineno}: only names can be converted, and not this ({what})")


_JINJA_MARKS = re.compile(r"\{(?=[{%#])|\{$|\r|\n$")


def _write_jinja(parts: Sequence[TemplatePart]) -> str:
    texts: list[str] = []
    for n, part in enumerate(parts):
        if isinstance(part, Slot):
            texts.append(f"{{{{ {part.name} }}}}")
            continue
        # Only at the very end would Jinja drop a line's end.
        ending = "\n" if part.endswith("\n") and n < len(parts) - 1 else ""
        plain = part.removesuffix(ending)
        texts.append(_JINJA_MARKS.sub(lambda mark: f"{{{{ {mark[0]!r} }}}}", plain) + ending)
    return "".join(texts)


_SYNTAXES: Mapping[str, tuple[_Reader, _Writer]] = {
    "text": (read_text_template, write_text_template),
    "f-string": (_read_f_string, _write_f_string),
    "jinja2": (_read_jinja, _write_jinja),
}
