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
import re
import shlex
from asyncio.subprocess import Process
from calendar import timegm
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from email.utils import parsedate
from pathlib import Path
from time import perf_counter, time
from typing import Any, TypeAlias, cast
from urllib.parse import quote_plus, urlsplit

from pydantic import SecretStr
from pydantic_core import to_json

from textevolve.addresses import is_loopback
from textevolve.contents import digest_data, digest_file, digest_module
from textevolve.engine.local import cancel
from textevolve.errors import (
    AccessError,
    AnswerError,
    BudgetError,
    InputError,
    ModelError,
    RejectedError,
    SettingsError,
    UnavailableError,
)
from textevolve.evaluation import Usage, empty_default, failure_of, mend_text
from textevolve.events import Listener
from textevolve.json_texts import as_object, parse_text
from textevolve.llm.chains.steps import Callee, take_callee
from textevolve.llm.connections import MIB, JsonService
from textevolve.llm.limiting import Limited, make_buckets
from textevolve.llm.model import Request, Response
from textevolve.llm.providers import Key, find_headers, find_key
from textevolve.llm.refusals import one_line
from textevolve.llm.targets import COMMAND, COOKIES, DATA, EVENT, EVENTS, KEY, Target, check_targets
from textevolve.mappings import drop_empty, map_values, pick
from textevolve.settings import Settings
from textevolve.system import kill_group
from textevolve.user_code import (
    OWN,
    FirstResults,
    UserCodeError,
    call_function,
    load_object,
    load_user_object,
)

IN_FLIGHT = 8
"""The most calls of one application in flight, unless it or the settings name another number."""
TargetCall: TypeAlias = Callable[[str, Mapping[str, str]], Awaitable[tuple[str, str]]]
"""A function that sends the body of a request and cookies to an application, and returns the
answer as JSON with its finish reason."""
REFUSALS = 8
"""The number of refused calls, before the application has answered any, after which it counts as
closed to this client."""
TAIL = 2000
"""The number of bytes at the end of a program's standard error from which its last line comes."""
EXIT_CHECK = 0.05
"""The seconds between two looks at whether a program has ended whose output is still open."""


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
    largest = settings.largest_answer * MIB

    if target.target.startswith(OWN):
        call = _call_function(load_target(target.target, objects), target, largest)
    elif target.target.startswith(COMMAND):
        call = _call_program(target, largest)
    else:
        call = _call_service(target, seconds, settings, stack)
    first_results = FirstResults(f"target {target.label}", stops=True)

    return Limited(
        TargetModel(target, call, seconds, content, first_results),
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
    if not targets:
        return {}
    described: Any = [target.model_dump(mode="json", exclude_defaults=True) for target in targets]
    facts = {"targets": described, "target_version": version}
    callees = {target.label: identify_target(target, objects) for target in targets}

    return facts | drop_empty({"callees": drop_empty(callees)})


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
    parameters = find_headers(_secret_parameters(target))
    if key is None and not headers and not parameters:
        return ""
    values = map_values(_reveal, headers | parameters)

    return digest_data([values, key and _reveal(key)])


def _secret_parameters(target: Target) -> dict[str, SecretStr]:
    """Return the parameters in the query of an address that are `env:NAME`."""
    return {n: SecretStr(value) for n, value in target.parameters if value.startswith("env:")}


def _reveal(key: Key) -> str:
    return key.secret.get_secret_value()


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
        first_results: Of its code or program, which may fail from the beginning.
        calls: The number of calls that were "answered" and "refused".
    """

    target: Target
    call: TargetCall
    seconds: float
    content: str
    first_results: FirstResults
    calls: Counter[str] = empty_default(Counter)

    @property
    def name(self) -> str:
        return self.target.journal_name + self.content

    async def __call__(self, request: Request, /) -> Response:
        began = perf_counter()
        *heads, sent = request.messages
        about = as_object(json.loads(heads[0].text)) if heads else {}
        try:
            async with asyncio.timeout(self.seconds):
                text, reason = await self.call(sent.text, about.get(COOKIES, {}))
        except TimeoutError as error:
            notes = getattr(error.__cause__, "__notes__", ())
            raise UnavailableError(
                "; ".join([f"{self.target.label}: no answer in {self.seconds:g} s", *notes])
            ) from None
        except AccessError as error:
            self.calls["refused"] += 1
            # An application may refuse the first row for what it says, and answer the others.
            if error.of_text and (self.calls["answered"] or self.calls["refused"] < REFUSALS):
                raise RejectedError(str(error)) from None
            raise
        except AnswerError as error:
            # A program or a function that raises from the beginning does so for the others, too.
            self.first_results.note(failure_of(error))
            raise
        self.calls["answered"] += 1
        self.first_results.note(text)

        return Response(mend_text(text), reason, Usage(calls=1), seconds=perf_counter() - began)


def _call_service(
    target: Target, seconds: float, settings: Settings, stack: AsyncExitStack
) -> TargetCall:
    parts = urlsplit(target.target)
    base = f"{parts.scheme}://{parts.netloc}"
    path = target.target[len(base) :]
    secret_parameters = find_headers(_secret_parameters(target))
    for name, value in secret_parameters.items():
        secret = quote_plus(_reveal(value))
        written = rf"(?<=[?&]){re.escape(quote_plus(name))}=[^&#]*"
        path = re.sub(written, f"{quote_plus(name)}={secret}", path)
    key = _find_key(target)
    if key is None and target.key_env not in (KEY, ""):
        raise SettingsError(f"target {target.label}: set {target.key_env} in the environment")
    service = JsonService(
        base,
        name=base,
        key=key,
        timeouts=settings.timeouts.model_copy(update={"read": seconds, "total": seconds}),
        largest_answer=settings.largest_answer,
        headers=find_headers(map_values(SecretStr, target.headers)),
    )
    # A refusal names the path, and an application may repeat it.
    service.secrets += tuple(map(_reveal, secret_parameters.values()))
    stack.push_async_callback(service.aclose)

    async def call(body: str, cookies: Mapping[str, str]) -> tuple[str, str]:
        sent = "; ".join(f"{name}={value}" for name, value in cookies.items())
        headers, raw = await service.send(path, body.encode(), {"Cookie": sent} if sent else None)
        kind = headers.get("Content-Type", "")
        text = raw.decode("utf-8", "replace")
        reason = "stop"
        if kind.startswith("text/event-stream") or _FRAMED.match(text):
            answer: Any = split_events(text)
            reason = EVENTS
        elif _LINES.search(kind):
            answer = [parse_text(line) for line in text.splitlines() if line.strip()]
            reason = EVENTS
        else:
            answer = service.read_json(path, raw) if "json" in kind else parse_text(text)
        known_cookies = _read_cookies(headers, cookies)
        if known_cookies != cookies:
            answer = {COOKIES: known_cookies, DATA: answer}

        return json.dumps(answer), reason

    return call


_LINES = re.compile(r"ndjson|jsonl|json-?lines|stream\+json")
"""The types of an answer whose lines are events in JSON."""


_FRAMED = re.compile(r"\s*((event|id|retry)?:[^\n]*\n\s*)*data:")
"""The beginning of server-sent events, which some applications send under another type."""


def _read_cookies(headers: Mapping[str, str], cookies: Mapping[str, str]) -> dict[str, str]:
    """Return the cookies of a conversation after an answer, which sets some and ends others."""
    known_cookies = dict(cookies)
    read_all = getattr(headers, "getall", None)  # a header may come several times
    lines: list[str] = read_all("Set-Cookie", []) if read_all else []
    for line in lines:
        pair, _, attributes = line.partition(";")
        name, _, value = map(str.strip, pair.partition("="))
        if value and not _is_ended(attributes):
            known_cookies[name] = value
        else:
            known_cookies.pop(name, None)

    return known_cookies


def _is_ended(attributes: str) -> bool:
    """Return whether the attributes of a cookie end it. Its age in seconds decides; a date does so
    without one, and a date that cannot be read counts as none (RFC 6265)."""
    age = re.search(r"max-age\s*=\s*(-?\d+)", attributes, re.IGNORECASE)
    if age is not None:
        return int(age[1]) <= 0
    expiry = re.search(r"expires\s*=\s*([^;]+)", attributes, re.IGNORECASE)
    date = expiry and parsedate(expiry[1])

    return date is not None and timegm(date) <= time()


def split_events(text: str) -> list[Any]:
    """Return the data of server-sent events, parsed from JSON, without the mark of the end. An
    event with a name is an object with the name and the data."""
    events: list[Any] = []
    is_framed = re.search("^data:", text, re.MULTILINE) is not None
    for block in re.sub(r"\r\n?", "\n", text).split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            if line.startswith("{"):
                # What is not framed is what a server writes when its stream fails, or every event.
                stray = parse_text(line)
                events.append({EVENT: "error", DATA: stray} if is_framed else stray)
                continue
            field, _, value = line.partition(":")
            fields.setdefault(field, []).append(value.removeprefix(" "))
        data = "\n".join(fields.get("data", ()))
        if not data or data.strip() == "[DONE]":
            continue
        name = fields.get("event", ["message"])[-1]
        value = parse_text(data)
        events.append(value if name in ("", "message") else {EVENT: name, DATA: value})

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
    if (function := load_object(f"{module}:{attribute}", Path())) is None:
        raise InputError(f"target {name}: there is no such function")

    return take_callee(function)


def _call_function(callee: Callee, target: Target, largest: int) -> TargetCall:
    async def call(body: str, _cookies: Mapping[str, str]) -> tuple[str, str]:
        reason = "stop"
        try:
            answer = await callee.call(_match_arguments(callee, json.loads(body)))
            # What a generator yields are the events of a stream.
            if isinstance(answer, AsyncGenerator):
                reason = EVENTS
                answer = [part async for part in cast("AsyncGenerator[Any]", answer)]
            elif isinstance(answer, Generator):
                reason = EVENTS
                answer = await call_function(list, cast("Generator[Any]", answer))
            text = to_json(answer, inf_nan_mode="constants")
        except (ModelError, BudgetError):
            raise
        except Exception as error:
            raise UserCodeError(callee.target, error) from error
        if len(text) > largest:
            raise _too_large(target, largest)

        return text.decode(), reason

    return call


def _too_large(target: Target, largest: int) -> AnswerError:
    return AnswerError(
        f"{target.label}: the answer is larger than {largest // MIB} MiB; raise `largest_answer` in"
        " the settings if it should be"
    )


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


def _call_program(target: Target, largest: int) -> TargetCall:
    command = shlex.split(target.target.removeprefix(COMMAND))
    pipe = asyncio.subprocess.PIPE

    async def call(body: str, _cookies: Mapping[str, str]) -> tuple[str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise AccessError(f"{target.label}: cannot be started ({error.strerror})") from None

        output = bytearray()
        errors = bytearray()
        work: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(_feed(process, f"{body}\n".encode())),
            asyncio.ensure_future(_read_pipe(process.stdout, output, slice(largest + 1, None))),
            asyncio.ensure_future(_read_pipe(process.stderr, errors, slice(None, -TAIL))),
            asyncio.ensure_future(process.wait()),
        ]
        try:
            await _wait_for_end(process, work, output, largest)
        except asyncio.CancelledError as error:
            if last := _last_line(errors):
                error.add_note(f"the last line of its standard error: {last}")
            raise
        finally:
            # What the program has started ends with it, also if it holds the pipes open.
            kill_group(process.pid)
            await asyncio.wait(work, timeout=1)
            await cancel(work)
            # Only its transport closes pipes that a process of another group still writes to.
            process._transport.close()  # pyright: ignore

        if len(output) > largest:
            raise _too_large(target, largest)
        last = _last_line(errors)
        if process.returncode:
            raise AnswerError(
                f"{target.label}: the program ended with exit code {process.returncode}: {last}"
            )
        text = output.decode("utf-8", "replace").strip()
        if not text and last:
            raise AnswerError(
                f"{target.label}: the output is empty; the last line of its standard error: {last}"
            )

        return json.dumps(parse_text(text)), "stop"

    return call


def _last_line(errors: bytearray) -> str:
    return one_line(errors.decode("utf-8", "replace").strip().rpartition("\n")[2])


async def _feed(process: Process, body: bytes) -> None:
    """Write the input of a program, which need not read it."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()


async def _read_pipe(pipe: asyncio.StreamReader | None, content: bytearray, cut: slice) -> None:
    """Read a pipe of a program to its end, without keeping the part that `cut` names."""
    assert pipe is not None
    while part := await pipe.read(2**16):
        content += part
        del content[cut]


async def _wait_for_end(
    process: Process, work: Sequence[asyncio.Future[Any]], output: bytearray, largest: int
) -> None:
    """Wait until a program has ended, or its output is too large. `Process.wait` waits for the ends
    of its pipes, too, which another process that it has started may hold open."""
    while process.returncode is None and len(output) <= largest:
        await asyncio.wait(work, timeout=EXIT_CHECK)
