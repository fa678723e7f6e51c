"""Test results in the JUnit XML format that build servers read: suites of cases that passed,
failed, or could not be judged.

The format has no standard; only elements are written that Jenkins' schema and GitLab have in
common. Characters that XML cannot contain are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

from textevolve.mappings import map_values

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
