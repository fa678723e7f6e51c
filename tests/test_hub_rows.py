"""Data sets of the hub, read from a hub on loopback that keeps one in a few ways."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from huggingface_hub import close_session, constants
from pyarrow import parquet

from textevolve.errors import InputError
from textevolve.rows import read_rows
from textevolve.rows.images import choose_converted, parse_name

COMMIT = "0" * 40


class Handler(BaseHTTPRequestHandler):
    """Lists the files of branches, and gives them. `files`: {set: {branch: {path: bytes}}}."""

    files: ClassVar[dict[str, dict[str, dict[str, bytes]]]] = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = unquote(urlsplit(self.path).path)
        for name, branches in self.files.items():
            for branch, files in branches.items():
                if path == f"/api/datasets/{name}/tree/{branch}":
                    listed = [
                        {"type": "file", "path": path_, "size": len(body), "oid": COMMIT}
                        for path_, body in files.items()
                    ]
                    return self.send(200, json.dumps(listed).encode())
                for path_, body in files.items():
                    if path == f"/datasets/{name}/resolve/{branch}/{path_}":
                        return self.send(200, body)
            if name in path:
                return self.send(404, b"", "RevisionNotFound")
        return self.send(404, b"", "RepoNotFound")

    def send(self, status, body, error=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{len(body)}-{hash(body)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A hub with two data sets: one converted to Parquet, the other with files of its own."""
    pa_file = tmp_path / "one.parquet"
    parquet.write_table(pa.table({"question": ["Why?", "How?"], "n": [1, None]}), pa_file)
    body = pa_file.read_bytes()
    Handler.files = {
        "owner/converted": {
            "refs/convert/parquet": {
                "main/train/0000.parquet": body,
                "main/test/0000.parquet": body,
                "main/test/0001.parquet": body,
            }
        },
        "owner/plain": {"main": {"README.md": b""}},
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    yield
    close_session()
    server.shutdown()
    server.server_close()
    thread.join()


def read(name):
    return list(read_rows(name, "row", lambda _: True))


def test_split_files_keep_their_order(served):
    rows = read("hf:owner/converted:test")
    assert [row["question"] for _, row in rows] == ["Why?", "How?"] * 2
    assert rows[0][0] == "hf:owner/converted:test (main/test/0000.parquet): row 1"


def test_exempt_hubs_need_no_proxy(served, monkeypatch):
    """The hub's own library would send what is for this machine to the proxy."""
    close_session()
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    assert len(read("hf:owner/converted:test")) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "hf:owner/converted",
            "several, so name one split; there are: test, train; write hf:NAME:",
        ),
        ("hf:owner/converted:dev", "has no split 'dev'; there are: test, train"),
        ("hf:owner/none", "cannot be read from the hub"),
        ("hf:owner/plain", "the hub has not converted it to Parquet; download its files"),
    ],
)
def test_missing_sets_are_named(served, name, message):
    with pytest.raises(InputError, match=message):
        read(name)


def test_partial_sets_are_warned_of(caplog):
    files = ["default/partial-train/0000.parquet", "other/train/0000.parquet"]
    assert choose_converted(parse_name("hf:a/b"), files) == files[:1]
    assert "only the first part" in caplog.text
