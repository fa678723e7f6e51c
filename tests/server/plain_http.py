"""One request as anybody can write it, with exactly the headers that are given; and a stream of
events, read from a plain socket."""

import json
import socket
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict
    cookies: list
    text: str

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def code(self):
        """That of the error."""
        return self.json["detail"]["error_type"]


def fetch(url, method="GET", body=None, **headers):
    """`body`: bytes as they are, a dict as JSON, a list of pairs as a form."""
    parts, named = urlsplit(url), {k.replace("_", "-"): v for k, v in headers.items()}
    if isinstance(body, dict):
        named, body = {"Content-Type": "application/json", **named}, json.dumps(body).encode()
    elif isinstance(body, list):
        form = "application/x-www-form-urlencoded"
        named, body = {"Content-Type": form, **named}, urlencode(body).encode()
    with closing(HTTPConnection(parts.netloc, timeout=60)) as connection:
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        connection.putrequest(method, target, skip_host="Host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            for one in value if isinstance(value, list) else [value]:
                connection.putheader(name, one)
        if body is not None and "Transfer-Encoding" not in named:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        cookies = answer.msg.get_all("Set-Cookie") or []
        return Reply(answer.status, found, cookies, answer.read().decode())


class Watcher:
    """Reads the events of a run from a plain socket, as slowly as it is told."""

    def __init__(self, url, run_id, last=None):
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=60)
        lines = [
            f"GET /v1/studies/{run_id}/events HTTP/1.1",
            f"Host: {place.netloc}",
            "Connection: close",
            *([] if last is None else [f"Last-Event-ID: {last}"]),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.file = self.socket.makefile("rb")

    def __iter__(self):
        """The events as they come: the id, the name and the data."""
        event = {}
        for line in self.file:
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name in ("id", "event", "data"):
                event[name] = value
            if not line.strip() and "data" in event:
                yield event.get("id"), event["event"], json.loads(event["data"])
                event = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def watch(url, run_id, last=None):
    """All events, until the stream ends."""
    with Watcher(url, run_id, last) as watcher:
        return list(watcher)
