"""The command line: one file for each group of commands, and what is drawn in the terminal.

Here the settings are read, parts are put together and results shown; nothing is computed here.
Imports that take time are made in the commands that need them.

Exit codes: 0 done; 1 a model or the store failed; 2 bad input or settings; 3 done, but some cases
have no score; 4 done, but a gate fails; 130 interrupted; 141 nobody reads any more what is printed;
143 terminated.
"""

from __future__ import annotations

import sys

from textevolve.cli import process
from textevolve.errors import InputError, MismatchError, SettingsError, TextEvolveError

FAILED, MISUSED, PARTLY, GATED, INTERRUPTED = 1, 2, 3, 4, 130


def say(text: str) -> None:
    """A line for people: on standard error, so that results can be piped."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        process.lose_reader(sys.stderr)


def main() -> None:
    """Run the command line; our own errors are shown as one line, never as a traceback."""
    with process.begin() as state:
        code = _run()
        try:
            if sys.stdout:  # None where a program was started without one
                sys.stdout.flush()
        except OSError as error:
            code = _fail_to_print(error) or code
    sys.exit(state.exit_code(code, INTERRUPTED))


def _run() -> int | str | None:
    """Run a command; its exit code."""
    try:
        from textevolve.cli.app import app

        app()
    except SystemExit as end:
        # The library under the commands ends with 1 where it finds the pipe closed by itself.
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
    except OSError as error:  # of standard output; where files are read and written it is ours
        return _fail_to_print(error)
    return 0


def _fail_to_print(error: OSError) -> int:
    """Say why standard output cannot be written, unless its reader is gone; the exit code."""
    if isinstance(error, BrokenPipeError):
        process.note_reader_gone()
    else:
        where = error.filename or "standard output"
        say(f"error: {where}: {error.strerror or error}")
    process.silence(sys.stdout)  # what is still in its buffer would fail once more
    return FAILED
