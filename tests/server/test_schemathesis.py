"""Requests that nobody would write, made from the OpenAPI document: every path of the server is
asked, and none may fail or answer in another form than it says."""

import contextlib
import itertools
import json
import logging

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 2
"""For each path and method: every other is asked by requests that break what the document says."""


@schemathesis.serializer("application/x-ndjson")
def write_lines(_context, value):
    """Bodies of lines: each item on its own."""
    lines = value if isinstance(value, list) else [value]
    return "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()


PATIENT = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
KNOWN = {"namespace": "acme", "model": "judge/probe"}
SECRET = "the-operators-own-key-which-no-answer-holds"


@pytest.mark.slow
def test_no_request_makes_the_server_fail(serve, resources, caplog):
    caplog.set_level(logging.ERROR, "textevolve.server")
    resources.ensure_namespace("acme")
    url = serve(SECRET, judge="probe")
    leave = {"Authorization": f"Bearer {SECRET}"}
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=leave)
    requests = set()
    modes = itertools.cycle(schemathesis.GenerationMode)
    for found, mode in zip(schema.get_all_operations(), modes, strict=False):
        operation = found.ok()
        requests.add(operation.path)
        _ask_oddly(operation, mode, leave)
        assert [record.getMessage() for record in caplog.records] == []
    assert {"/v1/systemone", "/v1/models"} <= requests


def _ask_oddly(operation, mode, leave):
    @PATIENT
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def ask(case, known):
        if known:
            _name_what_is_there(case)
        _check(case.call(headers=leave, timeout=120), case)

    with contextlib.suppress(Unsatisfiable):  # nothing could be wrong with it
        ask()


def _name_what_is_there(case):
    """Else almost all would end with what is asked for not being there."""
    for sent in (case.path_parameters, case.body):
        if isinstance(sent, dict):
            sent |= {name: value for name, value in KNOWN.items() if name in sent}


def _check(answer, case):
    where = f"{case.operation.method} {case.operation.path}"
    spoken_answer = f"{where}: {answer.status_code} {answer.text[:500]}"
    assert answer.status_code < 500, spoken_answer
    assert SECRET not in answer.text, spoken_answer
    assert "Traceback" not in answer.text, spoken_answer
    assert answer.headers["x-content-type-options"] == ["nosniff"], spoken_answer
    if answer.status_code >= 400:
        payload = json.loads(answer.text)
        assert {"detail", "error"} & set(payload), spoken_answer
        if "error" in payload:
            assert payload["error"].keys() == {"message", "type", "param", "code"}, spoken_answer
            assert payload["error"]["message"], spoken_answer
