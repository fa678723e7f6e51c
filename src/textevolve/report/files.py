"""Output files that are written completely or not at all, and standard output under the name
`-`.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

from textevolve.errors import InputError
from textevolve.mappings import map_values
from textevolve.system import replacing


@contextmanager
def open_target(path: str | Path, *, binary: bool = False) -> Generator[IO[bytes]]:
    """Open a file for writing bytes; `-` is standard output. A file is written under a temporary
    name, and replaces an existing file only when everything is written. `binary`: the format is not
    text, and is refused for standard output.

    Raises:
        InputError: the file cannot be written, for the reason in the message.
    """
    if str(path) == "-" and binary:
        raise InputError("-: this format is not for standard output; name a file")
    check_target(path)
    opened = _standard_output() if str(path) == "-" else replacing(Path(os.path.realpath(path)))

    try:
        with opened as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def check_target(path: str | Path) -> None:
    """Raise InputError if a file of this name cannot be written. The check is made before expensive
    work."""
    target = Path(os.path.realpath(path))
    if str(path) == "-":
        return
    if target.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: is not a plain file; write to - and redirect the output")
    if not (is_folder := target.parent.is_dir()) or not os.access(target.parent, os.W_OK):
        reason = "no right to write in the folder" if is_folder else "there is no folder"
        raise InputError(f"{path}: cannot be written ({reason} {target.parent})")


@contextmanager
def _standard_output() -> Generator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


# Test results in the JUnit XML format that build servers read: suites of cases that passed,
# failed, or could not be judged.
#
# The format has no standard; only elements are written that Jenkins' schema and GitLab have in
# common. Characters that XML cannot contain are left out.

# What XML 1.0, section 2.2, does not allow, half surrogate pairs included.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """One test case. `outcome`: `failure` means that it was judged and is not good enough, `error`
    that it could not be judged. `message`: the reason in one line; `text`: the judged text."""

    name: str
    classname: str
    outcome: Literal["passed", "failure", "error", "skipped"] = "passed"
    message: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class JUnitSuite:
    """A suite of test cases. `cases` is called for each of two passes; the first pass counts the
    cases."""

    name: str
    cases: Callable[[], Iterable[JUnitCase]]


def write_junit(suites: Sequence[JUnitSuite], target: IO[bytes]) -> None:
    """Write the suites as JUnit XML, case by case, so that memory use stays constant."""
    counts = [Counter[str](case.outcome for case in suite.cases()) for suite in suites]
    target.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    target.write(_opening(_element("testsuites", sum(counts, Counter[str]()))))

    for suite, counted in zip(suites, counts, strict=True):
        target.write(_opening(_element("testsuite", counted, name=suite.name)))
        for case in suite.cases():
            names = {"name": legal(case.name), "classname": legal(case.classname)}
            element = Element("testcase", names)
            if case.outcome != "passed":
                outcome = SubElement(element, case.outcome, {"message": legal(case.message)})
                outcome.text = legal(case.text)
            target.write(tostring(element, "utf-8") + b"\n")

        target.write(b"</testsuite>\n")

    target.write(b"</testsuites>\n")


def _element(tag: str, counted: Counter[str], **attributes: str) -> Element:
    totals = {"tests": counted.total(), "failures": counted["failure"], "errors": counted["error"]}
    if tag == "testsuite":  # Jenkins' schema has none for all suites together
        totals["skipped"] = counted["skipped"]
    values = map_values(legal, attributes)
    return Element(tag, {**values, **map_values(str, totals)})


def _opening(element: Element) -> bytes:
    """Return the start tag of an element without its content."""
    return tostring(element, "utf-8").removesuffix(b" />") + b">\n"


def legal(text: str) -> str:
    """Remove the characters that XML cannot contain."""
    return _ILLEGAL.sub("", text)
