"""The end of a command from outside: by a signal, or by a closed pipe.

SIGTERM, and SIGHUP of a closed terminal, act like Ctrl-C: they interrupt the command, which
releases its resources and prints how to resume. A second SIGTERM or Ctrl-C ends the process at
once. If the reader of the output has closed the pipe, as `head` does, the command ends silently.
Characters that the terminal's encoding lacks are written as escapes.
"""

from __future__ import annotations

import codecs
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TextIO

INTERRUPTED = 130
READER_GONE = 141
TERMINATED = 143
"""The exit codes after Ctrl-C, after a closed pipe and after SIGTERM, which follow shells: 128 plus
the number of the signal."""

ENDING = [sign for sign in signal.Signals if sign.name in ("SIGINT", "SIGTERM", "SIGHUP")]
"""The signals that end a command. Windows has no SIGHUP."""

SHOW_CURSOR = b"\x1b[?25h"


class ReaderGone(BaseException):
    """The error that ends a command after the reader of its output has closed the pipe. It is no
    Exception, so that it cannot be recorded as the failure of an evaluator."""


@dataclass
class ProcessState:
    """The state of this process. `reader_gone`: the reader of its output has closed the pipe.
    `terminated`: SIGTERM or SIGHUP, not Ctrl-C, has interrupted the command."""

    reader_gone: bool = False
    terminated: bool = False

    def exit_code(self, code: int | str | None) -> int | str | None:
        if self.terminated and code == INTERRUPTED:
            return TERMINATED
        return READER_GONE if self.reader_gone else code


state = ProcessState()


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Return the JSON escapes of characters that an encoding lacks, so that a line of JSON stays
    valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error("json_escape", _escape)


@contextmanager
def begin() -> Generator[ProcessState]:
    """Handle the signals that end a command; restore their handlers afterwards."""
    global state
    state = ProcessState()
    # Characters that the encoding lacks are written as JSON escapes, so that no text ends the
    # command with an error.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test's or a program's may have none
        if reconfigure is not None:
            reconfigure(errors="json_escape")

    before = {
        sign: signal.signal(sign, _stop)
        for sign in ENDING
        # The parent process may want it to be ignored; and only the main thread may set handlers.
        if signal.getsignal(sign) in (signal.default_int_handler, signal.SIG_DFL)
        and threading.current_thread() is threading.main_thread()
    }

    try:
        yield state
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Interrupt the command. A further SIGINT or SIGTERM ends the process even if the cleanup
    hangs; a further SIGHUP is ignored."""
    for sign in ENDING:  # a shell whose terminal closes may repeat SIGHUP
        again = sign in (signal.SIGINT, signal.SIGTERM)
        signal.signal(sign, signal.SIG_DFL if again else signal.SIG_IGN)
    state.terminated = number != signal.SIGINT

    for stream in (sys.stdout, sys.stderr):
        # An active display has hidden the cursor, and may not get to show it again.
        with suppress(OSError, ValueError):
            if stream.isatty():
                os.write(stream.fileno(), SHOW_CURSOR)

    raise KeyboardInterrupt


def lose_reader(stream: TextIO) -> None:
    """End the command after the reader of a stream has closed the pipe.

    Raises:
        ReaderGone: always.
    """
    state.reader_gone = True
    silence(stream)
    raise ReaderGone


def say(text: str) -> None:
    """Print a message on standard error, so that results can be piped."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        lose_reader(sys.stderr)


def silence(stream: TextIO) -> None:
    """Discard everything that is written to a stream from now on."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
