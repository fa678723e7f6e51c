"""YAML texts read as data, with the line number of each part for error messages; and data written
as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from textevolve.errors import InputError
from textevolve.evaluation import mend_text
from textevolve.json_texts import is_object
from textevolve.texts.shipped import read_shipped

Model = TypeVar("Model", bound=BaseModel)


class _Dumper(yaml.SafeDumper):
    """A YAML writer that writes texts of several lines as block texts."""


def _dump_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return cast(Any, dumper).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _dump_text)


def dump_yaml(data: Any) -> str:
    """Return data as YAML; mappings keep their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)


def load_shipped(package: str, path: str) -> Any:
    """Return the data of a YAML file of this package. libyaml takes a tenth of the time of the
    parser in Python, whose messages are for files of users."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(read_shipped(package, path), loader)


def parse_yaml(text: str, source: str) -> tuple[yaml.Node | None, Any]:
    """Parse a YAML text; return its node tree, which has the line numbers, and its data. `source`:
    the name of the text in messages. Lone surrogates become U+FFFD.

    Raises:
        InputError: it is not valid YAML, or a mapping has the same key twice; names the line.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_nodes(node, source, set())
        return node, None if node is None else cast(Any, loader).construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"{source}{line}: not valid YAML: {problem}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None
    except ValueError as error:  # an impossible date or number without quotes
        raise InputError(f"{source}: not valid YAML: {error}; put texts into quotes") from None


def _check_nodes(node: yaml.Node | None, source: str, seen: set[int]) -> None:
    """Replace lone surrogates in the texts, and reject a mapping with a duplicate key (YAML would
    silently drop the first). `seen`: the visited nodes, since an alias refers to the same node."""
    if isinstance(node, yaml.ScalarNode):
        node.value = mend_text(str(node.value))
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    names: set[tuple[str, str]] = set()

    for part in cast("list[Any]", node.value):
        key, value = cast("tuple[Any, Any]", part if isinstance(part, tuple) else (None, part))
        if isinstance(key, yaml.ScalarNode):
            name = (key.tag, str(key.value))
            if name in names and key.value != "<<":
                line = key.start_mark.line + 1
                raise InputError(f"{source}:{line}: '{key.value}' is there twice; keep one")
            names.add(name)

        _check_nodes(value, source, seen)


def line_of(node: yaml.Node | None, location: tuple[int | str, ...]) -> int:
    """Return the line (from 1) of the value at `location` in the data, or of its deepest part that
    exists."""
    return _find_part(node, location)[1]


def _find_part(
    node: yaml.Node | None, location: tuple[int | str, ...]
) -> tuple[yaml.Node | None, int, bool]:
    """Return the value at `location`, or its deepest part that exists, with its line, and whether
    it is the value itself."""
    line = 1 if node is None else node.start_mark.line + 1
    is_there = bool(location)
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
            match = [(k, v) for k, v in pairs if str(k.value) == str(part)]
            if not match:  # as the kind of a part, which pydantic names and the file does not
                is_there = False
                continue
            line = match[0][0].start_mark.line + 1
            node = match[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            items: list[yaml.Node] = node.value
            node = items[part]
            line = node.start_mark.line + 1

    return node, line, is_there


def find_line(node: yaml.Node | None, error: Exception) -> int:
    """Return the line (from 1) of the part of a file that an error of its validation is about.

    The place that pydantic names counts if the file has it. The error of a part within a part names
    only the end of its place, and that of a rule between fields none at all: then it is the line of
    the key or value that the message names, the refused or quoted one before others.
    """
    message = str(error)
    cause = error.__cause__
    place = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else ()
    if path := re.match(r"[\w-]+(\.[\w-]+)+(?=: )", message):  # such as prompts.0
        steps = [int(step) if step.isdigit() else step for step in path[0].split(".")]
        place = (*steps, *place)
    part, line, is_there = _find_part(node, place)
    if is_there or part is None:
        return line

    named_places: list[tuple[int, int, int]] = []
    for text, text_line in _list_scalars(part):
        words = re.escape(text).replace("_", "[_-]")
        match = re.search(rf"(?<![\w.-]){words}(?![\w-])", message.replace("--", " "))
        if match and text.strip():
            is_refused = message.endswith(f"not '{text}'")
            is_quoted = message[match.start() - 1 : match.start()] == "'"
            named_places.append((-is_refused - is_quoted, match.start(), text_line))

    return min(named_places, default=(0, 0, line))[-1]


def _list_scalars(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """Yield each key and value of a document, with its line."""
    if isinstance(node, yaml.ScalarNode):
        yield str(node.value), node.start_mark.line + 1
    elif isinstance(node, yaml.CollectionNode):
        for part in cast("list[Any]", node.value):
            inner_nodes = cast(
                "tuple[yaml.Node, ...]", part if isinstance(part, tuple) else (part,)
            )
            for inner in inner_nodes:
                yield from _list_scalars(inner)


def build_at(model: type[Model], data: Any, node: yaml.Node | None, source: str) -> Model:
    """Return a model built from the data at `node` of a YAML file.

    Raises:
        InputError: the data is not valid; names the file, the line and the reason.
    """
    line = line_of(node, ())
    if not is_object(data):
        raise InputError(f"{source}:{line}: must be a mapping")
    try:
        return model(**data)
    except InputError as error:
        raise InputError(f"{source}:{find_line(node, error)}: {error}") from None
