"""The process beside this one in which chat templates of strangers are rendered.

Here: starting it, asking it, and ending it when a template breaks a limit. What it does is in
`jinja_engine`. It is started with the first template, shared by all, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, SettingsError

DONE, REFUSED, FAILED, TOO_LONG = b"d", b"r", b"f", b"l"
LENGTH = 8
MIB = 1 << 20
START_SECONDS = 120.0
_ENGINE = Path(__file__).with_name("jinja_engine.py")
_BOOT = "import runpy, sys; sys.path[:] = {path!r}; runpy.run_path({file!r}, run_name='__main__')"


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What a template may take. `source` and `text` in characters; `seconds` of processor time for
    one rendering; `patience`: seconds by the clock, for a process that gets no processor; `memory`
    in bytes, besides what the process needs without any template."""

    source: int = 256 * 1024
    text: int = 16 * MIB
    seconds: float = 5.0
    patience: float = 120.0
    memory: int = 512 * MIB


@dataclass(eq=False)
class _Running:
    process: subprocess.Popen[bytes]
    limits: TemplateLimits


_lock = threading.Lock()
_running: _Running | None = None


def render_apart(
    source: str, values: str, conversations: Sequence[str], now: str, limits: TemplateLimits
) -> list[str]:
    """The text of each conversation. `values`, which all share, and `conversations` are JSON, `now`
    is in ISO format. The limits of time and text are those of all that is given at once.

    Raises:
        InputError: the template is none, refuses the values, fails, or breaks a limit.
        SettingsError: the process cannot be started here.
    """
    if len(source) > limits.source:
        raise InputError(
            f"the chat template has {len(source):,} characters, and at most {limits.source:,} are"
            " taken: it is no chat template, or one that does harm"
        )
    many = f"[{','.join(conversations)}]"
    parts = (now.encode(), source.encode("utf-8", "surrogatepass"), values.encode(), many.encode())
    with _lock:
        running = _get_running(limits)
        try:
            kind, said = _exchange(running, parts)
        except BaseException:
            _end(running)  # what was left unread would answer the next template
            raise
        if kind not in (DONE, REFUSED, FAILED):
            _end(running)
    text = said.decode("utf-8", "surrogatepass")
    if kind == DONE:
        lengths, _, joined = text.partition("\n")
        sizes: list[int] = json.loads(lengths)
        return [joined[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
    raise InputError(_tell(kind, text, limits))


def _tell(kind: bytes, said: str, limits: TemplateLimits) -> str:
    if kind == REFUSED:
        return f"the chat template refuses these messages: {said}"
    if kind == FAILED:
        return f"the chat template fails: {said}"
    if kind == TOO_LONG:
        return f"the chat template writes more than {limits.text:,} characters"
    return f"the chat template takes more than {limits.memory / MIB:,.0f} MiB of memory"


def _get_running(limits: TemplateLimits) -> _Running:
    """The process, started anew where there is none of ours with these limits."""
    global _running
    now = _running
    if now is not None and (now.limits != limits or now.process.poll() is not None):
        _end(now)
        now = None
    if now is None:
        now = _running = _start(limits)
    return now


def _start(limits: TemplateLimits) -> _Running:
    if os.name != "posix":
        raise SettingsError(
            "Jinja chat templates are code of strangers and are rendered only where a process can"
            " be given limits, which this system does not offer: name a format of the catalogue"
        )
    path = [os.path.abspath(folder) for folder in sys.path]
    boot = _BOOT.format(path=path, file=str(_ENGINE))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a fork must not inherit, and send, what was not sent yet
            env={"TZ": os.environ["TZ"]} if "TZ" in os.environ else {},
            cwd="/",
            start_new_session=True,  # a key that interrupts this process does not reach it
        )
    except OSError as error:
        raise SettingsError(f"the process for chat templates does not start ({error})") from error
    told = {"memory": limits.memory, "seconds": limits.seconds, "longest": limits.text}
    running = _Running(process, limits)
    if _send(running, (json.dumps(told).encode(),)) and _receive(running, 1, START_SECONDS):
        return running
    code = _end(running)
    raise SettingsError(f"the process for chat templates does not start (exit code {code})")


def _exchange(running: _Running, parts: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """Raises InputError where no answer comes, because the process was killed or does not end."""
    limits = running.limits
    if _send(running, parts):
        head = _receive(running, LENGTH + 1, limits.patience)
        size = int.from_bytes(head[:LENGTH])
        if len(head) == LENGTH + 1 and size <= 4 * limits.text:
            said = _receive(running, size, limits.patience)
            if len(said) == size:
                return head[LENGTH:], said
    code = _end(running)
    if code == -signal.SIGPROF:
        why = f"takes more than {limits.seconds:g} s of processor time"
    elif code == -signal.SIGKILL:
        why = f"has not ended after {limits.patience:g} s, or was killed from outside"
    else:
        why = f"makes Python itself fail (exit code {code})"
    raise InputError(f"the chat template {why}")


def _send(running: _Running, parts: tuple[bytes, ...]) -> bool:
    data = memoryview(b"".join(len(part).to_bytes(LENGTH) + part for part in parts))
    pipe: Any = running.process.stdin
    try:
        while data:
            data = data[pipe.write(data) :]
    except BrokenPipeError:
        return False
    return True


def _receive(running: _Running, size: int, patience: float) -> bytes:
    """As many bytes, or fewer where the process ends before, or sends none for so many seconds."""
    pipe: Any = running.process.stdout
    number = pipe.fileno()
    poll = select.poll()
    poll.register(number, select.POLLIN)
    data = b""
    while len(data) < size:
        ready = poll.poll(patience * 1000)
        more = os.read(number, min(size - len(data), MIB)) if ready else b""
        if not more:
            break
        data += more
    return data


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    pipes: Any = (process.stdin, process.stdout)
    for pipe in pipes:
        with suppress(OSError):  # what was not sent any more
            pipe.close()


def _end(running: _Running) -> int:
    """Ends the process; how it ended of itself, if it had."""
    global _running
    if _running is running:
        _running = None
    process = running.process
    try:
        code = process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    _close_pipes(process)
    return code


@atexit.register
def end_rendering() -> None:
    """Ends the process, if there is one; the next template starts it anew."""
    with _lock:
        if _running is not None:
            _running.process.kill()
            _end(_running)


def _leave_to_parent() -> None:
    """In a fork: the process, and the lock that a thread may hold, are those of the other one."""
    global _running, _lock
    _lock = threading.Lock()
    if _running is not None:
        _running.process.returncode = 0
        _close_pipes(_running.process)
        _running = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
