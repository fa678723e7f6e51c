"""Load a chain from a YAML file or an import path, or wrap a function or another object into a
chain.

A YAML file has the verbs of `steps.py`; each step is a mapping that begins with one of them. A file
refers to code only by import paths, which clients of a server may not use (`textevolve.reach`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from pydantic import BaseModel, Field, ValidationError, create_model

from textevolve.errors import InputError
from textevolve.llm.chains.callables import is_runnable, take_callee
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.steps import SAMPLING, ChainStep, ask, call
from textevolve.rows import read_text
from textevolve.spec import Frozen, suggest
from textevolve.texts.yaml_lines import dump_yaml, line_of, parse_yaml
from textevolve.user_code import ENDINGS, OWN, load_object, names_chain

TYPES: Mapping[str, Any] = {
    "text": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "list": list[str],
    "any": Any,
}
"""The types of inputs, outputs and fields by their names in a file."""


def load_chain(name: str, folder: Path = Path()) -> Chain:
    """Load the chain in a YAML file, or at `MODULE:NAME` or `FILE.py:NAME`.

    Raises:
        InputError: the file or module does not exist, or has no chain; the message names the line
            of a YAML file.
    """
    if name.lower().endswith(ENDINGS):
        return _read_file(folder / name, name)
    if not names_chain(name) or name.startswith(OWN):
        raise InputError(
            f"{name}: is not the name of a chain: write FILE.yaml, MODULE:NAME or FILE.py:NAME"
        )
    target = load_object(name, folder)
    if target is None:
        raise InputError(f"{name}: there is no object with that name")
    return as_chain(target, name.rpartition(":")[2])


_reading: ContextVar[tuple[Path, ...]] = ContextVar("reading", default=())


def _read_file(path: Path, name: str) -> Chain:
    if path in _reading.get():
        raise InputError(
            f"{name}: the chain calls itself, directly or through another chain: remove that step"
        )
    before = _reading.set((*_reading.get(), path))
    try:
        return read_chain(read_text(str(path)), name, path.parent)
    finally:
        _reading.reset(before)


def as_chain(target: object, name: str = "") -> Chain:
    """Return a chain unchanged; wrap a function, Runnable or module into a chain with one step,
    whose result is the value `output`.

    Raises:
        InputError: the target is not callable.
    """
    if isinstance(target, Chain):
        return target
    callee = take_callee(target)
    single = "input" if callee.takes is None and is_runnable(target) else None
    called = name or callee.name.rpartition(":")[2]
    return Chain(called, call("output", target, inputs=single))


def read_chain(text: str, source: str = "chain", folder: Path = Path()) -> Chain:
    """Build the chain that a YAML text describes. `source`: the name of the text in messages.
    `folder`: the folder for relative paths in the text.

    Raises:
        InputError: a part of the text is invalid; the message names the line.
    """
    node, data = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: a chain is a mapping with name and steps")
    place: tuple[str | int, ...] = ()
    steps: list[ChainStep] = []
    try:
        spec = _ChainSpec(**{str(name): value for name, value in cast("Any", data).items()})
        for number, step in enumerate(spec.steps):
            place = ("steps", number)
            steps.append(_read_step(step, folder))
        place = ()
        return Chain(
            spec.name or Path(source).stem,
            *steps,
            inputs=_read_types(spec.inputs),
            outputs=_read_types(spec.outputs),
            model=spec.model,
            description=spec.description,
        )
    except InputError as error:
        cause = error.__cause__
        inner = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else ()
        raise InputError(f"{source}:{line_of(node, (*place, *inner))}: {error}") from None


_Typed: TypeAlias = str | list[str] | dict[str, Any] | None


class _ChainSpec(Frozen):
    steps: list[Any] = Field(min_length=1)
    name: str = ""
    description: str = ""
    inputs: _Typed = None
    outputs: _Typed = None
    model: str | None = None


class _AskSpec(Frozen):
    ask: str
    prompt: str | None = None
    messages: list[dict[str, str]] | None = None
    file: str | None = None
    system: str = ""
    fields: dict[str, Any] | None = None
    model: str | None = None
    name: str | None = None
    attempts: int = Field(default=1, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None

    def build(self, folder: Path) -> ChainStep:
        texts: list[Any] = [self.prompt, self.messages, self.file]
        if sum(text is not None for text in texts) != 1:
            raise InputError(f"step '{self.ask}': give exactly one of prompt, messages and file")
        text = self.prompt if self.file is None else read_text(str(folder / self.file))
        messages: list[Any] = [("system", self.system)] if self.system else []
        messages += self.messages or [("user", text)]
        options = self.model_dump(include={"model", "name", "attempts", *SAMPLING})
        return ask(self.ask, messages, parse=self._read_form(), **options)

    def _read_form(self) -> type[BaseModel] | None:
        if self.fields is None:
            return None
        types: dict[str, Any] = {n: (_read_type(n, k), ...) for n, k in self.fields.items()}
        title = "".join(part.capitalize() for part in self.ask.split("_"))
        try:
            return create_model(title, **types)
        except (NameError, TypeError, ValueError) as error:
            raise InputError(f"step '{self.ask}': {error}") from None


class _CallSpec(Frozen):
    call: str
    function: str
    inputs: str | list[str] | dict[str, str] | None = None

    def build(self, folder: Path) -> ChainStep:
        is_file = self.function.lower().endswith(ENDINGS)
        function = (load_chain if is_file else load_object)(self.function, folder)
        if function is None:
            raise InputError(f"{self.function}: there is no object with that name")
        return call(self.call, function, inputs=self.inputs)


_STEPS: Mapping[str, type[_AskSpec | _CallSpec]] = {"ask": _AskSpec, "call": _CallSpec}


def _read_step(fields: Any, folder: Path) -> ChainStep:
    kinds = [kind for kind in _STEPS if isinstance(fields, dict) and kind in fields]
    if len(kinds) != 1:
        raise InputError(f"a step begins with one of: {', '.join(_STEPS)}")
    keywords = {str(name): value for name, value in cast("dict[Any, Any]", fields).items()}
    return _STEPS[kinds[0]](**keywords).build(folder)


def _read_types(written: _Typed) -> Any:
    """Read the names of inputs or outputs, with their types if the file gives any."""
    if not isinstance(written, dict):
        return written
    return {name: _read_type(name, kind) for name, kind in written.items()}


def _read_type(name: str, kind: Any) -> Any:
    """Return the type that a name such as `text` or `list of number` stands for, or the choice (a
    Literal) that a list of values stands for."""
    if isinstance(kind, list) and kind:
        return Literal[tuple(cast("list[Any]", kind))]  # pyright: ignore[reportReturnType]
    text = str(cast(object, kind))
    listed = text.removeprefix("list of ")
    if listed not in TYPES:
        raise InputError(f"'{name}': no type {kind!r:.40}{suggest(text, tuple(TYPES))}")
    return TYPES[listed] if listed == text else list[TYPES[listed]]


def write_prompts(prompts: Mapping[str, str]) -> str:
    """Return prompts by name as YAML, which `read_prompts` reads."""
    return dump_yaml(dict(prompts))


def read_prompts(text: str, source: str) -> dict[str, str]:
    """Read prompts by name, from YAML or JSON.

    Raises:
        InputError: the text is not a mapping of names to texts.
    """
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        parsed = parse_yaml(text, source)[1]
    wrong = (
        f"{source}: must be a mapping of names of templates to their texts, as in 'draft: Write"
        " ...'"
    )
    if not isinstance(parsed, Mapping) or not parsed:
        raise InputError(wrong)
    templates = cast("Mapping[object, object]", parsed)
    for name, template in templates.items():
        if not isinstance(name, str) or not isinstance(template, str) or not template.strip():
            raise InputError(f"{wrong}; a wrong entry is {name!r:.60}")
    return {str(name): str(template).replace("\r\n", "\n") for name, template in templates.items()}
