"""The interface of memory systems, and the two baselines for comparison.

A system receives dialogues, reports the memories that it extracted, and searches them. Adapters of
other systems are in `systems/`; `system_operations.py` calls them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields, replace
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from textevolve.errors import AnswerError, InputError, UnavailableError
from textevolve.evaluation import mend_text
from textevolve.json_texts import is_mapping
from textevolve.memory_eval.dataset import DialogueTurn, User, write_turn
from textevolve.user_code import call_function, call_plain, is_async


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a system. A task that needs a missing feature is not measured, never zero.

    `extracts`: `add` returns the extracted memories, so integrity and accuracy can be measured.
    `searches`: updates and questions can be measured. `answers`: the system answers questions
    itself; otherwise a model answers from its search results. `durable`: its data survive the
    program, so an interrupted run resumes where it stopped; otherwise each user is fed again from
    the start.
    """

    extracts: bool = True
    searches: bool = True
    answers: bool = False
    durable: bool = False


class MemorySystem(Protocol):
    """The interface of a memory system. Every method may raise; the operation is then recorded as
    failed, and the run continues.

    `user` is an id of this run alone, so that runs never see each other's memories. Calls for one
    user come one after another; calls for different users are concurrent.
    """

    name: str
    capabilities: Capabilities = Capabilities()

    @abstractmethod
    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        """Process a session; return the extracted memories, none if the system cannot report
        them."""

    @abstractmethod
    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        """Return the memories that fit the query best, at most `limit`, the best first."""

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        """Answer a question from memories; only called if the capabilities include `answers`."""
        raise AnswerError(f"{self.name}: gives no answer of its own")

    async def aclose(self) -> None:
        """Release the system's resources."""


class NoMemory(MemorySystem):
    """A baseline that stores and finds nothing, to measure the answers without any memory."""

    name = "none"

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return ()


class WholeContext(MemorySystem):
    """A baseline that returns all turns so far for every query, without a limit."""

    name = "context"
    capabilities = Capabilities(extracts=False)

    def __init__(self) -> None:
        self._turns: dict[str, list[str]] = {}

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        self._turns.setdefault(user, []).extend(map(write_turn, dialogue))
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return tuple(self._turns.get(user, ()))


ANSWER_WORDS = 30
"""The number of words of an answer that `RehearsedSystem` makes up."""


class RehearsedSystem(MemorySystem):
    """A stand-in for a memory system of one user, to estimate the cost of an evaluation.

    It extracts as many memories as there are points, each as long as the longest point, retrieves
    as many as it is asked for, and answers with `ANSWER_WORDS` words.
    """

    name = "rehearsed"

    def __init__(self, user: User, can: Capabilities) -> None:
        self.capabilities = replace(can, durable=False)
        self._sessions = iter([session for session in user.sessions if session.dialogue])
        points = [point.content for session in user.sessions for point in session.points]
        self._text = max(points, key=len, default="")

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        session = next(self._sessions)
        return [f"{session.index}.{n} {self._text}" for n in range(len(session.points))]

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return [f"{n} {self._text}" for n in range(limit)]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        return "word " * ANSWER_WORDS


# Adapt a user's own object to the interface of memory systems: methods may be missing or not
# async, and may return lists of texts or of objects.

T = TypeVar("T")

DECIDED_BY = {"searches": "search", "answers": "answer"}
"""The capabilities that a system has if it has this method, unless it declares them itself."""


class Worker:
    """A daemon thread that runs one job after another; it starts with the first job.

    A job that is cancelled before it starts does not run; the result of a job that is cancelled
    later is dropped. The program can end while a job hangs, which a thread pool would prevent.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def run(self, job: Callable[..., T], *arguments: Any) -> T:
        if self._thread.ident is None:
            self._thread.start()
        future: Future[T] = Future()
        self._jobs.put((future, lambda: call_plain(job, *arguments)))
        return await asyncio.wrap_future(future)

    def stop(self) -> None:
        """End the thread after the queued jobs."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            future, job = entry
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001  raised where it is waited for
                    future.set_exception(error)

            del entry, future, job  # or they would hold a result until the next job comes


class Adapted(MemorySystem):
    """An adapter of a user's object to the interface `MemorySystem`.

    The object needs a method `add`. Without `search` or `answer` it is measured without them.
    Methods that are not async run in one thread, one after another, so that they need not be
    thread-safe. Their exceptions pass through; their results are checked. `deadline`: the time
    limit of each call, in seconds.
    """

    def __init__(self, system: object, spec: str, deadline: float) -> None:
        methods = ("add", "search", "answer", "aclose")
        self._methods = {name: getattr(system, name, None) for name in methods}
        if not callable(self._methods["add"]):
            raise InputError(
                f"{spec}: is not a memory system: it has no method add(dialogue, user)"
            )

        self.name = str(getattr(system, "name", "")).strip() or spec
        has = {flag: callable(self._methods[name]) for flag, name in DECIDED_BY.items()}
        flags: Any = getattr(system, "capabilities", None) or {}
        flags = asdict(flags) if isinstance(flags, Capabilities) else flags
        self.capabilities = read_capabilities({**has, **flags}, spec)
        self._spec = spec
        self._deadline = deadline
        self._worker = Worker(f"memory system {spec}")

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        answer = await self._call("add", list(dialogue), user)
        if answer is None and not self.capabilities.extracts:
            return ()
        return read_memories(answer, f"{self._spec}: add")

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        answer = await self._call("search", query, user, limit)
        return read_memories(answer, f"{self._spec}: search")[:limit]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        answer = await self._call("answer", question, list(memories))
        return read_answer_text(answer, f"{self._spec}: answer")

    async def aclose(self) -> None:
        try:
            if self._methods["aclose"] is not None:
                await self._call("aclose")
        finally:
            self._worker.stop()

    async def _call(self, verb: str, *arguments: Any) -> Any:
        method: Any = self._methods[verb]
        limit = asyncio.timeout(self._deadline)
        try:
            async with limit:
                if is_async(method):
                    return await call_function(method, *arguments)
                answer = await self._worker.run(method, *arguments)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            if not limit.expired():
                raise

        raise UnavailableError(f"{self._spec}: {verb}: no answer in {self._deadline:g} s")


def read_capabilities(flags: Mapping[str, Any], spec: str) -> Capabilities:
    """Read the capabilities that a system declares.

    Raises:
        InputError: a capability does not exist, or is neither True nor False.
    """
    names = [field.name for field in fields(Capabilities)]

    for name, value in flags.items():
        if name not in names or not isinstance(value, bool):
            raise InputError(
                f"{spec}: no capability '{name}': there are {', '.join(names)}, each True or False"
            )

    return Capabilities(**flags)


def read_memories(answer: Any, source: str) -> tuple[str, ...]:
    """Return the texts in what a system answered: a list of texts, or of objects with the text in
    `memory`, `text`, `content` or `memory_content`, bare or under `results` or `memories`. Empty
    texts are left out.

    Raises:
        AnswerError: the answer has another form; the message begins with `source`.
    """
    memories = _unwrap(answer, ("results", "memories"))
    if isinstance(memories, str | bytes) or not isinstance(memories, Sequence):
        raise AnswerError(f"{source}: gave {_kind(memories)}, not a list of texts")
    texts: list[str] = []

    for place, memory in enumerate(cast("Sequence[Any]", memories), 1):
        text = _unwrap(memory, ("memory", "text", "content", "memory_content"))
        if not isinstance(text, str):
            raise AnswerError(f"{source}: number {place} of its list is {_kind(text)}, not a text")
        texts.append(mend_text(text))

    return tuple(text for text in texts if text.strip())


def read_answer_text(answer: Any, source: str) -> str:
    """Return the text that a system answered.

    Raises:
        AnswerError: the answer is no text; the message begins with `source`.
    """
    if not isinstance(answer, str):
        raise AnswerError(f"{source}: gave {_kind(answer)}, not a text")
    return mend_text(answer)


def _unwrap(value: Any, names: Sequence[str]) -> Any:
    """Return the field of an object under the first name that it has; otherwise the value
    itself."""
    if is_mapping(value):
        return next((value[name] for name in names if name in value), value)
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    name = type(value).__name__
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name}"
