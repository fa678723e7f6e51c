"""`run`: any study, from its specification; and what all verbs share.

A verb is a thin function over a specification: it takes what every program has at hand (texts,
rows, its own functions) and the specification's fields by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack

from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.spec import noted_of, suggest
from textevolve.studies.kinds import find_study
from textevolve.studies.study import StudySpec
from textevolve.user_code import name_object

if TYPE_CHECKING:
    from textevolve.events import Listener
    from textevolve.settings import Settings
    from textevolve.wiring import Limits

P = ParamSpec("P")
T = TypeVar("T")


class RunKeywords(TypedDict, total=False):
    """How a study is run, as opposed to what it is; the same for every verb.

    `batch`: asked in batch jobs, each of which may take a day. `on`: the Ray cluster that cases
    are spread over, "ray" or ray://HOST:PORT; "none": this process. `limits`: of money, tokens and
    calls. `time_limit`: in seconds. `listener`: hears what happens. `name`: to find the run by.
    `store`: the file that keeps it. `ordered`: of what comes one by one, in the order of the cases,
    else as it is found. `server`: the address of a server that runs it; "none": this machine does,
    whatever the settings say.
    """

    name: str
    store: str | Path | None
    concurrency: int | None
    batch: bool
    on: str | None
    limits: Limits | None
    time_limit: float | None
    listener: Listener
    settings: Settings | None
    ordered: bool
    server: str | None


@dataclass
class Objects:
    """The program's own functions and evaluators, each with the name that stands for it."""

    found: dict[str, object] = field(default_factory=dict[str, object])

    def name(self, given: object) -> str | None:
        """What stands for an object in a specification; a text and None stand for themselves."""
        if given is None or isinstance(given, str):
            return given
        first = name = name_object(given)
        number = 1
        while self.found.get(name, given) is not given:  # as of two lambdas side by side
            number += 1
            name = f"{first}#{number}"
        self.found[name] = given
        return name


def split_keywords(
    spec: type[StudySpec], given: Mapping[str, Any]
) -> tuple[dict[str, Any], RunKeywords]:
    """The fields of a specification, and the keywords of its run.

    Raises:
        InputError: a name is neither.
    """
    known = (*spec.model_fields, *RunKeywords.__annotations__)
    for name in given:
        if name not in known:
            raise InputError(f"unknown parameter '{name}'{suggest(name, known)}")
    fields = {name: value for name, value in given.items() if name in spec.model_fields}
    keywords = {name: value for name, value in given.items() if name not in fields}
    return fields, RunKeywords(**keywords)


async def arun(
    spec: StudySpec,
    *,
    cases: Iterable[Any] | None = None,
    objects: Objects | None = None,
    **keywords: Unpack[RunKeywords],
) -> Any:
    """Run a study and give what it found. The same specification again is answered from the store.

    `cases`: in place of those that the specification names; `objects`: the program's own.

    Raises:
        InputError: something in the specification cannot be used.
        SettingsError: no model can be had as asked.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    study = find_study(spec.kind)
    latest: dict[str, Any] = {}
    records = _perform(spec, cases, objects, keywords, ends=True)
    async with aclosing(records):
        async for record in records:
            latest[study.row(record).key] = record
    found = sorted(latest.values(), key=lambda record: study.row(record).position)
    return study.summarise(spec, found)


async def astream(
    spec: StudySpec,
    *,
    cases: Iterable[Any] | None = None,
    objects: Objects | None = None,
    **keywords: Unpack[RunKeywords],
) -> AsyncGenerator[Any]:
    """The records of a study as they come."""
    async with aclosing(_perform(spec, cases, objects, keywords, ends=False)) as records:
        async for record in records:
            yield record


async def _perform(
    spec: StudySpec,
    cases: Iterable[Any] | None,
    objects: Objects | None,
    keywords: RunKeywords,
    *,
    ends: bool,
) -> AsyncGenerator[Any]:
    """The engine is loaded with the first run: a program that only imports a verb waits for none of
    it."""
    from textevolve.api.performing import perform

    found = objects.found if objects else {}
    async with aclosing(perform(spec, cases, found, keywords, ends=ends)) as records:
        async for record in records:
            yield record


def in_sync(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The verb, waited for; it also works where an event loop runs, as in a notebook."""

    @functools.wraps(verb)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
        return sync.run(verb(*args, **kwargs))

    return _renamed(waiting, verb)


def in_sync_iterator(verb: Callable[P, AsyncGenerator[T]]) -> Callable[P, Generator[T]]:
    """The verb as a plain iterator; it also works where an event loop runs."""

    @functools.wraps(verb)
    def iterating(*args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        return sync.iterate(verb(*args, **kwargs))

    return _renamed(iterating, verb)


def _renamed(made: Callable[P, T], verb: Callable[..., Any]) -> Callable[P, T]:
    name = verb.__name__.removeprefix("a")
    made.__name__ = made.__qualname__ = name
    made.__doc__ = (
        f"`{verb.__name__}`, waited for; also where an event loop runs.\n\n{verb.__doc__}"
    )
    return made


def takes_fields(spec: type[StudySpec]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Shows the fields of a specification, and the keywords of its run, in a verb's signature."""

    def decorate(verb: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(verb)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        named = {one.name for one in own}
        more = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation
            )
            for name, one in spec.model_fields.items()
            if name not in named and not noted_of(one).get("argument")
        ]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in RunKeywords.__annotations__.items()
            if name not in named
        ]
        verb.__signature__ = signature.replace(parameters=[*own, *more, *shared])  # pyright: ignore[reportFunctionMemberAccess]
        return verb

    return decorate


run = in_sync(arun)
