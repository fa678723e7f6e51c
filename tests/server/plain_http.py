"""One request as anybody can write it, with exactly the headers that are given; a stream of
events, read from a plain socket; and waiting for what a server does in the background."""

import json
import socket
import time
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit

QUESTION = {
    "model": "jev-latest",
    "state": "Four.",
    "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
}
"""A body that /v1/systemone takes."""


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


class Visitor:
    """A browser: it keeps cookies, says where a request comes from, and reads tokens of forms."""

    def __init__(self, url):
        self.url, self.cookies, self.said = url, {}, None

    def open(self, path, method="GET", body=None, **headers):
        if self.cookies:
            answer = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            headers = {"Cookie": answer, **headers}
        self.said = fetch(f"{self.url}{path}", method, body, **{"Accept": "text/html", **headers})
        for cookie in self.said.cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return self.said

    def send(self, path, fields=(), token=None, origin=None):
        fields = [*fields, ("csrf", self.token if token is None else token)]
        return self.open(path, "POST", fields, Origin=self.url if origin is None else origin)

    def log_in(self, key, next="/runs"):
        self.open("/login")
        return self.send("/login", [("key", key), ("next", next)])

    @property
    def token(self):
        return self.said.text.split('name="csrf" content="')[1].split('"')[0]


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
        try:
            self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        except OSError:  # A server that was killed between the two: `with` would not close it.
            self.socket.close()
            raise
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


def watch(url, run_id):
    """All events, until the stream ends."""
    with Watcher(url, run_id) as watcher:
        return list(watcher)


def wait_for(look, done=bool):
    """Looks until what is found is `done`, and gives it."""
    late = time.monotonic() + 120
    while not done(found := look()):
        assert time.monotonic() < late, found
        time.sleep(0.02)
    return found


def wait_for_status(look, *states):
    """The detail of a run as soon as it has one of these states."""
    return wait_for(lambda: look()[1], lambda run: run["status"] in states)


def ask_question(url, key=None, **headers):
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    return fetch(f"{url}/v1/systemone", "POST", QUESTION, **bearer, **headers)
