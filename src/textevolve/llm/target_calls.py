"""Calls of applications under test, as models: a request in, the whole answer out as JSON.

A program reads JSON lines and writes a line for each. One process has one call at a time, and is
started anew where it has ended. Retries, limits, budget and journal stand around these models.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any, cast
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_core import PydanticSerializationError, from_json, to_json

from textevolve.errors import (
    AccessError,
    AnswerError,
    BudgetError,
    InputError,
    ModelError,
    SettingsError,
    UnavailableError,
)
from textevolve.evaluation import Usage, mend_text
from textevolve.events import Listener
from textevolve.llm.connections import MIB, JsonService
from textevolve.llm.limiting import Limited, make_buckets
from textevolve.llm.model import Request, Response
from textevolve.llm.providers import find_headers, find_key, is_loopback
from textevolve.llm.refusals import one_line
from textevolve.llm.targets import COMMAND, EVENTS, KEY, Target, check_targets
from textevolve.settings import Settings
from textevolve.user_code import OWN, call_function, is_async, load_object, own_object

IN_FLIGHT = 8
"""Calls of one target at once, unless it or the settings say otherwise."""
WATCHED = 0.05
"""Seconds in which a second line is looked for after the first answer of a process."""
EXIT_GRACE = 2.0
"""Seconds that a program has to end by itself once its input is closed."""
_LOOP = re.compile(r"event loop|different loop|future attached", re.IGNORECASE)


def open_target_model(
    target: Target,
    objects: Mapping[str, object],
    settings: Settings,
    listener: Listener,
    stack: AsyncExitStack,
) -> Limited:
    """Open a target within its limits; nothing is sent yet.

    Raises:
        InputError: there is no such function, or a client of a server names a target.
        SettingsError: a key or a variable of its headers is missing.
    """
    check_targets([target])
    seconds, at_once = target.timeout or settings.timeouts.total, settings.concurrency or IN_FLIGHT
    if target.target.startswith(OWN):
        call = _call_function(target, load_target(target.target, objects))
    elif target.target.startswith(COMMAND):
        program = LineProgram(target, settings.largest_answer * MIB)
        stack.push_async_callback(program.aclose)
        call, at_once = program.ask, 1
    else:
        call = _call_service(target, settings, stack)
    return Limited(
        TargetModel(target, call, seconds),
        target.concurrency or at_once,
        buckets=make_buckets(target.requests_per_minute, None),
        whose=target.label,
        listener=listener,
        patience=settings.timeouts.deadline,
    )


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A target as a model. `call`: from a body to the answer as JSON, and its finish reason."""

    target: Target
    call: Callable[[str], Awaitable[tuple[str, str]]]
    seconds: float

    @property
    def name(self) -> str:
        return self.target.journal_name

    async def __call__(self, request: Request, /) -> Response:
        began, label = perf_counter(), self.target.label
        try:
            async with asyncio.timeout(self.seconds):
                text, reason = await self.call(request.messages[-1].text)
        except TimeoutError:
            hint = ": does it flush each line?" if self.target.target.startswith(COMMAND) else ""
            reason = f"{label}: no answer in {self.seconds:g} s{hint}"
        else:
            return Response(text, reason, Usage(calls=1), seconds=perf_counter() - began)
        raise UnavailableError(reason)


def _call_service(
    target: Target, settings: Settings, stack: AsyncExitStack
) -> Callable[[str], Awaitable[tuple[str, str]]]:
    parts = urlsplit(target.target)
    base = f"{parts.scheme}://{parts.netloc}"
    path = target.target[len(base) :]
    key = find_key(parts.netloc, target.key_env, ask_keyring=not is_loopback(base))
    if key is None and target.key_env != KEY:
        raise SettingsError(f"target {target.label}: set {target.key_env} in the environment")
    seconds = target.timeout
    longest = {"read": seconds, "total": seconds} if seconds is not None else {}
    service = JsonService(
        base,
        name=base,
        key=key,
        timeouts=settings.timeouts.model_copy(update=longest),
        largest_answer=settings.largest_answer,
        headers=find_headers({n: SecretStr(value) for n, value in target.headers.items()}),
    )
    stack.push_async_callback(service.aclose)

    async def call(body: str) -> tuple[str, str]:
        headers, raw = await service.send(path, body.encode())
        kind = headers.get("Content-Type", "")
        if kind.startswith("text/event-stream"):
            return json.dumps(split_events(raw.decode("utf-8", "replace"))), EVENTS
        if "json" in kind:
            return json.dumps(service.read_json(path, raw)), "stop"
        return json.dumps(parse_text(raw.decode("utf-8", "replace"))), "stop"

    return call


def split_events(text: str) -> list[Any]:
    """Read the data of server-sent events, but for the mark of the end."""
    events: list[Any] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("data:")]
        data = "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)
        if data and data.strip() != "[DONE]":
            events.append(parse_text(data))
    return events


def parse_text(text: str) -> Any:
    """Read a text that may be JSON: an object, an array or a string in quotes; else as it is."""
    if text.lstrip()[:1] in ('"', "[", "{"):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def load_target(name: str, objects: Mapping[str, object]) -> Callable[..., Any]:
    """Load the function that a target names: one that the program put in, or an import path, which
    may begin in the working folder.

    Raises:
        InputError: there is no such function.
    """
    path = name.removeprefix(OWN)
    module, _, attribute = path.rpartition(":" if ":" in path else ".")
    if name in objects or module in ("", "__main__"):
        function = own_object(name, objects)
    else:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        function = load_object(f"{module}:{attribute}", Path())
    if not callable(function):
        raise InputError(f"target {name}: there is no such function")
    return function


def _call_function(
    target: Target, function: Callable[..., Any]
) -> Callable[[str], Awaitable[tuple[str, str]]]:
    async def call(body: str) -> tuple[str, str]:
        values: object = json.loads(body)
        named = match_arguments(function, values)
        try:
            if named is None:
                answer = await call_function(function, values)
            else:
                answer = await call_function(function, **named)
            if answer is None:
                raise AnswerError(f"{target.label} returned None")
            return to_json(answer, inf_nan_mode="constants").decode(), "stop"
        except (ModelError, BudgetError, TimeoutError):
            raise
        except PydanticSerializationError as error:
            said = f"{target.label} returned what is no JSON: {one_line(str(error))}"
            raise AnswerError(mend_text(said)) from error
        except Exception as error:
            said = f"{target.label} raised {type(error).__name__}: {one_line(str(error))}"
            if _LOOP.search(said) and not is_async(function):
                said += "; it runs in a thread, without the event loop of its objects: make it an"
                said += " `async def` function"
            failed = UnavailableError if isinstance(error, ConnectionError) else AnswerError
            raise failed(mend_text(said)) from error

    return call


def match_arguments(function: Callable[..., Any], body: object) -> dict[str, Any] | None:
    """Return the arguments of a function whose parameters are fields of the body; None where it
    takes the body as a whole."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    places = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p.name for p in places if p.default is p.empty] or [p.name for p in places[:1]]
    if not needed or any(name not in fields for name in needed):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return fields
    return {p.name: fields[p.name] for p in places if p.name in fields}


@dataclass
class _Running:
    """A process, and the next line that it writes."""

    process: asyncio.subprocess.Process
    errors: IO[bytes]
    line: asyncio.Task[bytes]
    answered: bool = False

    async def end(self, patience: float = 0.0) -> None:
        """End the process, and whatever it has started."""
        self.line.cancel()
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), patience)
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        self.errors.close()

    def last_words(self) -> str:
        """Return how the process ended, with the end of what it wrote about errors."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        said = f": {one_line(lines[-1])}" if lines else ""
        return f"the program ended (status {self.process.returncode}) without an answer{said}"


class LineProgram:
    """A program that answers JSON lines, in as many processes as there are calls at once."""

    def __init__(self, target: Target, largest: int) -> None:
        self._label, self._largest = target.label, largest
        try:
            self._command = shlex.split(target.target.removeprefix(COMMAND))
        except ValueError as error:
            raise InputError(f"target {target.label}: {error}") from None
        self._idle: list[_Running] = []
        self._answered = False

    async def aclose(self) -> None:
        await asyncio.gather(*(one.end(EXIT_GRACE) for one in self._idle))

    async def ask(self, body: str) -> tuple[str, str]:
        """
        Raises:
            AccessError: the program cannot be started, or does not write a JSON line for each line.
            AnswerError: it ended.
        """
        while True:
            fresh = not self._idle
            running = await self._start() if fresh else self._idle.pop()
            line = await self._exchange(running, body)
            if isinstance(line, bytes):
                return line.decode().strip(), "stop"
            if fresh:
                raise (AnswerError if self._answered else AccessError)(f"{self._label}: {line}")

    async def _exchange(self, running: _Running, body: str) -> bytes | str:
        """Return the line for a line; a text that says how the process has ended instead."""
        answered = False
        try:
            self._refuse_more(running)
            assert running.process.stdin is not None
            with suppress(ConnectionError):
                running.process.stdin.write(f"{body}\n".encode())
                await running.process.stdin.drain()
            line = await running.line
            if not line:
                await running.process.wait()
                return running.last_words()
            try:
                from_json(line)
            except ValueError:
                raise self._refuse("wrote a line that is no JSON", line) from None
            running.line = self._read_line(running.process)
            # Another line would be the answer to the next row: a new process is watched for one.
            await asyncio.wait([running.line], timeout=0.0 if running.answered else WATCHED)
            self._refuse_more(running)
            running.answered = True
            self._idle.append(running)
            answered = self._answered = True
            return line
        except ValueError:
            raise AnswerError(f"{self._label}: the answer is too large, or no UTF-8") from None
        finally:
            if not answered:
                await running.end()

    def _refuse_more(self, running: _Running) -> None:
        if running.line.done() and running.line.result():
            raise self._refuse("wrote more than one line for a row", running.line.result())

    def _refuse(self, what: str, line: bytes) -> AccessError:
        shown = one_line(line[:200].decode("utf-8", "replace"))
        return AccessError(
            f"{self._label}: {what}: {shown}; a program writes one line of JSON for each line that"
            " it reads, and all else to standard error"
        )

    async def _start(self) -> _Running:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=self._largest,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            errors.close()
            raise AccessError(f"{self._label}: cannot be started ({error.strerror})") from None
        return _Running(process, errors, self._read_line(process))

    def _read_line(self, process: asyncio.subprocess.Process) -> asyncio.Task[bytes]:
        assert process.stdout is not None
        return asyncio.create_task(process.stdout.readline())
