"""JUnit files: what build servers ask of them, whatever the texts are."""

from __future__ import annotations

import io
from collections import Counter
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from textevolve.report.files import JUnitCase, JUnitSuite, write_junit

ATTRIBUTES = {
    "testsuites": {"tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "testcase": {"name", "classname"},
    "failure": {"message"},
    "error": {"message"},
    "skipped": {"message"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped"},
}


def write(*suites: JUnitSuite) -> ElementTree.Element:
    target = io.BytesIO()
    write_junit(suites, target)
    return ElementTree.fromstring(target.getvalue())


def check_structure(root: ElementTree.Element) -> None:
    """What Jenkins' schema asks of the elements that are written: which may stand in which, with
    which attributes, all of them required here; the counts are those of the cases."""
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for counted in root.iter():
        if counted.tag.startswith("testsuite"):
            cases = list(counted.iter("testcase"))
            assert all(len(case) <= 1 for case in cases)
            counter = Counter(child.tag for case in cases for child in case)
            messages = {
                name: int(counted.attrib[name]) for name in counted.attrib if name != "name"
            }
            assert messages.pop("skipped", counter["skipped"]) == counter["skipped"]
            assert messages == {
                "tests": len(cases),
                "failures": counter["failure"],
                "errors": counter["error"],
            }


def cases_of(text: str) -> list[JUnitCase]:
    return [
        JUnitCase(text, text),
        JUnitCase(text, text, "failure", text, text),
        JUnitCase(text, text, "error", text),
        JUnitCase(text, text, "skipped", text),
    ]


@given(st.text(st.characters(codec=None)))
def test_any_text_makes_a_file_that_can_be_read(text: str) -> None:
    check_structure(write(JUnitSuite(text, lambda: cases_of(text))))
