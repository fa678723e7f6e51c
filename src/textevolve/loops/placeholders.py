"""The placeholders in users' prompt templates: find them, fill them in, and check that a rewrite
keeps them.

`{name}` and `{{ name }}` are placeholders if `name` is a column of the data. Other braces are text
and stay unchanged, so a template may contain JSON, code, or Jinja for another program. A name that
resembles a column is rejected as misspelt. No expression is evaluated, and values that are filled
in are not searched for placeholders.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

import regex

from textevolve.errors import InputError
from textevolve.texts.prose import compose, fold_case

_IN_BRACES = re.compile(r"\{\{\s*([^{}]*[^{}\s])\s*\}\}|\{([^{}]+)\}")
# A name may have vowel signs, which are marks and no letters.
_NAME = r"([^\W\d][\w\p{M}]*)"
_LOOKS_LIKE_ONE = regex.compile(rf"\{{\{{\s*{_NAME}\s*\}}\}}|\{{{_NAME}\}}")

_LATEX = re.compile(r"\\[A-Za-z]+(?:\{[^{}]*\})+")
r"""A LaTeX command with its arguments, such as `\boxed{answer}`; their braces are no
placeholders."""

_RESEMBLANCE = 0.8
"""The similarity ratio from which a name counts as a misspelt column: `contxt` and `context` have
0.92, `titel` and `title` 0.8, `text` and `context` 0.73."""


def find_placeholders(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that occur as placeholders in a template, without duplicates, in the order
    of their first occurrence. A name in another form of Unicode is the same name."""
    by_form = {compose(column): column for column in columns}
    names = (compose(match[1] or match[2]) for match in _IN_BRACES.finditer(text))
    return tuple(dict.fromkeys(by_form[name] for name in names if name in by_form))


def require_placeholders(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the placeholders that `find_placeholders` finds, and require at least one.

    Raises:
        InputError: there is none, so that every row would give the same prompt.
    """
    if not text.strip():
        raise InputError("the template is blank")
    if placeholders := find_placeholders(text, columns):
        return placeholders
    listing = (
        ", ".join(f"{{{name}}}" for name in sorted(columns)) or "none: the data has no columns"
    )
    raise InputError(f"the template has no placeholder; with these data there can be: {listing}")


def check_spelling(text: str, columns: Collection[str], source: str) -> None:
    """Reject names in braces that resemble a column, and warn of names that resemble none.

    Raises:
        InputError: a name is probably misspelt; suggests the column.
    """
    by_key = {_plain(column): column for column in columns}
    composed = {compose(column) for column in columns}
    names = placeholders_of(_LATEX.sub("", text))
    unknown = [name for name in names if compose(name) not in composed]

    for name in unknown:
        for key in get_close_matches(_plain(name), by_key, 1, _RESEMBLANCE):
            raise InputError(
                f"{source}: {{{name}}} is not a column; write {{{by_key[key]}}}, or {{ {name} }}"
                " with spaces if the braces are meant as text"
            )

    if unknown:
        logging.getLogger("textevolve").warning(
            "%s: no column for %s, so the model sees the braces as plain text",
            source,
            _spell(unknown),
        )


def _plain(name: str) -> str:
    """Return a name in lower case without separators, for comparing misspelt names."""
    return regex.sub(r"[^\w\p{M}]+|_+", "", fold_case(name))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill every placeholder of `values` into a template, in one pass."""
    by_form = {compose(name): value for name, value in values.items()}
    return _IN_BRACES.sub(lambda match: by_form.get(compose(match[1] or match[2]), match[0]), text)


def find_fault(text: str, seed: str, names: Sequence[str], columns: Collection[str] = ()) -> str:
    """Return the fault in the placeholders of a rewritten template; empty if there is none.

    `names`: the placeholders of `seed`, the original template, which must all be kept. Other names
    in braces, of columns or not, are only allowed if `seed` has them, too, where they are plain
    text.
    """
    lost = [name for name in names if name not in find_placeholders(text, names)]
    if lost:
        return f"the placeholder {_spell(lost)} is missing; it has to stay, spelt exactly so"
    unused = [name for name in columns if name not in names]
    invented = [*find_placeholders(text, unused), *_similar(text)]
    allowed = {*names, *_similar(seed)}
    if new := [name for name in dict.fromkeys(invented) if name not in allowed]:
        usable = f"only {_spell(names)}" if names else "none"
        return f"there is no placeholder {_spell(new)}; use {usable}"

    return ""


def placeholders_of(text: str) -> tuple[str, ...]:
    """List everything that looks like a placeholder, without duplicates, for templates that other
    code fills in."""
    return tuple(dict.fromkeys(_similar(text)))


def _similar(text: str) -> list[str]:
    """Return the names in braces that look like placeholders."""
    return [match[1] or match[2] for match in _LOOKS_LIKE_ONE.finditer(text)]


def _spell(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
