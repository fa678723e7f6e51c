"""Others' clients drive our server: the conformance suite of System One, and the SDKs."""

import pytest

jevcompat = pytest.importorskip("jevcompat.runner")


@pytest.mark.slow
def test_the_conformance_suite_of_system_one_passes(serve):
    key = "a-key-of-some-length"
    url = serve(key, judge="probe+rules")
    report = jevcompat.run(url, key=key, timeout=60)
    failed = [(one.id, one.findings) for one in report.results if one.status == "fail"]
    assert failed == []
    assert report.verdict == "conformant"
    assert report.count("MUST", "pass") >= 31
