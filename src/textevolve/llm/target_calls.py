"""Calls of applications under test, as models: a request in, the whole answer out as JSON.

A program reads JSON lines and writes a line for each. One process has one call at a time, and is
started anew where it has ended. Retries, limits, budget and journal stand around these models.
"""

from __future__ import annotations

import asyncio
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
from pydantic_core import from_json, to_json

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
from textevolve.llm.chains.callables import Callee, take_callee
from textevolve.llm.connections import MIB, JsonService
from textevolve.llm.limiting import Limited, make_buckets
from textevolve.llm.model import Request, Response
from textevolve.llm.providers import find_headers, find_key, is_loopback
from textevolve.llm.refusals import one_line
from textevolve.llm.targets import COMMAND, EVENTS, KEY, Target, check_targets
from textevolve.settings import Settings
from textevolve.user_code import OWN, is_async, load_object, own_object

IN_FLIGHT = 8
"""Calls of one target at once, unless it or the settings say otherwise."""
WATCHED = 0.01
"""Seconds in which a second line is looked for, which would be the answer to the next row."""
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
        call = _call_function(target.label, load_target(target.target, objects))
    elif target.target.startswith(COMMAND):
        program = LineProgram(target, settings.largest_answer * MIB)
        stack.push_async_callback(program.aclose)
        call, at_once = program.ask, 1
    else:
        call = _call_service(target, seconds, settings, stack)
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
    target: Target, seconds: float, settings: Settings, stack: AsyncExitStack
) -> Callable[[str], Awaitable[tuple[str, str]]]:
    parts = urlsplit(target.target)
    base = f"{parts.scheme}://{parts.netloc}"
    path = target.target[len(base) :]
    key = find_key(parts.netloc, target.key_env, ask_keyring=not is_loopback(base))
    if key is None and target.key_env != KEY:
        raise SettingsError(f"target {target.label}: set {target.key_env} in the environment")
    service = JsonService(
        base,
        name=base,
        key=key,
        timeouts=settings.timeouts.model_copy(update={"read": seconds, "total": seconds}),
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


def load_target(name: str, objects: Mapping[str, object]) -> Callee:
    """Load the function that a target names: one that the program put in, or an import path, which
    may begin in the working folder.

    Raises:
        InputError: there is no such function.
    """
    path = name.removeprefix(OWN)
    module, _, attribute = path.rpartition(":" if ":" in path else ".")
    if name in objects or module in ("", "__main__"):
        return take_callee(own_object(name, objects))
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if (function := load_object(f"{module}:{attribute}", Path())) is None:
        raise InputError(f"target {name}: there is no such function")
    return take_callee(function)


def _call_function(label: str, callee: Callee) -> Callable[[str], Awaitable[tuple[str, str]]]:
    async def call(body: str) -> tuple[str, str]:
        try:
            answer = await callee.call(_match_arguments(callee, json.loads(body)))
            return to_json(answer, inf_nan_mode="constants").decode(), "stop"
        except (ModelError, BudgetError, TimeoutError):
            raise
        except Exception as error:
            said = f"{label} raised {type(error).__name__}: {one_line(str(error))}"
            if _LOOP.search(said) and not is_async(callee.target):
                said += "; it runs in a thread, without the event loop of its objects: make it an"
                said += " `async def` function"
            failed = UnavailableError if isinstance(error, ConnectionError) else AnswerError
            raise failed(mend_text(said)) from error

    return call


def _match_arguments(callee: Callee, body: Any) -> Any:
    """Return the fields of the body that a function's parameters name, or else the whole body for
    its first parameter."""
    needed = callee.takes or callee.may_take[:1]
    if callee.kind == "runnable" or not needed:
        return body
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    if all(name in fields for name in needed):
        return {n: fields[n] for n in (*needed, *callee.may_take) if n in fields}
    return {needed[0]: cast("Any", body)}


@dataclass
class ProgramProcess:
    """A process that answers one line after the other. `line`: the next that it writes."""

    process: asyncio.subprocess.Process
    errors: IO[bytes]
    line: asyncio.Task[bytes]

    async def exchange(self, body: str) -> str:
        """Return the line for a line; empty where the process has ended.

        Raises:
            ValueError: it is too long, or is no JSON, or another one follows.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(ConnectionError):
            self.process.stdin.write(f"{body}\n".encode())
            await self.process.stdin.drain()
        line = (await self.line).decode().strip()
        if line:
            self.line = asyncio.create_task(self.process.stdout.readline())
            await asyncio.wait([self.line], timeout=WATCHED)
            from_json(line)
            if self.line.done() and self.line.result():
                raise ValueError(line)
        return line

    async def end(self, patience: float = 0.0) -> str:
        """End the process with its children, and return the last line of its errors."""
        self.line.cancel()
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), patience)
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        with self.errors:
            self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
            lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1]) if lines else "it wrote nothing about errors"


class LineProgram:
    """A program that answers JSON lines, in as many processes as there are calls at once."""

    def __init__(self, target: Target, largest: int) -> None:
        self._label, self._largest = target.label, largest
        self._command = shlex.split(target.target.removeprefix(COMMAND))
        self._idle: list[ProgramProcess] = []
        self._answered = False

    async def aclose(self) -> None:
        await asyncio.gather(*(process.end(EXIT_GRACE) for process in self._idle))

    async def ask(self, body: str) -> tuple[str, str]:
        """
        Raises:
            AccessError: the program cannot be started, or does not write a JSON line for each line.
            AnswerError: it ended.
        """
        while True:
            fresh = not self._idle
            running = await self._start() if fresh else self._idle.pop()
            try:
                line = await running.exchange(body)
            except ValueError as error:
                await running.end()
                raise AccessError(
                    f"{self._label}: write one line of JSON for each line that is read, and all"
                    f" else to standard error ({one_line(str(error))})"
                ) from None
            except BaseException:
                await running.end()
                raise
            if line:
                self._answered = True
                self._idle.append(running)
                return line, "stop"
            said = f"{self._label}: the program ended: {await running.end(EXIT_GRACE)}"
            if fresh:
                raise (AnswerError if self._answered else AccessError)(said)

    async def _start(self) -> ProgramProcess:
        errors, pipe = tempfile.TemporaryFile(), asyncio.subprocess.PIPE  # noqa: SIM115
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                limit=self._largest,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            errors.close()
            raise AccessError(f"{self._label}: cannot be started ({error.strerror})") from None
        assert process.stdout is not None
        return ProgramProcess(process, errors, asyncio.create_task(process.stdout.readline()))
