"""The command line: one file for each group of commands, and the drawing in the terminal.

Commands read settings, call the studies and stores, and show results; they compute nothing
themselves. Slow modules are imported only by the commands that need them.

Exit codes: 0 done; 1 a model or the store failed; 2 bad input or settings; 3 done, but some cases
have no score; 4 done, but a gate fails; 130 interrupted; 141 the reader of the output has gone;
143 terminated.
"""

from __future__ import annotations

import atexit
import gc
import sys

from textevolve.cli import process
from textevolve.cli.process import INTERRUPTED as INTERRUPTED
from textevolve.cli.process import say as say
from textevolve.errors import (
    InputError,
    MismatchError,
    SettingsError,
    TextEvolveError,
    UnallowedFileError,
)
from textevolve.loading import load_module, rare_collections

FAILED = 1
MISUSED = 2
PARTLY = 3
GATED = 4


def main() -> None:
    """Run the command line. This package's own errors are shown as one line, never as a
    traceback."""
    with process.begin() as state, rare_collections():
        code = _run()
        try:
            if sys.stdout:  # None where a program was started without one
                sys.stdout.flush()
        except OSError as error:
            code = _fail_to_print(error) or code

    # Python would look at all objects twice for garbage before it ends.
    atexit.register(gc.freeze)
    sys.exit(state.exit_code(code))


def _run() -> int | str | None:
    """Run a command, and return its exit code. At a terminal, ask whether the working folder's
    settings file may send anything anywhere."""
    try:
        app = load_module("textevolve.cli.app").app
        try:
            app()
        except UnallowedFileError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            say(f"{error}\nAllow this file as it is now? [y/N]")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise
            error.allow()
            app()
    except SystemExit as end:
        # The command library exits with 1 if it finds the pipe closed itself.
        if isinstance(end.__context__, BrokenPipeError):
            return _fail_to_print(end.__context__)
        return end.code
    except TextEvolveError as error:
        say(f"error: {error}")
        return MISUSED if isinstance(error, InputError | SettingsError | MismatchError) else FAILED
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED
    except process.ReaderGone:
        return FAILED
    except OSError as error:  # of standard output; errors of files become our own
        return _fail_to_print(error)

    return 0


def _fail_to_print(error: OSError) -> int:
    """Report why standard output cannot be written, unless its reader has closed the pipe; return
    the exit code."""
    if isinstance(error, BrokenPipeError):
        process.state.reader_gone = True
    else:
        where = error.filename or "standard output"
        say(f"error: {where}: {error.strerror or error}")

    process.silence(sys.stdout)  # what is still in its buffer would fail once more

    return FAILED
