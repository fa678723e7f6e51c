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
from textevolve.evaluation import Case
from textevolve.events import Listener, silence
from textevolve.llm.chains.chain import Chain
from textevolve.settings import Settings, read_settings
from textevolve.spec import noted_of, suggest
from textevolve.studies import driver
from textevolve.studies.driver import Launch
from textevolve.studies.kinds import find_study
from textevolve.studies.study import StudySpec
from textevolve.user_code import OWN, name_object
from textevolve.wiring import Limits, take_limits

if TYPE_CHECKING:
    from textevolve.remote.runs import RemoteServer

P = ParamSpec("P")
T = TypeVar("T")


class RunKeywords(TypedDict, total=False):
    """How a study is run, as opposed to what it is; the same for every verb.

    `batch`: asked in batch jobs, each of which may take a day. `limits`: of money, tokens and
    calls. `time_limit`: in seconds. `listener`: hears what happens. `name`: to find the run by.
    `store`: the file that keeps it. `ordered`: of what comes one by one, in the order of the cases,
    else as it is found. `server`: the address of a server that runs it; "none": this machine does,
    whatever the settings say.
    """

    name: str
    store: str | Path | None
    concurrency: int | None
    batch: bool
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
        first = f"{OWN}{given.name}" if isinstance(given, Chain) else name_object(given)
        name, number = first, 1
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
    cases: Iterable[Case] | None = None,
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
    cases: Iterable[Case] | None = None,
    objects: Objects | None = None,
    **keywords: Unpack[RunKeywords],
) -> AsyncGenerator[Any]:
    """The records of a study as they come."""
    async with aclosing(_perform(spec, cases, objects, keywords, ends=False)) as records:
        async for record in records:
            yield record


async def _perform(
    spec: StudySpec,
    cases: Iterable[Case] | None,
    objects: Objects | None,
    keywords: RunKeywords,
    *,
    ends: bool,
) -> AsyncGenerator[Any]:
    from textevolve.store.repository import open_store

    study = find_study(spec.kind)
    store = keywords.get("store")
    own = {name: keywords.get(name) for name in ("concurrency", "batch")}
    settings = (
        keywords.get("settings")
        or read_settings({"model": spec.plain_model, "store": store, **own})[0]
    )
    found = objects.found if objects else {}
    launch = Launch(
        name=keywords.get("name", ""),
        source="Python",
        limits=take_limits(keywords.get("limits")),
        time_limit=keywords.get("time_limit"),
        listener=keywords.get("listener", silence),
        objects=found,
        ordered=keywords.get("ordered", True),
        ends=ends,
    )
    if (there := _find_server(settings, keywords.get("server"))) is not None:
        told = await there.begin(study, spec, launch, cases)
        async with aclosing(there.follow(told, launch, again=ends)) as records:
            async for record in records:
                yield record
        return
    path = Path(store or settings.store)
    settings = settings.model_copy(update={"store": path})  # memories are kept in the same file
    stored = await driver.specify(study, spec, settings, found)
    async with open_store(path) as opened:
        given = driver.read_cases(study, spec, path, settings) if cases is None else cases
        run = driver.register_run(opened, study, stored, given, launch)
        async with aclosing(driver.perform(opened, run, settings, launch)) as records:
            async for record in records:
                yield record


def _find_server(settings: Settings, named: str | None) -> RemoteServer | None:
    """The server that is to run it; None: it runs here, and nothing that asks servers is loaded."""
    if not (named or settings.server):
        return None
    from textevolve.remote.runs import remote_server

    return remote_server(settings, named)


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
