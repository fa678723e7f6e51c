"""Compute digests of the user's code and objects from their content.

Two functions of one name have different digests if their code, a default, a captured value or the
state of their object differs, and so have two files of one name. A digest is the same in every
process, on every day, and in every folder. `textevolve.runs.identity` makes the identities of runs
from them; nothing is loaded or called here.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, cast

from textevolve.json_texts import is_mapping, is_sequence

Content: TypeAlias = Any
"""JSON-ready data that is equal for equal values, and different for different ones."""

LENGTH = 24
"""The number of hexadecimal digits of a digest."""


def digest_data(content: Content) -> str:
    """Return the digest of JSON-ready data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


# Files of code, with the modules of the user's own that they import.


def digest_file(path: Path) -> str:
    """Return the digest of a Python file and of the user's own modules that it imports, directly or
    through each other. Packages that are installed are not read: they have versions."""
    sources: dict[str, str] = {}
    text = _read(path)
    if text is not None:
        # The file has no name here, so that it may be renamed.
        sources[""] = digest_data(text)
        _add_imports(text, "", sources, path.parent)

    return digest_data(sources)


def digest_module(name: str, folder: Path | None = None) -> str:
    """Return the digest of a module and of the user's own modules that it imports; that of its name
    if it is not the user's. `folder`: where it is looked for if Python does not find it."""
    sources: dict[str, str] = {}
    _add_module(name, sources, folder)
    return digest_data(sources or name)


def _add_module(name: str, sources: dict[str, str], folder: Path | None) -> None:
    """Add the digest of a module, of its packages, and of what they import. `folder`: the folder of
    the file that imports it, which may hold it, too."""
    if name in sources or name.partition(".")[0] in sys.stdlib_module_names:
        return
    path = _find_module(name, folder)
    text = None if path is None else _read(path)
    if path is None or text is None:
        return

    sources[name] = digest_data(text)
    parent = name.rpartition(".")[0]
    if parent:
        _add_module(parent, sources, folder)
    is_package = path.name == "__init__.py"
    _add_imports(text, name if is_package else parent, sources, folder)


def _add_imports(text: str, package: str, sources: dict[str, str], folder: Path | None) -> None:
    """Add the modules that a source imports at any place, also within a function. `package`: the
    package of the source, to which relative imports refer."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return  # it cannot be loaded either, which is said elsewhere

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _add_module(alias.name, sources, folder)
        elif isinstance(node, ast.ImportFrom):
            module = _resolve(node, package)
            if module:
                _add_module(module, sources, folder)
            for alias in node.names:  # each may be a module of the package
                _add_module(f"{module}.{alias.name}".lstrip("."), sources, folder)


def _resolve(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module from which names are imported."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join(filter(None, [*above, node.module]))


def _find_module(name: str, folder: Path | None) -> Path | None:
    """Return the file of a module of the user's own; None for any other, and if there is none. No
    module is imported to find it."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    origin: str | None = loaded if isinstance(loaded, str) else None
    if origin is None:
        places = [*sys.path, str(folder)] if folder else [*sys.path]
        origin = _search(name, places)

    return Path(origin) if origin and origin.endswith(".py") and _is_own(origin) else None


def _search(name: str, places: list[str]) -> str | None:
    """Look for the file of a module as an import does, package by package."""
    searched: Iterable[str] = places
    prefix = ""
    origin = None

    for part in name.split("."):
        prefix = f"{prefix}.{part}".lstrip(".")
        try:
            spec = PathFinder.find_spec(prefix, list(searched))
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        origin = spec.origin
        searched = spec.submodule_search_locations or ()

    return origin


@cache
def _foreign_folders() -> tuple[str, ...]:
    """Return the folders of Python itself and of this package."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib")]
    folders.append(str(Path(__file__).parent))
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


@cache
def _is_own(file: str) -> bool:
    """Tell whether a file of code is the user's: neither Python's, nor this package's, nor that of
    an installed one."""
    path = os.path.realpath(file)
    if {"site-packages", "dist-packages"} & set(PurePath(path).parts):
        return False
    return not path.startswith(_foreign_folders())


def _read(path: Path) -> str | None:
    """Return the text of a file, with the ends of lines that all systems share; None if it cannot
    be read."""
    try:
        return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return None


# Functions, methods and objects.


def digest_object(value: object) -> str:
    """Return the digest of a function, method or any other object by what it holds: its code, what
    its code names, and its state. Two objects that say the same have the same digest."""
    return digest_data(_Reader().read(value))


class _Reader:
    """Reads the contents of one object, and of all that it refers to, as digests."""

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}
        self._open: list[int] = []  # the ids of the objects within which this one is read
        self._held: list[object] = []  # so that no id is used twice

    def read(self, value: object) -> Content:
        """Return the content of a value; its type's name if it has none."""
        try:
            return self._read(value)
        except Exception:  # noqa: BLE001  an object of the user may raise anything when it is read
            return ["live", _type_name(value)]

    def _read(self, value: object) -> Content:
        if value is None or isinstance(value, bool | int | float | complex | str):
            return [type(value).__name__, repr(value)]
        if isinstance(value, bytes | bytearray):
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if isinstance(value, Enum | PurePath):
            return [_type_name(value), str(value)]

        place = id(value)
        if place in self._digests:
            return self._digests[place]
        if place in self._open:  # a circle, which is named by its length
            return ["again", len(self._open) - self._open.index(place)]

        self._held.append(value)
        self._open.append(place)
        try:
            self._digests[place] = digest_data(self._read_parts(value))
        finally:
            self._open.pop()

        return self._digests[place]

    def _read_parts(self, value: object) -> Content:
        """Return the content of a collection, or of what is no data."""
        if is_mapping(value):
            return self._read_mapping(value)
        if is_sequence(value):
            return [_type_name(value), list(map(self._read, value))]
        if isinstance(value, set | frozenset):
            members = cast("Iterable[object]", value)
            return [
                _type_name(members),
                sorted(digest_data(self._read(member)) for member in members),
            ]

        return self._read_code(value)

    def _read_mapping(self, mapping: Mapping[Any, Any]) -> Content:
        pairs = [
            (digest_data(self._read(key)), self._read(value)) for key, value in mapping.items()
        ]
        return [_type_name(mapping), sorted(pairs, key=lambda pair: pair[0])]

    def _read_code(self, value: object) -> Content:
        """Return the content of a function, a class, a module, or another object."""
        if isinstance(value, partial):
            part = cast("partial[Any]", value)
            return ["partial", self._read([part.func, part.args, part.keywords])]
        if isinstance(value, MethodType):
            return ["method", self.read(value.__func__), self.read(value.__self__)]
        if isinstance(value, FunctionType):
            return self._read_function(value)
        if isinstance(value, CodeType):
            return self._read_bytecode(value)
        if isinstance(value, CellType):
            with suppress(ValueError):  # nothing is in it yet
                return ["cell", self.read(value.cell_contents)]
            return ["cell"]
        if isinstance(value, type):
            return self._read_class(cast("type[Any]", value))
        if isinstance(value, property):
            return ["property", self._read([value.fget, value.fset])]
        if isinstance(value, staticmethod | classmethod):
            method = cast("Any", value)
            return [_type_name(method), self.read(method.__func__)]
        if isinstance(value, ModuleType):
            return ["module", digest_module(value.__name__)]
        if isinstance(value, BuiltinFunctionType):
            owner = self.read(value.__self__)
            return ["builtin", value.__module__ or "", value.__qualname__, owner]
        wrapped = getattr(value, "__wrapped__", None)
        if callable(wrapped):  # as of a cache, whose own state is no content
            return [_type_name(value), self.read(wrapped)]

        return self._read_state(value)

    def _read_function(self, function: FunctionType) -> Content:
        code = function.__code__
        content: list[Content] = ["function"]

        if _is_own(code.co_filename):
            content.append(self._read_bytecode(code))
            values = function.__globals__
            for name in _names_of(code, _NAMING):
                if name in values:
                    content.append([name, self.read(values[name])])
            content += map(digest_module, _names_of(code, _IMPORTING))
        else:
            content += [function.__module__, function.__qualname__]

        # A wrapper of an installed package may hold a function of the user.
        content.append([self.read(cell) for cell in function.__closure__ or ()])
        content.append(self.read([function.__defaults__, function.__kwdefaults__]))
        content.append(self.read(dict(vars(function))))

        return content

    def _read_bytecode(self, code: CodeType) -> Content:
        """Return what code does, without its file and its lines, which may move."""
        constants = [
            self._read_bytecode(each) if isinstance(each, CodeType) else self.read(each)
            for each in code.co_consts
        ]
        names = [code.co_names, code.co_varnames, code.co_freevars]
        return ["code", code.co_code.hex(), constants, names, code.co_flags]

    def _read_class(self, kind: type[Any]) -> Content:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if not _is_own_class(kind):
            return ["class", name]
        members = [
            [member, self.read(value)]
            for member, value in sorted(vars(kind).items())
            if _is_content(member, value)
        ]
        return ["class", kind.__qualname__, list(map(self.read, kind.__bases__)), members]

    def _read_state(self, value: object) -> Content:
        """Return the class of an object and its state. Each attribute of an object of the user's is
        read by itself; what is of an installed package counts as a whole or not at all, since
        connections and clocks are in it."""
        kind = type(value)
        if _is_own_class(kind):
            return ["object", self.read(kind), [[n, self.read(v)] for n, v in _attributes(value)]]

        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return ["name", _type_name(value), reduced]
        make, arguments, *further = reduced
        # Its state, and iterators over its members if it is a collection.
        state, members, items = (*further, None, None, None)[:3]
        parts: list[object] = [make, arguments, state, list(members or ()), list(items or ())]

        return ["reduced", self._read(parts)]


def _type_name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


_NAMING = ("LOAD_GLOBAL", "LOAD_NAME")
_IMPORTING = ("IMPORT_NAME",)
"""The instructions that read a name of the module, and those that import a module."""


def _names_of(code: CodeType, instructions: tuple[str, ...]) -> list[str]:
    """Return the names with which code, and the functions within it, uses these instructions."""
    steps = dis.get_instructions(code)
    names = {str(step.argval) for step in steps if step.opname in instructions}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(_names_of(constant, instructions))
    return sorted(names)


def _is_own_class(kind: type[Any]) -> bool:
    """Tell whether a class is the user's: by its module, or by a function in it if the module has
    no file, as in a notebook."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return _is_own(file)
    return module is None or kind.__module__ == "__main__"


_CLASS_PARTS = (FunctionType, staticmethod, classmethod, property, type)
_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))


def _is_content(name: str, value: object) -> bool:
    """Tell whether a member of a class counts: its functions, and plain values that it does not
    have from Python itself."""
    if isinstance(value, _CLASS_PARTS):
        return True
    return isinstance(value, _PLAIN) and not (name.startswith("__") and name.endswith("__"))


def _attributes(value: object) -> list[tuple[str, object]]:
    """Return the attributes of an object by name, also those in slots."""
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots: Any = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                attributes[slot] = getattr(value, slot)

    return sorted(attributes.items())
