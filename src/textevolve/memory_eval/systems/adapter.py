"""A memory system of the user's own, made to fit: missing methods, plain ones, odd returns.

Where it is found is the business of `finding.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from textevolve.errors import AnswerError, InputError, UnavailableError
from textevolve.evaluation import mend_text
from textevolve.memory_eval.dialogues import DialogueTurn
from textevolve.memory_eval.system import Capabilities

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def do(self) -> None:
        value, failed = None, None
        try:
            value = self.work()
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            # These would not come through a future, or would end the program.
            failed = AnswerError(f"raised {type(error).__name__}: {error}".rstrip(": "))
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._settle, value, failed)

    def _settle(self, value: Any, failed: BaseException | None) -> None:
        if self.future.done():
            return
        if failed is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(failed)


class Worker:
    """A daemon thread, started with the first job. What is cancelled before it began is not begun;
    what has begun goes on, and what it gives is dropped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(_Job(work, loop, future))
        return await future

    def stop(self) -> None:
        """After what is waiting."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.future.cancelled():
                job.do()
            del job  # or it would hold what it gave until the next comes


_LISTS = ("results", "memories")
_TEXTS = ("memory", "text", "content", "memory_content")


class Adapted:
    """The user's object as a `MemorySystem`.

    It needs `add`. Without `search` or `answer` that is measured without them. Methods that are not
    async run in one thread, one after the other, so that they need not be safe for several. What
    they raise passes through; what they return is checked. `deadline` is in seconds.
    """

    def __init__(self, made: object, spec: str, deadline: float) -> None:
        for method in ("add", "search", "answer", "aclose"):
            if (found := getattr(made, method, None)) is not None and not callable(found):
                raise InputError(f"{spec}: its {method} is no method")
        if getattr(made, "add", None) is None:
            raise InputError(f"{spec}: is no memory system: it has no method add(dialogue, user)")
        named = getattr(made, "name", None)
        self.name = named if isinstance(named, str) and named.strip() else spec
        self.capabilities = _read_capabilities(made, spec)
        self._made: Any = made
        self._spec = spec
        self._deadline = deadline
        self._worker = Worker(f"memory system {spec}")

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        given = await self._call("add", self._made.add, list(dialogue), user)
        if given is None and not self.capabilities.extracts:
            return ()
        return read_memories(given, f"{self._spec}: add")

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        given = await self._call("search", self._made.search, query, user, limit)
        return read_memories(given, f"{self._spec}: search")[:limit]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        given = await self._call("answer", self._made.answer, question, list(memories))
        return read_answer(given, f"{self._spec}: answer")

    async def aclose(self) -> None:
        try:
            if (close := getattr(self._made, "aclose", None)) is not None:
                await self._call("aclose", close)
        finally:
            self._worker.stop()

    async def _call(self, verb: str, method: Callable[..., Any], *arguments: Any) -> Any:
        limit = asyncio.timeout(self._deadline)
        try:
            async with limit:
                if inspect.iscoroutinefunction(method):
                    return await method(*arguments)
                given = await self._worker.run(partial(method, *arguments))
                return await given if inspect.isawaitable(given) else given
        except TimeoutError:
            if not limit.expired():
                raise
        raise UnavailableError(f"{self._spec}: {verb}: no answer in {self._deadline:g} s")


def read_memories(given: Any, what: str) -> tuple[str, ...]:
    """The texts in what a system returned: a list of texts, or of objects with a `memory`, bare or
    under `results` or `memories`. Empty texts are left out.

    Raises:
        AnswerError: it is something else; `what` says whose it is.
    """
    found = _unwrap(given, _LISTS)
    if isinstance(found, str | bytes) or not isinstance(found, Sequence):
        raise AnswerError(f"{what}: gave {_kind(found)}, not a list of texts")
    texts: list[str] = []
    for place, each in enumerate(cast("Sequence[Any]", found), 1):
        text = _unwrap(each, _TEXTS)
        if not isinstance(text, str):
            raise AnswerError(f"{what}: number {place} of its list is {_kind(text)}, not a text")
        texts.append(mend_text(text))
    return tuple(text for text in texts if text.strip())


def _unwrap(given: Any, names: Sequence[str]) -> Any:
    """What an object holds under the first of the names that it has; anything else as it is."""
    if isinstance(given, Mapping):
        held = cast("Mapping[str, Any]", given)
        return next((held[name] for name in names if name in held), held)
    return given


def read_answer(given: Any, what: str) -> str:
    """
    Raises:
        AnswerError: it is no text; `what` says whose it is.
    """
    if not isinstance(given, str):
        raise AnswerError(f"{what}: gave {_kind(given)}, not a text")
    return mend_text(given)


def _kind(given: Any) -> str:
    name = type(given).__name__
    return "nothing" if given is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _read_capabilities(made: object, spec: str) -> Capabilities:
    """What it says of itself, and for the rest what its methods say."""
    said = getattr(made, "capabilities", None)
    searches, answers = (getattr(made, name, None) is not None for name in ("search", "answer"))
    if isinstance(said, Capabilities):
        found = said
    elif said is None:
        found = Capabilities(searches=searches, answers=answers)
    elif isinstance(said, Mapping):
        found = _from_mapping(cast("Mapping[object, object]", said), spec, searches, answers)
    else:
        raise InputError(f"{spec}: its capabilities are {_kind(said)}, not Capabilities")
    if (found.searches and not searches) or (found.answers and not answers):
        raise InputError(f"{spec}: its capabilities promise a method that it does not have")
    return found


def _from_mapping(
    said: Mapping[object, object], spec: str, searches: bool, answers: bool
) -> Capabilities:
    known = [each.name for each in fields(Capabilities)]
    for name, value in said.items():
        if name not in known or not isinstance(value, bool):
            raise InputError(
                f"{spec}: capabilities: '{name}': there are {', '.join(known)}, each True or False"
            )
    flags = {str(name): bool(value) for name, value in said.items()}
    return Capabilities(**{"searches": searches, "answers": answers, **flags})
