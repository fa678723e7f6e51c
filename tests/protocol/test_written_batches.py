"""Files, jobs and lines of batch jobs are read as they were written."""

import json

from hypothesis import given
from hypothesis import strategies as st

from textevolve.protocol.batches import (
    RemoteBatch,
    read_request_line,
    read_result_line,
    read_upload,
    write_error_line,
    write_job,
    write_request_line,
    write_result_line,
    write_upload,
)

KEYS = st.text("abcdef0123456789", min_size=1, max_size=64)
BODIES = st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(), max_size=4)
NAMES = st.none() | st.text("abc-_.:", min_size=1, max_size=20)
COUNTS = st.integers(0, 1000)


@given(KEYS, BODIES)
def test_requests_are_read_as_written(key, body):
    assert read_request_line(write_request_line(key, body)) == (key, body)


@given(KEYS, st.integers(200, 599), BODIES)
def test_results_are_read_as_written(key, status, body):
    line = read_result_line(write_result_line(key, status, body))
    assert line is not None
    assert (line.key, line.status, json.loads(line.body)) == (key, status, body)


def test_unprocessed_requests_have_no_status():
    line = read_result_line(write_error_line("key", "batch_expired", "not processed"))
    assert line is not None
    assert (line.key, line.status) == ("key", 0)


@given(st.lists(BODIES, min_size=1, max_size=3))
def test_uploads_keep_their_lines(bodies):
    content = b"".join(write_request_line(str(n), body) for n, body in enumerate(bodies))
    body = write_upload("0123456789abcdef", "requests.jsonl", content)
    kind = "multipart/form-data; boundary=0123456789abcdef"
    assert read_upload(kind, body) == content
    assert read_upload("application/json", body) is None


@given(
    st.builds(
        RemoteBatch.model_construct,
        id=KEYS,
        created_at=COUNTS,
        status=st.sampled_from(["validating", "in_progress", "completed", "expired"]),
        mark=KEYS,
        input_file_id=NAMES,
        output_file_id=NAMES,
        error_file_id=NAMES,
        completed=COUNTS,
        failed=COUNTS,
        total=COUNTS,
        errors=st.just([]),
    )
)
def test_jobs_are_read_as_written(batch):
    assert RemoteBatch.model_validate(batch.write()) == batch


def test_jobs_name_their_file():
    job = write_job("file-1", "mark")
    assert (job["input_file_id"], job["metadata"]) == ("file-1", {"textevolve": "mark"})
    assert job["endpoint"] == "/v1/chat/completions"
