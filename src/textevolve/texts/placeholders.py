r"""The placeholders in users' prompt templates: find them, fill them in, and check that a rewrite
keeps them.

`{name}`, `{{ name }}` and `{{{name}}}` (of Mustache) are placeholders if `name` is a column of the
data. Other braces are text and stay unchanged, so a template may contain JSON, code or LaTeX.
`{ name }` with spaces is text; `\boxed{name}` keeps its braces, and `\boxed{{name}}` has the value
between them.

Rejected are a name that resembles a column, a column that the model must not see (the label), and a
column with a format, a filter, a field or an index, which no placeholder has. No expression is
evaluated, and values that are filled in are not searched for placeholders.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal, TypeAlias

from textevolve.errors import InputError
from textevolve.ledger import log
from textevolve.loading import late_re, late_regex, regex
from textevolve.texts.prose import fold_case

# A name may have vowel signs, which are marks and no letters.
_NAME = r"[^\W\d][\w\p{M}]*"

COMMAND = r"\\(?![ntr][A-Z])[A-Za-z]{2,}\*?(?:\[[^\]{}]*\])?(?:\{[^{}]*\}|\{\{[^{}]*\}\})+"
r"""A LaTeX command with its arguments, such as `\boxed{answer}`. A line break that was typed as two
characters before a word (`\nText{text}`) is none."""
_LATEX = late_re(COMMAND)
ARGUMENT = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
"""An argument of a LaTeX command that is a placeholder: its outer braces are the command's."""


def placeholder_pattern(name: str) -> str:
    """Return the pattern of a placeholder, whose only group is its name. `name`: the pattern of the
    name, without groups."""
    # After a command, an argument, `^` or `_` of LaTeX the outer one of three braces is LaTeX's.
    triple = rf"(?<!\\[A-Za-z]{{2,}}\*?|[\]}}^_])\{{\{{\{{({name})\}}\}}\}}"
    return rf"(?|{triple}|\{{\{{\s*({name})\s*\}}\}}|\{{({name})\}})"


_LOOKS_LIKE_ONE = late_regex(placeholder_pattern(_NAME))

_BRACES = late_re(
    r"\{\{-?\s*(?P<double>[^{}\n]+?)\s*-?\}\}"
    r"|\{%-?\s*(?P<statement>[^%\n]+?)\s*-?%\}"
    r"|\{(?P<single>[^\s{}][^{}\n]*)\}"
)
"""Braces with a content: those of an expression or a statement of Jinja, or of Python's format."""
_FIELD = r"\.\w|\[|\("
_FORMAT = r"(?:[^{}]?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(?:\.\d+)?[bcdeEfFgGnosxX%]?|%.*"
_PYTHON = rf"![rsa](?::(?:{_FORMAT}))?|:(?=\S)(?:{_FORMAT})|\s*\|.*|(?:{_FIELD}).*"
"""What may follow a name in single braces, besides a text in braces, such as JSON and types: a
conversion, a format (with no space after its colon), a filter, a field, an index."""
_JINJA = rf"\s*(?:\||~|[-+*/%]|[=!<>]=?|(?:{_FIELD})|(?:if|or|and|in|is|not)\b).*"
"""What may follow a name in double braces: an operator, too."""
_ROWS = r"(?:row|item|inputs|data|vars|record|example|sample|case|doc)(?:\.|\[\s*['\"])"
"""The beginning of a column's name in other tools, as in `{{ row.title }}`."""

_RESEMBLANCE = 0.8
"""The similarity ratio from which a name counts as a misspelt column: `contxt` and `context` have
0.92, `titel` and `title` 0.8, `text` and `context` 0.73."""

Hidden: TypeAlias = Literal["label", "outputs", "checks"]
"""The reason why a prompt must not show a column: it has the right answers, outputs that exist
already, or the checks that an output must satisfy."""


def find_placeholders(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that occur as placeholders in a template, without duplicates, in the order
    of their first occurrence."""
    if not columns:
        return ()
    forms = _forms(tuple(columns))
    matches = _pattern(tuple(forms)).finditer(_open_commands(_compose(text, forms)))
    return tuple(dict.fromkeys(forms[match[1]] for match in matches))


def whole_placeholder(text: str, columns: Collection[str]) -> str | None:
    """Return the column of which a template consists, such as `input` of `{input}`; None if there
    is anything else in it."""
    forms = _forms(tuple(columns))
    match = _pattern(tuple(forms)).fullmatch(_compose(text.strip(), forms)) if columns else None
    return forms.get(match[1]) if match else None


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


def check_spelling(
    text: str, columns: Collection[str], source: str, hidden: Mapping[str, Hidden] = {}
) -> None:
    """Reject names in braces that a template cannot have, and warn of names that resemble no
    column. `hidden`: further columns, which the model must not see.

    Raises:
        InputError: a hidden column is shown, a column has a format or a filter, or a name is
            probably misspelt; suggests the spelling that works.
    """
    every = (*columns, *hidden)
    _reject_hidden(text, source, hidden)
    if fault := find_expression(text, every):
        raise InputError(f"{source}: {fault}")

    by_key = {_plain(column): column for column in every}
    forms = _forms(every)
    names = placeholders_of(_compose(text, forms))
    unknown = [name for name in names if name not in forms]

    for name in unknown:
        for key in get_close_matches(_plain(name), by_key, 1, _RESEMBLANCE):
            raise InputError(
                f"{source}: {{{name}}} is not a column; write {{{by_key[key]}}}{_as_literal(name)}"
            )

    if unknown:
        log.warning(
            "%s: no column for %s, so the model sees the braces as plain text; add a column of"
            " that name, or rename one with --map NAME=COLUMN",
            source,
            _spell(unknown),
        )


def _reject_hidden(text: str, source: str, hidden: Mapping[str, Hidden]) -> None:
    for name in find_placeholders(text, hidden):
        if hidden[name] == "label":
            reason = f"shows the label {{{name}}} to the model, which gives the answer away"
        elif hidden[name] == "checks":
            reason = f"shows {{{name}}}, the checks of the row, which give the answer away"
        else:
            reason = f"shows {{{name}}}, a column of existing outputs, which prompts do not get"
        raise InputError(f"{source} {reason}; remove it{_as_literal(name)}")


def _as_literal(inner: str) -> str:
    return f", or {{ {inner} }} with spaces if the braces are meant as text"


def find_expression(
    text: str,
    columns: Collection[str],
    rule: str = "a name alone, without a format, filter, field or index",
) -> str:
    """Return the fault of a template in which a column in braces has more than its name; empty if
    none has. It would reach the model as it stands, though the writer expects it to be evaluated.
    `rule`: what a placeholder can be there."""
    forms = _forms(tuple(columns))
    if not forms:
        return ""
    word, python, jinja = _expressions(tuple(forms))

    for match in _BRACES.finditer(_open_commands(text)):
        braces = match[0]
        inner = match["single"] or match["double"] or match["statement"]
        is_trimmed = braces.startswith("{{-") or braces.endswith("-}}")
        if match["single"]:
            expression = python.fullmatch(inner)
        elif match["double"] and not inner.startswith("#"):
            expression = word.fullmatch(inner) if is_trimmed else jinja.fullmatch(inner)
        else:
            expression = word.search(inner) if re.match(r"(?:if|elif|for|set|#)", inner) else None
        # A column may itself have a point or brackets in its name.
        if expression is None or (inner in forms and not is_trimmed):
            continue

        as_text = _as_literal(inner) if match["single"] else ""
        return (
            f"{braces} is not filled in, since a placeholder is {rule}; write"
            f" {{{forms[expression['name']]}}}{as_text}"
        )

    return ""


@lru_cache(maxsize=64)
def _expressions(names: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of columns with these names as a word, in an expression of Python's
    format, and in one of Jinja."""
    name = f"(?P<name>{_either(names)})(?!\\w)"
    return (
        re.compile(rf"(?<!\w){name}"),
        re.compile(rf"(?P<row>{_ROWS})?{name}(?(row).*|(?:{_PYTHON}))"),
        re.compile(rf"(?P<row>{_ROWS}|[^\W\d]\w*\()?{name}(?(row).*|(?:{_JINJA}))"),
    )


def _plain(name: str) -> str:
    """Return a name in lower case without separators, for comparing misspelt names."""
    return regex.sub(r"[^\w\p{M}]+|_+", "", fold_case(name))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill every placeholder of `values` into a template, in one pass."""
    if not values:
        return text
    forms = _forms(tuple(values))

    def put(match: regex.Match[str]) -> str:
        name = match[1]
        return ARGUMENT.sub(put_argument, match[0]) if name is None else values[forms[name]]

    def put_argument(match: re.Match[str]) -> str:
        return f"{{{values[forms[match[1]]]}}}" if match[1] in forms else match[0]

    return _pattern(tuple(forms)).sub(put, _compose(text, forms))


def find_spellings(text: str, names: Collection[str]) -> dict[str, list[str]]:
    """Return the spellings of each name in a template, `{name}` or `{{ name }}`, the first one
    first; `{name}` for a name that is not in it."""
    forms = _forms(tuple(names))
    spellings: dict[str, list[str]] = {}
    text = _open_commands(_compose(text, forms))
    for match in _pattern(tuple(forms)).finditer(text) if names else ():
        spellings.setdefault(forms[match[1]], []).append(match[0])

    return {name: spellings.get(name, [f"{{{name}}}"]) for name in names}


def restore_spelling(text: str, seed: str, names: Collection[str]) -> str:
    """Return a rewritten template with the placeholders spelled as in the original (`seed`), whose
    application may know only one of the spellings."""
    if not names:
        return text
    forms = _forms(tuple(names))
    spellings = find_spellings(seed, names)

    def respell(match: regex.Match[str]) -> str:
        name = match[1]
        if name is None or match[0] in spellings[forms[name]]:
            return match[0]
        return spellings[forms[name]][0]

    return _pattern(tuple(forms)).sub(respell, _compose(text, forms))


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
    invented = [*find_placeholders(text, unused), *placeholders_of(text)]
    allowed = {*_forms(tuple(names)), *placeholders_of(seed)}
    if new := [name for name in dict.fromkeys(invented) if name not in allowed]:
        usable = f"only {_spell(names)}" if names else "none"
        return f"there is no placeholder {_spell(new)}; use {usable}"

    return ""


def placeholders_of(text: str) -> tuple[str, ...]:
    """List everything that looks like a placeholder, without duplicates, for templates that other
    code fills in."""
    matches = _LOOKS_LIKE_ONE.finditer(_open_commands(text))
    return tuple(dict.fromkeys(match[1] for match in matches))


def _spell(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def _open_commands(text: str) -> str:
    """Return the text with only the placeholders of its LaTeX commands."""
    # The bracket keeps them apart from a command before them, whose arguments they are not, and
    # is LaTeX to what follows.
    return _LATEX.sub(lambda match: "]" + _spell(ARGUMENT.findall(match[0])), text)


@lru_cache(maxsize=64)
def _forms(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return the names by themselves and by their composed Unicode form. An editor composes accents
    that a table has decomposed, and a reader sees no difference."""
    return {unicodedata.normalize("NFC", name): name for name in names} | {n: n for n in names}


def _compose(text: str, forms: Mapping[str, str]) -> str:
    """Return the template with its placeholders in composed Unicode."""
    if text.isascii():
        return text

    def compose(match: re.Match[str]) -> str:
        composed = unicodedata.normalize("NFC", match[0])
        return composed if composed.strip("{} ") in forms else match[0]

    return re.sub(r"\{[^{}]*\}", compose, text)


@lru_cache(maxsize=64)
def _pattern(names: tuple[str, ...]) -> regex.Pattern[str]:
    """Return the pattern of placeholders with these names, the longest first, and of LaTeX
    commands, in which braces are text."""
    either = _either(names)
    return regex.compile(rf"{COMMAND}|{placeholder_pattern(either)}")


def _either(names: Sequence[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
