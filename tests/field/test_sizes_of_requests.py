"""A proxy takes no request above a megabyte, and answers 413 with a page of its own.

The right reason is the size: 413 is no number of tokens, and no longer context would help.
"""

import json

from textevolve.llm.testing import Answer

PAGE = b"<html><head><title>413 Request Entity Too Large</title></head><body><h1>413</h1></body>"


def test_a_large_request_is_one_row(cli, home, server, model):
    rows = [{"input": "Why?", "output": output} for output in ("Long. " * 2000, "Short.")]
    (home / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    server.script = lambda body, _: Answer(status=413, body=PAGE) if len(str(body)) > 9000 else None
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 3
    assert "1 failed" in outcome.err
    assert "takes no request of this size (413)" in outcome.err
    assert "context of 413 tokens" not in outcome.err
