"""Call applications under test as models: the request's last message is the body to send, and the
response's text is the whole answer as JSON.

A service is called over HTTP, a function in a thread or on the event loop, and a program is started
for each call. Retries, budget and journal wrap these models like any other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_core import to_json

from textevolve.contents import digest_data, digest_file, digest_module
from textevolve.errors import (
    AccessError,
    AnswerError,
    BudgetError,
    InputError,
    ModelError,
    SettingsError,
    UnavailableError,
)
from textevolve.evaluation import Usage
from textevolve.events import Listener
from textevolve.json_texts import as_object, parse_text
from textevolve.llm.chains.steps import Callee, take_callee
from textevolve.llm.connections import JsonService
from textevolve.llm.limiting import Limited, make_buckets
from textevolve.llm.model import Request, Response
from textevolve.llm.providers import Key, find_headers, find_key, is_loopback
from textevolve.llm.refusals import one_line
from textevolve.llm.targets import COMMAND, EVENTS, KEY, Target, check_targets
from textevolve.mappings import drop_empty, map_values, pick
from textevolve.settings import Settings
from textevolve.system import kill_group
from textevolve.user_code import OWN, UserCodeError, load_object, load_user_object

IN_FLIGHT = 8
"""The most calls of one application in flight, unless it or the settings name another number."""
TargetCall: TypeAlias = Callable[[str], Awaitable[tuple[str, str]]]
"""A function that sends the body of a request to an application, and returns the answer as JSON
with its finish reason."""


def open_target_model(
    target: Target,
    objects: Mapping[str, object],
    settings: Settings,
    listener: Listener,
    stack: AsyncExitStack,
    content: str = "",
) -> Limited:
    """Open a target within its limits; nothing is sent yet. `content`: the result of
    `identify_target`, by which the journal tells its calls from those of others of its name.

    Raises:
        InputError: there is no such function, or a client of a server names a target.
        SettingsError: a key or a variable of its headers is missing.
    """
    check_targets([target])
    seconds = target.timeout or settings.timeouts.total

    if target.target.startswith(OWN):
        call = _call_function(load_target(target.target, objects))
    elif target.target.startswith(COMMAND):
        call = _call_program(target)
    else:
        call = _call_service(target, seconds, settings, stack)

    return Limited(
        TargetModel(target, call, seconds, content),
        target.concurrency or settings.concurrency or IN_FLIGHT,
        buckets=make_buckets(target.requests_per_minute, None),
        whose=target.label,
        listener=listener,
        patience=settings.timeouts.deadline,
    )


def describe_targets(
    targets: Sequence[Target], version: str, objects: Mapping[str, object]
) -> dict[str, Any]:
    """Return a description of targets for the identity of a run; {} without targets. `callees` has
    the digest of what each of them holds, which its calls have in their names, too.

    Raises:
        InputError: a target is named in a request to a server, which calls none.
    """
    check_targets(targets)
    described: Any = [target.model_dump(mode="json", exclude_defaults=True) for target in targets]
    callees = {target.label: identify_target(target, objects) for target in targets}
    if not targets:
        return {}
    facts = {"targets": described, "target_version": version}
    known_callees = drop_empty(callees)
    if known_callees:
        facts["callees"] = known_callees

    return facts


def identify_target(target: Target, objects: Mapping[str, object]) -> str:
    """Return the digest of what an application answers with beyond the fields of its target: the
    code of a function, the values of headers and the key for a service, the folder and the files of
    a program. Empty if there is nothing.

    Raises:
        SettingsError: a variable of its headers is missing.
    """
    if target.target.startswith(COMMAND):
        words = shlex.split(target.target.removeprefix(COMMAND))
        files = {word: _digest_named(Path(word)) for word in words if Path(word).is_file()}
        return digest_data([os.getcwd(), files])

    if target.target.startswith(OWN):
        if target.target in objects:
            return digest_data(take_callee(objects[target.target]).describe())
        path = target.target.removeprefix(OWN)
        module, _, attribute = path.rpartition(":" if ":" in path else ".")
        return digest_data([attribute, digest_module(module, Path.cwd())])

    headers = find_headers(map_values(SecretStr, target.headers))
    key = _find_key(target)
    if key is None and not headers:
        return ""
    values = {name: header.secret.get_secret_value() for name, header in headers.items()}

    return digest_data([values, key and key.secret.get_secret_value()])


def _digest_named(file: Path) -> str:
    """Return the digest of a file that a program's command names."""
    if file.suffix == ".py":
        return digest_file(file)
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _find_key(target: Target) -> Key | None:
    parts = urlsplit(target.target)
    is_remote = not is_loopback(f"{parts.scheme}://{parts.netloc}")
    return find_key(parts.netloc, target.key_env, ask_keyring=is_remote)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """An application under test (a target) as a `Model`.

    Attributes:
        call: Sends the body of a request to the target and returns its answer.
        seconds: The most seconds of one call.
        content: The digest of what it answers with; empty if its fields say all.
    """

    target: Target
    call: TargetCall
    seconds: float
    content: str = ""

    @property
    def name(self) -> str:
        return self.target.journal_name + self.content

    async def __call__(self, request: Request, /) -> Response:
        began = perf_counter()
        try:
            async with asyncio.timeout(self.seconds):
                text, reason = await self.call(request.messages[-1].text)
        except TimeoutError:
            raise UnavailableError(
                f"{self.target.label}: no answer in {self.seconds:g} s"
            ) from None

        return Response(text, reason, Usage(calls=1), seconds=perf_counter() - began)


def _call_service(
    target: Target, seconds: float, settings: Settings, stack: AsyncExitStack
) -> TargetCall:
    parts = urlsplit(target.target)
    base = f"{parts.scheme}://{parts.netloc}"
    path = target.target[len(base) :]
    key = _find_key(target)
    if key is None and target.key_env != KEY:
        raise SettingsError(f"target {target.label}: set {target.key_env} in the environment")
    service = JsonService(
        base,
        name=base,
        key=key,
        timeouts=settings.timeouts.model_copy(update={"read": seconds, "total": seconds}),
        largest_answer=settings.largest_answer,
        headers=find_headers(map_values(SecretStr, target.headers)),
    )
    stack.push_async_callback(service.aclose)

    async def call(body: str) -> tuple[str, str]:
        headers, raw = await service.send(path, body.encode())
        kind = headers.get("Content-Type", "")
        text = raw.decode("utf-8", "replace")
        if kind.startswith("text/event-stream"):
            return json.dumps(split_events(text)), EVENTS
        answer = service.read_json(path, raw) if "json" in kind else parse_text(text)
        return json.dumps(answer), "stop"

    return call


def split_events(text: str) -> list[Any]:
    """Return the data of server-sent events, parsed from JSON, without the mark of the end."""
    events: list[Any] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("data:")]
        data = "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)
        if data and data.strip() != "[DONE]":
            events.append(parse_text(data))

    return events


def load_target(name: str, objects: Mapping[str, object]) -> Callee:
    """Load the function that a target names: an object of the user's program, or an import path,
    which may begin in the working folder.

    Raises:
        InputError: there is no such function.
    """
    path = name.removeprefix(OWN)
    module, _, attribute = path.rpartition(":" if ":" in path else ".")
    if name in objects or module in ("", "__main__"):
        return take_callee(load_user_object(name, objects))
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if (function := load_object(f"{module}:{attribute}", Path())) is None:
        raise InputError(f"target {name}: there is no such function")

    return take_callee(function)


def _call_function(callee: Callee) -> TargetCall:
    async def call(body: str) -> tuple[str, str]:
        try:
            answer = await callee.call(_match_arguments(callee, json.loads(body)))
            return to_json(answer, inf_nan_mode="constants").decode(), "stop"
        except (ModelError, BudgetError, TimeoutError):
            raise
        except Exception as error:
            raise UserCodeError(callee.target, error) from error

    return call


def _match_arguments(callee: Callee, body: Any) -> Any:
    """Return the fields of the body that a function's parameters name, if all required ones are
    there; otherwise the whole body for its first parameter. A Runnable takes the body as it is."""
    needed = callee.takes or callee.may_take[:1]
    if callee.kind == "runnable" or not needed:
        return body
    fields = as_object(body)
    if all(name in fields for name in needed):
        return pick(fields, (*needed, *callee.may_take))

    return {needed[0]: body}


def _call_program(target: Target) -> TargetCall:
    command = shlex.split(target.target.removeprefix(COMMAND))
    pipe = asyncio.subprocess.PIPE

    async def call(body: str) -> tuple[str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise AccessError(f"{target.label}: cannot be started ({error.strerror})") from None

        try:
            answer, errors = await process.communicate(f"{body}\n".encode())
        finally:
            if process.returncode is None:
                kill_group(process.pid)
                await process.wait()

        if process.returncode:
            last = one_line(errors[-2000:].decode("utf-8", "replace").strip().rpartition("\n")[2])
            raise AnswerError(
                f"{target.label}: the program ended with exit code {process.returncode}: {last}"
            )

        return json.dumps(parse_text(answer.decode("utf-8", "replace").strip())), "stop"

    return call
