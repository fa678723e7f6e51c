"""The command line: one file for each group of commands, and what is drawn in the terminal.

Here the settings are read, parts are put together and results shown; nothing is computed here.
Imports that take time are made in the commands that need them.

Exit codes: 0 done; 1 a model or the store failed; 2 bad input or settings; 3 done, but some cases
have no score; 130 interrupted.
"""

from __future__ import annotations

import os
import sys

from textevolve.errors import InputError, MismatchError, SettingsError, TextEvolveError

FAILED, MISUSED, PARTLY, INTERRUPTED = 1, 2, 3, 130


def say(text: str) -> None:
    """A line for people: on standard error, so that results can be piped."""
    print(text, file=sys.stderr)


def main() -> None:
    """Run the command line; our own errors are shown as one line, never as a traceback."""
    try:
        from textevolve.cli.app import app

        app()
    except TextEvolveError as error:
        print(f"error: {error}", file=sys.stderr)
        misused = isinstance(error, InputError | SettingsError | MismatchError)
        sys.exit(MISUSED if misused else FAILED)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:  # of standard output; where files are read and written it is ours
        if not isinstance(error, BrokenPipeError):
            where = error.filename or "standard output"
            print(f"error: {where}: {error.strerror or error}", file=sys.stderr)
        # What is still in its buffer would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
