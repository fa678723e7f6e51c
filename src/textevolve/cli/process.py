"""How a command's process ends from outside: by a signal, or because nobody reads what it prints.

SIGTERM, and SIGHUP of a closed terminal, do what Ctrl-C does: they interrupt the command, which
lets go of what it holds and says how to go on. A second signal ends the process at once. Where the
reader of what is printed has gone, as `head` does, the command ends in silence. What the terminal's
encoding cannot show is written as an escape and ends nothing.
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

READER_GONE, TERMINATED = 141, 143
"""As a shell says it of a program that a signal ended: 128 and the number of SIGPIPE, SIGTERM."""

ENDING = [sign for sign in signal.Signals if sign.name in ("SIGINT", "SIGTERM", "SIGHUP")]
"""The signals that end a command. Windows has no SIGHUP."""

SHOW_CURSOR = b"\x1b[?25h"


class ReaderGone(BaseException):
    """Nobody reads what is printed. No Exception, so that no evaluator's failure is made of it."""


@dataclass
class ProcessState:
    """Record the signals and the closed pipe that this process met."""

    reader_gone: bool = False
    terminated: bool = False

    def exit_code(self, code: int | str | None, interrupted: int) -> int | str | None:
        if self.terminated and code == interrupted:
            return TERMINATED
        return READER_GONE if self.reader_gone else code


_state = ProcessState()


def _escape(error: UnicodeError) -> tuple[str, int]:
    """What an encoding cannot express as an escape of JSON, so that a line of JSON stays one."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error("json_escape", _escape)


def _print_everything() -> None:
    """No text that comes from outside ends the command because the terminal cannot show it."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test's or a program's may have none
        if reconfigure is not None:
            reconfigure(errors="json_escape")


@contextmanager
def begin() -> Generator[ProcessState]:
    """A command's own state, and the signals that end it, as they were again afterwards."""
    global _state
    _state = ProcessState()
    _print_everything()
    before = {
        sign: signal.signal(sign, _stop)
        for sign in ENDING
        # Who started it may want it to be ignored; and only the main thread may ask.
        if signal.getsignal(sign) in (signal.default_int_handler, signal.SIG_DFL)
        and threading.current_thread() is threading.main_thread()
    }
    try:
        yield _state
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Interrupt what is done. Another signal ends the process: no ending can hold it up."""
    for sign in ENDING:  # a shell whose terminal closes may repeat SIGHUP
        again = sign in (signal.SIGINT, signal.SIGTERM)
        signal.signal(sign, signal.SIG_DFL if again else signal.SIG_IGN)
    _state.terminated = number != signal.SIGINT
    for stream in (sys.stdout, sys.stderr):
        # A display that is still moving has hidden it, and may not come to show it again.
        with suppress(OSError, ValueError):
            if stream.isatty():
                os.write(stream.fileno(), SHOW_CURSOR)
    raise KeyboardInterrupt


def is_terminated() -> bool:
    """Whether SIGTERM or SIGHUP, and not Ctrl-C, ends the command."""
    return _state.terminated


def lose_reader(stream: TextIO) -> None:
    """Called where the reader of a stream has gone.

    Raises:
        ReaderGone: always.
    """
    note_reader_gone()
    silence(stream)
    raise ReaderGone


def note_reader_gone() -> None:
    _state.reader_gone = True


def silence(stream: TextIO) -> None:
    """From now on what is written to the stream goes nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
