"""JUnit files: what build servers ask of them, whatever the texts are."""

from __future__ import annotations

import io
from collections import Counter
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.report.junit import JUnitCase, JUnitSuite, legal, write_junit

HOSTILE = [
    "</failure></testcase><testcase name='x'/>",
    "]]><![CDATA[",
    "\x00\x01\x08\x0b\x1b[2J\x7f\x9b",
    "\ud800 \udfff \ufffe \uffff",
    "\"'<>&\n\t\r",
    "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>&b;",
    "𝒳 \u202e مرحبا",
]
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
            found = Counter(child.tag for case in cases for child in case)
            told = {name: int(counted.attrib[name]) for name in counted.attrib if name != "name"}
            assert told.pop("skipped", found["skipped"]) == found["skipped"]
            assert told == {
                "tests": len(cases),
                "failures": found["failure"],
                "errors": found["error"],
            }


def cases_of(text: str) -> list[JUnitCase]:
    return [
        JUnitCase(text, text),
        JUnitCase(text, text, "failure", text, text),
        JUnitCase(text, text, "error", text),
        JUnitCase(text, text, "skipped", text),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    root = write(JUnitSuite(text, lambda: cases_of(text)), JUnitSuite("gates", lambda: ()))
    check_structure(root)
    assert [len(suite) for suite in root] == [4, 0]
    assert root[0].attrib["name"].split() == legal(text).split()
    failed = root[0][1][0].text or ""
    assert failed.replace("\n", "").split() == legal(text).replace("\n", "").split()


@given(st.text(st.characters(codec=None)))
def test_any_text_makes_a_file_that_can_be_read(text: str) -> None:
    check_structure(write(JUnitSuite(text, lambda: cases_of(text))))


def test_nothing_makes_a_file_too() -> None:
    check_structure(write())
